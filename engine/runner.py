"""Runs a program. The only loop in which a forward pass happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.ops.base import PassInfo
from engine.program import Program
from engine.runtime import Watch, threads

AUTOCAST = ("cpu", "cuda")
"""Devices for which a caller may have switched autocast on."""


@contextlib.contextmanager
def computing(program: Program) -> Iterator[None]:
    """Where steps of a program run: without gradients, and always on as many threads, so that bits repeat."""
    with threads(program.n_params), torch.no_grad(), unasked(), _no_autograd():
        yield


def unasked() -> contextlib.AbstractContextManager[object]:
    """Without what a caller has switched on for tensors of his own: autocast would change numbers, and a cache made in
    inference mode could not be gone on with outside of it."""
    if not (torch.is_inference_mode_enabled() or any(map(torch.is_autocast_enabled, AUTOCAST))):
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    stack.enter_context(torch.inference_mode(False))
    for device in AUTOCAST:
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    return stack


_no_autograd = getattr(torch._C, "_AutoDispatchBelowAutograd", contextlib.nullcontext)
"""Calls do not pass through autograd's layer, which costs a small one 6 % even where nothing is recorded. The results
are ordinary tensors, unlike those of inference mode."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The steps that compute ``wanted``, each with its weights at hand, so that they can run again and again."""

    program: Program
    wanted: tuple[str, ...]
    steps: tuple[tuple[Callable[..., Tensor], tuple[str, ...], tuple[Tensor, ...], str, tuple[str, ...]], ...]

    def run(self, given: Mapping[str, Tensor], info: PassInfo, watch: Watch | None = None) -> dict[str, Tensor]:
        """The ``wanted`` sites, computed from the ``given`` ones.

        A tensor that nothing needs any more is let go at once, so memory holds what is wanted and one step's
        surroundings.
        """
        values = dict(given)
        with computing(self.program):
            if watch is None:
                for op, reads, params, name, drops in self.steps:
                    values[name] = op(info, *[values[read] for read in reads], *params)
                    for drop in drops:
                        del values[drop]
            else:
                for done, (op, reads, params, name, drops) in enumerate(self.steps):
                    watch(done, len(self.steps), name)
                    values[name] = op(info, *[values[read] for read in reads], *params)
                    for drop in drops:
                        del values[drop]
        return {name: values[name] for name in self.wanted}


def prepare(
    program: Program, weights: Mapping[str, Tensor], wanted: Collection[str], given: Collection[str]
) -> Prepared:
    """Ready to run the steps that compute ``wanted`` from ``given``, and no others."""
    return Prepared(
        program,
        tuple(wanted),
        tuple(
            (step.op.run, step.reads, tuple(weights[name] for name in step.params), step.site.name, drops)
            for step, drops in program.schedule(wanted, given)
        ),
    )


def run(
    program: Program,
    weights: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    wanted: Collection[str],
    info: PassInfo,
    watch: Watch | None = None,
) -> dict[str, Tensor]:
    """The ``wanted`` sites, computed from the ``given`` ones by the steps that they need, and no others.

    What is wanted never changes what is computed: the same steps run on the same tensors.
    """
    return prepare(program, weights, wanted, given.keys()).run(given, info, watch)

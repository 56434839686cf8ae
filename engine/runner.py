"""Runs a program. The only loop in which a forward pass happens."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor

from engine.ops.base import PassInfo
from engine.program import Program
from engine.runtime import Watch, threads


@contextlib.contextmanager
def computing(program: Program) -> Iterator[None]:
    """Where steps of a program run: without gradients, and always on as many threads, so that bits repeat."""
    with threads(program.n_params), torch.no_grad():
        yield


def run(
    program: Program,
    weights: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    wanted: Collection[str],
    info: PassInfo,
    watch: Watch | None = None,
) -> dict[str, Tensor]:
    """The ``wanted`` sites, computed from the ``given`` ones by the steps that they need, and no others.

    What is wanted never changes what is computed: the same steps run on the same tensors. A tensor that nothing
    needs any more is let go at once, so memory holds what is wanted and one step's surroundings.
    """
    values = dict(given)
    schedule = program.schedule(wanted, given.keys())
    total = len(schedule)
    with computing(program):
        for done, (step, drops) in enumerate(schedule):
            if watch is not None:
                watch(done, total, step.site.name)
            tensors = [values[name] for name in step.reads]
            values[step.site.name] = step.op.run(info, *tensors, *[weights[name] for name in step.params])
            del tensors
            for name in drops:
                del values[name]
    return {name: values[name] for name in wanted}

"""Which tensors of a trace an export holds, and each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import ExportError, NotKeptError
from engine.ops.base import Shape
from engine.runtime import Watch
from engine.sites import Site, matches
from engine.text import display
from engine.traces import Trace


@dataclass(frozen=True, slots=True)
class Selection:
    """What is taken: ``keep`` as recording has it (all, which here means every site that can be had; path, what is on
    the path to the logits; residual, the stream between blocks; or site patterns), and of that some ``layers`` and, of
    sites with heads, some query ``heads`` with the key and value heads that they use."""

    keep: tuple[str, ...] = ("all",)
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor of an export: a site over all passes, of axes with heads perhaps only some (``index``)."""

    site: Site
    shape: Shape
    index: Mapping[str, tuple[int, ...]]
    dtype: torch.dtype
    on_path: bool

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def nbytes(self, dtype: torch.dtype | None = None) -> int:
        """Its bytes, floating-point numbers in ``dtype`` where one is given."""
        return self.numel * (dtype if dtype is not None and self.dtype.is_floating_point else self.dtype).itemsize


def parts(trace: Trace, selection: Selection) -> tuple[Part, ...]:
    """The tensors of a selection in the program's order, those that can be had. Raises ExportError for layers, heads
    and patterns that there are not, NotKeptError where nothing of what is named can be had."""
    _check(trace, selection)
    program, last = trace.program, len(trace.passes) - 1
    named = set(_named(trace, selection.keep))
    chosen = [site for site in program.sites if site.name in named and "past" not in site.axes]
    if selection.layers is not None:
        chosen = [site for site in chosen if site.block is None or site.block in selection.layers]
    had = [site for site in chosen if trace.can_have(site.name, last)]
    if not had:
        names = ", ".join(site.name for site in chosen[:3]) or "nothing"
        raise NotKeptError(
            f"of what is asked for ({names}) nothing was kept; open this trace with its model (--model), or record it "
            "with those sites in --keep"
        )
    return tuple(_part(trace, site, selection.heads) for site in had)


def tensor(trace: Trace, part: Part, watch: Watch | None = None) -> Tensor:
    """The numbers of a part, on the CPU and contiguous. [the site's axes, heads chosen]"""
    if watch is not None:
        watch(0, 1, part.site.name)
    found = trace[part.site.name]
    for axis, chosen in part.index.items():
        found = found.index_select(part.site.axes.index(axis), torch.tensor(chosen, device=found.device))
    return found.detach().cpu().contiguous()


def left_out(trace: Trace) -> tuple[str, ...]:
    """The sites that cannot be had of a trace, for want of weights."""
    last = len(trace.passes) - 1
    return tuple(site.name for site in trace.program.sites if not trace.can_have(site.name, last))


def _named(trace: Trace, keep: tuple[str, ...]) -> list[str]:
    program = trace.program
    names = [site.name for site in program.sites]
    found: list[str] = []
    for pattern in keep:
        if pattern == "all":
            found += names
        elif pattern == "path":
            found += [*(site.name for site in program.inputs), *program.path()]
        elif pattern == "residual":
            found += [*(site.name for site in program.inputs), *program.edges]
        else:
            matched = [name for name in names if matches(name, [pattern])]
            if not matched:
                program.site(pattern)  # says what is near
                raise ExportError(f"no site matches {display(pattern)[:60]!r}")
            found += matched
    return found


def _check(trace: Trace, selection: Selection) -> None:
    config = trace.config
    layers = max(config.n_layers, config.encoder_layers or 0)
    for what, chosen, count in (("layer", selection.layers, layers), ("head", selection.heads, config.n_heads)):
        if chosen is not None and (wrong := [i for i in chosen if not 0 <= i < count]):
            raise ExportError(f"there is no {what} {wrong[0]}; {config.name} has {what}s 0…{count - 1}")
        if chosen == ():
            raise ExportError(f"no {what} is named; leave {what}s out for all of them")


def _part(trace: Trace, site: Site, heads: tuple[int, ...] | None) -> Part:
    shape, step = trace.shape(site.name), trace.program.step(site.name)
    index: dict[str, tuple[int, ...]] = {}
    if heads is not None:
        share = max(1, trace.config.n_heads // (trace.config.n_kv_heads or trace.config.n_heads))
        index = {
            axis: chosen
            for axis, chosen in (("head", heads), ("kv_head", tuple(dict.fromkeys(head // share for head in heads))))
            if axis in site.axes
        }
    given = trace.passes[0].given.get(site.name)
    dtype = step.dtype(trace.dtype) if step else trace.dtype if given is None else given.dtype
    sizes = tuple(len(index[axis]) if axis in index else n for axis, n in zip(site.axes, shape, strict=True))
    return Part(site, sizes, index, dtype, step is None or step.on_path)

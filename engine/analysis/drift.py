"""Cached against uncached: every site of every pass beside the same positions of one pass over the whole text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.analysis.blockwise import blocks, check_has_cache, in_turn, refuse_beyond, weights_of
from engine.analysis.gaps import by_pass
from engine.dtypes import dtype_name
from engine.ops.base import PassInfo
from engine.runtime import Watch
from engine.sites import ENCODER, block_of
from engine.traces import Trace

ROUNDINGS = {torch.bfloat16: 16, torch.float16: 32}
"""How many roundings of its largest number a site may be away; 256 in float32 and float64, where sums are rounded at
each term. Models with random weights, which amplify rounding more than trained ones do, were seen to reach half."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A site in a pass: the largest |cached − uncached|, and how much of it rounding may be."""

    site: str
    at: int
    gap: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.gap <= self.tolerance

    def to_json(self) -> dict[str, Any]:
        return {"site": self.site, "at": self.at, "gap": self.gap}


@dataclass(frozen=True, slots=True)
class Drift:
    """How far the passes on the cache are from one pass over all of the text.

    ``gaps`` are by pass and layer, ``logits`` by pass; of a model without a head these are of what it comes to.
    ``first`` is the first site, in the order of the passes and then of the program, that differs by more than
    rounding, ``first_bit`` the first that differs at all, and ``worst`` the one that is nearest to its tolerance, or
    farthest beyond it. A trace of one pass has nothing to compare.
    """

    dtype: str
    first: Difference | None = None
    first_bit: Difference | None = None
    worst: Difference | None = None
    gaps: tuple[tuple[float, ...], ...] = ()
    logits: tuple[float, ...] = ()

    @property
    def ok(self) -> bool:
        return self.first is None

    @property
    def tolerance(self) -> float:
        """Of the first site that differs by more; else of the worst."""
        told = self.first or self.worst
        return told.tolerance if told else 0.0

    @property
    def text(self) -> str:
        if not self.gaps:
            return "the trace is a single pass: nothing in it comes from a cache, so there is nothing to compare"
        if self.first:
            at, gap = f"{self.first.site}@{self.first.at}", f"{self.first.gap:.2g}"
            most = f"rounding in {self.dtype} is up to {self.tolerance:.2g}"
            return f"cached and uncached differ, first in {at}: by {gap}, where {most}"
        if self.first_bit is None or self.worst is None:
            return f"cached and uncached agree in every bit of all {len(self.gaps)} passes"
        worst, bit = self.worst, f"{self.first_bit.site}@{self.first_bit.at}"
        return (
            f"cached and uncached agree up to rounding in {self.dtype}: nearest to it is {worst.site}@{worst.at}, "
            f"{worst.gap:.2g} of {worst.tolerance:.2g}; the first bit that differs is in {bit}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "tolerance": self.tolerance,
            "dtype": self.dtype,
            "ok": self.ok,
            "first": self.first.to_json() if self.first else None,
            "first_bit": self.first_bit.to_json() if self.first_bit else None,
            "rows": [{"at": at, "gaps": list(gaps)} for at, gaps in enumerate(self.gaps)],
            "logits": list(self.logits),
            "text": self.text,
        }


def drift(trace: Trace, watch: Watch | None = None, *, max_memory: int | None = None) -> Drift:
    """Compare every site on the path of every pass with the same positions of one fresh pass over the whole text.

    The fresh pass has the same weights, positions, kernel option and source, and no cache; it runs a block at a time.
    Where a layer's window has let go of keys, those that both have are compared. Rounding may be
    ``ROUNDINGS × eps × max(1, max |x|)`` over the site's numbers x, eps being of the coarser of the model's dtype and
    the site's own; whole numbers, as experts' ids, must be the same. A number that is not finite on one side alone is
    an infinite gap. Raises PromptError for a batch or an encoder, NotKeptError without weights, MemoryLimitError, and
    Cancelled where ``watch`` does.
    """
    check_has_cache(trace.config, len(trace.tokens))
    if len(trace.passes) == 1:
        return Drift(dtype_name(trace.dtype))
    program, path = trace.program, trace.program.path()
    weights, wanted = weights_of(trace, "an uncached pass"), blocks(path)
    what = f"comparing with one uncached pass over {trace.length} tokens"
    refuse_beyond(trace, wanted, trace.length, 0, what, max_memory)
    last = trace.passes[-1].info
    info = PassInfo(last.dtype, last.dense, last.kernel, extents=last.extents)
    passes, done = range(len(trace.passes)), 0
    found = _Found(len(passes), trace.config.n_layers)
    for names, made in zip(wanted, in_turn(program, weights, _uncached(trace), wanted, info, watch), strict=True):
        done += len(names)
        cached = [trace.sites([name for name in names if not (at and name in program.once)], at) for at in passes]
        for name in names:
            if watch is not None:
                watch(done, len(path), name)
            most, mine = tolerance(made[name], trace.dtype), [sites[name] for sites in cached if name in sites]
            for at, (gap, other) in enumerate(by_pass(trace, program.site(name), mine, made[name])):
                found.note(Difference(name, at, gap, most), other)
    gaps = tuple(map(tuple, found.gaps))
    return Drift(dtype_name(trace.dtype), found.first, found.first_bit, found.worst, gaps, tuple(found.outcome))


def tolerance(x: Tensor, dtype: torch.dtype) -> float:
    """How much rounding may change numbers like these in a model of this dtype, as `drift` says."""
    if not x.is_floating_point():
        return 0.0
    eps = max(torch.finfo(dtype).eps, torch.finfo(x.dtype).eps)
    low, high = x.nan_to_num(0.0, 0.0, 0.0).aminmax()
    return ROUNDINGS.get(dtype, 256) * eps * max(1.0, float(high), -float(low))


class _Found:
    """What was found so far. Sites come in the order of the program, each with all of its passes."""

    def __init__(self, passes: int, layers: int) -> None:
        self.gaps = [[0.0] * layers for _ in range(passes)]
        self.outcome = [0.0] * passes  # of the last site
        self.first: Difference | None = None
        self.first_bit: Difference | None = None
        self.worst: Difference | None = None

    def note(self, it: Difference, other: bool) -> None:
        layer = None if it.site.startswith(ENCODER) else block_of(it.site)
        if layer is not None:
            self.gaps[it.at][layer] = max(self.gaps[it.at][layer], it.gap)
        self.outcome[it.at] = it.gap
        if not other:
            return
        if self.first_bit is None or it.at < self.first_bit.at:
            self.first_bit = it
        if not it.ok and (self.first is None or it.at < self.first.at):
            self.first = it
        if self.worst is None or it.gap * self.worst.tolerance > self.worst.gap * it.tolerance:
            self.worst = it


def _uncached(trace: Trace) -> dict[str, Tensor]:
    """What one pass over the whole text is given."""
    given = {name: tensor for name, tensor in trace.passes[0].given.items() if name in trace.program.once}
    for name in ("tokens", "positions"):
        given[name] = torch.cat([p.given[name] for p in trace.passes], dim=1)
    given["key_positions"] = trace.passes[-1].given["key_positions"]
    return given | {name: trace.site(name, 0) for name in trace.program.caches}

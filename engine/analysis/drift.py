"""Cached against uncached: every site of every pass beside the same positions of one pass over the whole text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from engine.analysis.blockwise import blocks, check_has_cache, in_turn, refuse_beyond, weights_of
from engine.analysis.gaps import by_pass, handed_on, largest
from engine.analysis.noise import noisy
from engine.dtypes import dtype_name
from engine.ops.base import PassInfo
from engine.runtime import Watch
from engine.sites import ENCODER, block_of
from engine.traces import Trace

DRAWS = 3
"""So many times the uncached pass runs with noise. What one cell decides may be next to nothing in one of them."""
TIMES = {torch.bfloat16: 2, torch.float16: 2}
"""How many times as far as noise moves it a site may be away; 16 in float32 and float64, where a step's own sums are
rounded at each term. Sound traces of random models (`configs` of the tests, 1400 in each dtype) reached 0.15 of that in
float64, 0.14 in float32, 0.17 in bfloat16 and 0.19 in float16."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A site in a pass: the largest |cached − uncached|, and how much of it rounding may be.

    Of a cached row that is not what the pass before attended to: how far it is from that, with a tolerance of 0.
    """

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
            most = (
                f"rounding in {self.dtype} is up to {self.tolerance:.2g}" if self.tolerance else "both must be the same"
            )
            return f"cached and uncached differ, first in {at}: by {gap}, where {most}"
        if self.first_bit is None or self.worst is None:
            return f"cached and uncached agree in every bit of all {len(self.gaps)} passes"
        worst, bit = self.worst, f"{self.first_bit.site}@{self.first_bit.at}"
        return (
            f"cached and uncached agree up to rounding in {self.dtype}: nearest to its tolerance is "
            f"{worst.site}@{worst.at}, off by {worst.gap:.2g} where rounding may be {worst.tolerance:.2g}; "
            f"the first bit that differs is in {bit}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "tolerance": self.tolerance,
            "dtype": self.dtype,
            "ok": self.ok,
            "first": self.first.to_json() if self.first else None,
            "first_bit": self.first_bit.to_json() if self.first_bit else None,
            "worst": self.worst.to_json() if self.worst else None,
            "rows": [{"at": at, "gaps": list(gaps)} for at, gaps in enumerate(self.gaps)],
            "logits": list(self.logits),
            "text": self.text,
        }


def drift(trace: Trace, watch: Watch | None = None, *, max_memory: int | None = None) -> Drift:
    """Compare every site on the path of every pass with the same positions of one fresh pass over the whole text.

    The fresh pass has the same weights, positions, kernel option and source, and no cache; it runs a block at a time.
    Where a layer's window has let go of keys, those that both have are compared. Rows of the cache that two passes in
    turn recorded must be the same in both. A number that is not finite on one side alone is an infinite gap.

    How far rounding may move a site depends on all that is before it: a norm of a small vector or a difference of large
    numbers multiplies it. So it is measured: the fresh pass runs ``DRAWS`` more times, each number that a step writes
    being moved by about one rounding (`engine.analysis.noise`), and ``TIMES`` the largest move of a site is its
    tolerance. Whole numbers, as experts' ids, must be the same unless noise changes them too. Raises PromptError for a
    batch or an encoder, NotKeptError without weights, MemoryLimitError, and Cancelled where ``watch`` does.
    """
    check_has_cache(trace.config, len(trace.tokens))
    if len(trace.passes) == 1:
        return Drift(dtype_name(trace.dtype))
    program, path = trace.program, trace.program.path()
    weights, wanted = weights_of(trace, "an uncached pass"), blocks(path)
    what = f"comparing with one uncached pass over {trace.length} tokens"
    refuse_beyond(trace, wanted, trace.length, 0, what, max_memory, passes=1 + DRAWS)
    said = watch and _counted(watch, (2 + DRAWS) * len(path))
    programs = [program, *(noisy(program, seed, trace.device) for seed in range(DRAWS))]
    passes = range(len(trace.passes))
    found = _Found(len(passes), trace.config.n_layers)
    runs = [in_turn(one, weights, _uncached(trace), wanted, _info(trace), said) for one in programs]
    for names, made, *moved in zip(wanted, *runs, strict=True):
        cached = [trace.sites([name for name in names if not (at and name in program.once)], at) for at in passes]
        for name in names:
            if said is not None:
                said(0, 0, name)
            site, mine = program.site(name), [sites[name] for sites in cached if name in sites]
            most = tolerance(made[name], [other[name] for other in moved], trace.dtype)
            copied = handed_on(trace, site, mine) if name in program.caches.values() else {}
            for at, (gap, other) in enumerate(by_pass(trace, site, mine, made[name])):
                found.note(Difference(name, at, gap, most), other)
                if at in copied:
                    found.blame(Difference(name, at, copied[at], 0.0))
    gaps = tuple(map(tuple, found.gaps))
    return Drift(dtype_name(trace.dtype), found.first, found.first_bit, found.worst, gaps, tuple(found.outcome))


def tolerance(x: Tensor, moved: Sequence[Tensor], dtype: torch.dtype) -> float:
    """How much rounding may change numbers ``x`` of a model of this dtype that noise has ``moved``, as `drift` says."""
    most = max(largest(x, other) for other in moved)
    if x.is_floating_point():
        low, high = x.nan_to_num(0.0, 0.0, 0.0).aminmax()
        limits = torch.finfo(x.dtype)
        most = max(most, limits.eps * max(limits.smallest_normal, float(high), -float(low)))
    return TIMES.get(dtype, 16) * most


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
        if not it.ok:
            self.blame(it)
        if self.worst is None or it.gap * self.worst.tolerance > self.worst.gap * it.tolerance:
            self.worst = it

    def blame(self, it: Difference) -> None:
        """Take it as the first that differs, unless an earlier one does."""
        if self.first is None or it.at < self.first.at:
            self.first = it


def _uncached(trace: Trace) -> dict[str, Tensor]:
    """What one pass over the whole text is given."""
    given = {name: tensor for name, tensor in trace.passes[0].given.items() if name in trace.program.once}
    for name in ("tokens", "positions"):
        given[name] = torch.cat([p.given[name] for p in trace.passes], dim=1)
    given["key_positions"] = trace.passes[-1].given["key_positions"]
    return given | {name: trace.site(name, 0) for name in trace.program.caches}


def _info(trace: Trace) -> PassInfo:
    last = trace.passes[-1].info
    return PassInfo(last.dtype, last.dense, last.kernel, extents=last.extents)


def _counted(watch: Watch, of: int) -> Watch:
    """Tell of several runs' steps as they come."""
    done = count(1)
    return lambda _done, _of, what: watch(next(done), of, what)

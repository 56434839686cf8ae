"""How the numbers of a plane are spread: counts in bins, and quantiles, exact however large the plane is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from engine.ops.base import Text
from engine.statistics import Statistics

QUANTILES = (0.01, 0.5, 0.99)
HALF = 1 << 16
LARGEST = 2**31 - 1
MOST_BINS = 4096
TIMES = 2
"""How often a plane is read."""

TEXT = Text(
    "Histogram",
    "how many numbers lie in each bin",
    r"n_i = \#\{x : e_i \le x < e_{i+1}\}",
    "How the finite numbers of the plane are spread, between the smallest and the largest. Half of them lie below the "
    "median, one in a hundred below the first and above the last quantile. Cells that are not finite, or masked, are "
    "counted apart.",
)


@dataclass(frozen=True, slots=True)
class Histogram:
    """``counts`` of the finite numbers between ``edges``, one more than bins; the last bin has both of its ends.

    ``quantiles`` are those of QUANTILES, interpolated as numpy does; all three are empty where nothing is finite.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    quantiles: tuple[float, ...]
    told: Statistics


def histogram(parts: Callable[[], Iterable[Tensor]], bins: int = 40) -> Histogram:
    """Count a plane's numbers as float32; ``parts`` gives the plane in parts, anew each of TIMES.

    Quantiles are found by their rank among the ordered bits of float32, the upper half of the bits first and then, in
    the few buckets that hold the ranks, the lower half: a radix selection, in memory that does not grow.
    """
    bins = max(1, min(bins, MOST_BINS))
    upper = torch.zeros(HALF, dtype=torch.int64)

    def counted() -> Iterator[Tensor]:
        for part in parts():
            values = part.to("cpu", torch.float32)
            upper.add_(torch.bincount(_halves(_finite(values))[0], minlength=HALF))
            yield values

    told = Statistics.of(counted())
    if not told.finite:
        return Histogram((), (), (), told)
    edges, ranks = _edges(told.min, told.max, bins), _ranks(told.finite)
    buckets = {rank: _bucket(upper, rank) for pair in ranks for rank in pair[:2]}
    lower = {bucket: torch.zeros(HALF, dtype=torch.int64) for bucket, _ in buckets.values()}
    counts = torch.zeros(bins, dtype=torch.int64)
    for part in parts():
        finite = _finite(part.to("cpu", torch.float32))
        high, low = _halves(finite)
        for bucket, found in lower.items():
            found += torch.bincount(low[high == bucket], minlength=HALF)
        counts += torch.bincount(torch.bucketize(finite.double(), edges[1:-1], right=True), minlength=bins)
    value = {rank: _value(bucket, _bucket(lower[bucket], left)[0]) for rank, (bucket, left) in buckets.items()}
    quantiles = tuple(value[first] + (value[second] - value[first]) * part for first, second, part in ranks)
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()), quantiles, told)


def _edges(low: float, high: float, bins: int) -> Float[Tensor, " edges"]:
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    return torch.linspace(low, high, bins + 1, dtype=torch.float64)


def _ranks(count: int) -> list[tuple[int, int, float]]:
    """For each quantile the two ranks that it lies between, and how far it is from the first."""
    places = [q * (count - 1) for q in QUANTILES]
    return [(math.floor(p), math.ceil(p), p - math.floor(p)) for p in places]


def _finite(values: Float[Tensor, "*plane"]) -> Float[Tensor, " n"]:
    there = values.isfinite()
    return values.flatten() if bool(there.all()) else values[there]


def _halves(values: Float[Tensor, " n"]) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """The upper and the lower half of the bits of each number, so that larger numbers have larger ones.

    Of numbers below 0 all bits but the sign are turned over.
    """
    bits = values.view(torch.int32)
    ordered = bits ^ ((bits >> 31) & LARGEST)
    return (ordered >> 16) + HALF // 2, ordered & (HALF - 1)


def _value(high: int, low: int) -> float:
    """The number that has these halves."""
    ordered = (high - HALF // 2) * HALF + low
    return float(torch.tensor(ordered ^ LARGEST if ordered < 0 else ordered, dtype=torch.int32).view(torch.float32))


def _bucket(counts: Int[Tensor, " bucket"], rank: int) -> tuple[int, int]:
    """The bucket that holds a rank, and its rank within it."""
    until = counts.cumsum(0)
    bucket = int(torch.searchsorted(until, rank, right=True))
    return bucket, rank - int(until[bucket] - counts[bucket])

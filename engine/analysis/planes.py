"""A plane of a site in parts, so that a large one is never whole in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import Tensor

from engine.sites import Address, Span
from engine.traces import Trace

MAX_CELLS = 4 * 1024 * 1024
"""The largest part."""
Ranges = tuple[tuple[int, int], ...]
"""A half-open range along each axis of a plane."""


def in_blocks(trace: Trace, plane: Address, axes: tuple[str, ...], whole: tuple[int, ...]) -> Iterator[Tensor]:
    """A plane, whose ``axes`` that are not fixed have the sizes ``whole``, in parts of at most MAX_CELLS cells."""
    for tile in tiles(tuple((0, size) for size in whole)):
        spans = ((axis, Span(*span)) for axis, span in zip(axes, tile, strict=True))
        yield trace[Address(plane.site, (*plane.index, *spans), plane.at)]


def tiles(ranges: Ranges) -> Iterator[Ranges]:
    """A part of a plane cut into tiles of at most MAX_CELLS cells, in order."""
    if not ranges:
        yield ()
        return
    (first, end), *rest = ranges
    inner = math.prod(stop - start for start, stop in rest)
    if inner > MAX_CELLS and rest:
        for i in range(first, end):
            yield from (((i, i + 1), *tile) for tile in tiles(tuple(rest)))
    else:
        step = max(1, MAX_CELLS // max(1, inner))
        for start in range(first, end, step):
            yield ((start, min(end, start + step)), *rest)

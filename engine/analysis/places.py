"""What an address means for an analysis: which row of the batch, which positions, and the passes that these lie in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from engine.errors import AddressError
from engine.sites import LETTERS, QUERIES, Address, Index, Span
from engine.traces import Trace

ALONG = ("pos", "src", *QUERIES)
"""Axes of the tokens that a site has something of each for; it has at most one of them."""


class Part(NamedTuple):
    """Positions ``start:stop`` of the pass ``at``, counted from its own first."""

    at: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The positions ``start:stop`` along ``axis`` of one ``row`` of the batch, as an address counts them.

    ``parts`` are the same by pass, of no positions an empty one. What an encoder reads is all in the first.
    """

    axis: str
    row: int
    start: int
    stop: int
    parts: tuple[Part, ...]

    def window(self, part: Part) -> dict[str, tuple[int, int]]:
        """The part as a window of a site of its pass."""
        return {"batch": (self.row, self.row + 1), self.axis: (part.start, part.stop)}

    def read(self, trace: Trace, site: str, parts: Sequence[Part] | None = None) -> Float[Tensor, "1 pos ..."]:
        """A site at these positions, or at some ``parts`` of them, all passes side by side."""
        found = [trace.part(site, part.at, self.window(part)) for part in (self.parts if parts is None else parts)]
        return torch.cat(found, dim=1) if len(found) > 1 else found[0]


def rows_of(trace: Trace, place: Address) -> Rows:
    """The positions that an address names, all where it names none. Raises AddressError for a site without any."""
    axes, index = resolved(trace, place)
    axis = next((axis for axis in ALONG if axis in axes), None)
    if axis is None:
        raise AddressError(f"{place}: {place.site} has no axis of positions; its axes are {', '.join(axes)}")
    row = one(place, index, "batch", 0)
    size = trace.shape(place.site, place.at)[axes.index(axis)]
    start, stop = _ends(index.get(axis, Span(0, size)))
    return Rows(axis, row, start, stop, _by_pass(trace, axis, place.at, start, stop))


def token_of(trace: Trace, place: Address) -> tuple[Rows, Part]:
    """The one token that an address names. Raises AddressError where it is none, or several."""
    rows = rows_of(trace, place)
    if rows.stop - rows.start != 1:
        raise AddressError(f"{place}: this is told of one token; name its position, e.g. [b=0,p=3]")
    return rows, rows.parts[0]


def resolved(trace: Trace, place: Address) -> tuple[tuple[str, ...], dict[str, Index]]:
    """The axes of an address's site, and its index by axis."""
    site = trace.program.site(place.site)
    return site.axes, place.resolve(site.axes, trace.shape(site.name, place.at))


def one(place: Address, index: dict[str, Index], axis: str, default: int | None = None) -> int:
    """The index of one axis. Raises AddressError where it is a range, or is missing and there is no ``default``."""
    found = index.get(axis, default)
    if not isinstance(found, int):
        raise AddressError(f"{place}: name one {axis.replace('_', ' ')}, e.g. [{LETTERS[axis]}=0]")
    return found


def pass_of(trace: Trace, at: int | None, position: int) -> tuple[int, int]:
    """The pass that a position lies in, and which of its own it is; with ``at`` it is counted from that pass's first
    already."""
    if at is not None:
        return at, position
    found = bisect_right(trace.passes, position, key=lambda p: p.stop)
    return found, position - trace.passes[found].start


def _by_pass(trace: Trace, axis: str, at: int | None, start: int, stop: int) -> tuple[Part, ...]:
    if axis.startswith("src"):
        return (Part(0, start, stop),)
    if at is not None:
        return (Part(at, start, stop),)
    ends = [(i, max(start, p.start) - p.start, min(stop, p.stop) - p.start) for i, p in enumerate(trace.passes)]
    return tuple(Part(*part) for part in ends if part[1] < part[2]) or (Part(0, 0, 0),)


def _ends(index: Index) -> tuple[int, int]:
    if isinstance(index, int):
        return index, index + 1
    return index.start or 0, index.stop or 0

"""Parts of a site as an app shows them: as they are, one axis reduced, or the difference of two; and their statistics.

No plane is ever whole in memory: it is read in parts of at most CELLS_AT_ONCE numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import AddressError
from engine.hidden import hidden, mask_of
from engine.jsontext import Json
from engine.ops.base import Shape
from engine.runtime import Watch
from engine.sites import KEYS, LETTERS, QUERIES, SOURCE_AXES, Address, Index, Site, Span
from engine.statistics import Statistics
from engine.text import display
from engine.traces import Trace

CELLS_AT_ONCE = 256 * 1024
"""Numbers that are read in one go: so few that whoever waits is told, and can cancel, many times a second."""
Ranges = tuple[tuple[int, int], ...]
"""A half-open range along each axis of a plane."""
Told = Callable[[float], None]
"""Hears what share of some work is done, and may end it by raising."""
HOW = ("mean", "max")
"""The ways to reduce an axis."""

_ALIKE = {source: axis for axis, source in SOURCE_AXES.items()}


@dataclass(frozen=True, slots=True)
class Plane:
    """What an address leaves open of a site: the plane at its chosen indices, and the part of it that it ``asked`` for.

    ``address`` is the plane's own, without ranges. ``over`` is an axis and the way it is reduced, ('head', 'mean'); in
    float64 then, one block in memory at a time. A cell that is −∞ in every head is −∞ reduced, and one that is NaN in
    any is NaN.
    """

    trace: Trace
    site: Site
    address: Address
    axes: tuple[str, ...]
    whole: Ranges
    asked: Ranges
    over: tuple[str, str] | None = None

    @classmethod
    def find(cls, trace: Trace, text: str, over: object = None) -> Plane:
        """The plane at an address, an axis reduced as ``over`` says, {'head': 'mean'}. Raises AddressError."""
        place = Address.parse(text)
        site = trace.program.site(place.site)
        shape = trace.shape(site.name, place.at)
        index = place.resolve(site.axes, shape)
        reduced = _reduction(place, site, over)
        if reduced and reduced[0] in index:
            raise AddressError(
                f"{place} chooses along {reduced[0]}, over which the {reduced[1]} is taken; leave "
                f"{LETTERS[reduced[0]]} out of it"
            )
        sizes = dict(zip(site.axes, shape, strict=True))
        if reduced and not sizes[reduced[0]]:
            raise AddressError(f"{place} has no {reduced[0]}, so there is no {reduced[1]} over it")
        fixed = tuple((axis, i) for axis in site.axes if isinstance(i := index.get(axis), int))
        axes = tuple(a for a in site.axes if not isinstance(index.get(a), int) and (not reduced or a != reduced[0]))
        whole = tuple((0, sizes[axis]) for axis in axes)
        asked = tuple(_range(index.get(axis), sizes[axis]) for axis in axes)
        return cls(trace, site, Address(site.name, fixed, place.at), axes, whole, asked, reduced)

    def __str__(self) -> str:
        return str(self.address) + self._reduced

    @property
    def title(self) -> str:
        """What is asked for, in words."""
        return str(self.place) + self._reduced

    @property
    def _reduced(self) -> str:
        return f" ({self.over[1]} over {self.over[0]})" if self.over else ""

    @property
    def key(self) -> object:
        """Equal for equal planes of one trace."""
        return id(self.trace), str(self)

    @property
    def hides(self) -> bool:
        """Whether −∞ is a masked cell here."""
        step = self.trace.program.step(self.site.name)
        return step is not None and step.op.hides

    @property
    def masks(self) -> bool:
        """Whether cells may be masked here: those of scores that are −∞, and those of weights that are `hidden`."""
        return self.hides or mask_of(self.trace.program, self.site.name) is not None

    def hidden(self, ranges: Ranges) -> Tensor | None:
        """Where the mask lets no weight be in these ranges, to be broadcast to the plane's axes; None of what is no
        weight for one query and one key."""
        spans = dict(zip(self.axes, ranges, strict=True)) | {
            axis: (i, i + 1) for axis, i in self.address.index if isinstance(i, int)
        }
        query, key = (next((axis for axis in self.site.axes if axis in kind), "") for kind in (QUERIES, KEYS))
        if query not in spans or key not in spans or "batch" not in spans:
            return None
        found = hidden(self.trace, self.site.name, self.address.at, spans[query], spans[key])
        if found is None:
            return None
        found = found[slice(*spans["batch"])]
        kept = (slice(None) if axis in self.axes else 0 for axis in self.site.axes if axis in spans)
        return (found if "head" in spans else found[:, 0])[tuple(kept)]

    @property
    def place(self) -> Address:
        """The address of the part that is asked for."""
        spans = zip(self.axes, self.asked, self.whole, strict=True)
        index = dict(self.address.index) | {axis: Span(*part) for axis, part, whole in spans if part != whole}
        return Address(self.site.name, tuple((a, index[a]) for a in self.site.axes if a in index), self.address.at)

    def part(self, ranges: Ranges, told: Told = lambda share: None) -> Tensor:
        """The numbers in these ranges. [the plane's axes] ``told`` hears what share of them is there, and may raise."""
        told(0.0)
        if self.over is None:
            return self._slice(ranges)
        axis, how = self.over
        dim = [a for a in self.site.axes if a in self.axes or a == axis].index(axis)
        size = self.trace.shape(self.site.name, self.address.at)[self.site.axes.index(axis)]
        rows, *inner = shape_of((*ranges[:1], *self.whole[1:])) or (1,)  # a step may have to compute all keys for few
        each = max(1, CELLS_AT_ONCE // max(1, rows * math.prod(inner)))
        total: Tensor | None = None
        for start in range(0, size, each):
            told(start / size)
            block = as_float64(self._slice(ranges, Span(start, min(size, start + each))))
            found = block.sum(dim) if how == "mean" else block.amax(dim)
            if total is not None:
                found = total + found if how == "mean" else torch.maximum(total, found)
            total = found
        assert total is not None
        return total / size if how == "mean" else total

    def _slice(self, ranges: Ranges, reduced: Span | None = None) -> Tensor:
        spans: list[tuple[str, Index]] = [(axis, Span(*r)) for axis, r in zip(self.axes, ranges, strict=True)]
        if self.over is not None and reduced is not None:
            spans.append((self.over[0], reduced))
        return self.trace[Address(self.site.name, (*self.address.index, *spans), self.address.at)]


@dataclass(frozen=True, slots=True)
class Difference:
    """One plane minus another, cell by cell, in float64, over the part that both have; its indices are ``first``'s.

    The planes begin together, unless the second one's address has a range: then that range begins where the first
    one's does. A cell that is masked in both is masked; masked in one only, it is −∞ or +∞, and so it is told.
    """

    first: Plane
    second: Plane
    shift: tuple[int, ...]  # the second's index minus the first's
    whole: Ranges
    asked: Ranges

    @classmethod
    def of(cls, first: Plane, second: Plane) -> Difference:
        """Raises AddressError where their axes are not of the same kinds, or nothing is in both."""
        if [_ALIKE.get(a, a) for a in first.axes] != [_ALIKE.get(a, a) for a in second.axes]:
            raise AddressError(
                f"a difference is of two planes over the same axes: {first} is over {_named(first)}, and {second} over "
                f"{_named(second)}"
            )
        spans = zip(first.asked, second.asked, second.whole, strict=True)
        shift = tuple(0 if of == whole or of[0] == of[1] else of[0] - mine[0] for mine, of, whole in spans)
        both = zip(first.whole, second.whole, shift, strict=True)
        whole = tuple((max(0, -by), min(mine, other - by)) for (_, mine), (_, other), by in both)
        if any(start >= stop for start, stop in whole):
            raise AddressError(f"{first.title} and {second.title} have no part in common")
        asked = tuple(
            _both(_both(mine, (start - by, stop - by)), limits)
            for mine, (start, stop), by, limits in zip(first.asked, second.asked, shift, whole, strict=True)
        )
        return cls(first, second, shift, whole, asked)

    @property
    def axes(self) -> tuple[str, ...]:
        return self.first.axes

    @property
    def title(self) -> str:
        """What is asked for, in words."""
        of = "" if self.second.trace is self.first.trace else " of the other trace"
        return f"{self.first.title} − {self.second.title}{of}"

    @property
    def key(self) -> object:
        return self.first.key, self.second.key, self.shift

    @property
    def hides(self) -> bool:
        return self.first.hides

    @property
    def masks(self) -> bool:
        """Whether cells may be masked on both sides."""
        return self.hides or (self.first.masks and self.second.masks)

    def hidden(self, ranges: Ranges) -> Tensor | None:
        """Where the masks of both sides let no weight be."""
        one, other = self.first.hidden(ranges), self.second.hidden(self._of_second(ranges))
        return None if one is None or other is None else one & other.to(one.device)

    def part(self, ranges: Ranges, told: Told = lambda share: None) -> Tensor:
        """The differences in these ranges. [the planes' axes], float64"""
        x = as_float64(self.first.part(ranges, lambda share: told(share / 2)))
        y = as_float64(self.second.part(self._of_second(ranges), lambda share: told((1 + share) / 2)))
        if not (self.first.hides and self.second.hides):
            return x - y
        return (x - y).masked_fill((x == -math.inf) & (y == -math.inf), -math.inf)

    def _of_second(self, ranges: Ranges) -> Ranges:
        return tuple((start + by, stop + by) for (start, stop), by in zip(ranges, self.shift, strict=True))


def find(trace: Trace, address: str, over: object = None, minus: Plane | None = None) -> Plane | Difference:
    """The plane at an address, or what remains of it when another one is taken away."""
    plane = Plane.find(trace, address, over)
    return plane if minus is None else Difference.of(plane, minus)


def values(plane: Plane | Difference, watch: Watch | None = None) -> Tensor:
    """What is asked of a plane, as float32 on the CPU. [the plane's axes]"""
    result = torch.empty(shape_of(plane.asked), dtype=torch.float32)
    for ranges, part in _tiles(plane, plane.asked, watch):
        inside = (slice(a - first, b - first) for (a, b), (first, _) in zip(ranges, plane.asked, strict=True))
        result[tuple(inside)] = part.to("cpu", torch.float32)
    return result


def blocks(plane: Plane | Difference, watch: Watch | None = None) -> Iterator[Tensor]:
    """All of a plane in parts of at most CELLS_AT_ONCE numbers, in order, for counting: a masked cell is −∞."""
    return (marked(plane, ranges, part) for ranges, part in _tiles(plane, plane.whole, watch))


def marked(plane: Plane | Difference, ranges: Ranges, part: Tensor) -> Tensor:
    """A part of a plane with −∞ for the zeros of masked weights; scores have it there by themselves."""
    where = plane.hidden(ranges)
    return part if where is None else part.masked_fill(where.to(part.device) & (part == 0), -math.inf)


def statistics(plane: Plane | Difference, watch: Watch | None = None) -> Json:
    """Of all of a plane."""
    return Statistics.of(blocks(plane, watch)).told(masks=plane.masks)


def cut(ranges: Ranges) -> Iterator[Ranges]:
    """A part of a plane in tiles of at most CELLS_AT_ONCE numbers, in order."""
    if not ranges:
        yield ()
        return
    (first, end), *rest = ranges
    inner = math.prod(shape_of(tuple(rest)))
    if inner > CELLS_AT_ONCE:
        for i in range(first, end):
            yield from (((i, i + 1), *tile) for tile in cut(tuple(rest)))
    else:
        step = CELLS_AT_ONCE // max(1, inner)
        for start in range(first, end, step):
            yield ((start, min(end, start + step)), *rest)


def shape_of(ranges: Ranges) -> Shape:
    """How long the ranges are."""
    return tuple(stop - start for start, stop in ranges)


def as_float64(tensor: Tensor) -> Tensor:
    """On the CPU, since not every device has float64."""
    return tensor.cpu().double()


def _tiles(plane: Plane | Difference, ranges: Ranges, watch: Watch | None) -> Iterator[tuple[Ranges, Tensor]]:
    """A part of a plane tile by tile; ``watch`` hears of the work in thousandths, and may end it."""
    every = list(cut(ranges))
    for i, tile in enumerate(every):

        def told(share: float, before: int = i) -> None:
            if watch is not None:
                watch(round(1000 * (before + share) / len(every)), 1000, plane.title)

        yield tile, plane.part(tile, told)


def _range(index: Index | None, size: int) -> tuple[int, int]:
    if isinstance(index, Span):
        return index.start or 0, index.stop or 0
    return 0, size


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Where two ranges overlap; empty, and inside the second one, where they do not."""
    start = min(max(one[0], other[0]), other[1])
    return start, max(start, min(one[1], other[1]))


def _named(plane: Plane) -> str:
    return " × ".join(plane.axes) or "no axis, a single number"


def _reduction(place: Address, site: Site, over: object) -> tuple[str, str] | None:
    """An axis and how it is reduced, from {'head': 'mean'}. Raises AddressError where it is something else."""
    if not over:
        return None
    entries = list(over.items()) if isinstance(over, Mapping) else []
    if len(entries) != 1 or entries[0][1] not in HOW:
        said = display(", ".join(f"{a}={how}" for a, how in entries) or str(over))[:60]
        raise AddressError(f"{said} reduces no axis; name one axis and mean or max, e.g. head=mean")
    [(name, how)] = entries
    known = {axis: axis for axis in site.axes} | {LETTERS[axis]: axis for axis in site.axes}
    if name not in known:
        axes = ", ".join(f"{axis} ({LETTERS[axis]})" for axis in site.axes)
        raise AddressError(
            f"{place}: there is no axis {display(str(name))[:40]!r} to take the {how} over; there is {axes}"
        )
    return known[name], how

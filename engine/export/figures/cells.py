"""Numbers as cells of a picture: which are numbers at all, how many stand in one cell, and where colours end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from jaxtyping import Float, UInt8

from engine.ops.attention import SinkSoftmax, Softmax
from engine.ops.base import at_least_float32
from engine.place import Axis, Place
from engine.windows import Difference, marked, shape_of

MOST = 512
"""Rows, and columns, of cells that a figure has at most; of more, several share a cell."""
LEAST, MOST_ARCS = 0.02, 600
"""Weights of less than this share of the largest have no arc, and so have all but so many."""
NUMBERS_AT_ONCE = 2**20
"""Numbers that are joined to cells in one go."""
OUTLIERS, RARE = 4.0, 99.5
"""Colours end at this percentile of the magnitudes where the largest is so many times beyond it."""


class Kind(IntEnum):
    """What a cell is."""

    NUMBER = 0
    MASKED = 1
    NAN = 2
    ABOVE = 3
    BELOW = 4


WORDS = {Kind.MASKED: "masked", Kind.NAN: "NaN", Kind.ABOVE: "+∞", Kind.BELOW: "−∞"}
HATCHES = {Kind.MASKED: "////", Kind.NAN: "xxxx", Kind.ABOVE: "++++", Kind.BELOW: "----"}
"""How a cell that is no number is filled, so that it is told from all others without colour."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of a plane. ``values`` are NaN where ``kinds`` says that a cell is no number; each stands for ``bins``
    rows and columns, and shows that number of them which is farthest from 0."""

    values: Float[np.ndarray, "rows cols"]
    kinds: UInt8[np.ndarray, "rows cols"]
    bins: tuple[int, int] = (1, 1)

    @classmethod
    def of(cls, values: Float[np.ndarray, "rows cols"], *, masks: bool) -> Cells:
        """``masks``: −∞ means that a cell is masked."""
        kinds = np.zeros(values.shape, np.uint8)
        kinds[np.isnan(values)] = Kind.NAN
        kinds[values == math.inf] = Kind.ABOVE
        kinds[values == -math.inf] = Kind.MASKED if masks else Kind.BELOW
        return cls(np.where(kinds == Kind.NUMBER, values, math.nan), kinds)

    @property
    def shape(self) -> tuple[int, int]:
        rows, cols = self.values.shape
        return rows, cols

    def shrunk(self, most: tuple[int, int] = (MOST, MOST)) -> Cells:
        """The same in at most so many rows and columns."""
        bins = shared(self.shape, most)
        if bins == (1, 1):
            return self
        at_once = bins[0] * max(1, NUMBERS_AT_ONCE // (bins[0] * max(1, self.shape[1])))
        parts = [
            _shrunk(self.values[start : start + at_once], self.kinds[start : start + at_once], bins)
            for start in range(0, self.shape[0], at_once)
        ]
        values, kinds = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Cells(values, kinds, bins)

    def there(self) -> list[Kind]:
        """The kinds of cells that are no numbers, and that there are."""
        return [kind for kind in WORDS if bool((self.kinds == kind).any())]


@dataclass(frozen=True, slots=True)
class Scale:
    """Where colours end: at ``limit``, and at −limit (``signed``) or at 0. ``beyond``: some numbers lie beyond."""

    limit: float
    signed: bool
    beyond: bool

    @classmethod
    def of(cls, values: Sequence[Float[np.ndarray, "*shape"]], *, signed: bool = False, whole: bool = False) -> Scale:
        """The scale that some arrays share; ``signed`` even where none of their numbers is below 0, and ``whole`` where
        it ends at the largest one however rare that is."""
        numbers = np.concatenate([np.ravel(part) for part in values]) if values else np.empty(0)
        numbers = numbers[np.isfinite(numbers)]
        if not numbers.size:
            return cls(1.0, signed, False)
        sizes = np.abs(numbers)
        limit, usual = float(sizes.max()), float(np.percentile(sizes, RARE))
        beyond = not whole and 0 < OUTLIERS * usual < limit
        return cls((usual if beyond else limit) or 1.0, signed or bool((numbers < 0).any()), beyond)

    @property
    def low(self) -> float:
        return -self.limit if self.signed else 0.0

    def level(self, value: float) -> float:
        """Where on the scale a number is, from 0 to 1."""
        return min(1.0, max(0.0, (value - self.low) / (self.limit - self.low)))


@dataclass(frozen=True, slots=True)
class Side:
    """The names along one side of a picture: a text for each index, or only the indices from ``start`` on.

    ``each``: so many indices share a cell.
    """

    name: str
    size: int
    start: int = 0
    labels: tuple[str, ...] = ()
    each: int = 1

    @classmethod
    def of(cls, place: Place, axis: Axis, each: int = 1) -> Side:
        labels = tuple(place.label(axis, i) for i in range(axis.size)) if place.labelled(axis) else ()
        return cls(axis.name, axis.size, axis.start, labels, each)

    @property
    def cells(self) -> int:
        return -(-self.size // self.each)


def shared(shape: tuple[int, int], most: tuple[int, int] = (MOST, MOST)) -> tuple[int, int]:
    """How many rows and columns share a cell, so that there are at most so many."""
    rows, cols = (max(1, -(-size // limit)) for size, limit in zip(shape, most, strict=True))
    return rows, cols


def numbers(place: Place) -> Float[np.ndarray, "*axes"]:
    """The numbers of a place, 16-bit ones as float32 and whole ones as float64; a masked cell is −∞, where
    `Place.plane` has any."""
    plane, tensor = place.plane, place.tensor
    whole = marked(plane, plane.asked, tensor.reshape(shape_of(plane.asked))) if _is_whole(place) else tensor
    whole = at_least_float32(whole.reshape(tensor.shape).detach().cpu())
    found: Float[np.ndarray, "*axes"] = (whole if whole.is_floating_point() else whole.double()).numpy()
    return found


def scale_of(place: Place, values: Sequence[Float[np.ndarray, "*shape"]]) -> Scale:
    """The scale of a place's cells: of weights up to the largest, of all else so that single numbers do not hide the
    others."""
    return Scale.of(values, signed=isinstance(place.plane, Difference), whole=what_of(place) != "value")


def what_of(place: Place) -> str:
    """What the numbers of a place are."""
    if isinstance(place.plane, Difference):
        return "difference"
    step = place.trace.program.step(place.address.site)
    return "weight" if step is not None and isinstance(step.op, Softmax | SinkSoftmax) else "value"


def strongest(cells: Cells) -> list[tuple[float, int, int]]:
    """The weights that are drawn, the smallest first: (weight, query, key)."""
    values = np.nan_to_num(cells.values, nan=0.0)
    most = float(np.abs(values).max(initial=0))
    found = [(float(values[i, j]), int(i), int(j)) for i, j in np.argwhere(np.abs(values) > LEAST * most)]
    return sorted(found, key=lambda arc: abs(arc[0]))[-MOST_ARCS:]


def _is_whole(place: Place) -> bool:
    return place.tensor.numel() == math.prod(shape_of(place.plane.asked))


def _shrunk(values: np.ndarray, kinds: np.ndarray, bins: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of cells with so many of them in one: their values, and their kinds."""
    pads = [(0, -size % each) for size, each in zip(kinds.shape, bins, strict=True)]
    kinds = _binned(np.pad(kinds, pads, constant_values=Kind.MASKED), bins)
    values = _binned(np.pad(values, pads, constant_values=math.nan), bins)
    there = kinds == Kind.NUMBER
    far = np.where(there, np.abs(values), -1).argmax(-1)
    found = np.take_along_axis(values, far[..., None], -1)[..., 0]
    kind = np.full(found.shape, Kind.MASKED, np.uint8)
    kind[there.any(-1)] = Kind.NUMBER
    for bad in (Kind.BELOW, Kind.ABOVE, Kind.NAN):
        kind[(kinds == bad).any(-1)] = bad
    return np.where(kind == Kind.NUMBER, found, math.nan), kind


def _binned(array: np.ndarray, bins: tuple[int, int]) -> np.ndarray:
    """[rows cols rows·cols of a bin]"""
    rows, cols = (size // each for size, each in zip(array.shape, bins, strict=True))
    return array.reshape(rows, bins[0], cols, bins[1]).transpose(0, 2, 1, 3).reshape(rows, cols, -1)

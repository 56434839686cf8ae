"""What an address names in a trace: the numbers, the axes that are left, and a label for every index along them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.dtypes import dtype_name
from engine.ops.attention import SinkSoftmax, Softmax
from engine.ops.base import at_least_float32
from engine.runtime import Watch
from engine.sites import TOKEN_AXES, Address, within_block
from engine.statistics import Statistics
from engine.traces import Trace
from engine.views import DIFFERENCE, together
from engine.windows import CELLS_AT_ONCE, Difference, Plane, marked, values

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis as it is shown: its index starts at ``start``, and its first token is position ``first`` of all."""

    name: str
    size: int
    start: int = 0
    first: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor of a trace, or a part of one. ``fixed`` are the indices that the address chose, ``title`` what it is
    called: its address, and what was reduced or taken away; ``told`` has its figures."""

    trace: Trace
    address: Address
    tensor: Tensor
    axes: tuple[Axis, ...]
    fixed: Mapping[str, int]
    row: int
    title: str
    told: Statistics
    plane: Plane | Difference

    @classmethod
    def of(cls, plane: Plane | Difference, watch: Watch | None = None) -> Place:
        """What is asked of a plane: as it is, or as float32 where an axis is reduced or another plane taken away."""
        mine = plane.first if isinstance(plane, Difference) else plane
        plain = plane is mine and mine.over is None
        tensor = mine.part(mine.asked) if plain else values(plane, watch)
        at = mine.address.at
        axes = tuple(
            Axis(axis, stop - start, start, start + mine.trace.origin(mine.site.name, axis, at))
            for axis, (start, stop) in zip(plane.axes, plane.asked, strict=True)
        )
        fixed = {axis: i for axis, i in mine.address.index if isinstance(i, int)}
        told = Statistics.of(marked(plane, plane.asked, tensor).reshape(-1).split(CELLS_AT_ONCE))
        place = cls(mine.trace, mine.place, tensor, axes, fixed, fixed.get("batch", 0), plane.title, told, plane)
        return place.along(0) if axes and axes[0].name == "batch" and axes[0].size == 1 else place

    def explained(self) -> tuple[str, str]:
        """In a line what was computed here, and its story: of the step, or of what was made of its tensor."""
        step, plane = self.trace.program.step(self.address.site), self.plane
        if isinstance(plane, Difference):
            return f"Difference: {plane.title}", DIFFERENCE
        if plane.over:
            (axis, how), site = plane.over, plane.site
            size = self.trace.shape(site.name, self.address.at)[site.axes.index(axis)]
            weights = step is not None and isinstance(step.op, Softmax | SinkSoftmax)
            left = [one for one in plane.axes if one != "batch"]
            words = together(how, axis, size, within_block(site.name).rpartition(".")[2], left, weights=weights)
            return f"{words.title} · {words.formula}", words.story
        if step is None:
            return "", ""
        return f"{step.op.text.title}: {step.op.text.formula}", step.op.text.story

    @property
    def dtype(self) -> str:
        return dtype_name(self.tensor.dtype)

    def label(self, axis: Axis, i: int) -> str:
        """What stands at index ``i`` of what is shown along an axis; empty where an index says it all."""
        if axis.name in TOKEN_AXES:
            return self.token(axis.name, axis.first + i)
        return self.trace.label(axis.start + i) if axis.name == "d_vocab" else ""

    def token(self, axis: str, position: int) -> str:
        """The token at a position of an axis: of the source, along an axis of an encoder beside a decoder."""
        line = self.trace.line(axis, self.row)
        return line[position].label if position < len(line) else ""

    def labelled(self, axis: Axis) -> bool:
        return axis.name in TOKEN_AXES

    def fixed_label(self, axis: str) -> str:
        """What stands at the index that the address chose along an axis."""
        i = self.fixed[axis]
        if axis in TOKEN_AXES:
            return self.token(axis, i + self.trace.origin(self.address.site, axis, self.address.at))
        return self.trace.label(i) if axis == "d_vocab" else ""

    def along(self, i: int) -> Place:
        """The part at index ``i`` of the first axis."""
        first, *rest = self.axes
        row = first.start + i if first.name == "batch" else self.row
        fixed = {**self.fixed, first.name: first.start + i}
        return replace(self, tensor=self.tensor[i], axes=tuple(rest), fixed=fixed, row=row)

    def stats(self) -> dict[str, Any]:
        """How many numbers there are, are not finite, of each kind, and are masked (−∞ as a score, 0 as a weight); of
        the others min, max, mean, std, norm."""
        told, masked = self.told, self.told.below if self.plane.masks else 0
        counts = {"size": told.size, "finite": told.finite, "nan": told.nan, "+inf": told.above}
        return counts | {"-inf": told.below - masked, "masked": masked} | told.spread_to_json()

    def to_json(self) -> dict[str, Any]:
        """The place with all its values, nested as its axes are."""
        return self.about() | {"values": at_least_float32(self.tensor).tolist()}

    def about(self) -> dict[str, Any]:
        """All of it but its values."""
        axes = []
        for axis in self.axes:
            entry: dict[str, Any] = {"name": axis.name, "start": axis.start, "size": axis.size}
            if self.labelled(axis):
                entry["labels"] = [self.label(axis, i) for i in range(axis.size)]
            axes.append(entry)
        return {
            "address": str(self.address),
            "title": self.title,
            "site": self.address.site,
            "pass": self.address.at,
            "dtype": self.dtype,
            "fixed": dict(self.fixed),
            "axes": axes,
            "stats": self.stats(),
        }


def figures(stats: Mapping[str, Any]) -> str:
    """A place's statistics in a line: how its numbers are spread, and how many are masked or not finite."""
    parts = [f"{key} {stats[key]:.4g}" for key in ("min", "max", "mean", "std", "norm") if key in stats]
    bad = {key: stats[key] for key in ("nan", "+inf", "-inf") if stats[key]}
    if stats["masked"]:
        parts.append(f"{stats['masked']} of {stats['size']} masked")
    if bad:
        kinds = ", ".join(f"{count} {key}" for key, count in bad.items())
        parts.append(f"NOT FINITE {sum(bad.values())} of {stats['size']} ({kinds})")
    return " · ".join(parts)


def exact(number: Tensor) -> str:
    """One number with as many digits as it has; a 16-bit one as the float32 that equals it."""
    return str(at_least_float32(number).detach().cpu().numpy()[()])

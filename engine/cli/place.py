"""What an address names in a trace: the numbers, the axes that are left, and a label for every index along them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from engine.dtypes import dtype_name
from engine.runtime import Watch
from engine.sites import SOURCE_AXES, Address, Span
from engine.statistics import Statistics
from engine.traces import Trace
from engine.windows import Difference, Plane, values

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 4 * 1024 * 1024
"""Numbers that are looked at in one go."""
PASS_AXES = ("pos", "query")
"""Axes over the tokens of a pass; the others over tokens count from the first token of all."""
SOURCE_TOKEN_AXES = tuple(SOURCE_AXES.values())
TOKEN_AXES = (*PASS_AXES, "key", "kv_pos", "past", *SOURCE_TOKEN_AXES)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis as it is shown: its index starts at ``start``, and its first token is position ``first`` of all."""

    name: str
    size: int
    start: int = 0
    first: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor of a trace, or a part of one. ``fixed`` are the indices that the address chose, ``title`` is what it is
    called where its address does not say all."""

    trace: Trace
    address: Address
    tensor: Tensor
    axes: tuple[Axis, ...]
    fixed: Mapping[str, int]
    row: int = 0
    title: str = ""

    @classmethod
    def of(cls, plane: Plane | Difference, watch: Watch | None = None) -> Place:
        """What is asked of a plane: as it is, or as float32 where an axis is reduced or another plane taken away."""
        mine = plane.first if isinstance(plane, Difference) else plane
        plain = plane is mine and mine.over is None
        tensor = mine.part(mine.asked) if plain else values(plane, watch)
        offset = 0 if mine.address.at is None else mine.trace.passes[mine.address.at].start
        axes = tuple(
            Axis(axis, stop - start, start, start + (offset if axis in PASS_AXES else 0))
            for axis, (start, stop) in zip(plane.axes, plane.asked, strict=True)
        )
        fixed = {axis: i for axis, i in mine.address.index if isinstance(i, int)}
        place = cls(mine.trace, mine.place, tensor, axes, fixed, fixed.get("batch", 0), plane.title)
        return place.along(0) if axes and axes[0].name == "batch" and axes[0].size == 1 else place

    @classmethod
    def find(cls, trace: Trace, text: str) -> Place:
        """The place at an address. Raises AddressError where there is none, NotKeptError where it is not held."""
        address = Address.parse(text)
        site = trace.program.site(address.site)
        index = address.resolve(site.axes, trace.shape(site.name, address.at))
        tensor = trace[address]
        fixed = {axis: i for axis, i in index.items() if isinstance(i, int)}
        if site.axes[0] == "batch" and "batch" not in index and tensor.shape[0] == 1:  # one prompt: no need to say so
            tensor, fixed = tensor[0], {"batch": 0, **fixed}
        offset = 0 if address.at is None else trace.passes[address.at].start
        left = [axis for axis in site.axes if axis not in fixed]
        axes = tuple(
            Axis(axis, size, _start(index.get(axis)), _start(index.get(axis)) + (offset if axis in PASS_AXES else 0))
            for axis, size in zip(left, tensor.shape, strict=True)
        )
        return cls(trace, address, tensor, axes, fixed, fixed.get("batch", 0))

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
        row = (self.trace.source_tokens if axis in SOURCE_TOKEN_AXES else self.trace.tokens)[self.row]
        return row[position].label if position < len(row) else ""

    def labelled(self, axis: Axis) -> bool:
        return axis.name in TOKEN_AXES

    def fixed_label(self, axis: str) -> str:
        """What stands at the index that the address chose along an axis."""
        i = self.fixed[axis]
        if axis in TOKEN_AXES:
            at = self.address.at
            return self.token(axis, i + (self.trace.passes[at].start if at is not None and axis in PASS_AXES else 0))
        return self.trace.label(i) if axis == "d_vocab" else ""

    def along(self, i: int) -> Place:
        """The part at index ``i`` of the first axis."""
        first, *rest = self.axes
        row = first.start + i if first.name == "batch" else self.row
        fixed = {**self.fixed, first.name: first.start + i}
        return replace(self, tensor=self.tensor[i], axes=tuple(rest), fixed=fixed, row=row)

    def stats(self) -> dict[str, Any]:
        """How many numbers there are and are not finite, of each kind; of the finite ones min, max, mean, std, norm."""
        told = Statistics.of(self.tensor.reshape(-1).split(BLOCK))
        counts = {"size": told.size, "finite": told.finite, "nan": told.nan, "+inf": told.above, "-inf": told.below}
        return counts | told.spread_to_json()

    def to_json(self) -> dict[str, Any]:
        """The place with all its values, nested as its axes are."""
        axes = []
        for axis in self.axes:
            entry: dict[str, Any] = {"name": axis.name, "start": axis.start, "size": axis.size}
            if self.labelled(axis):
                entry["labels"] = [self.label(axis, i) for i in range(axis.size)]
            axes.append(entry)
        wide = self.tensor.float() if self.tensor.dtype in (torch.bfloat16, torch.float16) else self.tensor
        data: dict[str, Any] = {
            "address": str(self.address),
            "site": self.address.site,
            "pass": self.address.at,
            "dtype": self.dtype,
            "fixed": dict(self.fixed),
            "axes": axes,
            "stats": self.stats(),
            "values": wide.tolist(),
        }
        return data


def _start(index: int | Span | None) -> int:
    return index.start or 0 if isinstance(index, Span) else 0

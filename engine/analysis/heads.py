"""Attention of many heads at a glance: every head's plane as a small tile, their mean and maximum, and entropy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from engine.ops.attention import Mask, SinkSoftmax, Softmax
from engine.ops.base import Text
from engine.program import Program, Step
from engine.runtime import Watch, as_part
from engine.sites import ENCODER, KEYS, QUERIES, Address, Span, within_block
from engine.traces import Trace

CELLS_AT_ONCE = 1024 * 1024
"""Cells that are derived in one go: of all heads where their planes are small, else rows of one head."""
Joined = tuple[Float[Tensor, "query key"], Float[Tensor, "query key"]]
"""The sum of some heads' planes, and their maximum."""

TILES = (
    " Where the plane is larger than the tile, each cell of the tile shows the number of its place that is farthest "
    "from 0. The entropy of a pattern says how many keys a query spreads over, as a power of two: 0 bits are one key, "
    "3 bits as much as eight keys with equal weights."
)
HEADS = Text(
    "All heads of a layer",
    "one tile per head",
    r"P_1, \dots, P_h",
    "Every head of the layer as a small picture of the same plane, queries down and keys across, and before them their "
    f"mean and their maximum.{TILES}",
)
LAYERS = Text(
    "All heads of all layers",
    "one tile per layer and head",
    r"P_{l,1}, \dots, P_{l,h}",
    f"Every head of every layer as a small picture of the same plane, a row of tiles for each layer.{TILES}",
)


@dataclass(frozen=True, slots=True)
class Tile:
    """A head's plane, or the ``reduce``d one of all heads, [query key] shrunk to at most the size asked for.

    NaN where all is masked. ``entropy`` of a pattern: the mean over its queries, in bits.
    """

    site: str
    head: int | None
    reduce: Literal["", "mean", "max"]
    values: Float[Tensor, "query key"]
    entropy: float | None

    @property
    def title(self) -> str:
        return self.reduce if self.head is None else f"head {self.head}"


def has_heads(step: Step) -> bool:
    """Whether a step writes a plane of queries and keys for every head."""
    axes = {*step.site.axes}
    return "head" in axes and not axes.isdisjoint(QUERIES) and not axes.isdisjoint(KEYS)


def alike(program: Program, site: str) -> tuple[str, ...]:
    """The same site of every layer of its stack, in order: those with as many heads and the same axes."""
    model, beside, same = program.site(site), site.startswith(ENCODER), within_block(site)
    return tuple(
        step.site.name
        for step in program.steps
        if step.site.name.startswith(ENCODER) == beside
        and within_block(step.site.name) == same
        and step.site.axes == model.axes
    )


def tiles(
    trace: Trace,
    sites: Sequence[str],
    size: tuple[int, int],
    *,
    at: int | None = None,
    row: int = 0,
    reduced: bool = True,
    watch: Watch | None = None,
) -> list[Tile]:
    """The heads of some sites over (head, query, key), as tiles of one shape, at most ``size``.

    ``reduced``: before a site's heads come their mean and their maximum. A large plane is derived some query rows of
    one head at a time, so that memory does not grow with heads × N². Keys that a layer's window has let go of in a
    pass, and others have not, are NaN. ``watch`` is called before each part and may raise Cancelled.
    """
    keys = max(trace.shape(site, at)[-1] for site in sites)
    found: list[Tile] = []
    for i, site in enumerate(sites):
        shrunk = _Shrinking(trace, site, at, row, size, keys)
        tell = as_part(watch, i, len(sites))
        for done, of in shrunk.parts(reduced=reduced):
            if tell is not None:
                tell(done, of, site)
        found += shrunk.tiles(reduced=reduced)
    return found


class _Shrinking:
    """A site's heads on their way to tiles, some query rows of some heads at a time.

    ``high`` and ``low`` are what was found so far, mean and maximum first; ``bins`` how many queries and keys a cell of
    a tile stands for.
    """

    def __init__(self, trace: Trace, site: str, at: int | None, row: int, size: tuple[int, int], keys: int) -> None:
        step = trace.program.step(site)
        assert step is not None
        self.trace, self.site, self.step, self.at, self.row = trace, site, step, at, row
        _, self.heads, self.queries, own = trace.shape(site, at)
        self.gone = keys - own  # keys that this site has no more, and another has
        self.bins = _per_cell(self.queries, size[0]), _per_cell(keys, size[1])
        self.rows_at_once = max(1, CELLS_AT_ONCE // max(1, own))
        self.heads_at_once = max(1, self.rows_at_once // max(1, self.queries))
        shape = (2 + self.heads, -(-self.queries // self.bins[0]), -(-keys // self.bins[1]))
        self.high, self.low = torch.full(shape, -math.inf), torch.full(shape, math.inf)
        self.real = _real(trace, step, at, row)
        self.bits = torch.zeros(self.heads, dtype=torch.float64)

    def parts(self, *, reduced: bool) -> Iterator[tuple[int, int]]:
        """Shrink all; tells before each part how many rows are done, and of how many."""
        for rows in self._rows():
            joined: Joined | None = None
            for first in range(0, self.heads, self.heads_at_once):
                yield rows[0], self.queries
                heads = (first, min(self.heads, first + self.heads_at_once))
                block = self._block(heads, rows)  # [head query key]
                self._put(2 + first, rows[0], block)
                if self.real is not None:
                    sink = isinstance(self.step.op, SinkSoftmax)
                    real = block[:, self.real[slice(*rows)].to(block.device)]
                    self.bits[slice(*heads)] += entropies(real, sink=sink).sum(-1).cpu()
                if reduced:
                    joined = _joined(block, joined)
            if joined is not None:
                self._put(0, rows[0], joined[0][None] / self.heads)
                self._put(1, rows[0], joined[1][None])

    def tiles(self, *, reduced: bool) -> list[Tile]:
        entropy: list[float | None] = [None] * self.heads
        if self.real is not None:
            entropy = (self.bits / max(1, int(self.real.sum()))).tolist()
        mean, most, *heads = largest(self.high, self.low)
        whole = [Tile(self.site, None, "mean", mean, None), Tile(self.site, None, "max", most, None)]
        return [*whole[: 2 * reduced], *(Tile(self.site, h, "", heads[h], entropy[h]) for h in range(self.heads))]

    def _rows(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows: of whole bins where so many are read at once, else of parts of one bin."""
        whole = max(1, self.rows_at_once // self.bins[0]) * self.bins[0]
        for first in range(0, self.queries, whole):
            end = min(self.queries, first + whole)
            for start in range(first, end, min(whole, self.rows_at_once)):
                yield start, min(end, start + self.rows_at_once)

    def _block(self, heads: tuple[int, int], rows: tuple[int, int]) -> Float[Tensor, "head query key"]:
        axes = self.step.site.axes
        index = ((axes[0], self.row), (axes[1], Span(*heads)), (axes[2], Span(*rows)))
        return self.trace[Address(self.site, index, self.at)].float()

    def _put(self, tile: int, start: int, planes: Float[Tensor, "head query key"]) -> None:
        """Shrink some rows of planes into their tiles."""
        hidden = planes == -math.inf if self.step.op.hides else None
        if self.gone:
            hidden = torch.zeros_like(planes, dtype=torch.bool) if hidden is None else hidden
            hidden, planes = F.pad(hidden, (self.gone, 0), value=True), F.pad(planes, (self.gone, 0))
        high, low = (found.cpu() for found in extremes(planes, hidden, self.bins))
        y = start // self.bins[0]
        here = slice(tile, tile + len(high)), slice(y, y + high.shape[1])
        self.high[here], self.low[here] = torch.maximum(self.high[here], high), torch.minimum(self.low[here], low)


def _per_cell(size: int, most: int) -> int:
    """How many rows or columns go into one, so that there are at most so many."""
    return max(1, -(-size // max(1, most)))


def _joined(block: Float[Tensor, "head query key"], before: Joined | None) -> Joined:
    """The sum of heads, and their maximum, with those of the heads before."""
    total, most = block.sum(0), block.amax(0)  # [query key]
    return (total, most) if before is None else (before[0] + total, torch.maximum(before[1], most))


def _real(trace: Trace, step: Step, at: int | None, row: int) -> Bool[Tensor, " query"] | None:
    """Which queries of a pattern are no padding; None for what is no pattern."""
    if not isinstance(step.op, Softmax | SinkSoftmax):
        return None
    mask = trace.program.step(step.reads[0])
    assert mask is not None
    assert isinstance(mask.op, Mask)
    places = mask.reads[1]
    positions = trace.stitched(places) if at is None else trace.site(places, at)
    real: Bool[Tensor, " query"] = positions[row] >= 0
    return real


def entropies(pattern: Float[Tensor, "*heads query key"], *, sink: bool = False) -> Float[Tensor, "*heads query"]:
    """−Σ p log₂ p of each row, summed up in float64. What a ``sink`` takes counts as one more key. (Shannon 1948)"""
    wide = torch.float32 if pattern.device.type == "mps" else torch.float64
    bits: Tensor = torch.special.entr(pattern).sum(-1, dtype=wide)
    if sink:
        bits += torch.special.entr((1 - pattern.sum(-1, dtype=wide)).clamp(min=0))
    return bits / math.log(2)


def extremes(
    planes: Float[Tensor, "head query key"], hidden: Bool[Tensor, "head query key"] | None, bins: tuple[int, int]
) -> tuple[Float[Tensor, "head y x"], Float[Tensor, "head y x"]]:
    """The largest and the smallest number in every bin of so many rows and columns, the last of an axis being smaller.

    What is ``hidden`` does not count; where nothing else is there they are −∞ and +∞. A NaN makes both NaN.
    """
    high = low = planes
    if hidden is not None:
        high, low = planes.masked_fill(hidden, -math.inf), planes.masked_fill(hidden, math.inf)
    for dim, size in enumerate(bins, 1):
        high, low = _binned(torch.amax, high, dim, size), _binned(torch.amin, low, dim, size)
    return high, low


def largest(high: Float[Tensor, "*tiles"], low: Float[Tensor, "*tiles"]) -> Float[Tensor, "*tiles"]:
    """The one of two extremes that is farther from 0; NaN where there was nothing."""
    return torch.where(high.abs() >= low.abs(), high, low).masked_fill(low > high, math.nan)


def _binned(extreme: Callable[..., Tensor], x: Tensor, dim: int, size: int) -> Tensor:
    """The extreme number in each bin of an axis."""
    whole = x.shape[dim] // size * size
    parts = [extreme(x.narrow(dim, 0, whole).unflatten(dim, (-1, size)), dim + 1)] if whole else []
    if whole < x.shape[dim]:
        parts.append(extreme(x.narrow(dim, whole, x.shape[dim] - whole), dim, keepdim=True))
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0]

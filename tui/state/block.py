"""A window of values that came from the engine, with the statistics of the whole picture."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tui.state.looks import Look

EVERYTHING = 65_536
"""A picture of up to so many cells is fetched whole."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Of the whole picture; ``low`` and ``high`` over finite cells."""

    low: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    std: float = 0.0
    norm: float = 0.0
    nonfinite: int = 0
    masked: int = 0
    count: int = 0

    @classmethod
    def read(cls, stats: Mapping[str, Any]) -> Stats:
        """From the engine's answer; a statistic that does not exist (no finite cell) is 0."""
        names = {"low": "min", "high": "max"} | {name: name for name in ("mean", "std", "norm")}
        counts = {name: int(stats.get(name) or 0) for name in ("nonfinite", "masked", "count")}
        values = {ours: _finite(stats.get(theirs)) for ours, theirs in names.items()}
        return cls(**values, **counts)  # type: ignore[arg-type]

    @property
    def signed(self) -> bool:
        """Whether there are negative values: then zero is the middle of the scale."""
        return self.low < 0

    @property
    def limit(self) -> float:
        """Where the scale ends: the largest magnitude, or four times the root mean square if that is smaller."""
        most = max(abs(self.low), abs(self.high))
        usual = 4 * math.sqrt(self.mean**2 + self.std**2)
        if not self.signed and self.high <= 1.0:
            return most
        return usual if 0 < usual < most else most

    @property
    def clipped(self) -> bool:
        """Whether some cells lie beyond the scale."""
        return max(abs(self.low), abs(self.high)) > self.limit * 1.0001


@dataclass(frozen=True)
class Block:
    """Values of the cells ``row … row+rows`` × ``col … col+cols`` of a picture."""

    key: tuple[object, ...]
    row: int
    col: int
    rows: int
    cols: int
    values: array[float] = field(repr=False)
    stats: Stats = field(default_factory=Stats)
    numbers: str = ""
    """The formula's symbols with the sizes of the pass that it is of."""
    told: Look | None = None
    """What the engine derived, where the picture is no window of the tensor."""

    def has(self, rows: tuple[int, int], cols: tuple[int, int]) -> bool:
        """Whether the cells of a half-open range are all here."""
        return (
            self.row <= rows[0]
            and rows[1] <= self.row + self.rows
            and self.col <= cols[0]
            and cols[1] <= self.col + self.cols
        )

    def line(self, row: int, start: int, stop: int) -> list[float | None]:
        """The cells of one row; None where a cell is not here."""
        if not self.row <= row < self.row + self.rows:
            return [None] * (stop - start)
        here, there = max(start, self.col), min(stop, self.col + self.cols)
        if here >= there:
            return [None] * (stop - start)
        base = (row - self.row) * self.cols - self.col
        cells: list[float | None] = list(self.values[base + here : base + there])
        return [None] * (here - start) + cells + [None] * (stop - there)

    def value(self, row: int, col: int) -> float | None:
        """One cell; None where it is not here."""
        return self.line(row, col, col + 1)[0]


def window(
    size: tuple[int, int], rows: tuple[int, int], cols: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """What to ask for when ``rows`` × ``cols`` are looked at: everything if it is small, else a margin around."""
    if size[0] * size[1] <= EVERYTHING:
        return (0, size[0]), (0, size[1])
    return _wider(rows, size[0]), _wider(cols, size[1])


def _wider(span: tuple[int, int], size: int) -> tuple[int, int]:
    margin = max(16, span[1] - span[0])
    return max(0, span[0] - margin), min(size, span[1] + margin)


def _finite(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0

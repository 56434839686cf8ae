"""The cache as cells: which positions a layer holds after a pass, and how many of them a column stands for."""

from __future__ import annotations

from dataclasses import dataclass

from tui.state.cache import Growth, Layer

WIDEST = 8


@dataclass(frozen=True, slots=True)
class Columns:
    """``total`` positions in columns ``width`` cells wide, ``per`` positions each."""

    total: int
    width: int
    per: int

    @classmethod
    def within(cls, total: int, room: int) -> Columns:
        """As wide as there is room for; where there are more positions than cells, several in one."""
        room = max(1, room)
        if total <= room:
            return cls(total, max(1, min(WIDEST, room // max(1, total))), 1)
        return cls(total, 1, -(-total // room))

    @property
    def count(self) -> int:
        """How many columns there are."""
        return -(-self.total // self.per)

    @property
    def cells(self) -> int:
        """How wide they are together."""
        return self.count * self.width


def state(layer: Layer, growth: Growth, start: int, stop: int) -> str:
    """What became of positions ``start … stop−1`` of a layer after a pass: added, held, dropped, or absent as yet.

    Of several positions the newest that is there speaks for all.
    """
    stop = min(stop, growth.positions)
    if start >= stop:
        return "absent"
    if stop <= growth.positions - layer.rows(growth.positions):
        return "dropped"
    return "added" if stop > growth.positions - growth.new else "held"


def states(layer: Layer, growth: Growth, columns: Columns) -> list[str]:
    """One for each column."""
    return [
        state(layer, growth, first, first + columns.per) for first in range(0, columns.count * columns.per, columns.per)
    ]

"""A ranked table that the engine derived: nearest neighbours of a token, its strongest neurons."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from rich.segment import Segment
from textual.message import Message
from textual.strip import Strip

from tui.render.bars import bar
from tui.state.block import Block
from tui.state.looks import Cell, Table
from tui.state.numbers import short, special
from tui.state.views import Plane
from tui.text import cells, fit, foreign, right
from tui.widgets.plane import RowsView

WIDEST = {"label": 18, "labels": 34, "int": 12, "number": 12, "bar": 12}
"""The most that a column of a kind takes, its name included; of a bar its number."""
NUMBER = 7
ROOMY = {"label": 12, "labels": 26}
LEAST = {"label": 6, "labels": 8}
"""What a column of words may be cut to before a column of numbers is left out, and what at all."""
GAPS = (2, 1)
SHORT = 6
"""What a column of numbers may be cut to before it is left out."""
GATED = 2
"""So many columns of numbers beside the one that counts stay while they can: gate and up."""
BAR = (6, 30)
RANK = 5


class Listing(RowsView):
    """A heading, then one line a row, the best first; ``choose`` moves a mark along it."""

    DEFAULT_CSS = "Listing { overflow: hidden auto; }"

    HEADING = 1

    class Marked(Message):
        """Another row is marked."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.chosen = 0
        self._widths: dict[int, int] = {}
        self._gap = GAPS[0]
        self._bar = 0

    @property
    def table(self) -> Table | None:
        """What is listed; None while it is not here."""
        told = self.block.told if self.block else None
        return told if isinstance(told, Table) else None

    @property
    def count(self) -> int:
        return len(self.table.rows) if self.table else 0

    def show(self, plane: Plane, cell: tuple[int, int], block: Block | None) -> None:
        """Another list begins at its first row."""
        if self.plane is None or plane.key != self.plane.key:
            self.chosen = 0
        super().show(plane, (self.chosen, 0), block)

    def choose(self, by: int) -> None:
        """Another row is marked."""
        if self.count:
            self.chosen = max(0, min(self.chosen + by, self.count - 1))
            self.cell = (self.chosen, 0)
            self.follow(False)
            self.refresh()
            self.post_message(self.Marked())

    @property
    def marked(self) -> tuple[str, str]:
        """The row that is marked in words: what it is with the number that is drawn, and the rest of it."""
        table = self.table
        if table is None or not 0 <= self.chosen < len(table.rows):
            return "", ""
        cells = list(zip(table.columns, table.rows[self.chosen], strict=True))
        first, others = cells[0], [(column, value) for column, value in cells[1:] if value is not None]
        name = _words(first[1]) if first[0].kind == "label" else f"{foreign(first[0].name)} {_words(first[1])}"
        words = [(column.kind == "bar", f"{foreign(column.name)} {_words(value)}") for column, value in others]
        drawn, rest = ([text for bar, text in words if bar == one] for one in (True, False))
        return "  ".join([name, *drawn]), "  ".join(rest)

    def on_click(self, event: object) -> None:
        """A click marks a row."""
        row = getattr(event, "y", 0) - self.HEADING + self.scroll_offset.y
        if row >= self.scroll_offset.y and row < self.count:
            self.choose(row - self.chosen)

    def seen(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (0, 1), (0, 1)  # it comes whole

    def measure(self) -> None:
        super().measure()
        table = self.table
        if table is None:
            return
        natural = {
            n: min(
                WIDEST[column.kind],
                max([cells(foreign(column.name)), *(cells(_words(row[n])) for row in table.rows)]),
            )
            for n, column in enumerate(table.columns)
        }
        self._widths, self._gap = dict(natural), GAPS[0]
        key = sorted_by(table)
        for n, least in self._ways(table, key):
            if self._spare >= 0:
                break
            if n < 0:
                self._gap = least
            elif not least:
                self._widths.pop(n, None)
            elif n in self._widths:
                self._widths[n] = max(min(least, self._widths[n]), self._widths[n] + self._spare)
        for n in (key, *self._widths):  # what was cut gets back what is left
            if n in self._widths:
                self._widths[n] += min(natural[n] - self._widths[n], max(0, self._spare))
        spare = self._spare
        drawn = any(column.kind == "bar" and n in self._widths for n, column in enumerate(table.columns))
        self._bar = min(BAR[1], spare - 2) if drawn and spare >= BAR[0] + 2 else 0

    @property
    def _spare(self) -> int:
        """Cells that the columns leave; below 0: those that they lack."""
        return self.room.width - RANK - 1 - sum(self._widths.values()) - self._gap * len(self._widths)

    def _ways(self, table: Table, key: int) -> Iterator[tuple[int, int]]:
        """Columns and what each may be cut to (0: left out), one after the other; −1: what is between columns.

        The first column, and the one that the table is sorted by, stay to the end.
        """
        kinds = [column.kind for column in table.columns]
        words = [n for n, kind in enumerate(kinds) if kind in ROOMY]
        factors = [n for n, kind in enumerate(kinds) if n and kind == "number" and n != key]
        yield from ((n, ROOMY[kinds[n]]) for n in words)
        yield from ((n, 0) for n, kind in enumerate(kinds) if n and kind == "int")
        yield from ((n, 0) for n in factors[GATED:])
        yield -1, GAPS[1]
        yield from ((n, SHORT) for n, kind in enumerate(kinds) if kind in ("number", "bar") and n != key)
        yield from ((n, LEAST[kinds[n]]) for n in words)
        yield key, NUMBER
        yield from ((n, 0) for n in reversed(factors))
        yield from ((n, 0) for n, kind in enumerate(kinds) if n and kind == "bar" and n != key)
        yield from ((n, 0) for n in reversed(words) if n)

    def strip(self, y: int) -> Strip:
        width, table = self.room.width, self.table
        if table is None or self.plane is None:
            return self.blank(width)
        if y == 0:
            return self.cached(("head", width), lambda: self._head(table), width)
        row = y - self.HEADING + self.scroll_offset.y
        if row >= len(table.rows):
            return self.blank(width)
        return self.cached((row, row == self.chosen, width), lambda: self._line(table, row), width)

    def _head(self, table: Table) -> list[Segment]:
        parts = [" " + right("#", RANK - 2) + " "]
        for n, width in self._widths.items():
            column = table.columns[n]
            name = foreign(column.name)
            words = column.kind in ("label", "labels")
            parts.append(" " * self._gap + (fit(name, width) if words else right(name, width)))
            if column.kind == "bar" and self._bar:
                parts.append(" " * (self._bar + 2))
        return [Segment("".join(parts), self.inks.faint)]

    def _line(self, table: Table, row: int) -> list[Segment]:
        inks, here, first = self.inks, row == self.chosen, row == 0
        quiet = inks.cursor_muted if here else inks.muted
        segments = [
            Segment("▸" if here else " ", inks.accent),
            Segment(right(str(row + 1), RANK - 2) + " ", quiet),
        ]
        for n, width in self._widths.items():
            column, value = table.columns[n], table.rows[row][n]
            words, odd = _words(value, width), isinstance(value, float) and bool(special(value))
            main = column.kind in ("label", "bar")
            style = inks.cursor if here else inks.error if odd else inks.strong if first else inks.text
            if not main:
                style = quiet
            named = column.kind in ("label", "labels")
            put = fit(words, width) if named else right(words, width)
            segments.append(Segment(" " * self._gap + put, style))
            if column.kind == "bar" and self._bar:
                segments += [Segment("  ", inks.text), *self._bars(table, n, value)]
        return segments

    def _bars(self, table: Table, n: int, value: Cell) -> list[Segment]:
        inks = self.inks
        numbers = [v for row in table.rows if isinstance(v := row[n], int | float) and math.isfinite(v)]
        most, signed = max(map(abs, numbers), default=0.0), any(v < 0 for v in numbers)
        number = float(value) if isinstance(value, int | float) else math.nan
        return bar(number, most, self._bar, signed, inks.bar_up, inks.bar_down, inks.bar_track)


def sorted_by(table: Table) -> int:
    """The column of numbers that falls from row to row, the last one if several do; else the bar's, else the first."""
    numbers = [n for n, column in enumerate(table.columns) if column.kind in ("number", "bar")]
    for n in reversed(numbers):
        known = [value for row in table.rows if isinstance(value := row[n], int | float) and math.isfinite(value)]
        if known and all(a >= b for a, b in pairwise(known)):
            return n
    return next((n for n in numbers if table.columns[n].kind == "bar"), 0)


def _words(value: Cell, width: int = NUMBER) -> str:
    """A cell as text; · where there is none."""
    if value is None:
        return "·"
    if isinstance(value, tuple):
        return "  ".join(map(foreign, value)) or "·"
    if isinstance(value, float):
        return short(value, min(width, NUMBER))
    return foreign(value)

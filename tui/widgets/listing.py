"""A ranked table that the engine derived: nearest neighbours of a token, its strongest neurons."""

from __future__ import annotations

import math

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
        self._widths = natural
        room = self.room.width - RANK - 1
        while (need := sum(self._widths.values()) + 2 * len(self._widths)) > room:
            if not self._narrower(table, need - room):
                break
        spare = room - sum(self._widths.values()) - 2 * len(self._widths)
        for n in self._widths:  # words get back what a column that was left out took
            more = min(natural[n] - self._widths[n], max(0, spare))
            self._widths[n], spare = self._widths[n] + more, spare - more
        drawn = any(column.kind == "bar" and n in self._widths for n, column in enumerate(table.columns))
        self._bar = min(BAR[1], spare - 2) if drawn and spare >= BAR[0] + 2 else 0

    def _narrower(self, table: Table, by: int) -> bool:
        """Cut words, then leave out numbers: the last but one, a factor of the last, then from the right.

        The first column stays. False where nothing is left to be cut.
        """
        numbers = [n for n, column in enumerate(table.columns) if n and column.kind in ("number", "int")]
        if self._cut(table, ROOMY, by):
            return True
        if len(numbers) > 1 and numbers[-2] in self._widths:
            del self._widths[numbers[-2]]
            return True
        if self._cut(table, LEAST, by):
            return True
        rest = [n for n in numbers if n in self._widths] or [n for n in self._widths if n]
        if rest:
            del self._widths[rest[-1]]
        return bool(rest)

    def _cut(self, table: Table, least: dict[str, int], by: int) -> bool:
        for n, width in self._widths.items():
            least_here = least.get(table.columns[n].kind, width)
            if width > least_here:
                self._widths[n] = max(least_here, width - by)
                return True
        return False

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
            parts.append("  " + (fit(name, width) if words else right(name, width)))
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
            words, odd = _words(value), isinstance(value, float) and bool(special(value))
            main = column.kind in ("label", "bar")
            style = inks.cursor if here else inks.error if odd else inks.strong if first else inks.text
            if not main:
                style = quiet
            named = column.kind in ("label", "labels")
            segments.append(Segment("  " + (fit(words, width) if named else right(words, width)), style))
            if column.kind == "bar" and self._bar:
                segments += [Segment("  ", inks.text), *self._bars(table, n, value)]
        return segments

    def _bars(self, table: Table, n: int, value: Cell) -> list[Segment]:
        inks = self.inks
        numbers = [v for row in table.rows if isinstance(v := row[n], int | float) and math.isfinite(v)]
        most, signed = max(map(abs, numbers), default=0.0), any(v < 0 for v in numbers)
        number = float(value) if isinstance(value, int | float) else math.nan
        return bar(number, most, self._bar, signed, inks.bar_up, inks.bar_down, inks.bar_track)


def _words(value: Cell) -> str:
    """A cell as text; · where there is none."""
    if value is None:
        return "·"
    if isinstance(value, tuple):
        return "  ".join(map(foreign, value)) or "·"
    if isinstance(value, float):
        return short(value, NUMBER)
    return foreign(value)

"""One vector as bars, a line for each element."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from engine.views import TOKEN_AXES
from tui.render.bars import bar
from tui.state.numbers import exact, special
from tui.text import cells, fit, right
from tui.widgets.plane import RowsView

LABEL = 14
NUMBER = 11


class Bars(RowsView):
    """Signed bars from zero, with the value beside each."""

    HEADING = 1

    def measure(self) -> None:
        super().measure()
        plane = self.plane
        self._label = 4
        if plane is not None:
            axis, count = plane.view.rows, self.count
            shown = range(min(count, 200)) if axis in TOKEN_AXES else (max(0, count - 1),)
            widest = max((cells(plane.label(axis, row)) for row in shown), default=1)
            self._label = max(len(axis), min(widest, LABEL), 4)

    def strip(self, y: int) -> Strip:
        plane, width = self.plane, self.room.width
        if plane is None:
            return self.blank(width)
        if y == 0:
            head = f" {right(plane.view.rows, self._label)} {'value'.rjust(NUMBER)}"
            return self.cached("head", lambda: [Segment(fit(head, width), self.inks.faint)], width)
        row = y - self.HEADING + self.scroll_offset.y
        if row >= self.count:
            return self.blank(width)
        return self.cached((row, row == self.cell[0], width), lambda: self._line(row, width), width)

    def _line(self, row: int, width: int) -> list[Segment]:
        assert self.plane is not None
        here, value, inks = row == self.cell[0], self.value(row), self.inks
        label = right(self.plane.label(self.plane.view.rows, row), self._label)
        if value is None:
            return [Segment(f" {label} ", inks.muted), Segment("┄".rjust(NUMBER), inks.faint)]
        stats = self.block.stats if self.block else None
        masked = stats is not None and value == float("-inf") and stats.masked > 0
        whole = self.plane.step.whole
        number = "masked" if masked else exact(value, whole)
        style = inks.error if special(value) and not masked else inks.faint if masked else inks.text
        segments = [
            Segment("▸" if here else " ", inks.accent),
            Segment(label + " ", inks.cursor if here else inks.muted),
            Segment(number.rjust(NUMBER) + " ", inks.cursor if here else style),
        ]
        room = width - self._label - NUMBER - 4
        if stats is not None and not masked and not whole:
            most = max(abs(stats.low), abs(stats.high))
            segments += [
                Segment(" ", inks.text),
                *bar(value, most, room, stats.signed, inks.bar_up, inks.bar_down, inks.bar_track),
            ]
        return segments

"""A table of positions × dims as curves: how some dims go along the text."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.strip import Strip

from tui.render.braille import Canvas
from tui.render.plot import DASHES, Dot, overlaid, polyline
from tui.state.numbers import short
from tui.state.views import Plane
from tui.text import cells, fit, right
from tui.widgets.plane import PlaneView

GUTTER = 7
SPARE = (16, 40)
"""Columns from which on there is a second curve, and for each further one."""
SAMPLE = 4
"""Cells of a curve's sample in the legend."""
LABEL = 16


class Curve(NamedTuple):
    """One dim: its values at the positions in sight, and how it is drawn."""

    dim: int
    values: list[float | None]
    style: Style
    dash: tuple[int, int]


class Curves(PlaneView):
    """The dim at the cursor as a solid line, some others dashed and dotted, a mark at the cursor's position.

    A dot column stands for at least one position; where there are more, those around the cursor are shown.
    """

    DEFAULT_CSS = "Curves { overflow: hidden hidden; }"

    @property
    def _plot(self) -> tuple[int, int]:
        """Columns and lines for the curves: a heading above, the axis and its words below."""
        return max(0, self.room.width - GUTTER), max(0, self.room.height - 1 - self._foot)

    @property
    def _foot(self) -> int:
        return 2 if self.room.height >= 8 else 1 if self.room.height >= 4 else 0

    def measure(self) -> None:
        self._virtual(self.room.width, self.room.height)

    @property
    def positions(self) -> tuple[int, int]:
        """The half-open range of positions that is drawn."""
        total = self.plane.size[0] if self.plane else 0
        count = max(1, min(total, 2 * self._plot[0]))
        page = max(1, count // 2)
        first = max(0, min(total - count, (self.cell[0] // page) * page - page // 2))
        return first, min(total, first + count)

    @property
    def dims(self) -> tuple[int, ...]:
        """The dims that are drawn: the cursor's, then some at other frequencies, from the first to the middle one."""
        plane, width = self.plane, self._plot[0]
        if plane is None:
            return ()
        total, here = plane.size[1], self.cell[1]
        most = min(len(DASHES) - 1, 0 if width < SPARE[0] else 1 + width // SPARE[1])
        spread = (round(n * total / 2 / max(1, most)) for n in range(most + 1))
        others = [dim for dim in dict.fromkeys(spread) if dim != here and dim < total]
        return (here, *others[:most])

    def seen(self) -> tuple[tuple[int, int], tuple[int, int]]:
        dims = self.dims
        return self.positions, (min(dims, default=0), max(dims, default=-1) + 1)

    def strip(self, y: int) -> Strip:
        plane, width = self.plane, self.room.width
        if plane is None:
            return self.blank(width)
        height = self._plot[1]
        key = (y, self.cell, width, self.room.height)
        if y == 0:
            return self.cached(key, lambda: self._legend(width), width)
        if y <= height:
            return self.cached(key, lambda: self._lines()[y - 1], width)
        return self.cached(key, lambda: self._axis(plane) if y == height + 1 else self._place(plane), width)

    def _curves(self) -> list[Curve]:
        first, last = self.positions
        inks, block = self.inks, self.block
        styles = (inks.accent, inks.primary, inks.success, inks.muted, inks.faint)
        return [
            Curve(dim, [block.value(pos, dim) if block else None for pos in range(first, last)], style, dash)
            for dim, style, dash in zip(self.dims, styles, DASHES, strict=False)
        ]

    def _lines(self) -> list[list[Segment]]:
        """The plot, drawn whole and kept until something changes."""
        width, height = self._plot
        curves, inks = self._curves(), self.inks
        first, last = self.positions
        known = [v for curve in curves for v in curve.values if v is not None and math.isfinite(v)]
        low, high = min(known, default=0.0), max(known, default=0.0)
        low, high = min(low, 0.0), max(high, 0.0)
        span, across, down = (high - low) or 1.0, width * 2 - 1, height * 4 - 1

        def x_of(pos: int) -> float:
            return (pos - first) * across / max(1, last - first - 1)

        def dot(n: int, value: float | None) -> Dot | None:
            known = value is not None and math.isfinite(value)
            return (x_of(first + n), (high - (value or 0.0)) / span * down) if known else None

        canvas = Canvas(width, height)
        mark = round(x_of(self.cell[0]))
        polyline(canvas, [(0, high / span * down), (across, high / span * down)], inks.bar_track, -0.9, (2, 2))
        polyline(canvas, [(mark, 0), (mark, down)], inks.faint, -0.5, (1, 1))
        for rank, curve in enumerate(reversed(curves)):
            dots = [dot(n, value) for n, value in enumerate(curve.values)]
            polyline(canvas, dots, curve.style, rank, curve.dash, 2 if curve.dim == self.cell[1] else 1)
        lines = [canvas.segments(y, inks.text) for y in range(height)]
        for curve in reversed(curves):
            at = dot(self.cell[0] - first, curve.values[self.cell[0] - first]) if curve.values else None
            if at is not None:
                y = min(height - 1, round(at[1]) // 4)
                glyph = "●" if curve.dim == self.cell[1] else "○"
                lines[y] = overlaid(lines[y], min(width - 1, mark // 2), glyph, curve.style + inks.strong.without_color)
        ends = {0: high, max(0, height - 1): low, min(height - 1, round(high / span * down) // 4): 0.0}
        built = []
        for y, line in enumerate(lines):
            name = short(ends[y], GUTTER - 2) if y in ends and curves and known else ""
            built.append([Segment(right(name, GUTTER - 1) + " ", inks.faint), *line])
        for y, line in enumerate(built):  # all at once: a line alone costs as much
            self.cached((y + 1, self.cell, self.room.width, self.room.height), partial(list, line), self.room.width)
        return built

    def _legend(self, width: int) -> list[Segment]:
        """``⠶⠶⠶⠶ dim 3 0.44753   ⠒⠒ ⠐ dim 0 -.90369``; where that is too long, in fewer words."""
        entries = self._entries(7, "dim ", 3)
        if sum(segment.cell_length for segment in entries) > width:
            entries = self._entries(5, "", 2)
        return entries

    def _entries(self, digits: int, word: str, gap: int) -> list[Segment]:
        inks, place = self.inks, self.cell[0] - self.positions[0]
        segments = [Segment(" ", inks.text)]
        for n, curve in enumerate(self._curves()):
            value = curve.values[place] if 0 <= place < len(curve.values) else None
            number = "…" if value is None else short(value, digits if n else 7)
            sample = Canvas(SAMPLE, 1)
            polyline(sample, [(0, 1), (2 * SAMPLE - 1, 1)], curve.style, 1, curve.dash, 2 if n == 0 else 1)
            text, quiet = (inks.muted, inks.text) if n else (inks.strong, inks.strong)
            name = f" {word if n else 'dim '}{curve.dim} "
            segments += [*sample.segments(0, inks.text), Segment(name, text), Segment(number + " " * gap, quiet)]
        return segments

    def _axis(self, plane: Plane) -> list[Segment]:
        """Numbers of positions, in the whole text."""
        width, (first, last) = self._plot[0], self.positions
        start, marks = plane.step.first(plane.view.rows), [" "] * width
        across = max(1, last - first - 1)
        every = next((n for n in _ROUND if n * (width / across) >= len(str(start + last)) + 2), _ROUND[-1])
        for pos in range(first, last):
            text, at = str(start + pos), round((pos - first) * (2 * width - 1) / across) // 2
            at = min(at, width - len(text))  # the last one ends at the edge
            if (start + pos) % every == 0 and not "".join(marks[max(0, at - 1) :]).strip():
                marks[max(0, at) : at + len(text)] = text
        return [Segment(right("pos", GUTTER - 1) + " ", self.inks.faint), Segment("".join(marks), self.inks.faint)]

    def _place(self, plane: Plane) -> list[Segment]:
        """The token at the cursor below its mark."""
        width, (first, last) = self._plot[0], self.positions
        at = round((self.cell[0] - first) * (2 * width - 1) / max(1, last - first - 1)) // 2
        label = plane.label(plane.view.rows, self.cell[0])
        text = fit(label, min(cells(label), LABEL))
        text += f" ({plane.step.first(plane.view.rows) + self.cell[0]})"
        before = max(0, min(at, width - cells(text)))
        return [Segment(" " * (GUTTER + before), self.inks.text), Segment(text, self.inks.strong)]

    def on_click(self, event: Click) -> None:
        """A click goes to the position below it."""
        width, (first, last) = self._plot[0], self.positions
        if self.plane is None or event.x < GUTTER or width <= 0 or not 1 <= event.y <= self._plot[1]:
            return
        pos = first + round((event.x - GUTTER) * 2 * (last - first - 1) / max(1, 2 * width - 1))
        self.post_message(self.Picked(max(first, min(pos, last - 1)), None))


_ROUND = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)

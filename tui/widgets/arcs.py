"""A pattern as arcs from the cursor's query to the keys that it reads, between two columns of tokens."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.strip import Strip

from tui.render.bars import bar
from tui.render.braille import Canvas
from tui.render.cells import MASKED, MISSING, Scale
from tui.render.palette import LEVELS
from tui.state.block import Block, Stats
from tui.state.numbers import cell, special
from tui.state.views import Plane
from tui.text import cells, fit, right
from tui.widgets.plane import PlaneView

LABEL = 14
NUMBER = 6
STROKES = ((0.5, 4, 1), (0.25, 3, 1), (0.1, 2, 1), (0.02, 1, 1), (0.005, 1, 2), (0.0, 1, 4))
"""From which weight on an arc is how thick, and of its dots each how manieth is drawn."""
QUIET = 0.01
"""A weight below this has no arc to a key out of sight."""
FAINTEST = {True: 3, False: 5}
"""The level of a scale that the weakest arc has, on dark and on light: a fainter one would be lost."""
CANVAS = (6, 72)
BAR = (6, 24)


class Layout(NamedTuple):
    """Cells of the parts of a line: the query's label, the arcs, the key's label, the bar."""

    query: int
    arcs: int
    key: int
    bar: int


class Row(NamedTuple):
    """The weights of the cursor's query, the key with the largest, and where the scale of the row ends."""

    values: list[float | None]
    best: int | None
    limit: float


class Arcs(PlaneView):
    """Queries at the left, keys at the right: thick and bright is much, and the weight stands beside each key."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._pitch = 1
        self._parts = Layout(4, 0, 4, 0)
        self._scale: Scale | None = None
        self._canvas: tuple[object, Canvas] = (None, Canvas(0, 0))
        self._read: tuple[Block | None, object, Row] = (None, None, Row([], None, 0.0))
        self._bests: tuple[Block | None, dict[int, int | None]] = (None, {})

    @property
    def scale(self) -> Scale | None:
        """How weights become colours."""
        return self._scale

    @property
    def _shift(self) -> int:
        """How many lines lower the first query stands than the first key: what was run in earlier passes."""
        plane = self.plane
        return max(0, plane.step.first(plane.view.rows) - plane.step.first(plane.view.cols)) if plane else 0

    @property
    def _lines(self) -> int:
        rows, cols = self.plane.size if self.plane else (0, 0)
        return max(rows + self._shift, cols)

    def measure(self) -> None:
        plane, room = self.plane, self.room
        if plane is None:
            return
        stats, drawing = self.block.stats if self.block else Stats(high=1.0), self.drawing
        weight = plane.zero_is_masked(stats)
        mode = "row" if drawing.mode == "auto" else drawing.mode  # one row is looked at: all of the scale is its own
        self._scale = Scale(stats, self.palette, NUMBER, weight, drawing.shades, False, mode, drawing.fixed)
        lines = max(1, self._lines)
        self._pitch = max((pitch for pitch in (1, 2, 3) if lines * pitch < room.height), default=1)
        self._parts = _layout(plane, room.width)
        self._virtual(room.width, lines * self._pitch + 1)

    def seen(self) -> tuple[tuple[int, int], tuple[int, int]]:
        rows, cols = self.plane.size if self.plane else (0, 0)
        row = min(self.cell[0], max(0, rows - 1))
        return (row, min(rows, row + 1)), (0, cols)

    def follow(self, fresh: bool) -> None:
        line, top = (self.cell[0] + self._shift) * self._pitch, self.scroll_offset.y
        height = max(1, self.room.height - 1)
        if not top <= line < top + height:  # most keys lie before their query
            self.scroll_to(y=max(0, line - height * 3 // 4), animate=False, force=True, immediate=True)

    def strip(self, y: int) -> Strip:
        plane, scale, width, top = self.plane, self._scale, self.room.width, self.scroll_offset.y
        if plane is None or scale is None:
            return self.blank(width)
        return self.cached(
            (y, top, self.cell, width, self.room.height),
            lambda: self._heading(plane, scale) if y == 0 else self._line(plane, scale, y - 1, top),
            width,
        )

    def _row(self, scale: Scale) -> Row:
        """What the cursor's query reads."""
        block, key, found = self._read
        now = (self.cell[0], scale, self.plane.size if self.plane else (0, 0))
        if block is not self.block or key != now:
            cols = now[2][1]
            values: list[float | None] = self.block.line(self.cell[0], 0, cols) if self.block else [None] * cols
            found = Row(values, _strongest(values), scale.row_limit(values) or scale.limit)
            self._read = (self.block, now, found)
        return found

    def _best(self, block: Block, row: int, cols: int) -> int | None:
        """The key that another query reads most."""
        if self._bests[0] is not block:
            self._bests = (block, {})
        known = self._bests[1]
        if row not in known:
            known[row] = _strongest(block.line(row, 0, cols))
        return known[row]

    def _heading(self, plane: Plane, scale: Scale) -> list[Segment]:
        inks, parts, view = self.inks, self._parts, plane.view
        values, best, _ = self._row(scale)
        words = ""
        if best is not None:
            query, key = plane.label(view.rows, self.cell[0]), plane.label(view.cols, best)
            where = f"{_cut(key)} {_number(values[best])}{self._way(best)}"
            words = f"{_cut(query)} reads {where}" if plane.minus is None else f"most: {where}"
            if cells(words) > parts.arcs - 2:
                words = f"most: {where}"
        room = max(0, parts.arcs - 2)
        words = fit(words, room) if cells(words) > room else words
        left = (parts.arcs - cells(words)) // 2
        return [
            Segment("  " + right(view.rows, parts.query) + "  ", inks.faint),
            Segment(" " * left + words + " " * (parts.arcs - left - cells(words)), inks.muted),
            Segment(
                "  " + fit(view.cols, parts.key) + ("weight" if plane.minus is None else "differs").rjust(NUMBER + 1),
                inks.faint,
            ),
            Segment(self._away(values), inks.accent),
        ]

    def _way(self, key: int) -> str:
        """Whether a key is out of sight, and where."""
        line = key * self._pitch - self.scroll_offset.y
        return " ↑" if line < 0 else " ↓" if line >= self.room.height - 1 else ""

    def _away(self, values: list[float | None]) -> str:
        """How much of the weight goes to keys out of sight."""
        top, height = self.scroll_offset.y, max(0, self.room.height - 1)
        if len(values) * self._pitch <= height:
            return ""
        above = sum(value for value in values[:top] if value is not None and math.isfinite(value))
        below = sum(value for value in values[top + height :] if value is not None and math.isfinite(value))
        parts = [f"{mark} {_number(total)}" for mark, total in (("↑", above), ("↓", below)) if abs(total) >= 5e-4]
        return "  " + " ".join(parts) if parts else ""

    def _line(self, plane: Plane, scale: Scale, y: int, top: int) -> list[Segment]:
        inks, parts, (row, col) = self.inks, self._parts, self.cell
        rows, cols = plane.size
        index, part = divmod(y + top, self._pitch)
        words = part == (self._pitch - 1) // 2
        query, arcs = index - self._shift, self._drawn(plane, scale, top).segments(y, inks.text)
        segments = [Segment(" " * (parts.query + 4), inks.text)]
        if words and 0 <= query < rows:
            here = query == row
            segments = [
                Segment(" ▸" if here else "  ", inks.accent),
                Segment(right(plane.label(plane.view.rows, query), parts.query), inks.cursor if here else inks.muted),
                Segment(" ●" if here else " ·", inks.strong if here else inks.faint),
            ]
        segments += arcs
        if not words or not 0 <= index < cols:
            return segments
        value = self.block.value(row, index) if self.block else None
        return [*segments, *self._key(plane, scale, index, value, index == col)]

    def _key(self, plane: Plane, scale: Scale, key: int, value: float | None, here: bool) -> list[Segment]:
        """A key with its weight: all that the arc tells, in a number."""
        inks, parts = self.inks, self._parts
        label = fit(plane.label(plane.view.cols, key), parts.key)
        if value is None or scale.masks(value):
            number = MISSING if value is None else MASKED
            quiet = inks.cursor_muted if here else inks.faint
            return [Segment("  ", inks.text), Segment(label + number.rjust(NUMBER) + " ", quiet)]
        _, best, limit = self._row(scale)
        odd, strong = bool(special(value)), key == best
        ink = inks.error if odd else self._ink(scale, value, limit)
        name = inks.cursor if here else inks.strong if strong else inks.text if abs(value) >= 0.05 else inks.muted
        segments = [
            Segment("● " if abs(value) >= 0.02 or odd else "· ", ink),
            Segment(label, name),
            Segment(_number(value).rjust(NUMBER) + " ", inks.error if odd else name),
        ]
        return [
            *segments,
            Segment(" ", inks.text),
            *bar(value, limit, parts.bar, scale.signed, ink, ink, inks.bar_track),
        ]

    def _drawn(self, plane: Plane, scale: Scale, top: int) -> Canvas:
        """The arcs in sight."""
        height, row = max(0, self.room.height - 1), self._row(scale)
        key = (self.cell[0], top, self._parts, self._pitch, height, self.app.theme, scale)
        if self._canvas[0] == (key, row.values):
            return self._canvas[1]
        canvas = Canvas(self._parts.arcs, height)
        middle = (self._pitch - 1) // 2

        def line(index: int) -> int:
            return index * self._pitch + middle - top

        if not self.drawing.shades and self._lines * self._pitch <= height:
            self._others(plane, canvas)
        start, most = line(self.cell[0] + self._shift), 1.0 if scale.weight else scale.limit
        for at, value in enumerate(row.values):
            if value is None or not math.isfinite(value) or value == 0:
                continue
            share = abs(value) / most
            if share < QUIET and not 0 <= line(at) < height:
                continue
            thick, gap = next((thick, gap) for least, thick, gap in STROKES if share >= least)
            canvas.curve(start, line(at), self._ink(scale, value, row.limit), share, thick, gap)
        self._canvas = ((key, row.values), canvas)
        return canvas

    def _ink(self, scale: Scale, value: float, limit: float) -> Style:
        """The style of an arc and its bar: the colour of a cell, as ink."""
        level, least = scale.level(value, limit), FAINTEST[self.palette.dark]
        level = round(math.copysign(least + abs(level) * (LEVELS - least) / LEVELS, value))
        fill = self.palette.style(level, scale.warm, fill=True)
        return _as_ink(fill, self.inks.text)

    def _others(self, plane: Plane, canvas: Canvas) -> None:
        """The strongest link of each other query, faint."""
        (rows, cols), middle = plane.size, (self._pitch - 1) // 2
        for row in range(rows):
            best = self._best(self.block, row, cols) if self.block and row != self.cell[0] else None
            if best is not None:
                start, stop = (row + self._shift) * self._pitch + middle, best * self._pitch + middle
                canvas.curve(start, stop, self.inks.bar_track, -0.5)

    def on_click(self, event: Click) -> None:
        """A click on a token at the left makes it the query, one at the right the key."""
        if self.plane is None or event.y < 1:
            return
        index, (rows, cols) = (event.y - 1 + self.scroll_offset.y) // self._pitch, self.plane.size
        query = index - self._shift
        if event.x < self._parts.query + 4 and 0 <= query < rows:
            self.post_message(self.Picked(query, None))
        elif event.x >= self._parts.query + 4 + self._parts.arcs and index < cols:
            self.post_message(self.Picked(None, index))


@cache
def _as_ink(fill: Style, ground: Style) -> Style:
    return Style(color=fill.bgcolor, bgcolor=ground.bgcolor)


def _layout(plane: Plane, width: int) -> Layout:
    """Labels as wide as they need, the bar where there is room, the rest for the arcs."""
    rows, cols = plane.size
    most = max(3, min(LABEL, (width - NUMBER - 8) // 4))
    query, key = (
        max(len(axis), min(most, max((cells(plane.label(axis, n)) for n in range(min(size, 200))), default=1)))
        for axis, size in ((plane.view.rows, rows), (plane.view.cols, cols))
    )
    room = width - (query + 4) - (key + NUMBER + 4)
    bar_width = min(BAR[1], room // 4)
    bar_width = bar_width if bar_width >= BAR[0] and room - bar_width >= 3 * CANVAS[0] else 0
    return Layout(query, max(CANVAS[0], min(CANVAS[1], room - bar_width - 1)), key, bar_width)


def _strongest(values: list[float | None]) -> int | None:
    """The key with the largest weight, the first of equals; None where there is none."""
    known = [(value, -n) for n, value in enumerate(values) if value is not None and math.isfinite(value) and value]
    return -max(known)[1] if known else None


def _number(value: float | None) -> str:
    """A weight with three decimals; one that would be .000 is said to be less."""
    if value is None:
        return MISSING
    if name := special(value):
        return name
    return cell(value, 3) if abs(value) >= 5e-4 or value == 0 else "<.001" if value > 0 else ">-.001"


def _cut(label: str) -> str:
    return fit(label, min(cells(label), LABEL))

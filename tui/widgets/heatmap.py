"""A plane as cells: rows and columns with their labels, of any size; only what is seen is drawn and fetched."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.geometry import Region
from textual.strip import Strip

from engine.views import TOKEN_AXES
from tui.render.cells import WIDEST, Scale, auto_height, auto_width, worded_width
from tui.render.profile import profile
from tui.state.block import Block, Stats
from tui.state.drawing import Drawing
from tui.state.looks import Grid
from tui.state.numbers import short
from tui.state.trace import Trace
from tui.state.views import Plane
from tui.text import cells, centred, fit, right
from tui.widgets.plane import PlaneView

LABEL = 12
PROFILE = (3, 12)
"""The least and the most lines of the row shown as bars."""
UNKNOWN = Stats(low=-1.0, high=1.0, std=1.0)
"""What a picture is measured with until its statistics are here."""


class Sight(NamedTuple):
    """What is seen: the width of the room, the first row and column, how many columns, of how many rows."""

    width: int
    top: int
    left: int
    columns: int
    rows: int


class Heatmap(PlaneView):
    """A query × key pattern, any matrix, or words with their numbers, as the lens has.

    The width of a cell is what its numbers need; it stays while the axes and sizes do, so that one can toggle through
    the steps from scores to pattern on the same cells, and grows only where numbers would not fit.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._gutter = 1
        self._width = 2
        self._height = 1
        self._labelled = False
        self._held: tuple[object, int] = (None, 0)
        self._scale: Scale | None = None
        self._measured: tuple[Grid | None, int] = (None, 0)
        self._sight: Sight | None = None
        self._labels: dict[int, str] = {}
        self._limits: dict[int, float] = {}
        self._profile: list[list[Segment]] = []
        self._profile_key: object = None

    @property
    def shades(self) -> bool:
        """Whether cells are shades in place of colours."""
        return self.drawing.shades

    @property
    def cell_width(self) -> int:
        """Cells of the terminal that a column takes."""
        return self._width

    @property
    def scale(self) -> Scale | None:
        """How values become cells now."""
        return self._scale

    @property
    def columns(self) -> int:
        """How many columns can be seen at once."""
        return max(0, (self.room.width - self._gutter) // self._width)

    @property
    def first_column(self) -> int:
        """The first column that is seen."""
        total = self.plane.size[1] if self.plane else 0
        return max(0, min(total - self.columns, -(-self.scroll_offset.x // self._width)))

    def restyle(self, drawing: Drawing) -> None:
        if drawing == self.drawing:
            return
        self.drawing = drawing
        self._strips.clear()
        self.measure()
        self.follow(False)
        self.refresh()
        self.want()

    def measure(self) -> None:
        self._profile_key = None
        self._labels.clear()
        self._limits.clear()
        if self.plane is None:
            return
        rows, cols = self.plane.size
        stats, drawing = self.block.stats if self.block else UNKNOWN, self.drawing
        self._gutter = min(_gutter(self.plane), max(1, self.room.width // 3))
        probabilities = self._words is not None and stats.low >= 0 and 0 < stats.high <= 1
        weight, whole = self.plane.zero_is_masked(stats) or probabilities, self.plane.step.whole
        scale = Scale(stats, self.palette, 1, weight, drawing.shades, whole, drawing.mode, drawing.fixed)
        self._width = min(drawing.zoom, WIDEST) or self._auto_width(self.plane, scale)
        self._scale = replace(scale, width=self._width)
        self._labelled = _readable(self.plane, self._width)
        self._height = auto_height(rows, self.room.height - 1, self._width)
        hidden = max(0, cols - self.columns)
        self._virtual(self.room.width + hidden * self._width, rows * self._height + 1)

    def _auto_width(self, plane: Plane, scale: Scale) -> int:
        """The width of a cell for this plane; the one before where it has the same axes and its numbers fit."""
        space, longest, view = max(0, self.room.width - self._gutter), self._longest, plane.view
        held, before = self._held
        same = (view.kind, view.rows, view.cols, plane.size, space, scale.shades)
        if held == same and (self.block is None or (before >= scale.needed() > 0) or longest):
            return before
        if longest:
            width = worded_width(plane.size[1], space, longest)
        else:
            width = auto_width(plane.size[1], space, scale.needed())
        if self.block is not None:
            self._held = (same, width)
        return width

    @property
    def _words(self) -> Grid | None:
        """The words in the cells, where there are some."""
        told = self.block.told if self.block else None
        return told if isinstance(told, Grid) and told.texts else None

    @property
    def _longest(self) -> int:
        """Cells of the longest word in the cells; 0 where there are none."""
        grid = self._words
        if grid is not self._measured[0]:
            words = (text for row in grid.texts[:64] for text in row) if grid else ()
            self._measured = (grid, max(map(cells, words), default=0))
        return self._measured[1]

    def seen(self) -> tuple[tuple[int, int], tuple[int, int]]:
        rows, cols = self.plane.size if self.plane else (0, 0)
        top, left = self.scroll_offset.y, self.first_column
        height = max(0, self.room.height - 1) // self._height
        return (
            (min(top, rows), min(rows, top + height)),
            (min(left, cols), min(cols, left + self.columns)),
        )

    def follow(self, fresh: bool) -> None:
        row, col = self.cell
        height, width = max(1, (self.room.height - 1) // self._height), max(1, self.columns)
        x, y, top, left = self.scroll_offset.x, self.scroll_offset.y, self.scroll_offset.y, self.first_column
        if not top <= row < top + height:
            y = row if row < top and not fresh else row - height + 1 if not fresh else row - height // 2
        if not left <= col < left + width:
            left = col if col < left and not fresh else col - width + 1 if not fresh else col - width // 2
            x = left * self._width
        if (x, y) != tuple(self.scroll_offset):
            self.scroll_to(x=max(0, x), y=max(0, y), animate=False, force=True, immediate=True)

    def _paint(self, crop: Region) -> list[Strip]:
        self._sight = self._look()  # once for all lines: to ask for the scroll offset costs more than to draw a line
        lines = super()._paint(crop)
        self._sight = None
        return lines

    def _look(self) -> Sight:
        rows, cols = self.plane.size if self.plane else (0, 0)
        return Sight(self.room.width, self.scroll_offset.y, self.first_column, min(self.columns, cols), rows)

    def strip(self, y: int) -> Strip:
        plane = self.plane
        width, top, left, count, rows = self._sight or self._look()
        if plane is None or self._scale is None:
            return self.blank(width)
        if y == 0:
            return self.cached(("head", left, self.cell[1], width), lambda: self._heading(plane, left, count), width)
        row, part = divmod(y - 1, self._height)  # cells are high only where all rows fit
        row += top
        if row >= rows:
            return self._profile_strip(plane, y - 1 - rows * self._height, left, count)
        here = self.cell[1] if row == self.cell[0] else -1
        words = part == (self._height - 1) // 2
        return self.cached(
            (row, left, here, width, words), lambda: self._line(plane, row, left, count, here, words), width
        )

    def _line(self, plane: Plane, row: int, left: int, count: int, here: int, words: bool) -> list[Segment]:
        """A line of a row; only one line of a high row has words."""
        assert self._scale is not None
        block, scale = self.block, self._scale
        values = block.line(row, left, left + count) if block else [None] * count
        limit = self._limit(block, scale, row) if block is not None and scale.mode == "row" else 0.0
        label = self._label(plane, row) if words else " " * (self._gutter - 1)
        style = self.inks.strong if here >= 0 else self.inks.muted
        cursor, grid = here - left if here >= 0 else -1, self._words
        if grid is not None and block is not None:
            labels = [grid.text(row - block.row, col - block.col) for col in range(left, left + count)]
            return [Segment(label + " ", style), *scale.worded(values, labels, cursor, words, limit)]
        return [Segment(label + " ", style), *scale.segments(values, cursor, words, limit)]

    def _limit(self, block: Block, scale: Scale, row: int) -> float:
        found = self._limits.get(row)
        if found is None:
            found = self._limits[row] = scale.row_limit(block.line(row, block.col, block.col + block.cols))
        return found

    def _label(self, plane: Plane, row: int) -> str:
        found = self._labels.get(row)
        if found is None:
            found = self._labels[row] = right(plane.label(plane.view.rows, row), self._gutter - 1)
        return found

    def _profile_strip(self, plane: Plane, y: int, left: int, count: int) -> Strip:
        """A line of the row at the cursor as bars, where there is room for them below the cells."""
        width, spare = self.room.width, self.room.height - 1 - plane.size[0] * self._height - 1
        few = not 0 < y <= spare or spare < PROFILE[0]
        if few or self.block is None or plane.step.whole or plane.outside(self.cell):
            return self.blank(width)
        key = ("profile", self.cell, left, width, spare)
        if self._profile_key != key:
            self._profile_key = key
            self._profile = self._bars(self.block, min(spare, PROFILE[1]), left, count)
        if y > len(self._profile):
            return self.blank(width)
        return self.cached((key, y), lambda: self._profile[y - 1], width)

    def _bars(self, block: Block, height: int, left: int, count: int) -> list[list[Segment]]:
        row, inks = self.cell[0], self.inks
        values = block.line(row, left, left + count)
        if self._scale and self._scale.weight:
            low, high = 0.0, 1.0
        else:  # the row's own ends, or a quiet row would be flat
            known = [
                v for v in block.line(row, block.col, block.col + block.cols) if v is not None and math.isfinite(v)
            ]
            low, high = min(known, default=0.0), max(known, default=0.0)
            low, high = min(0.0, low), max(0.0, high)
        lines = profile(
            values,
            low,
            high,
            (self._width, height),
            (
                inks.bar_weight if self._scale and self._scale.weight else inks.bar_up,
                inks.bar_down,
                inks.bar_track,
                inks.strong,
            ),
            self.cell[1] - left,
        )
        names = {0: short(high, self._gutter - 2), height - 1: short(low, self._gutter - 2)}
        return [
            [Segment(right(names.get(y, ""), self._gutter - 1) + " ", inks.faint), *line]
            for y, line in enumerate(lines)
        ]

    def _heading(self, plane: Plane, left: int, count: int) -> list[Segment]:
        axis, width, here = plane.view.cols, self._width, self.cell[1]
        name = fit(right(f"{plane.view.rows} ↓", self._gutter - 1), self._gutter)
        segments = [Segment(name, self.inks.faint)]
        if self._labelled:
            for col in range(left, left + count):
                text = centred(plane.label(axis, col), width - 1) + " "
                segments.append(Segment(text, self.inks.strong if col == here else self.inks.muted))
        else:
            segments += self._ruler(plane, axis, left, count, width, here)
        more = plane.size[1] - left - count
        return _with_end(segments, "  more →", self.inks.accent, self.room.width) if more > 0 else segments

    def _ruler(self, plane: Plane, axis: str, left: int, count: int, width: int, here: int) -> list[Segment]:
        """Numbers every few columns, and the label of the cursor's column over it."""
        total, first = count * width, plane.step.first(axis)
        every = (1 if width > len(str(first + left + count)) else 5) if width > 3 else 5 if width > 1 else 10
        marks = [" "] * total
        for col in range(left + -left % every, left + count, every):
            text, at = str(first + col), (col - left) * width
            if at + len(text) <= total:
                marks[at : at + len(text)] = text
        line = "".join(marks)
        if not left <= here < left + count:
            return [Segment(line, self.inks.faint)]
        label = plane.label(axis, here)
        label = fit(label, min(cells(label), LABEL, total))
        size = cells(label)
        at = max(0, min((here - left) * width, total - size))
        before, after = line[:at], line[at + size :]
        if before and before[-1] != " ":
            before = before.rstrip("0123456789").ljust(at)
        return [
            Segment(before, self.inks.faint),
            Segment(label, self.inks.strong),
            Segment(_after(after), self.inks.faint),
        ]

    def on_click(self, event: Click) -> None:
        """A click on a cell moves the cursor there."""
        if self.plane is None:
            return
        rows, cols = self.plane.size
        row = (event.y - 1) // self._height + self.scroll_offset.y if event.y else None
        col = (event.x - self._gutter) // self._width + self.first_column if event.x >= self._gutter else None
        row = row if row is None or row < rows else None
        col = col if col is None or col < cols else None
        if row is not None or col is not None:
            self.post_message(self.Picked(row, col))


def _readable(plane: Plane, width: int) -> bool:
    """Whether columns of this width have room for their labels: of a cut one four characters must be left."""
    axis, room = plane.view.cols, width - 1
    if axis not in TOKEN_AXES:
        return width >= 3
    labels = (plane.label(axis, col) for col in range(min(plane.size[1], 200)))
    return room >= 5 or (room >= 2 and all(cells(label) <= room for label in labels))


def _with_end(segments: list[Segment], words: str, style: Style, width: int) -> list[Segment]:
    """A line with words at its right end, in place of what is there."""
    room = width - cells(words)
    if room < 2 * cells(words):
        return segments
    kept = Segment.adjust_line_length(segments, room, segments[-1].style)
    return [*kept, Segment(words, style)]


def _gutter(plane: Plane) -> int:
    """The width of the row labels, the space after them included."""
    rows, axis = plane.size[0], plane.view.rows
    if axis not in TOKEN_AXES:
        return max(len(str(rows)), len(axis) + 1) + 1
    if plane.minus is None:
        widest = _widest(plane.trace, plane.batch, axis, plane.step.first(axis), min(rows, 200))
    else:  # perhaps of two tokens each
        widest = max((cells(plane.label(axis, row)) for row in range(min(rows, 200))), default=1)
    return max(len(axis) + 2, min(widest, LABEL)) + 1


@lru_cache(maxsize=8)
def _widest(trace: Trace, batch: int, axis: str, first: int, count: int) -> int:
    """Cells of the longest label of so many tokens: each picture of a trace asks for it anew."""
    return max((cells(trace.label(batch, first + n, axis)) for n in range(count)), default=1)


def _after(text: str) -> str:
    """Without the rest of a number that a label covers."""
    bare = text.lstrip("0123456789")
    return bare.rjust(len(text))

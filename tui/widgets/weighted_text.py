"""The prompt as running text: each token is as bright as the cursor's query reads it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.strip import Strip

from tui.render.bars import bar
from tui.render.cells import MASKED, MISSING, UP, Scale
from tui.render.palette import LEVELS
from tui.state.block import Stats
from tui.state.numbers import cell, special
from tui.state.views import Plane
from tui.text import cells, fit, right
from tui.widgets.plane import PlaneView

NUMBERED = 5
"""The least cells of a token with its weight below it: a mark, three digits, a blank."""
HEIGHTS = " ▁▂▃▄▅▆▇█"
QUIET = 0.01
"""A number below this is faint."""
BEST = (4, 12)
"""The least and the most lines of the tokens that are read most, below a short text."""
LABEL = 16
QUERY = "▲"


class Slot(NamedTuple):
    """Where a token stands: its number, its text, the first cell and how many."""

    key: int
    text: str
    start: int
    width: int


class WeightedText(PlaneView):
    """Words on their weights; below each is the number, or where the text is long a bar or shade in its place."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._scale: Scale | None = None
        self._lines: list[list[Slot]] = []
        self._line_of: dict[int, int] = {}
        self._laid: object = None
        self._numbered = True
        self._stride = 2

    @property
    def scale(self) -> Scale | None:
        """How weights become colours."""
        return self._scale

    @property
    def reader(self) -> int:
        """The token that reads, counted as the keys are; -1 where there is none among them."""
        plane = self.plane
        if plane is None:
            return -1
        axis = "query" if plane.view.cols == "key" else "src_query" if plane.view.cols == "src_key" else ""
        place = dict(plane.place)
        return place[axis] + plane.step.first(axis) - plane.step.first(plane.view.cols) if axis in place else -1

    def measure(self) -> None:
        plane, room, drawing = self.plane, self.room, self.drawing
        if plane is None:
            return
        stats = self.block.stats if self.block else Stats(high=1.0)
        weight = plane.zero_is_masked(stats)
        self._scale = Scale(
            stats, self.palette, NUMBERED + 1, weight, drawing.shades, False, drawing.mode, drawing.fixed
        )
        least = NUMBERED + (plane.minus is not None)  # of a difference there are minus signs
        laid = (plane.trace.run, plane.step.site, plane.at, plane.batch, plane.size, room, least)
        if laid != self._laid:
            self._laid = laid
            labels = [plane.label(plane.view.cols, key) for key in range(plane.size[1])]
            self._lay(labels, room.width - 2, room.height - 2, least)
        self._virtual(room.width, len(self._lines) * self._stride + 2)

    def _lay(self, labels: Sequence[str], width: int, height: int, least: int) -> None:
        """Wrap the tokens; with room for numbers below them where all of them fit so."""
        self._lines = wrapped(labels, width, least)
        self._numbered = len(self._lines) * 2 <= height
        if not self._numbered:
            self._lines = wrapped(labels, width, 1)
        self._stride = 3 if len(self._lines) * 3 <= height else 2
        self._line_of = {slot.key: n for n, line in enumerate(self._lines) for slot in line}

    def seen(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (0, 1), (0, self.plane.size[1] if self.plane else 0)

    def follow(self, fresh: bool) -> None:
        token = self.reader if fresh and self.reader >= 0 else self.cell[1]
        y, top = self._line_of.get(token, 0) * self._stride, self.scroll_offset.y
        height = max(1, self.room.height - 2)
        if not top <= y < top + height - 1:
            self.scroll_to(y=max(0, y - height // 2), animate=False, force=True, immediate=True)

    def strip(self, y: int) -> Strip:
        plane, scale, width, top = self.plane, self._scale, self.room.width, self.scroll_offset.y
        if plane is None or scale is None:
            return self.blank(width)
        if y == 0:
            return self.cached(("head", self.reader, width), lambda: self._heading(plane), width)
        line, part = divmod(y - 2 + top, self._stride)
        if y == 1 or not 0 <= line < len(self._lines):
            return self._best_strip(plane, scale, y, width)
        if part == 2:
            return self.blank(width)
        here = self.cell[1] if self._line_of.get(self.cell[1]) == line else -1
        return self.cached((line, part, here, self.reader, width), lambda: self._line(scale, line, part), width)

    def _heading(self, plane: Plane) -> list[Segment]:
        """Who reads, and how many tokens it may read."""
        inks, query = self.inks, self.reader
        values = self.block.line(0, 0, plane.size[1]) if self.block else []
        segments = [Segment(" ", inks.text)]
        if query >= 0:
            label = plane.label(plane.view.cols, query)
            segments += [
                Segment(f"{QUERY} ", inks.accent),
                Segment(fit(label, min(cells(label), 18)), inks.strong),
                Segment(f" ({plane.step.first(plane.view.cols) + query})", inks.muted),
            ]
        count = sum(1 for value in values if value and not (self._scale and self._scale.masks(value)))
        does = "reads" if plane.minus is None else "differs at"
        words = f" {does} {count} of {len(values)} tokens" if values else ""
        return [*segments, Segment(words, inks.muted)]

    def _line(self, scale: Scale, number: int, part: int) -> list[Segment]:
        """The tokens of a line, or what stands below them."""
        assert self.plane is not None
        values = self.block.line(0, 0, self.plane.size[1]) if self.block else [None] * self.plane.size[1]
        limit = scale.row_limit(values)
        segments, used = [Segment(" ", self.inks.text)], 0
        for slot in self._lines[number]:
            value = values[slot.key]
            style = self._style(scale, value, limit, slot.key)
            if part == 0:
                segments.append(Segment(slot.text + " " * (slot.width - cells(slot.text)), style))
            else:
                segments += self._below(scale, value, limit, slot)
            used += slot.width
        return segments

    def _best_strip(self, plane: Plane, scale: Scale, y: int, width: int) -> Strip:
        """Below a short text: what the query reads, strongest first."""
        least, most = BEST
        first = 2 + len(self._lines) * self._stride + 1
        spare = min(most, self.room.height - first - 1)
        if y < first or spare < least or self.block is None:
            return self.blank(width)
        return self.cached(
            ("best", y - first, spare, self.cell[1], self.reader, width),
            lambda: self._best(plane, scale, y - first, spare, width),
            width,
        )

    def _best(self, plane: Plane, scale: Scale, line: int, count: int, width: int) -> list[Segment]:
        inks, values = self.inks, self.block.line(0, 0, plane.size[1]) if self.block else []
        if line == 0:
            return [Segment(" reads most" if plane.minus is None else " differs most", inks.faint)]
        known = [(-abs(value), key) for key, value in enumerate(values) if value and math.isfinite(value)]
        ranked = heapq.nsmallest(count, known)
        if line > len(ranked):
            return []
        key, top = ranked[line - 1][1], -ranked[0][0]
        value, limit = values[key] or 0.0, scale.row_limit(values)
        label = plane.label(plane.view.cols, key)
        here = key == self.cell[1]
        level = scale.level(value, limit)
        level = level if level < 0 else max(2, level)
        fill = self.palette.style(level, scale.warm, fill=True)
        ink = inks.bar_weight if scale.shades else Style(color=fill.bgcolor, bgcolor=inks.text.bgcolor)
        return [
            Segment(" ▸" if here else "  ", inks.accent),
            Segment(right(label, LABEL), inks.cursor if here else inks.text),
            Segment(f" {cell(value, 3):>5}  ", inks.strong if line == 1 else inks.muted),
            *bar(value, top, min(48, width - LABEL - 12), scale.signed, ink, ink, inks.bar_track),
        ]

    def _style(self, scale: Scale, value: float | None, limit: float, key: int) -> Style:
        inks = self.inks
        if key == self.reader:
            style = inks.cursor
        elif value is None or scale.masks(value):
            style = inks.faint
        elif not math.isfinite(value):
            style = self.palette.odd
        elif scale.shades:
            style = inks.text
        else:
            style = self.palette.style(scale.level(value, limit), scale.warm, fill=True)
        return style + _CHOSEN if key == self.cell[1] else style

    def _below(self, scale: Scale, value: float | None, limit: float, slot: Slot) -> list[Segment]:
        """Below a token: a mark on the query, then the weight as a number, or as a bar or shade."""
        inks, width = self.inks, slot.width
        query, here = slot.key == self.reader, slot.key == self.cell[1]
        mark = [Segment(QUERY, inks.accent)] if query else []
        room = width - len(mark)
        text = inks.strong if here else inks.text if value and abs(value) >= QUIET else inks.faint
        if value is None or scale.masks(value):
            sign = MISSING if value is None else MASKED
            return [*mark, Segment(fit(" " * (width > 2 and not query) + sign, room), inks.faint)]
        if name := special(value):
            return [*mark, Segment(fit(name, room), inks.error)]
        level = scale.level(value, limit)
        if self._numbered:
            number = _number(value) + (UP[math.ceil(abs(level) * 4 / LEVELS)] if scale.shades else "")
            return [*mark, Segment(fit(" " * (not query) + number, room), text)]
        glyphs = UP if scale.shades else HEIGHTS
        glyph = glyphs[math.ceil(abs(level) * (len(glyphs) - 1) / LEVELS)]
        ink = inks.strong if here else inks.bar_down if value < 0 else inks.bar_weight
        return [*mark, Segment(glyph * room, ink)]

    def on_click(self, event: Click) -> None:
        """A click on a token makes it the key."""
        line = (event.y - 2 + self.scroll_offset.y) // self._stride
        if event.y >= 2 and line < len(self._lines):
            for slot in self._lines[line]:
                if slot.start <= event.x - 1 < slot.start + slot.width:
                    self.post_message(self.Picked(None, slot.key))


_CHOSEN = Style(underline=True, bold=True)


def wrapped(labels: Sequence[str], width: int, least: int) -> list[list[Slot]]:
    """Tokens side by side, each at least ``least`` cells wide, in lines of at most ``width``.

    The mark of a leading space is drawn as the space that it is; a token that is nothing else keeps its mark.
    """
    width = max(1, width)
    lines: list[list[Slot]] = [[]]
    used = 0
    for key, label in enumerate(labels):
        text = " " + label[1:] if label.startswith("␣") and len(label) > 1 and label.strip("␣") else label
        room = min(width, max(least, cells(text)))
        text = fit(text, room) if cells(text) > room else text
        if used and used + room > width:
            lines.append([])
            used = 0
        lines[-1].append(Slot(key, text, used, room))
        used += room
        if label.endswith("⏎"):
            used = width
    return lines if lines[0] else []


def _number(value: float) -> str:
    """A weight in three cells, one below zero in four."""
    text = cell(value, 2)
    return text if len(text.lstrip("-")) <= 3 else cell(value, 1) if len(cell(value, 1)) <= 4 else "…"

"""Cells of a heatmap: a value becomes a level of a scale, a level a style and a glyph or digits.

No meaning hangs on hue alone: a wide cell has the value's digits, a cell of two has sign and tenths of the scale, a
cell of one has its brightness, and ``-`` below zero. Where colours are few, shades replace the filled cells:
``░▒▓█`` above zero and ``-=≡#`` below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.segment import Segment
from rich.style import Style

from tui.render.palette import LEVELS, Palette
from tui.state.block import Stats
from tui.state.numbers import cell, special

UP, DOWN = " ░▒▓█", " -=≡#"
MASKED, MISSING, BEYOND = "·", "┄", "▸"
WIDEST = 9


def auto_width(columns: int, room: int) -> int:
    """The cell width that shows most: digits where all columns fit with them, else two or one cells a column."""
    for width in (8, 7, 6, 5, 4, 3, 2, 1):
        if columns * width <= room:
            return width
    return 2


def auto_height(rows: int, room: int, width: int) -> int:
    """The height of a cell: more than one line only where all rows fit so, and the cells stay about square."""
    return max((height for height in (1, 2, 3) if rows * height <= room and height * 2 <= width), default=1)


@dataclass(frozen=True)
class Scale:
    """How the values of a picture become cells ``width`` wide."""

    stats: Stats
    palette: Palette
    width: int
    weight: bool  # attention weights: from 0 in one hue, and a cell of exactly 0 is a masked one
    shades: bool = False

    @property
    def limit(self) -> float:
        """The value at the end of the scale; never 0."""
        return self.stats.limit or 1.0

    @cached_property
    def room(self) -> int:
        """Characters for the digits in a cell; a gap is kept between neighbours where that leaves enough."""
        gap = self.width > 4 or (self.width == 4 and not self.stats.signed)
        return self.width - gap - self.shades

    @cached_property
    def places(self) -> int:
        """Decimals of the digits in a cell; -1 where there is no room for digits."""
        most = max(abs(self.stats.low), abs(self.stats.high))
        whole = len(str(int(most))) if most >= 1 and not (self.weight and most <= 1) else 0
        spare = self.room - whole - self.stats.signed - 1
        if self.width < 3 or self.room < 2:
            return -1
        return min(spare, 3) if spare >= 1 else 0 if whole and self.room >= whole + self.stats.signed else -1

    def level(self, value: float) -> int:
        """−LEVELS … LEVELS."""
        return max(-LEVELS, min(LEVELS, math.floor(value / self.limit * LEVELS + 0.5)))

    def segments(self, line: Sequence[float | None], cursor: int = -1, words: bool = True) -> list[Segment]:
        """A row of cells, neighbours of one style merged; the cell ``cursor`` is marked. Without words, only colour."""
        merged: list[Segment] = []
        texts: list[str] = []
        last: Style | None = None
        for column, value in enumerate(line):
            text, style = self._cell(value)
            if not words:
                text = self._plain(text)
            if column == cursor:
                text, style = self._marked(text) if words else text, self.palette.cursor
            if style is not last and texts:
                merged.append(Segment("".join(texts), last))
                texts.clear()
            last = style
            texts.append(text)
        if texts:
            merged.append(Segment("".join(texts), last))
        return merged

    def _cell(self, value: float | None) -> tuple[str, Style]:
        if value is None:
            return MISSING.center(self.width), self.palette.missing
        if value == 0.0 and self.weight:
            return MASKED.center(self.width), self.palette.masked
        if not math.isfinite(value):
            if value == -math.inf and self.stats.masked:
                return MASKED.center(self.width), self.palette.masked
            return special(value)[: self.width].center(self.width), self.palette.odd
        level = self.level(value)
        key = (level, value) if self.places >= 0 else level
        found = self._known.get(key)
        if found is None:
            found = (self._text(level, value), self.palette.style(level, self.weight, fill=not self.shades))
            if len(self._known) < 20_000:
                self._known[key] = found
        return found

    def _text(self, level: int, value: float) -> str:
        glyph = (UP if level > 0 else DOWN)[math.ceil(abs(level) * 4 / LEVELS)]
        if self.width == 1:
            return (glyph if level else "·" if value else " ") if self.shades else "-" if level < 0 else " "
        places = self.places
        if places < 0:
            if self.shades:
                return glyph * (self.width - 1) + " "
            tenths = min(9, int(abs(value) / self.limit * 10))
            text = f"{'-' if value < 0 else ' '}{tenths}" if tenths else " ·"
            return text.rjust(self.width) if self.width == 2 else text.center(self.width)
        text = cell(value, places)
        for fewer in range(places - 1, -1, -1):
            if len(text) > self.room:
                text = cell(value, fewer)
        if len(text) > self.room:
            text = BEYOND
        return (glyph if self.shades else "") + text.rjust(self.room) + " " * (self.width - self.room - self.shades)

    def _plain(self, text: str) -> str:
        """A cell's lines without words: its shade, or nothing but its colour."""
        return text[0] * (self.width - 1) + " " if self.shades and text[0] in UP + DOWN else " " * self.width

    def _marked(self, text: str) -> str:
        return text if text.strip() else "▪".center(self.width)

    @cached_property
    def _known(self) -> dict[object, tuple[str, Style]]:
        """Cells that were made before."""
        return {}


def legend(scale: Scale, width: int) -> list[Segment]:
    """The scale as a strip of ``width`` cells, from its low to its high end."""
    segments = []
    low = -LEVELS if scale.stats.signed else 0
    count = max(2, min(width, LEVELS - low + 1))
    for place in range(count):
        level = round(low + (LEVELS - low) * place / (count - 1))
        glyph = (
            (UP if level > 0 else DOWN)[math.ceil(abs(level) * 4 / LEVELS)]
            if scale.shades
            else "-"
            if level < 0
            else " "
        )
        segments.append(Segment(glyph, scale.palette.style(level, scale.weight, fill=not scale.shades)))
    return segments

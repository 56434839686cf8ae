"""Cells of a heatmap: a value becomes a level of a scale, a level a style and a glyph or digits.

A number in a cell is the value, rounded but never scaled, with a blank after it. Where a cell is too narrow for one
decimal it has no digits: its brightness is the share of the scale, and ``-`` is below zero, so that no meaning hangs
on hue alone. Where colours are few, shades replace the filled cells: ``░▒▓█`` above zero and ``-=≡#`` below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rich.segment import Segment
from rich.style import Style

from tui.render.palette import LEVELS, Palette
from tui.state.block import Stats
from tui.state.numbers import cell, decimals, special, wanted

UP, DOWN = " ░▒▓█", " -=≡#"
MASKED, MISSING, BEYOND = "·", "┄", "▸"
WIDEST = 9


def auto_width(columns: int, room: int, needed: int) -> int:
    """Cells for a column: more than the numbers need only where all columns fit; ``needed`` 0: none for numbers."""
    for width in range(8, max(needed, 1) - 1, -1):
        if columns * width <= room:
            return width
    return needed if 0 < needed <= room else 2


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
    whole: bool = False  # ids and positions: no decimals, and no scale either

    @property
    def limit(self) -> float:
        """The value at the end of the scale; never 0."""
        return self.stats.limit or 1.0

    @cached_property
    def room(self) -> int:
        """Characters for the digits in a cell; there is always a blank between neighbours."""
        return self.width - 1 - self.shades

    @cached_property
    def places(self) -> int:
        """Decimals of the digits in a cell; -1 where there is no room for digits."""
        low, high, end = self.stats.low, self.stats.high, wanted(self.limit)
        if self.whole:
            return 0
        if self.weight:
            high = min(high, 0.9)  # a weight of 1 may have a decimal fewer
        places = decimals(low, high, self.room, max(3, end))
        told = end > 0 and self.limit * 10**places >= 1 and len(cell(self.limit, 0)) + self.stats.signed <= self.room
        return places if told else -1

    @property
    def numbered(self) -> bool:
        """Whether this width tells the values apart and none is too long for its cell."""
        low, high, places = self.stats.low, self.stats.high, wanted(self.limit)
        enough = self.whole or (self.places >= places > 0 and decimals(low, high, self.room, places) == places)
        return enough and all(len(cell(end, 0)) <= self.room for end in (low, high))

    def needed(self) -> int:
        """The least width whose cells show the values as numbers; 0 where none does."""
        scales = (replace(self, width=width) for width in range(2, WIDEST + 1))
        return next((scale.width for scale in scales if scale.numbered), 0)

    def level(self, value: float) -> int:
        """−LEVELS … LEVELS."""
        if self.whole:
            return 0
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
            elif self.shades and self.places >= 0 and text[0] == "-" and "∞" not in text:
                text = " " + text[1:]  # the number has its sign itself: no --5.5
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
            return special(value)[: max(1, self.width - 1)].center(self.width), self.palette.odd
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
            return ("-" if level < 0 else "").rjust(self.width - 1) + " "
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

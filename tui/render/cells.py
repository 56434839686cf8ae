"""Cells of a heatmap: a value becomes a level of a scale, a level a style and a glyph or digits.

No meaning hangs on hue alone: a wide cell has the value's digits, a cell of two has sign and tenths of the scale, a
cell of one has a shade, ``░▒▓█`` above zero and ``-=≡#`` below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style

from tui.state.block import Stats
from tui.state.numbers import cell, special
from tui.themes import LEVELS, Palette

UP, DOWN = " ░▒▓█", " -=≡#"
MASKED, MISSING = "·", "┄"
WIDEST = 9


def auto_width(columns: int, room: int, signed: bool) -> int:
    """The cell width that shows most: digits where all columns fit with them, else two or one cells a column."""
    for width in (7, 6, 5, 4, 3, 2, 1) if signed else (6, 5, 4, 3, 2, 1):
        if columns * width <= room:
            return width
    return 2


@dataclass(frozen=True)
class Scale:
    """How the values of a picture become cells ``width`` wide."""

    stats: Stats
    palette: Palette
    width: int
    weight: bool
    shades: bool = False
    zero_is_masked: bool = False

    @property
    def limit(self) -> float:
        """The value at the end of the scale; never 0."""
        return self.stats.limit or 1.0

    @property
    def places(self) -> int:
        """Decimals of the digits in a cell; -1 where there is no room for digits."""
        room = self.width - 1 if self.width >= 4 else self.width
        if self.shades:
            room -= 1
        most = max(abs(self.stats.low), abs(self.stats.high))
        whole = len(str(int(most))) if most >= 1 and not (self.weight and most <= 1) else 0
        spare = room - whole - (1 if self.stats.signed else 0) - 1
        if self.width < 3 or room < 2:
            return -1
        return min(spare, 3) if spare >= 1 else 0 if room >= whole + (1 if self.stats.signed else 0) and whole else -1

    def level(self, value: float) -> int:
        """−LEVELS … LEVELS."""
        return max(-LEVELS, min(LEVELS, math.floor(value / self.limit * LEVELS + 0.5)))

    def segments(self, line: Sequence[float | None], cursor: int = -1) -> list[Segment]:
        """A row of cells, neighbours of one style merged; the cell ``cursor`` is marked."""
        merged: list[Segment] = []
        texts: list[str] = []
        last: Style | None = None
        for column, value in enumerate(line):
            text, style = self._cell(value)
            if column == cursor:
                text, style = self._marked(text), self.palette.cursor
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
        if value == 0.0 and self.zero_is_masked:
            return MASKED.center(self.width), self.palette.masked
        if not math.isfinite(value):
            if value == -math.inf and self.stats.masked:
                return MASKED.center(self.width), self.palette.masked
            return special(value)[: self.width].center(self.width), self.palette.odd
        level = self.level(value)
        key = (level, value) if self._digits else level
        found = self._known.get(key)
        if found is None:
            found = (self._text(level, value), self.palette.style(level, self.weight, fill=not self.shades and self.width > 1))
            if len(self._known) < 20_000:
                self._known[key] = found
        return found

    def _text(self, level: int, value: float) -> str:
        glyph = (UP if level > 0 else DOWN)[math.ceil(abs(level) * 4 / LEVELS)]
        if self.width == 1:
            return glyph if level else "·" if value else " "
        places = self.places
        if places < 0:
            if self.shades:
                return glyph * (self.width - 1) + " "
            tenths = min(9, int(abs(value) / self.limit * 10))
            text = f"{'-' if value < 0 else ' '}{tenths}" if tenths else " ·"
            return text.rjust(self.width) if self.width == 2 else text.center(self.width)
        room = self.width - 1 if self.width >= 4 else self.width
        text = cell(value, places)
        if len(text) > room - self.shades:
            text = cell(value, max(0, places - 1))
        if self.shades:
            return glyph + text.rjust(room - 1) + " " * (self.width - room)
        return text.rjust(room) + " " * (self.width - room)

    def _marked(self, text: str) -> str:
        return text if text.strip() else "▪".center(self.width)

    @property
    def _digits(self) -> bool:
        return self.places >= 0

    @property
    def _known(self) -> dict[object, tuple[str, Style]]:
        known = self.__dict__.get("_cache")
        if known is None:
            known = {}
            object.__setattr__(self, "_cache", known)
        return known  # type: ignore[no-any-return]


def legend(scale: Scale, width: int) -> list[Segment]:
    """The scale as a strip of ``width`` cells, from its low to its high end."""
    segments = []
    low = -LEVELS if scale.stats.signed else 0
    count = max(2, min(width, LEVELS - low + 1))
    for place in range(count):
        level = round(low + (LEVELS - low) * place / (count - 1))
        glyph = (UP if level > 0 else DOWN)[math.ceil(abs(level) * 4 / LEVELS)] if scale.shades or scale.width == 1 else " "
        segments.append(Segment(glyph, scale.palette.style(level, scale.weight, fill=not scale.shades and scale.width > 1)))
    return segments

"""Cells of a heatmap: a value becomes a level of a scale, a level a style and a glyph or digits.

A number in a cell is the value, rounded but never scaled, with a blank after it. Where a cell is too narrow for one
decimal it has no digits: its brightness is the share of the scale, and ``-`` is below zero, so that no meaning hangs
on hue alone. Where colours are few, shades replace the filled cells: ``░▒▓█`` above zero and ``-=≡#`` below. A value
beyond an end of the scale has ``▸`` or ``◂`` in place of the blank.

The scale ends at the largest magnitude, or 4 × rms if that is smaller; or at each row's largest, as far below zero as
above it, over decades, at 2 × rms, or where it ended for another picture (``tui.state.drawing.MODES``).
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
from tui.state.numbers import cell, decimals, short, special, wanted
from tui.text import fit

UP, DOWN = " ░▒▓█", " -=≡#"
MASKED, MISSING, ABOVE, BELOW, LONG = "·", "┄", "▸", "◂", "…"
WIDEST = 9
DECADES = 4
"""Powers of ten that a logarithmic scale spans on either side; what is smaller looks like zero."""
KNOWN = 20_000
WORDED = (9, 16)
"""The least and the most width of a cell that has a word before its number."""


def auto_width(columns: int, room: int, needed: int) -> int:
    """Cells for a column: more than the numbers need only where all columns fit; ``needed`` 0: none for numbers."""
    for width in range(8, max(needed, 1) - 1, -1):
        if columns * width <= room:
            return width
    return needed if 0 < needed <= room else 2


def worded_width(columns: int, room: int, longest: int) -> int:
    """Cells for a column of words of up to ``longest`` cells, each with a number of four after it."""
    least, most = WORDED
    seen = min(columns, max(1, room // (least + 2))) if columns * least > room else columns
    return max(least, min(most, longest + 6, room // seen))


def auto_height(rows: int, room: int, width: int) -> int:
    """The height of a cell: more than one line only where all rows fit so, and the cells stay about square."""
    return max((height for height in (1, 2, 3) if rows * height <= room and height * 2 <= width), default=1)


@dataclass(frozen=True)
class Scale:
    """How the values of a picture become cells ``width`` wide; ``fixed`` is where the scale of that mode ends."""

    stats: Stats
    palette: Palette
    width: int
    weight: bool  # attention weights: from 0 in one hue, and a cell of exactly 0 is a masked one
    shades: bool = False
    whole: bool = False  # ids and positions: no decimals, and no scale either
    mode: str = "auto"
    fixed: float = 0.0
    each: str = "row"  # what has a scale of its own in the mode "row"

    @cached_property
    def limit(self) -> float:
        """The value at the end of the scale; never 0. Per row it is another one for each, and at most this."""
        most = max(abs(self.stats.low), abs(self.stats.high))
        limit = self.stats.limit
        if self.mode in ("row", "symmetric", "log"):
            limit = most
        elif self.mode == "clipped":
            usual = 2 * math.hypot(self.stats.mean, self.stats.std)
            limit = min(most, usual) if usual > 0 else most
        elif self.mode == "fixed" and self.fixed > 0:
            limit = self.fixed
        return limit or 1.0

    @property
    def signed(self) -> bool:
        """Whether zero is the middle of the scale."""
        return self.stats.signed or self.mode == "symmetric"

    @property
    def warm(self) -> bool:
        """Whether it has the one hue of weights."""
        return self.weight and not self.signed

    @property
    def ends(self) -> tuple[str, str]:
        """The ends of the scale in words; ``≤`` and ``≥`` where there are values beyond."""
        limit, far = self.limit, self.limit * 1.0001
        below, above = ("≤" if self.stats.low < -far else ""), ("≥" if self.stats.high > far else "")
        if self.mode == "row":
            return (f"-{self.each} max" if self.signed else "0"), f"{self.each} max"
        if self.mode == "log" and not self.signed:
            return f"≤{short(limit / 10**DECADES)}", short(limit)
        return (f"{below}{short(-limit)}" if self.signed else "0"), f"{above}{short(limit)}"

    @property
    def words(self) -> str:
        """What the scale does; '' for the usual one."""
        end = f"{'±' if self.signed else ''}{short(self.limit, 6)}"
        return {
            "row": f"per {self.each}",
            "symmetric": "symmetric",
            "log": f"log, {DECADES} decades",
            "clipped": f"clipped at {end} = 2 rms" if self._cut else "clipped: nothing beyond 2 rms",
            "fixed": f"fixed at {end}",
        }.get(self.mode, "")

    @property
    def _cut(self) -> bool:
        return max(abs(self.stats.low), abs(self.stats.high)) > self.limit * 1.0001

    @cached_property
    def room(self) -> int:
        """Characters for the digits in a cell; there is always a blank between neighbours."""
        return self.width - 1 - self.shades

    @property
    def _told(self) -> float:
        """What the digits are chosen for. It is the same in all modes: they change the colours alone."""
        return self.stats.limit or 1.0

    @cached_property
    def places(self) -> int:
        """Decimals of the digits in a cell; -1 where there is no room for digits."""
        low, high, end = self.stats.low, self.stats.high, wanted(self._told)
        if self.whole:
            return 0
        if self.weight:
            high = min(high, 0.9)  # a weight of 1 may have a decimal fewer
        places = decimals(low, high, self.room, max(3, end))
        told = end > 0 and self._told * 10**places >= 1 and len(cell(self._told, 0)) + self.stats.signed <= self.room
        return places if told else -1

    @property
    def numbered(self) -> bool:
        """Whether this width tells the values apart and none is too long for its cell."""
        low, high, places = self.stats.low, self.stats.high, wanted(self._told)
        enough = self.whole or (self.places >= places > 0 and decimals(low, high, self.room, places) == places)
        return enough and all(len(cell(end, 0)) <= self.room for end in (low, high))

    def needed(self) -> int:
        """The least width whose cells show the values as numbers; 0 where none does."""
        scales = (replace(self, width=width) for width in range(2, WIDEST + 1))
        return next((scale.width for scale in scales if scale.numbered), 0)

    def masks(self, value: float | None) -> bool:
        """Whether a cell is a masked one."""
        return value == 0.0 if self.weight else value == -math.inf and self.stats.masked > 0

    def level(self, value: float, limit: float = 0.0) -> int:
        """−LEVELS … LEVELS; ``limit`` is where the scale of its row ends."""
        if self.whole:
            return 0
        share = value / (limit or self.limit)
        if self.mode == "log":
            decades = math.log10(abs(share)) if share else -math.inf
            share = math.copysign(max(0.0, 1 + decades / DECADES), share)
        return math.floor(max(-1.0, min(1.0, share)) * LEVELS + 0.5)

    def row_limit(self, line: Sequence[float | None]) -> float:
        """Where the scale ends for this row; 0: where it does for all."""
        if self.mode != "row" or self.whole:
            return 0.0
        return max((abs(value) for value in line if value is not None and math.isfinite(value)), default=0.0)

    def segments(
        self, line: Sequence[float | None], cursor: int = -1, words: bool = True, limit: float = 0.0
    ) -> list[Segment]:
        """A row of cells, neighbours of one style merged; the cell ``cursor`` is marked. Without words, only colour."""
        known = self._known.setdefault(limit, {}) if len(self._known) < KNOWN else {}
        merged: list[Segment] = []
        texts: list[str] = []
        last: Style | None = None
        bare = self.shades and self.places >= 0
        for column, value in enumerate(line):
            found = known.get(value)
            if found is None:
                found = self._cell(value, limit)
                if len(known) < KNOWN and value == value:
                    known[value] = found
            text, style = found
            if not words:
                text = self._plain(text)
            elif bare and text[0] == "-" and "∞" not in text:
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

    def worded(
        self,
        line: Sequence[float | None],
        labels: Sequence[str],
        cursor: int = -1,
        words: bool = True,
        limit: float = 0.0,
    ) -> list[Segment]:
        """A row of cells with a word and the number after it, as ``disk   .63``."""
        segments = []
        for column, (value, label) in enumerate(zip(line, labels, strict=True)):
            if value is None or not math.isfinite(value):
                text, style = self._cell(value, limit)
                text = text if words else " " * self.width
            else:
                level = self.level(value, limit)
                text = self._worded(label, value, self._glyph(level) if self.shades else "", words)
                style = self.palette.style(level, self.warm, fill=not self.shades)
            segments.append(Segment(text, self.palette.cursor if column == cursor else style))
        return segments

    def _worded(self, label: str, value: float, shade: str, words: bool) -> str:
        if not words:
            return (shade * (self.width - 1)).ljust(self.width)
        digits = cell(value, 2)
        number = f" {digits if len(digits) <= 4 else short(value, 4):>3}" if self.width >= WORDED[0] - 1 else ""
        return (shade + fit(label, self.width - 1 - len(shade) - len(number)) + number + " ")[: self.width]

    def _cell(self, value: float | None, limit: float) -> tuple[str, Style]:
        if value is None:
            return MISSING.center(self.width), self.palette.missing
        if self.masks(value):
            return MASKED.center(self.width), self.palette.masked
        if not math.isfinite(value):
            return special(value)[: max(1, self.width - 1)].center(self.width), self.palette.odd
        level = self.level(value, limit)
        return self._text(level, value, limit), self.palette.style(level, self.warm, fill=not self.shades)

    def _glyph(self, level: int) -> str:
        return (UP if level > 0 else DOWN)[math.ceil(abs(level) * 4 / LEVELS)]

    def _text(self, level: int, value: float, limit: float) -> str:
        far = (limit or self.limit) * 1.0001
        end = " " if self.whole or abs(value) <= far else ABOVE if value > 0 else BELOW
        glyph = self._glyph(level)
        if self.width == 1:
            if end != " ":
                return end
            return (glyph if level else "·" if value else " ") if self.shades else "-" if level < 0 else " "
        places = self.places
        if places < 0:
            if self.shades:
                return glyph * (self.width - 1) + end
            return ("-" if level < 0 else "").rjust(self.width - 1) + end
        text = cell(value, places)
        for fewer in range(places - 1, -1, -1):
            if len(text) > self.room:
                text = cell(value, fewer)
        if len(text) > self.room:
            text = LONG
        return (glyph if self.shades else "") + text.rjust(self.room) + end

    def _plain(self, text: str) -> str:
        """A cell's lines without words: its shade, or nothing but its colour."""
        return text[0] * (self.width - 1) + " " if self.shades and text[0] in UP + DOWN else " " * self.width

    def _marked(self, text: str) -> str:
        return text if text.strip() else "▪".center(self.width)

    @cached_property
    def _known(self) -> dict[float, dict[float | None, tuple[str, Style]]]:
        """Cells that were made before, of each limit."""
        return {}


def legend(scale: Scale, width: int) -> list[Segment]:
    """The scale as a strip of ``width`` cells, from its low to its high end."""
    segments = []
    low = -LEVELS if scale.signed else 0
    count = max(2, min(width, LEVELS - low + 1))
    for place in range(count):
        level = round(low + (LEVELS - low) * place / (count - 1))
        glyph = scale._glyph(level) if scale.shades else "-" if level < 0 else " "
        segments.append(Segment(glyph, scale.palette.style(level, scale.warm, fill=not scale.shades)))
    return segments

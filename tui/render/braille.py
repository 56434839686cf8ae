"""Curves in braille: two dots by four in a cell, each cell in the style of the strongest curve through it."""

from __future__ import annotations

import math
from functools import cache, lru_cache

from rich.segment import Segment
from rich.style import Style

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of a dot in a braille character, by line and column."""
BLANK = 0x2800


class Canvas:
    """``width`` × ``height`` cells to draw on. What lies outside is cut."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = max(0, width), max(0, height)
        self._bits = [bytearray(self.width) for _ in range(self.height)]
        self._rank = [[-1.0] * self.width for _ in range(self.height)]
        self._styles: list[list[Style | None]] = [[None] * self.width for _ in range(self.height)]

    def curve(self, start: int, stop: int, style: Style, rank: float, thick: int = 1, gap: int = 1) -> None:
        """From the middle of line ``start`` at the left to that of line ``stop`` at the right, flat at both ends.

        ``thick`` is in dots; only each ``gap``-th is drawn. Where two cross, the cell is that of the higher ``rank``.
        """
        low, rise = start * 4 + 1.5, (stop - start) * 4
        above, below = (thick - 1) // 2, thick // 2
        before = math.floor(low)
        for x, share in enumerate(_flat(self.width * 2)):
            y = math.floor(low + rise * share)
            if gap > 1:
                if (x + (y if y != before else 0)) % gap == 0:
                    self.run(x, y - above, y + below, style, rank)
            else:  # what is steep is drawn without holes
                first, last = (before + 1, y) if before < y else (y, before - 1) if y < before else (y, y)
                self.run(x, first - above, last + below, style, rank)
            before = y

    def dot(self, x: int, y: int, style: Style, rank: float) -> None:
        """One dot."""
        self.run(x, y, y, style, rank)

    def run(self, x: int, first: int, last: int, style: Style, rank: float, dash: tuple[int, int] = (1, 0)) -> None:
        """The dots ``first`` to ``last`` of a column; dashes are counted from the upper edge of the canvas."""
        column, side, end = x >> 1, x & 1, 4 * self.height - 1
        if not 0 <= column < self.width or last < 0 or first > end:
            return
        first, last, period = max(0, first), min(end, last), sum(dash)
        for line in range(first >> 2, (last >> 2) + 1):
            top = 4 * line
            bits = _cell_bits(side, max(0, first - top), min(3, last - top), top % period, dash)
            if bits:
                self._bits[line][column] |= bits
                if rank > self._rank[line][column]:
                    self._rank[line][column], self._styles[line][column] = rank, style

    def segments(self, line: int, ground: Style) -> list[Segment]:
        """A line of the drawing, neighbours of one style merged; ``ground`` is where nothing is."""
        if not 0 <= line < self.height:
            return [Segment(" " * self.width, ground)]
        merged: list[Segment] = []
        texts: list[str] = []
        last: Style | None = None
        for bits, found in zip(self._bits[line], self._styles[line], strict=True):
            style = found or ground
            if style is not last and texts:
                merged.append(Segment("".join(texts), last))
                texts.clear()
            last = style
            texts.append(chr(BLANK + bits) if bits else " ")
        return [*merged, Segment("".join(texts), last)] if texts else merged


@lru_cache(maxsize=4096)
def _cell_bits(side: int, first: int, last: int, phase: int, dash: tuple[int, int]) -> int:
    """The dots ``first`` to ``last`` of one side of a cell that a dashed run has; its dot 0 is the ``phase``-th."""
    on, period = dash[0], sum(dash)
    return sum(DOTS[y][side] for y in range(first, last + 1) if (phase + y) % period < on)


@cache
def _flat(count: int) -> tuple[float, ...]:
    """From 0 to 1 in ``count`` steps, slow at both ends."""
    steps = ((x + 0.5) / count for x in range(count))
    return tuple(t * t * (3 - 2 * t) for t in steps)

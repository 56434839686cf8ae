"""How the values of a plane are spread: counts between edges, and what lies outside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.segment import Segment
from textual.strip import Strip

from tui.render.bars import bar
from tui.state.looks import Histogram
from tui.state.numbers import count, exact, rounded, short
from tui.text import cells, right
from tui.widgets.plane import PlaneView

BLOCKS = " ▁▂▃▄▅▆▇█"
UPRIGHT = (28, 8)
"""Columns and lines from which on the bars stand upright."""
TALLEST = 32
GUTTER = 8
MARK = "▴"
FACTS = 2
"""Blanks between two statistics."""
Line = list[Segment]


class Bin(NamedTuple):
    """So many values from ``low`` to ``high``."""

    low: float
    high: float
    number: int

    def holds(self, value: float | None) -> bool:
        """Whether a value lies in it, or on its edge."""
        return value is not None and self.low <= value <= self.high


class HistogramView(PlaneView):
    """Upright bars over an axis with the quantiles, then the statistics; where it is small, a line for each bin."""

    DEFAULT_CSS = "HistogramView { overflow: hidden auto; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._value: float | None = None

    def mark(self, value: float | None) -> None:
        """Show where this value lies; None: it is not known."""
        if value != self._value:
            self._value = value
            self._strips.clear()
            self.measure()
            self.refresh()

    @property
    def marked(self) -> tuple[str, str]:
        """The value that is marked in words, and how many are like it."""
        told, value = self.histogram, self._value
        if told is None or value is None:
            return "", ""
        like = next((one for one in _merged(told, len(told.counts)) if one.holds(value)), None)
        if like is None:
            return exact(value), ""
        total, ends = count(sum(told.counts)), f"{short(like.low)} … {short(like.high)}"
        return exact(value), f"in the bin {ends} with {count(like.number)} of {total} values"

    @property
    def histogram(self) -> Histogram | None:
        """What is drawn; None while it is not here."""
        told = self.block.told if self.block else None
        return told if isinstance(told, Histogram) else None

    def seen(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (0, 1), (0, 1)

    def measure(self) -> None:
        told, room = self.histogram, self.room
        self._lines = list(self._write(told, room.width, room.height)) if told and room.width > 0 else []
        self._virtual(room.width, len(self._lines))

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        if place >= len(self._lines):
            return self.blank(width)
        return self.cached((place, width), lambda: self._lines[place], width)

    def _write(self, told: Histogram, width: int, height: int) -> Iterator[Line]:
        facts = list(self._facts(told, width))
        if not told.counts:
            yield [Segment(" no value here is finite", self.inks.strong)]
        elif width >= UPRIGHT[0] and height - len(facts) - 3 >= UPRIGHT[1] - 3:
            yield from self._upright(told, width, min(TALLEST, height - len(facts) - 3))
        else:
            yield from self._level(told, width, max(3, height - len(facts) - 1))
        yield []
        yield from facts

    def _upright(self, told: Histogram, width: int, height: int) -> Iterator[Line]:
        inks, room = self.inks, width - GUTTER - 1
        bins = _merged(told, room)
        ends = [room * (n + 1) // len(bins) for n in range(len(bins))]  # a column more or less: they fill the width
        widths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        most = max(one.number for one in bins) or 1
        gap = " " if min(widths) >= 3 else ""
        for y in range(height):
            line = ""
            for one, width in zip(bins, widths, strict=True):
                share = one.number / most * height
                level = max(1 if one.number and y == height - 1 else 0, min(8, round((share - (height - 1 - y)) * 8)))
                line += BLOCKS[max(0, level)] * (width - len(gap)) + gap
            name = rounded(most) if y == 0 else "0" if y == height - 1 else ""
            yield [Segment(right(name, GUTTER - 1) + " ", inks.faint), Segment(line, inks.bar_up)]
        low, high = bins[0].low, bins[-1].high
        yield [Segment(" " * GUTTER, inks.text), *self._ticks(told, low, high, room)]
        yield [Segment(" " * GUTTER, inks.text), Segment(_scale(low, high, room), inks.faint)]

    def _ticks(self, told: Histogram, low: float, high: float, width: int) -> Line:
        """The axis with the place of the quantiles, of zero and of the value at the cursor."""
        marks, here = ["─"] * width, -1
        places = [(0.0, "0"), (told.q01, "╵"), (told.q99, "╵"), (told.q50, "┻"), (self._value, MARK)]
        for value, glyph in places:
            if value is not None and low <= value <= high and high > low:
                at = min(width - 1, int((value - low) / (high - low) * width))
                marks[at], here = glyph, at if glyph == MARK else here
        line, inks = "".join(marks), self.inks
        if here < 0:
            return [Segment(line, inks.muted)]
        return [Segment(line[:here], inks.muted), Segment(MARK, inks.accent), Segment(line[here + 1 :], inks.muted)]

    def _level(self, told: Histogram, width: int, height: int) -> Iterator[Line]:
        inks, bins = self.inks, _merged(told, height)
        most, number = max(one.number for one in bins) or 1, max(len(count(one.number)) for one in bins)
        here = next((one for one in bins if one.holds(self._value)), None)
        for one in bins:
            room = width - 2 * 7 - number - 5
            yield [
                Segment("▸" if one is here else " ", inks.accent),
                Segment(f"{right(short(one.low, 7), 7)}…{short(one.high, 7).ljust(7)} ", inks.muted),
                Segment(count(one.number).rjust(number) + " ", inks.text),
                *bar(one.number, most, room, False, inks.bar_up, inks.bar_down, inks.bar_track),
            ]

    def _facts(self, told: Histogram, width: int) -> Iterator[Line]:
        """The statistics, wrapped; what is not finite stands out."""
        inks, stats = self.inks, told.stats if told.stats.count or self.block is None else self.block.stats
        finite = sum(told.counts)
        facts = [("values", count(finite + told.nan + told.above + told.below + told.masked), inks.text)]
        if finite and stats.count:
            numbers = {name: getattr(stats, field) for name, field in _STATS.items()}
            facts += [(name, short(value), inks.text) for name, value in numbers.items()]
        elif finite:
            facts += [("min", short(told.edges[0]), inks.text), ("max", short(told.edges[-1]), inks.text)]
        for name, value in (("1 %", told.q01), ("median", told.q50), ("99 %", told.q99)):
            facts += [(name, short(value), inks.text)] if value is not None else []
        facts += [("· masked", count(told.masked), inks.muted)] if told.masked else []
        odd = (("NaN", told.nan), ("+∞", told.above), ("-∞", told.below))
        facts += [(f"✗ {name}", count(number), inks.error) for name, number in odd if number]
        line: Line = []
        used = 1
        for name, number, style in facts:
            size = cells(name) + 1 + cells(number) + FACTS
            if line and used + size > width:
                yield line
                line, used = [], 1
            line += [Segment(" " if not line else "", inks.text), Segment(name + " ", inks.muted)]
            line.append(Segment(number + " " * FACTS, style))
            used += size
        yield line


_STATS = {"min": "low", "max": "high", "mean": "mean", "std": "std", "norm": "norm"}


def _merged(told: Histogram, most: int) -> Sequence[Bin]:
    """At most so many bins: neighbours together where there are more."""
    each = max(1, math.ceil(len(told.counts) / max(1, most)))  # without a finite number there is no bin
    return [
        Bin(told.edges[n], told.edges[min(n + each, len(told.counts))], sum(told.counts[n : n + each]))
        for n in range(0, len(told.counts), each)
    ]


def _scale(low: float, high: float, width: int) -> str:
    """Numbers below the axis: its ends, and where there is room some between."""
    marks = [" "] * width
    parts = max(1, min(4, width // 16))
    for n in range(parts + 1):
        text = short(low + (high - low) * n / parts)
        at = max(
            0,
            min(
                width - len(text), round(width * n / parts) - (len(text) if n == parts else len(text) // 2 if n else 0)
            ),
        )
        if len(text) <= width:
            marks[at : at + len(text)] = text
    return "".join(marks)

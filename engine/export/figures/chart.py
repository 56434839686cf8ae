"""Axes with numbers along them: round ticks, faint lines at them, and a name for each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from engine.export.figures import letters, numerals
from engine.export.figures.sheet import Box, Sheet

Tick = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Chart:
    """Axes on a sheet, the box that they fill, and the sheet."""

    sheet: Sheet
    axes: Axes
    box: Box

    @classmethod
    def of(
        cls,
        sheet: Sheet,
        box: Box,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        x_ticks: Sequence[Tick] = (),
        y_ticks: Sequence[Tick] = (),
        x_name: str = "",
        y_name: str = "",
        log: bool = False,
        right: float = 0.0,
        below: float | None = None,
    ) -> Chart:
        """A chart in a box, what is written beside it included. ``below`` is the room that is left for names under it,
        where they are not ticks; ``right`` for what is written to its right."""
        size, line = sheet.size.small, letters.height(sheet.size.small)
        left = letters.widest([text for _, text in y_ticks], size) + 0.6 * line
        top = (1.3 * line if y_name else 0.0) + 0.5 * line
        under = (1.3 * line if x_ticks else 0.3 * line) if below is None else below
        inner = box.inside(left, under + (1.1 * line if x_name else 0.0), max(right, 0.5 * line), top)
        axes = sheet.axes(inner)
        if log:
            axes.set_xscale("log")
            axes.set_yscale("log")
            for side in (axes.xaxis, axes.yaxis):
                side.set_major_locator(MaxNLocator(1))
                side.set_ticks([], minor=True)
                side.set_ticks([])
        axes.set_xlim(*x)
        axes.set_ylim(*y)
        chart = cls(sheet, axes, inner)
        for value, text in y_ticks:
            axes.axhline(value, color=sheet.inks.line, linewidth=sheet.thin, zorder=0.5)
            sheet.text(inner.x - 0.4 * line, chart.y(value), text, size, ha="right", va="center_baseline",
                       colour=sheet.inks.muted)  # fmt: skip
        for value, text in x_ticks:
            sheet.text(
                chart.x(value), inner.y - 0.35 * line, text, size, ha="center", va="top", colour=sheet.inks.muted
            )
        if y_name:
            sheet.text(inner.x, box.top, y_name, size, va="top", colour=sheet.inks.muted)
        if x_name:
            sheet.text(inner.right, inner.y - under - 0.1 * line, x_name, size, ha="right", va="top",
                       colour=sheet.inks.muted)  # fmt: skip
        return chart

    def x(self, value: float) -> float:
        """Where a number along the lower side is on the sheet."""
        return self.box.x + self.box.width * _part(value, self.axes.get_xlim(), log=self.axes.get_xscale() == "log")

    def y(self, value: float) -> float:
        """Where a number along the left side is on the sheet."""
        return self.box.y + self.box.height * _part(value, self.axes.get_ylim(), log=self.axes.get_yscale() == "log")


def _part(value: float, ends: tuple[float, float], *, log: bool) -> float:
    low, high = ends
    if log:
        value, low, high = log10(value), log10(low), log10(high)
    return (value - low) / (high - low)


def round_ticks(low: float, high: float, most: int = 5) -> list[Tick]:
    """At most so many round numbers inside two ends."""
    if not low < high:
        return [(low, numerals.short(low))]
    found = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    inside = [float(v) for v in found if low - 1e-9 * (high - low) <= v <= high + 1e-9 * (high - low)]
    return [(value, numerals.short(value, 4)) for value in inside]


def whole_ticks(low: float, high: float, most: int = 8) -> list[Tick]:
    """The same of whole numbers alone."""
    return [(value, f"{value:,.0f}") for value, _ in round_ticks(low, high, most) if value == int(value)]


def decades(low: float, high: float, most: int = 6) -> list[Tick]:
    """Powers of ten inside two ends, at most so many of them."""
    powers = range(ceil(log10(low)), floor(log10(high)) + 1)
    step = max(1, -(-len(powers) // most))
    return [(10.0**power, _power(power)) for power in powers[::step]]


def _power(power: int) -> str:
    return numerals.amount(10.0**power) if -4 < power < 18 else f"1e{power}".replace("-", numerals.MINUS)


def padded(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """Two ends with some room beyond them; never the same."""
    if low == high:
        return low - 0.5, high + 0.5
    return low - share * (high - low) * (low < 0), high + share * (high - low) * (high > 0)

"""Cached against uncached: the largest difference of each layer in each pass, as numbers on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.segment import Segment
from rich.style import Style

from tui.render.cells import UP
from tui.render.palette import LEVELS
from tui.state.cache import Drift, Gap
from tui.state.numbers import special
from tui.state.trace import Trace
from tui.text import fit, foreign, right
from tui.widgets.cache_section import Line, Section, paragraph

CELL = 6
GUTTER = 9
DECADES = 4
"""The scale ends at the tolerance and begins so many powers of ten below it."""
STORY = "Both ways are the same sums in another order: what differs is rounding, unless something is wrong."


class CacheDrift(Section):
    """Layers × passes, the logits below; the passes around the cursor's where not all fit."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drift: Drift | None = None
        self._trace: Trace | None = None
        self._layers: tuple[int, ...] = ()
        self._at = self._row = 0
        self._shades = False
        self._top = 0

    def show(
        self,
        trace: Trace,
        layers: tuple[int, ...],
        drift: Drift | None,
        at: int,
        row: int,
        shades: bool,
        trouble: str = "",
    ) -> None:
        """Draw what was measured, the cursor on pass ``at`` and the layer of line ``row``."""
        self._trace, self._layers, self._drift = trace, layers, drift
        self._at, self._row, self._shades = at, row, shades
        self.say(trace, layers, drift, at, row, shades, trouble=trouble)

    def in_sight(self) -> tuple[int, int]:
        return self.around(self._top + self._row, self._row, len(self._layers)) if self._drift else (0, -1)

    def write(self, width: int) -> Iterator[Line]:
        drift, inks = self._drift, self.inks
        if drift is None:
            yield [Segment(" m ", inks.primary), Segment("runs every pass again without the cache", inks.muted)]
            yield from paragraph(STORY, inks.faint, width)
            return
        if not drift.passes:
            yield from paragraph(drift.text or "one pass: there is nothing to compare", inks.muted, width)
            return
        head = list(self._head(drift, width))
        yield from head
        here = drift.passes.index(self._at) if self._at in drift.passes else 0
        cell = self._cell_width(drift)
        shown = max(1, (width - GUTTER - 1) // cell)
        first = max(0, min(here - shown // 2, len(drift.passes) - shown))
        columns = range(first, min(len(drift.passes), first + shown))
        yield self._names(drift, columns, here, cell)
        self._top = self.lead + len(head) + 1
        for row, layer in enumerate(self._layers):
            name = f"{'▸' if row == self._row else ' '} layer {layer}"
            gaps = [drift.gaps[n][row] if row < len(drift.gaps[n]) else math.nan for n in columns]
            yield self._gaps(name, gaps, drift, here - first, row == self._row)
        if drift.logits:
            gaps = [drift.logits[n] if n < len(drift.logits) else math.nan for n in columns]
            yield self._gaps("  logits", gaps, drift, here - first, False)
        hidden = len(drift.passes) - len(columns)
        if hidden:
            yield [Segment(f"{' ' * GUTTER} ‹ ›  ←→ for {hidden} more", inks.faint)]
        if drift.text:
            yield []
            yield from paragraph(drift.text, inks.muted, width)

    def _head(self, drift: Drift, width: int) -> Iterator[Line]:
        inks = self.inks
        mark, tone = ("✓", inks.success) if drift.ok else ("✗", inks.error)
        words = f"{'within' if drift.ok else 'beyond'} the tolerance, {_number(drift.tolerance)} in {drift.dtype}"
        yield [Segment(f" {mark} ", tone), Segment(foreign(words), inks.text)]
        for title, gap in (("first beyond it", drift.first), ("first bit off", drift.first_bit)):
            yield self._gap(title, gap, width)
        yield []

    def _gap(self, title: str, gap: Gap | None, width: int) -> Line:
        inks = self.inks
        lead = Segment(f" {fit(title, 17)}", inks.muted)
        if gap is None:
            return [lead, Segment("none", inks.faint)]
        number = f"  {_number(gap.gap)}"
        site = f"{foreign(gap.site)}@{gap.at}"
        return [lead, Segment(fit(site, max(4, min(len(site), width - 19 - len(number)))), inks.primary),
                Segment(number, inks.text)]  # fmt: skip

    def _names(self, drift: Drift, columns: range, here: int, cell: int) -> Line:
        inks = self.inks
        segments = [Segment(right("pass", GUTTER) + " ", inks.faint)]
        for n in columns:
            style = inks.strong if n == here else inks.muted
            segments.append(Segment(right(str(drift.passes[n]), cell - 1) + " ", style))
        return segments

    def _gaps(self, name: str, gaps: list[float], drift: Drift, here: int, chosen: bool) -> Line:
        inks = self.inks
        segments = [Segment(fit(name, GUTTER) + " ", inks.strong if chosen else inks.muted)]
        for n, gap in enumerate(gaps):
            text, style = self._cell(gap, drift)
            if chosen and n == here:
                style = self.palette.cursor
            segments += [Segment(text, style), Segment(" ", inks.text)]
        return segments

    def _cell_width(self, drift: Drift) -> int:
        return CELL + (self._shades or drift.tolerance < 1e-9)

    def _cell(self, gap: float, drift: Drift) -> tuple[str, Style]:
        """A difference as a number, after a shade where colours are few; ✗ stands before one beyond the tolerance.

        Each site has a tolerance of its own, of which one is told: it marks nothing where all are kept.
        """
        tolerance, wide = drift.tolerance, self._cell_width(drift) - 1
        if not math.isfinite(gap):
            return right(special(gap), wide), self.palette.odd
        if gap > tolerance and not drift.ok:
            return right("✗" + _number(gap), wide), self.palette.odd
        if gap <= 0:
            return right("0", wide), self.inks.faint
        share = 1 + math.log10(gap / tolerance) / DECADES if 0 < tolerance < math.inf else 1.0
        level = max(1, min(LEVELS, round(share * LEVELS)))
        glyph = UP[max(1, math.ceil(level * 4 / LEVELS))] if self._shades else ""
        return glyph + right(_number(gap), wide - len(glyph)), self.palette.style(level, True, fill=not self._shades)


def _number(gap: float) -> str:
    """``3e-7``"""
    if not gap or not math.isfinite(gap):
        return special(gap) or "0"
    digits, _, power = f"{gap:.0e}".partition("e")
    return f"{digits}e{int(power)}"

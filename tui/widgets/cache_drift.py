"""Cached against uncached: the largest difference of each layer in each pass, as numbers on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.segment import Segment
from rich.style import Style

from tui.actions import keymap_of
from tui.render.cells import UP
from tui.render.palette import LEVELS
from tui.state.cache import Drift, Gap
from tui.state.numbers import special
from tui.state.trace import Trace
from tui.text import fit, foreign, right
from tui.widgets.cache_section import Line, Section, flow, keyed, paragraph

CELL = 6
GUTTER = 9
TITLE = 17
DECADES = 4
"""The scale ends at the tolerance and begins so many powers of ten below it."""
STORY = (
    "Each number of the passes on the cache is compared with the same number of one pass over the whole text without "
    "a cache; a cell is the largest difference in a layer. Both are the same sums in another order, so their last bits "
    "may be off by rounding. How far rounding may take a number is measured for each site: its tolerance."
)


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
            measures = keymap_of(self.app).key("cache.measure")
            yield from keyed(measures, "runs every pass again without the cache", inks, width)
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
        if drift.text and drift.worst is None:
            yield from paragraph(drift.text, inks.muted, width)
        yield from paragraph(STORY, inks.faint, width)

    def _head(self, drift: Drift, width: int) -> Iterator[Line]:
        inks = self.inks
        mark, tone = ("✓", inks.success) if drift.ok else ("✗", inks.error)
        words = "within the tolerance of every site" if drift.ok else "beyond the tolerance of a site"
        dtype = Segment(f" in {foreign(drift.dtype)}", inks.text)
        yield from flow((Segment(f" {mark} ", tone), Segment(words, inks.text), dtype), width)
        most = f" of {_number(drift.tolerance)}"
        yield from self._gap("first beyond it", drift.first, most, width)
        if drift.worst is not None:
            yield from self._gap("nearest to it" if drift.ok else "most beyond it", drift.worst, most * drift.ok, width)
        yield from self._gap("first bit off", drift.first_bit, "", width)

    def _gap(self, title: str, gap: Gap | None, most: str, width: int) -> Iterator[Line]:
        """A site and how far it is off, of the ``most`` that it may be."""
        inks = self.inks
        lead = Segment(f" {fit(title, TITLE)}", inks.muted)
        if gap is None:
            yield [lead, Segment("none", inks.faint)]
            return
        site = Segment(f"{foreign(gap.site)}@{gap.at}", inks.primary)
        yield from flow((lead, site, Segment(f"  {_number(gap.gap)}{most}", inks.text)), width, indent=TITLE + 1)

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

"""A what-if: keys and values in few bits, with the error that they cause at each site."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.segment import Segment
from textual.events import Click

from tui.actions import keymap_of
from tui.render.bars import bar
from tui.state.cache import Damage, Quantised
from tui.state.numbers import count, size, special
from tui.text import cells, fit, foreign, right
from tui.widgets.cache_section import Line, Section, flow, keyed, paragraph, widest

SITE = 30
"""Cells of a site's name at most."""
KL = "KL: how far the next token's probabilities move."
NORM = "of norm: ‖change‖ / ‖values‖ over all of a site."


class CacheQuantised(Section):
    """A table along the depth of the pass; the cursor is on a site."""

    def __init__(self, row: int = 0, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._quantised: Quantised | None = None
        self._bits = 8
        self._row, self._top = row, 0

    @property
    def row(self) -> int:
        """The line of the site at the cursor."""
        return self._row

    @property
    def site(self) -> str:
        """The site at the cursor; '' where there is none."""
        rows = self._quantised.rows if self._quantised else ()
        return rows[min(self._row, len(rows) - 1)].site if rows else ""

    def show(self, bits: int, quantised: Quantised | None, trouble: str = "") -> None:
        """Draw what became of the pass with ``bits`` bits; None: it was not run yet."""
        self._bits, self._quantised = bits, quantised
        self._row = min(self._row, max(0, len(quantised.rows) - 1)) if quantised else self._row
        self.say(bits, quantised, trouble=trouble)

    def move(self, by: int) -> None:
        """To another site."""
        rows = len(self._quantised.rows) if self._quantised else 0
        self._row = max(0, min(self._row + by, rows - 1))
        self.lay_out()

    def in_sight(self) -> tuple[int, int]:
        found = self._quantised
        return self.around(self._top + self._row, self._row, len(found.rows)) if found else (0, -1)

    def write(self, width: int) -> Iterator[Line]:
        found, inks = self._quantised, self.inks
        if found is None:
            measures = keymap_of(self.app).key("cache.measure")
            yield from keyed(measures, f"runs the passes with an int{self._bits} cache", inks, width)
            yield from keyed(keymap_of(self.app).key("cache.bits"), f"int{12 - self._bits} instead", inks, width)
            yield from paragraph(_rounding("groups of numbers", self._bits), inks.faint, width)
            return
        head = list(self._head(found, width))
        yield from head
        names = widest((row.site for row in found.rows), min(SITE, max(8, width - 22)))
        most = max((row.relative for row in found.rows if math.isfinite(row.relative)), default=0.0)
        yield [Segment(f"   {fit('site', names)} {right('max |Δ|', 8)} {right('of norm', 8)}", inks.faint)]
        self._top = self.lead + len(head) + 1
        for row, damage in enumerate(found.rows):
            yield self._line(damage, row == self._row, names, most, width)

    def _head(self, found: Quantised, width: int) -> Iterator[Line]:
        inks = self.inks
        less = f"  {found.before / found.bytes:.1f} × less" if found.bytes else ""
        yield from flow(
            (
                Segment(f" int{found.bits}", inks.strong),
                Segment(f"  {size(found.before)} → {size(found.bytes)}", inks.text),
                Segment(less, inks.accent),
            ),
            width,
        )
        if found.of:
            same = found.same_top == found.of
            mark = Segment(" ✓ " if same else " ✗ ", inks.success if same else inks.error)
            tokens = Segment(f"same top token {count(found.same_top)} of {count(found.of)}", inks.text)
            yield from flow((mark, tokens, Segment(f"  KL {_figure(found.kl)}", inks.muted)), width)
        groups = f"every {found.group} numbers" if found.group else "groups of numbers"
        words = (_rounding(groups, found.bits), KL if found.of else "", NORM)
        yield from paragraph(" ".join(filter(None, words)), inks.faint, width)

    def _line(self, damage: Damage, here: bool, names: int, most: float, width: int) -> Line:
        inks = self.inks
        share = f"{damage.relative:.2%}" if math.isfinite(damage.relative) else special(damage.relative)
        odd, room = not math.isfinite(damage.error), width - names - 24
        return [
            Segment(" ▸ " if here else "   ", inks.accent),
            Segment(_tail(damage.site, names) + " ", inks.cursor if here else inks.text),
            Segment(right(_figure(damage.error), 8), inks.error if odd else inks.text),
            Segment(right(share, 9), inks.muted),
            Segment("  " * (room > 0), inks.text),
            *bar(damage.relative, most, max(0, room), False, inks.bar_up, inks.bar_down, inks.bar_track),
        ]

    def on_click(self, event: Click) -> None:
        """A click on a site."""
        row = event.y + self.scroll_offset.y - self._top
        if self._quantised and 0 <= row < len(self._quantised.rows):
            self.move(row - self._row)


def _rounding(groups: str, bits: int) -> str:
    """What storing numbers in so many bits does to them."""
    shared, steps = ("a scale", 255) if bits == 8 else ("a scale and a minimum", 2**bits)
    return f"In int{bits}, {groups} share {shared}, and each is rounded to one of {steps} steps."


def _figure(number: float) -> str:
    return special(number) or (f"{number:.1e}" if number else "0")


def _tail(name: str, width: int) -> str:
    """A site's name in ``width`` cells, its end kept."""
    shown = foreign(name)
    return fit(shown if cells(shown) <= width else "…" + shown[-(width - 1) :], width)

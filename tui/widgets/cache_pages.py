"""A what-if: the cache cut into pages, with what stays empty in them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.segment import Segment

from tui.state.cache import Pages
from tui.state.numbers import count, size
from tui.text import right
from tui.widgets.cache_section import Line, Section, flow, paragraph

USED, EMPTY = "▇", "╌"
STORY = "Memory is handed out in pages, so that many texts can share it; the last page of each is partly empty."


class CachePages(Section):
    """Each layer's pages: used and empty rows."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._pages: Pages | None = None

    def show(self, pages: Pages | None, trouble: str = "") -> None:
        """Draw the pages of one size; None while they are not here."""
        self._pages = pages
        self.say(pages, trouble=trouble)

    def write(self, width: int) -> Iterator[Line]:
        pages, inks = self._pages, self.inks
        if pages is None:
            yield from self.waiting()
            return
        share = f"{pages.share:.0%}" if math.isfinite(pages.share) else "?"
        positions = f"{count(pages.size)} position{'s' * (pages.size != 1)}"
        yield from flow(
            (
                Segment(f" pages of {positions}", inks.strong),
                Segment(f"  {size(pages.waste)} empty", inks.accent),
                Segment(f" ({share})", inks.muted),
            ),
            width,
        )
        heads = f" {right('layer', 6)} {right('pages', 6)} {right('rows', 13)} {right('empty', 10)}"
        key = f"  {USED} used {EMPTY} empty"
        yield [Segment(heads + (key if len(heads + key) < width else ""), inks.faint)]
        for row in pages.rows:
            room = row.pages * pages.size
            yield [
                Segment(f" {row.layer:>6} {row.pages:>6} ", inks.text),
                Segment(right(f"{count(row.used)} of {count(room)}", 13), inks.muted),
                Segment(right(size(row.waste), 11) + "  ", inks.text),
                *self._rows(row.used, room, max(0, width - 42)),
            ]
        if pages.text:
            yield from paragraph(pages.text, inks.muted, width)
        yield from paragraph(STORY, inks.faint, width)

    def _rows(self, used: int, room: int, width: int) -> Iterator[Segment]:
        """A layer's rows, the used ones first."""
        share = min(width, math.ceil(used / room * width)) if room else 0
        yield Segment(USED * share, self.inks.bar_weight)
        yield Segment(EMPTY * (width - share), self.inks.faint)

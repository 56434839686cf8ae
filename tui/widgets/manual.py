"""The help's lines: sections of keys, marks and words, with one of them chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.segment import Segment
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from tui.glossary import Term
from tui.state.manual import Entry, Section
from tui.text import cells, fit
from tui.widgets.lines import LineView, shortened, wrap

KEYS, LABEL = 10, 28
"""Cells for the keys of an action, and for what it is called."""
LEAST = 18
"""Cells that words are wrapped to at least."""


class ManualLines(LineView, can_focus=False):
    """Driven by the input above it: ``move``, ``page``, ``jump`` and ``chosen``."""

    class Chosen(Message):
        """A word was clicked."""

        def __init__(self, term: Term) -> None:
            super().__init__()
            self.term = term

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sections: Sequence[Section] = ()
        self._lines: list[tuple[list[Segment], int]] = []
        self._spans: list[tuple[int, int]] = []
        self._heads: list[int] = []
        self._at = 0

    @property
    def entries(self) -> list[Entry]:
        """All that can be chosen, in order."""
        return [entry for section in self._sections for entry in section.entries]

    @property
    def chosen(self) -> Entry | None:
        """The entry at the cursor."""
        entries = self.entries
        return entries[self._at] if self._at < len(entries) else None

    @property
    def section(self) -> str:
        """The title of the section that the cursor is in."""
        return self._sections[self._section].title if self._sections else ""

    @property
    def _section(self) -> int:
        return max((n for n, first in enumerate(self._heads) if first <= self._at), default=0)

    def show(self, sections: Sequence[Section]) -> None:
        """Other sections, from their beginning."""
        self._sections, self._at = sections, 0
        self.lay_out()
        self.scroll_to(y=0, animate=False, force=True, immediate=True)

    def move(self, by: int) -> None:
        """The cursor some entries on or back."""
        self._go(self._at + by)

    def page(self, by: int) -> None:
        """The cursor some pages on or back."""
        if self._spans:
            line = self._spans[self._at][0] + by * max(1, self.room.height - 2)
            beyond = (n for n, (start, _) in enumerate(self._spans) if start >= line)
            target = next(beyond, len(self._spans) - 1)
            self._go(target if by > 0 else min(target, self._at - 1))

    def jump(self, by: int) -> None:
        """The cursor to the beginning of a section on or back; from the last one to the first."""
        if self._heads:
            self._at = self._heads[(self._section + by) % len(self._heads)]
            self.scroll_to(y=self._spans[self._at][0] - 1, animate=False, force=True, immediate=True)
            self.refresh()

    def _go(self, at: int) -> None:
        self._at = max(0, min(at, len(self._spans) - 1))
        self._follow()
        self.refresh()

    def _follow(self) -> None:
        """Scroll as little as shows the entry, and the title above it where it is the first of its section."""
        if not self._spans:
            return
        start, stop = self._spans[self._at]
        start -= self._at in self._heads
        top, height = self.scroll_offset.y, max(1, self.room.height)
        if start < top or stop - start >= height:
            top = start
        elif stop > top + height:
            top = stop - height
        self.scroll_to(y=top, animate=False, force=True, immediate=True)

    def on_resize(self) -> None:
        """Lines break elsewhere."""
        self.lay_out()
        self._follow()

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        if place >= len(self._lines):
            text = "  nothing has this word; Backspace widens the search" if place == 0 and self.is_mounted else ""
            return self.cached(("none", text, width), lambda: [Segment(fit(text, width), self.inks.muted)], width)
        line, entry = self._lines[place]
        here = entry == self._at
        mark = Segment("▌" if here else " ", self.inks.accent)
        return self.cached((place, here, width), lambda: shortened([mark, *line], width), width)

    def on_click(self, event: Click) -> None:
        """A click chooses."""
        place = event.y + self.scroll_offset.y
        if place < len(self._lines) and (at := self._lines[place][1]) >= 0:
            self._go(at)
            if (entry := self.entries[at]).term is not None:
                self.post_message(self.Chosen(entry.term))

    def lay_out(self) -> None:
        width = self.room.width
        self._lines, self._spans, self._heads = [], [], []
        for section in self._sections if width > 0 else ():
            if self._lines:
                self._lines.append(([], -1))
            self._lines.append(([Segment(section.title, self.inks.strong)], -1))
            self._heads.append(len(self._spans))
            for entry in section.entries:
                start = len(self._lines)
                self._lines += [(line, len(self._spans)) for line in self._entry(entry, width)]
                self._spans.append((start, len(self._lines)))
        self.virtual_size = Size(width, len(self._lines))
        self.forget()

    def _entry(self, entry: Entry, width: int) -> Iterator[list[Segment]]:
        inks = self.inks
        if entry.term is not None:
            yield from self._term(entry.term, max(LEAST, width - 6))
            return
        tone, label = (inks.accent, "") if entry.mark else (inks.primary, fit(entry.words, LABEL) + " ")
        first = [Segment(f"  {fit(entry.head, KEYS)} ", tone), Segment(label, inks.text)]
        indent = KEYS + 3 + len(label)
        for n, line in enumerate(wrap(entry.words if entry.mark else entry.more, max(LEAST, width - indent - 2))):
            yield [*(first if n == 0 else [Segment(" " * indent, inks.text)]), Segment(line, inks.muted)]

    def _term(self, term: Term, room: int) -> Iterator[list[Segment]]:
        inks = self.inks
        indent = cells(term.name) + 2
        for n, line in enumerate(wrap(", ".join(term.spellings), max(LEAST, room - indent))):
            head = term.name if n == 0 else ""
            yield [Segment(f"  {fit(head, indent)}", inks.primary), Segment(line, inks.faint)]
        for line in wrap(term.text, room):
            yield [Segment(f"    {line}", inks.text)]
        more = [term.source] if term.source else []
        more += [f"see {', '.join(term.see)}"] if term.see else []
        for line in wrap(" · ".join(more), room) if more else ():
            yield [Segment(f"    {line}", inks.muted)]

"""The sections of the cache view in one line, for terminals with room for one of them at a time."""

from __future__ import annotations

from rich.segment import Segment
from textual.events import Click
from textual.message import Message
from textual.strip import Strip

from tui.actions import CACHE_SECTIONS, keymap_of
from tui.widgets.lines import LineView


class CacheTabs(LineView, can_focus=False):
    """``1 growth  2 bytes …``, the chosen one bracketed; a click chooses."""

    class Picked(Message):
        """A section was clicked."""

        def __init__(self, section: int) -> None:
            super().__init__()
            self.section = section

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._chosen = 0
        self._spots: list[tuple[int, int, int]] = []

    def show(self, chosen: int) -> None:
        """The section that is shown."""
        if chosen != self._chosen:
            self._chosen = chosen
            self.forget()

    def strip(self, y: int) -> Strip:
        width = self.room.width
        return self.cached((y, width), lambda: self._line(width) if y == 0 else [], width)

    def _line(self, width: int) -> list[Segment]:
        inks, self._spots = self.inks, []
        names = [name.lower() for name, _ in CACHE_SECTIONS]
        if sum(len(name) + 4 for name in names) > width:
            names = [name if n == self._chosen else "" for n, name in enumerate(names)]
        segments, x, key = [], 0, keymap_of(self.app).key
        for n, name in enumerate(names):
            here = n == self._chosen
            words = f"{key(f'cache.section_{n + 1}')} {name}".strip()
            segments += [
                Segment("[" if here else " ", inks.accent),
                Segment(words, inks.strong if here else inks.muted),
                Segment("]" if here else " ", inks.accent),
            ]
            self._spots.append((x, x + len(words) + 2, n))
            x += len(words) + 2
        return segments

    def on_click(self, event: Click) -> None:
        """A click chooses."""
        for start, stop, section in self._spots:
            if start <= event.x < stop:
                self.post_message(self.Picked(section))

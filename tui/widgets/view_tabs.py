"""Below a picture: the pictures that the step has, by number, the one that is shown marked."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.events import Click
from textual.message import Message
from textual.strip import Strip

from engine.views import View
from tui.actions import keymap_of
from tui.text import cells
from tui.widgets.lines import LineView


class ViewTabs(LineView, can_focus=False):
    """`` 1 heatmap  2 row  [3 arcs]  4 text``; where it is narrow, those around the one that is shown."""

    class Picked(Message):
        """A picture was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._views: tuple[View, ...] = ()
        self._shown: View | None = None
        self._spots: list[tuple[int, int, str]] = []

    def show(self, views: Sequence[View], shown: View) -> None:
        """These pictures, one of them shown."""
        if (tuple(views), shown) != (self._views, self._shown):
            self._views, self._shown = tuple(views), shown
            self.forget()

    def strip(self, y: int) -> Strip:
        width = self.room.width
        return self.cached((y, width), lambda: self._line(width) if y == 0 else [], width)

    def _line(self, width: int) -> list[Segment]:
        if not self._views:
            return []
        inks = self.inks
        keymap = keymap_of(self.app)
        names = [f"view.{n}" for n in range(1, len(self._views) + 1)]
        keys = [keymap.key(name) if name in keymap.by_id else "" for name in names]
        words = [f"{key} {view.name}".strip() for key, view in zip(keys, self._views, strict=True)]
        at = self._views.index(self._shown) if self._shown in self._views else 0
        first, last = _around(words, at, width - 4)
        segments = [Segment("‹" if first else " ", inks.faint)]
        self._spots, used = [], 1
        for n in range(first, last):
            here = n == at
            text = f"[{words[n]}]" if here else f" {words[n]} "
            segments.append(Segment(text, inks.strong if here else inks.muted))
            self._spots.append((used, used + cells(text), self._views[n].name))
            used += cells(text)
        if last < len(words):
            segments.append(Segment("›", inks.faint))
        return segments

    def on_click(self, event: Click) -> None:
        """A click on a name shows that picture."""
        for start, stop, name in self._spots:
            if event.y == 0 and start <= event.x < stop:
                self.post_message(self.Picked(name))


def _around(words: Sequence[str], at: int, room: int) -> tuple[int, int]:
    """As many neighbours of the word ``at`` as there is room for."""
    first, last, used = at, at + 1, cells(words[at]) + 2
    grown = True
    while grown:
        grown = False
        for place in (last, first - 1):
            if 0 <= place < len(words) and used + cells(words[place]) + 2 <= room:
                used += cells(words[place]) + 2
                first, last = min(first, place), max(last, place + 1)
                grown = True
                break
    return first, last

"""The top line of a presentation: what is shown, and how far along the tour it is."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from tui.text import cells, fit, foreign
from tui.widgets.lines import LineView


class TitleLine(LineView, can_focus=False):
    """``   First walk · Rotation                    4/12   ``"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._words: tuple[str, str, str] = ("", "", "")

    def show(self, tour: str, stop: str, count: str) -> None:
        """The tour's title, the stop's, and its number."""
        if (words := (foreign(tour), foreign(stop), count)) != self._words:
            self._words = words
            self.forget()

    def strip(self, y: int) -> Strip:
        width = self.room.width
        return self.cached((y, width), lambda: self._line(width) if y == 0 else [], width)

    def _line(self, width: int) -> list[Segment]:
        inks, (tour, stop, count) = self.inks, self._words
        room = max(0, width - cells(count) - 8)
        stop = fit(stop, min(cells(stop), room))
        before = f"{tour} · " if tour and cells(tour) + 3 + cells(stop) <= room else ""
        return [
            Segment(f"   {before}", inks.muted),
            Segment(stop, inks.strong),
            Segment(" " * max(1, room - cells(before) - cells(stop) + 2), inks.text),
            Segment(count, inks.primary),
        ]

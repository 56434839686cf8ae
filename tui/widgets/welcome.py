"""What stands in the middle before there is a picture."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from tui.text import centred
from tui.widgets.lines import LineView


class Welcome(LineView, can_focus=False):
    """A few centred lines, the first one strong."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._said: tuple[str, ...] = ()

    def say(self, *lines: str) -> None:
        """Show these lines."""
        if lines != self._said:
            self._said = lines
            self.forget()

    def strip(self, y: int) -> Strip:
        width, top = self.room.width, max(0, (self.room.height - len(self._said)) // 2)
        place = y - top
        if not 0 <= place < len(self._said):
            return self.blank(width)
        style = self.inks.strong if place == 0 else self.inks.muted
        return self.cached((place, width), lambda: [Segment(centred(self._said[place], width), style)], width)

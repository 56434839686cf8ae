"""What stands in the middle before there is a picture."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from tui.text import centred, foreign
from tui.widgets.lines import LineView, wrap


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
        width = self.room.width
        lines = [line for said in self._said for line in wrap(foreign(said), max(4, width - 4))]
        place = y - max(0, (self.room.height - len(lines)) // 2)
        if not 0 <= place < len(lines):
            return self.blank(width)
        style = self.inks.strong if place == 0 else self.inks.muted
        return self.cached((place, width), lambda: [Segment(centred(lines[place], width), style)], width)

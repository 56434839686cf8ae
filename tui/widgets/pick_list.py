"""A list to choose from, virtual and safe for any text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from tui.text import cells, fit, middle, right
from tui.widgets.lines import LineView


@dataclass(frozen=True, slots=True)
class Choice:
    """An entry: what it is, a note at the right, and what choosing it gives.

    ``middle``: where the text is too long its middle goes, because its end counts. ``heads``: it cannot be chosen, and
    says what those below it are.
    """

    value: str
    text: str
    note: str = ""
    middle: bool = False
    heads: bool = False


class PickList(LineView, can_focus=False):
    """Driven by the input above it: ``move`` and ``chosen``; a click chooses."""

    around = 4
    """Lines of its box that are not its own."""

    class Picked(Message):
        """An entry was clicked."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.choices: Sequence[Choice] = ()
        self.at = 0

    @classmethod
    def within(cls, around: int) -> PickList:
        """A list in a box with so many other lines."""
        made = cls()
        made.around = around
        return made

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as there are entries, and as there is room for in the box, which is ``around`` them."""
        most = max(1, viewport.height * 9 // 10 - self.around)
        return min(super().get_content_height(container, viewport, width), most)

    @property
    def chosen(self) -> Choice | None:
        """The entry under the cursor."""
        return self.choices[self.at] if self.at < len(self.choices) else None

    def show(self, choices: Sequence[Choice], at: int = 0) -> None:
        """Other entries."""
        self.choices, self.at = choices, max(0, min(at, len(choices) - 1))
        self._pass_heads(1)
        self.virtual_size = Size(self.room.width, len(choices))
        if not 0 <= self.at - self.scroll_offset.y < self.room.height:  # a new list: its cursor in the middle
            self.scroll_to(y=max(0, self.at - self.room.height // 2), animate=False, force=True, immediate=True)
        self.forget()

    def move(self, by: int) -> None:
        """The cursor up or down."""
        self.at = max(0, min(self.at + by, len(self.choices) - 1))
        self._pass_heads(1 if by > 0 else -1)
        self._follow()
        self.refresh()

    def _pass_heads(self, by: int) -> None:
        """Never on a heading: on to the next entry that can be chosen, or back to it at the end of the list."""
        for way in (by, -by):
            while 0 <= self.at + way < len(self.choices) and self.choices[self.at].heads:
                self.at += way

    def on_resize(self) -> None:
        """Keep the cursor in sight."""
        self.virtual_size = Size(self.room.width, len(self.choices))
        self._follow()
        self.forget()

    def _follow(self) -> None:
        height, top = max(1, self.room.height), self.scroll_offset.y
        first = self.at - 1 if self.at and self.choices[self.at - 1].heads else self.at
        if not (top <= first and self.at < top + height):
            self.scroll_to(y=first if first < top else self.at - height + 1, animate=False, force=True, immediate=True)

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        if place >= len(self.choices):
            text = "  nothing here" if place == 0 else ""
            return self.cached(("none", place == 0, width), lambda: [Segment(fit(text, width), self.inks.muted)], width)
        here = place == self.at
        return self.cached((place, here, width), lambda: self._line(self.choices[place], here, width), width)

    def _line(self, choice: Choice, here: bool, width: int) -> list[Segment]:
        inks = self.inks
        if choice.heads:
            return [Segment(fit(f" {choice.text}", width), inks.strong)]
        text, quiet = (inks.cursor, inks.cursor_muted) if here else (inks.text, inks.muted)
        note = min(cells(choice.note), max(0, width // 2 - 2, width - cells(choice.text) - 6))
        return [
            Segment("▌ " if here else "  ", inks.accent),
            Segment((middle if choice.middle else fit)(choice.text, max(0, width - note - 4)), text),
            Segment(" " + right(choice.note, note) + " ", quiet),
        ]

    def on_click(self, event: Click) -> None:
        """A click chooses."""
        place = event.y + self.scroll_offset.y
        if 0 <= place < len(self.choices) and not self.choices[place].heads:
            self.at = place
            self.post_message(self.Picked(self.choices[place]))

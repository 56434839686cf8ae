"""Choose one of a few things by its letter, by the arrows, or by a click."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Key

from tui.screens.dialog import Box, Dialog
from tui.widgets.pick_list import Choice, PickList


class ChooseScreen(Dialog[str]):
    """A short list; the ``value`` of each choice is its letter, and the result."""

    AUTO_FOCUS = ""
    BINDINGS = [  # noqa: RUF012
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("enter", "choose", show=False),
    ]

    def __init__(self, title: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._title, self._choices = title, choices

    def compose(self) -> ComposeResult:
        """The box."""
        with Box(self._title, "a letter, or ↑↓ Enter · Esc leaves"):
            yield PickList()

    def on_mount(self) -> None:
        """All choices, each behind its letter."""
        shown = [one if one.heads else replace(one, text=f"{one.value}  {one.text}") for one in self._choices]
        self.query_one(PickList).show(shown)

    def on_key(self, event: Key) -> None:
        """One of the letters."""
        if any(event.key == choice.value and not choice.heads for choice in self._choices):
            event.stop()
            self.finish(event.key)

    def action_move(self, by: int) -> None:
        """The cursor of the list."""
        self.query_one(PickList).move(by)

    def action_choose(self) -> None:
        """Where the cursor is."""
        if (choice := self.query_one(PickList).chosen) is not None:
            self.finish(choice.value)

    def on_pick_list_picked(self, event: PickList.Picked) -> None:
        """Clicked."""
        self.finish(event.choice.value)

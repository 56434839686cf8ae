"""Type a part of a name and choose: any site of the trace, any action, any address, any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Input

from tui.screens.dialog import Box, Dialog
from tui.widgets.ask_input import AskInput
from tui.widgets.pick_list import Choice, PickList

Matches = Callable[[str], Sequence[Choice]]


class FinderScreen(Dialog[Choice]):
    """An input over a list; ``matches`` gives the entries for what was typed."""

    BINDINGS = [  # noqa: RUF012
        Binding("up,ctrl+p", "move(-1)", show=False, priority=True),
        Binding("down,ctrl+n", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]

    def __init__(self, title: str, matches: Matches, placeholder: str = "", start: str = "") -> None:
        super().__init__()
        self._title, self._matches, self._placeholder, self._start = title, matches, placeholder, start

    def compose(self) -> ComposeResult:
        """The box."""
        with Box(self._title, "↑↓ choose · Enter goes · Esc leaves"):
            yield AskInput(placeholder=self._placeholder)
            yield PickList()

    def on_mount(self) -> None:
        """All entries, the cursor on the one to start with."""
        choices = self._matches("")
        at = next((n for n, choice in enumerate(choices) if choice.value == self._start), 0)
        self.query_one(PickList).show(choices, at)

    def action_move(self, by: int) -> None:
        """The cursor of the list."""
        self.query_one(PickList).move(by)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Other entries."""
        event.stop()
        self.query_one(PickList).show(self._matches(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Choose."""
        event.stop()
        if (choice := self.query_one(PickList).chosen) is not None:
            self.finish(choice)

    def on_pick_list_picked(self, event: PickList.Picked) -> None:
        """Clicked."""
        self.finish(event.choice)

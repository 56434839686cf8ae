"""Something went wrong: one line, and what to do about it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Static

from tui.keys import printed
from tui.screens.dialog import Box, Dialog
from tui.text import foreign


class NoticeScreen(Dialog[str]):
    """A notice. ``choices`` are keys, by Textual's names, with their words; the chosen key is the result.

    A key without words does the same as the one before it and is not shown.
    """

    AUTO_FOCUS = ""
    BINDINGS = [Binding("enter,space,q", "leave", show=False)]  # noqa: RUF012

    def __init__(self, title: str, message: str, choices: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__()
        self._title, self.message, self._choices = title, message, choices

    def compose(self) -> ComposeResult:
        """The box."""
        hint = " · ".join([f"{printed(key)} {words}" for key, words in self._choices if words] + ["Esc closes"])
        with Box(self._title, hint, id="notice"):
            yield Static(foreign(self.message), classes="words", markup=False)

    def on_key(self, event: object) -> None:
        """One of the choices."""
        key = getattr(event, "key", "")
        if any(key == choice for choice, _ in self._choices):
            event.stop()  # type: ignore[attr-defined]
            self.finish(key)

"""The first start: the guided walk is offered, once."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.events import Click, Key
from textual.widgets import Static

from tui.screens.dialog import Box, Dialog

WORDS = """\
This shows what a language model computes, one step after the other, with every number there is.

A guided walk of 90 seconds goes once through it all, from a prompt to the next word. You can leave it at any time."""


class OfferScreen(Dialog[bool]):
    """A dialog that any key ends; the result is whether the walk is wanted."""

    AUTO_FOCUS = ""

    def __init__(self, keys: tuple[str, ...], shown: str) -> None:
        """``keys`` say yes, beside Enter; ``shown`` is the first of them as it is printed."""
        super().__init__()
        self._keys, self._shown = ("enter", *keys), shown

    def compose(self) -> ComposeResult:
        """The box."""
        with Box("welcome to layerstep", f"Enter walks · any other key: not now, later with {self._shown}"):
            yield Static(WORDS, classes="words", markup=False)

    def on_key(self, event: Key) -> None:
        """Yes; Esc is not now, and so is any other key, which then does what it always does."""
        event.stop()
        if event.key not in (*self._keys, "escape"):
            again = Key(event.key, event.character)
            self.app.call_after_refresh(self.app.post_message, again)
        self.finish(event.key in self._keys)

    def on_click(self, event: Click) -> None:
        """Into the box: yes; beside it: not now."""
        self.finish(event.widget is not self)

"""Ask for one line: a prompt, a path, an address."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.widgets import Input, Static

from tui.screens.dialog import Box, Dialog
from tui.state.numbers import count
from tui.text import foreign
from tui.widgets.ask_input import LONGEST, AskInput

Check = Callable[[str], str]
"""What is wrong with an answer; '' where nothing is."""


class AskScreen(Dialog[str]):
    """A title, a few words, an input. Enter gives the text, once ``check`` finds nothing wrong."""

    def __init__(
        self, title: str, words: str = "", value: str = "", check: Check = lambda text: "", placeholder: str = ""
    ) -> None:
        super().__init__()
        self._title, self._words, self._value = title, words, value
        self._check, self._placeholder = check, placeholder

    def compose(self) -> ComposeResult:
        """The box."""
        with Box(self._title, "Enter accepts · Esc leaves"):
            if self._words:
                yield Static(foreign(self._words), classes="words quiet", markup=False)
            yield AskInput(self._value, placeholder=self._placeholder, select_on_focus=True)
            yield Static("", classes="words trouble", id="trouble", markup=False)

    def on_mount(self) -> None:
        """No empty line while nothing is wrong."""
        self.query_one("#trouble").display = False

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Check the answer and give it."""
        event.stop()
        if wrong := self._check(event.value):
            self._say(wrong)
        else:
            self.finish(event.value)

    def on_input_changed(self) -> None:
        """What was wrong may be right now."""
        self.query_one("#trouble").display = False

    def on_ask_input_too_long(self, event: AskInput.TooLong) -> None:
        """Say why the paste did nothing."""
        self._say(
            f"{count(event.length)} characters are too many here, at most {count(LONGEST)} are taken; "
            "use `layerstep trace` with a pipe"
        )

    def _say(self, trouble: str) -> None:
        label = self.query_one("#trouble", Static)
        label.update(foreign(trouble))
        label.display = True

"""Ask for a stop's title and a line about it."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Input, Static

from tui.screens.dialog import Box, Dialog
from tui.text import foreign
from tui.widgets.ask_input import AskInput

Check = Callable[[str], str]
"""What is wrong with a narration; '' where nothing is."""


class StopScreen(Dialog[tuple[str, str]]):
    """Two inputs. Enter goes from the title to the narration, and there accepts both."""

    BINDINGS = [  # noqa: RUF012
        Binding("up,shift+tab", "app.focus_previous", show=False, priority=True),
        Binding("down,tab", "app.focus_next", show=False, priority=True),
    ]

    def __init__(self, heading: str, words: str, title: str, check: Check) -> None:
        super().__init__()
        self._heading, self._words, self._stop_title, self._check = heading, words, title, check

    def compose(self) -> ComposeResult:
        """The box."""
        with Box(self._heading, "Enter goes on · ↑↓ field · Esc leaves"):
            yield Static(foreign(self._words), classes="words quiet", markup=False)
            yield AskInput(self._stop_title, placeholder="a title", id="stop-title", select_on_focus=True)
            yield AskInput(placeholder="what to say; {value}: the number here", id="stop-narration")
            yield Static("", classes="words trouble", id="trouble", markup=False)

    def on_mount(self) -> None:
        """No empty line while nothing is wrong."""
        self.query_one("#trouble").display = False

    def on_input_changed(self) -> None:
        """What was wrong may be right now."""
        self.query_one("#trouble").display = False

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """On to the narration, and with both."""
        event.stop()
        title, narration = (self.query_one(f"#stop-{name}", AskInput) for name in ("title", "narration"))
        if event.input is title:
            self.set_focus(narration)
            return
        wrong = "a stop has a title" if not title.value.strip() else self._check(narration.value)
        if wrong:
            label = self.query_one("#trouble", Static)
            label.update(foreign(wrong))
            label.display = True
        else:
            self.finish((title.value.strip(), narration.value.strip()))

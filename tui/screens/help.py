"""The help: words that are shown, all keys, marks and the glossary in one document that is searched by typing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding
from textual.geometry import Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Input

from tui.actions import keymap_of
from tui.glossary import Term, glossary
from tui.screens.dialog import Box, Dialog
from tui.state.manual import Manual
from tui.widgets.ask_input import AskInput
from tui.widgets.footer import KeyLine
from tui.widgets.lines import LineView, shortened
from tui.widgets.manual import ManualLines
from tui.widgets.pane import Pane

HELP_BINDINGS = [
    Binding("up", "scroll_up", show=False),
    Binding("down", "scroll_down", show=False),
    Binding("pageup", "page_up", show=False),
    Binding("pagedown,space", "page_down", show=False),
]


class HelpLines(LineView, can_focus=True):
    """Some text, scrollable."""

    BINDINGS = HELP_BINDINGS  # type: ignore[assignment]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[list[Segment]] = []

    def on_mount(self) -> None:
        """Write the lines."""
        self._lines = list(self._write())
        self.virtual_size = Size(self.room.width, len(self._lines))

    def on_resize(self) -> None:
        """Other width."""
        self.virtual_size = Size(self.room.width, len(self._lines))
        self.forget()

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        if place >= len(self._lines):
            return self.blank(width)
        return self.cached((place, width), lambda: shortened(self._lines[place], width), width)

    def _write(self) -> Iterator[list[Segment]]:
        raise NotImplementedError


Here = tuple[tuple[str, tuple[Term, ...]], ...]
"""Words that are shown, under titles."""


def words_on(screen: Screen[Any]) -> Here:
    """The words in all the lines that a screen shows."""
    views = [view for view in screen.query(LineView) if view.region.height and not isinstance(view, KeyLine)]
    lines = [view.drawn(y).text for view in views for y in range(view.size.height)]
    titles = [str(pane.border_title) for pane in screen.query(Pane) if pane.border_title]
    return (("Words on this screen", tuple(glossary().words(*titles, *lines))),)


class HelpScreen(Dialog[str]):
    """The help. What is typed is searched for; Esc leaves, and so does ``?`` before anything is typed."""

    CSS_PATH = ["dialog.tcss", "help.tcss"]  # noqa: RUF012
    BINDINGS = [  # noqa: RUF012
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("pageup", "page(-1)", show=False, priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
        Binding("tab", "jump(1)", show=False, priority=True),
        Binding("shift+tab", "jump(-1)", show=False, priority=True),
    ]

    def __init__(self, first: str = "", here: Here = (), typed: str = "") -> None:
        """``first``: the keys that come before the others, those of what one looks at; ``typed``: searched for."""
        super().__init__()
        self._first, self._here, self._typed = first, here, typed
        self._manual: Manual | None = None

    def compose(self) -> ComposeResult:
        """The box."""
        with Box("help", "type to search · Tab next part · Enter see also · Esc closes"):
            yield AskInput(self._typed, placeholder="a word, a key, what to do: gqa, softmax, export …")
            yield ManualLines(id="manual")

    def on_mount(self) -> None:
        """All of it."""
        self._manual = Manual(glossary(), keymap_of(self.app), self._here, self._first)
        self.query_one(ManualLines).show(self._manual.read(self._typed))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search."""
        event.stop()
        if event.value == "?":
            self.finish(None)
        elif self._manual is not None and event.value != self._typed:
            self._typed = event.value
            self.query_one(ManualLines).show(self._manual.read(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The word at the cursor, with those that it refers to."""
        event.stop()
        if (entry := self.query_one(ManualLines).chosen) is not None and entry.term is not None:
            self._look_up(entry.term)

    def on_manual_lines_chosen(self, event: ManualLines.Chosen) -> None:
        """A word was clicked."""
        self._look_up(event.term)

    def _look_up(self, term: Term) -> None:
        box = self.query_one(AskInput)
        box.value = term.name
        box.cursor_position = len(term.name)

    def action_move(self, by: int) -> None:
        """The cursor of the document."""
        self.query_one(ManualLines).move(by)

    def action_page(self, by: int) -> None:
        """A page on or back."""
        self.query_one(ManualLines).page(by)

    def action_jump(self, by: int) -> None:
        """The next section, or the one before."""
        self.query_one(ManualLines).jump(by)

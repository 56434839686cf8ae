"""All keys, from the action registry, and what the marks mean."""

from __future__ import annotations

from collections.abc import Iterator

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding
from textual.geometry import Size
from textual.strip import Strip

from tui.actions import ACTIONS, CACHE_ACTIONS, GROUPS
from tui.screens.dialog import Box, Dialog
from tui.text import fit
from tui.widgets.lines import LineView, shortened

MARKS = (
    ("●", "a step on the path to the outcome"),
    ("○", "a step that is computed when it is looked at, in float32"),
    ("◂ read", "what the chosen step reads"),
    ("·", "a masked cell: this query may not look there"),
    ("┄", "a cell that is not here yet"),
    ("0.5 -.5", "the value in a cell, rounded; where a cell is too narrow for it: a shade, and - below zero"),
    ("░▒▓█  -=≡#", "shades above and below zero, each as strong as its share of the scale"),
    ("▂ ▆", "a pass of the text, as long as its tokens, and one that is looked at"),
    ("✓ ✗", "a check of the engine that holds, or does not"),
)

HELP_BINDINGS = [
    Binding("up", "scroll_up", show=False),
    Binding("down", "scroll_down", show=False),
    Binding("pageup", "page_up", show=False),
    Binding("pagedown,space", "page_down", show=False),
]


class HelpLines(LineView, can_focus=True):
    """The text of the help, scrollable."""

    BINDINGS = HELP_BINDINGS  # type: ignore[assignment]

    def __init__(self, section: str = "", *, id: str | None = None) -> None:
        """``section``: the group of keys that is shown first."""
        super().__init__(id=id)
        self._section = section
        self._sections: dict[str, int] = {}
        self._lines: list[list[Segment]] = []

    def on_mount(self) -> None:
        """Write the lines."""
        self._lines = list(self._write())
        self.virtual_size = Size(self.room.width, len(self._lines))
        self.call_after_refresh(self._to_section)

    def _to_section(self) -> None:
        self.scroll_to(y=self._sections.get(self._section, 0), animate=False, force=True, immediate=True)

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
        inks = self.inks
        line = 0
        for group in GROUPS:
            self._sections[group] = line
            line += 2 + sum(action.group == group for action in (*ACTIONS, *CACHE_ACTIONS))
            yield [Segment(f" {group}", inks.strong)]
            for action in (*ACTIONS, *CACHE_ACTIONS):
                if action.group == group:
                    words = action.label + (f"  {action.help}" if action.help else "")
                    label, _, more = words.partition("  ")
                    yield [
                        Segment(f"   {fit(action.shown_keys, 10)} ", inks.primary),
                        Segment(fit(label, 28) + " ", inks.text),
                        Segment(more, inks.muted),
                    ]
            yield []
        yield [Segment(" Marks", inks.strong)]
        for mark, words in MARKS:
            yield [Segment(f"   {fit(mark, 10)} ", inks.accent), Segment(words, inks.muted)]


class HelpScreen(Dialog[str]):
    """The help; any of its own keys leaves."""

    CSS_PATH = ["dialog.tcss", "help.tcss"]  # noqa: RUF012
    AUTO_FOCUS = "HelpLines"
    BINDINGS = [Binding("question_mark,q,enter", "leave", show=False)]  # noqa: RUF012

    def __init__(self, section: str = "") -> None:
        """``section``: the keys that are shown first, those of what one looks at."""
        super().__init__()
        self._section = section

    def compose(self) -> ComposeResult:
        """The box."""
        with Box("help", "↑↓ scroll · Esc closes"):
            yield HelpLines(self._section, id="help-lines")

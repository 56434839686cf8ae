"""The speaker's notes of a tour that is played in another terminal: an app of its own, which only reads.

``python -m tui.notes`` opens it. It follows the small file that the playing app keeps (``tui.state.presented``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.geometry import Size
from textual.strip import Strip

from engine.markdown import parse
from tui.state.presented import Presented, presented
from tui.text import cells, fit, foreign
from tui.themes import THEMES
from tui.widgets.lines import LineView, wrap
from tui.widgets.prose import said

EVERY = 0.25
"""Seconds between two looks at the file, and at the clock."""
NOTHING = (
    "No presentation runs.",
    "",
    "Start one on the other terminal with `layerstep tour NAME --present`, or in the app with W and P. "
    "Its notes come here by themselves.",
)


class NotesLines(LineView, can_focus=True):
    """Notes first, then what the audience sees, and what comes next."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: Presented | None = None
        self._lines: list[list[Segment]] = []

    def show(self, shown: Presented | None) -> None:
        """Another stop, or other words of it; those of another stop from their beginning."""
        if shown != self._shown or not self._lines:
            moved = shown is None or self._shown is None or shown.at != self._shown.at
            self._shown = shown
            self.lay_out()
            if moved:
                self.scroll_to(y=0, animate=False, force=True, immediate=True)

    def on_resize(self) -> None:
        """Wrap anew."""
        self.lay_out()

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        if place >= len(self._lines):
            return self.blank(width)
        return self.cached((place, width), lambda: self._lines[place], width)

    def lay_out(self) -> None:
        width = max(10, min(self.outer_size.width - 4, 100))
        self._lines = list(self._write(width))
        self.virtual_size = Size(self.outer_size.width - 1, len(self._lines))
        self.forget()

    def _write(self, width: int) -> Iterator[list[Segment]]:
        inks, shown = self.inks, self._shown
        if shown is None:
            for words in NOTHING:
                yield from self._plain(words, width, inks.text)
            return

        def told(text: str, mark: str = "") -> Iterator[list[Segment]]:
            yield from said(inks, parse(text), width, mark=mark, roomy=True)

        yield from self._plain(shown.stop, width, inks.primary + Style(bold=True))
        yield []
        yield from told(shown.notes or "*no notes for this stop*")
        yield []
        yield from self._plain("on the screen" + (", which is blank" if shown.blank else ""), width, inks.muted)
        yield from told(shown.narration)
        if shown.question:
            yield []
            yield from told(shown.question, "? ")
            words = "the answer, shown" if shown.answered else "the answer, hidden yet"
            yield from self._plain(words, width, inks.muted)
            yield from told(shown.answer, "→ ")
        yield []
        following = f"next: {shown.following}" if shown.following else "this is the last stop"
        yield from self._plain(following, width, inks.accent)

    def _plain(self, text: str, width: int, ink: Style) -> Iterator[list[Segment]]:
        yield from ([Segment(f"  {line}", ink)] for line in wrap(foreign(text), width))


class Words(LineView, can_focus=False):
    """``  First walk · 4/12                 12:03 · this stop 0:41 · 14:05:31``"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._words: tuple[str, str] = ("", "")

    def show(self, left: str, right: str) -> None:
        """Other words, or another second."""
        if (left, right) != self._words:
            self._words = left, right
            self.forget()

    def strip(self, y: int) -> Strip:
        width, (left, right) = self.room.width, self._words
        if y:
            return self.blank(width)
        room = max(0, width - cells(right) - 4)
        line = [Segment(f"  {fit(left, room)}", self.inks.muted), Segment(right, self.inks.strong)]
        return self.cached((y, width), lambda: line, width)


class NotesApp(App[None]):
    """Looks at what is presented several times a second; with more than one presentation Tab goes to the next."""

    TITLE = "layerstep notes"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; color: $foreground; }
    LineView { background: $background; scrollbar-size: 1 1; }
    Words { height: 2; overflow: hidden hidden; }
    #bottom { height: 1; }
    NotesLines { height: 1fr; overflow: hidden auto; }
    """
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]
        Binding("q,escape,ctrl+c", "quit", show=False, priority=True),
        Binding("tab,right", "other(1)", show=False, priority=True),
        Binding("shift+tab,left", "other(-1)", show=False, priority=True),
        Binding("down", "scroll(1)", show=False, priority=True),
        Binding("up", "scroll(-1)", show=False, priority=True),
        Binding("pagedown,space", "scroll(10)", show=False, priority=True),
        Binding("pageup", "scroll(-10)", show=False, priority=True),
    ]

    def __init__(self, folder: Path, theme: str) -> None:
        super().__init__()
        self._folder = folder
        self._followed = 0
        self._found: list[Presented] = []
        for known in THEMES.values():
            self.register_theme(known)
        self.theme = theme

    def compose(self) -> ComposeResult:
        """The time, the notes, the keys."""
        yield Words(id="top")
        yield NotesLines()
        yield Words(id="bottom")

    def on_mount(self) -> None:
        """Look at once, and from then on."""
        self._look()
        self.set_interval(EVERY, self._look)

    def action_other(self, by: int) -> None:
        """Another presentation."""
        if self._found:
            self._followed = self._found[(self._place + by) % len(self._found)].process
            self._look()

    def action_scroll(self, by: int) -> None:
        """Notes that are longer than the screen."""
        self.query_one(NotesLines).scroll_relative(y=by, animate=False)

    @property
    def _place(self) -> int:
        """Which of the presentations is followed: one that was chosen, or seen first, as long as it runs."""
        return next((n for n, one in enumerate(self._found) if one.process == self._followed), 0)

    def _look(self) -> None:
        self._found = presented(self._folder)
        shown = self._found[self._place] if self._found else None
        self._followed = shown.process if shown else 0
        now = time.time()
        if shown is None:
            left, right = "layerstep · notes", _clock(now)
        else:
            left = f"{foreign(shown.title)} · {shown.at + 1}/{shown.stops}"
            right = f"{_took(now - shown.began)} · this stop {_took(now - shown.arrived)} · {_clock(now)}"
        count = len(self._found)
        many = f"presentation {self._place + 1} of {count}: Tab for the next · " if count > 1 else ""
        self.query_one("#top", Words).show(left, right)
        self.query_one("#bottom", Words).show(f"{many}↑↓ scroll · q quits", "")
        self.query_one(NotesLines).show(shown)


def _clock(now: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(now))


def _took(seconds: float) -> str:
    """``3:07``, ``1:02:45``"""
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def main() -> int:
    """``python -m tui.notes``"""
    from tui.start import notes

    return notes()


if __name__ == "__main__":
    sys.exit(main())

"""The panel of a tour: what is to be seen at a stop, a question, and the keys that lead on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.content import Content
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from engine.sites import Address
from tui.actions import keymap_of
from tui.text import cells, fit, foreign
from tui.tours import Tour, filled
from tui.widgets.lines import LineView
from tui.widgets.pane import Pane

Piece = tuple[str, str]
"""Some text and how it is set: ``""``, ``"strong"``, ``"emphasis"``, ``"code"``."""

_SPAN = re.compile(r"\*\*(?P<strong>[^*]+)\*\*|\*(?P<emphasis>[^*\s][^*]*)\*|`(?P<code>[^`]+)`")


@dataclass(frozen=True, slots=True)
class Playing:
    """Where a tour is: its stop, whether the answer is shown, whether one walked away; ``keys`` say what leads on."""

    tour: Tour
    at: int = 0
    answered: bool = False
    away: bool = False
    keys: Sequence[tuple[str, str]] = ()

    @property
    def last(self) -> bool:
        """Whether it is at its last stop."""
        return self.at == len(self.tour.stops) - 1

    @property
    def asks(self) -> bool:
        """Whether a question waits for its answer."""
        return bool(self.tour.stops[self.at].question) and not self.answered


class TourPanel(Pane):
    """A frame with the words of a stop, as high as the longest one needs, up to half of the screen."""

    class Clicked(Message):
        """It was clicked: on."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.playing: Playing | None = None
        self._values: Mapping[Address, float | None] = {}

    def compose(self) -> ComposeResult:
        """The words."""
        yield TourLines()

    def show(self, playing: Playing, values: Mapping[Address, float | None]) -> None:
        """Draw a stop; ``values`` has those of the quoted numbers that are here."""
        if (playing, values) != (self.playing, self._values):
            self.playing, self._values = playing, dict(values)
            self.lay_out()

    def on_mount(self) -> None:
        """What it was to show."""
        self.lay_out()

    def on_resize(self) -> None:
        """Wrap anew."""
        super().on_resize()
        self.lay_out()

    def on_click(self, event: Click) -> None:
        """A click leads on."""
        event.stop()
        self.post_message(self.Clicked())

    def lay_out(self) -> None:
        playing = self.playing
        if playing is None or not self.is_mounted:
            return
        stop, room = playing.tour.stops[playing.at], self.outer_size.width - 2
        count = f"{playing.at + 1} of {len(playing.tour.stops)}"
        self.titled(f"{foreign(playing.tour.title)} · {foreign(stop.title)}", count, short=foreign(stop.title))
        hint = _hint(playing.keys, room - 4)
        self.border_subtitle = Content(fit(hint, min(cells(hint), max(1, room - 4))))
        lines = self.query_one(TourLines)
        lines.show(playing, self._values, room - 1)
        most, least = max(1, self.screen.size.height // 2 - 2), self._least(playing.tour, room - 3)
        self.styles.height = min(max(lines.virtual_size.height, least), most) + 2

    def _least(self, tour: Tour, width: int) -> int:
        """The lines of the longest stop, without its answer: so the pictures stay where they are from stop to stop."""
        keymap = keymap_of(self.app)
        return max(
            sum(
                len(list(paragraphs(filled(text, self._values, keymap), width - indent)))
                for text, indent in ((stop.narration, 0), (stop.question, 2))
                if text
            )
            for stop in tour.stops
        )


class TourLines(LineView, can_focus=False):
    """The narration, the question and its answer."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state: tuple[Playing | None, Mapping[Address, float | None], int] = (None, {}, 0)
        self._lines: list[list[Segment]] = []

    def show(self, playing: Playing, values: Mapping[Address, float | None], width: int) -> None:
        """Other words, or another width; those of another stop from their beginning."""
        before, self._state = self._state[0], (playing, values, width)
        self.lay_out()
        if before is None or before.at != playing.at:
            self.scroll_to(y=0, animate=False, force=True, immediate=True)

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        if place >= len(self._lines):
            return self.blank(width)
        return self.cached((place, width), lambda: self._lines[place], width)

    def lay_out(self) -> None:
        playing, values, width = self._state
        self._lines = list(self._write(playing, values, width - 2)) if playing is not None else []
        self.virtual_size = Size(width, len(self._lines))
        self.forget()

    def _write(self, playing: Playing, values: Mapping[Address, float | None], width: int) -> Iterator[list[Segment]]:
        inks, stop, keymap = self.inks, playing.tour.stops[playing.at], keymap_of(self.app)
        tones = {
            "": inks.text,
            "strong": inks.strong,
            "emphasis": inks.text + Style(italic=True),
            "code": inks.accent,
        }

        def told(text: str, mark: str = "") -> Iterator[list[Segment]]:
            for line in paragraphs(filled(text, values, keymap), width - len(mark)):
                yield [Segment(f" {mark}", inks.primary), *(Segment(words, tones[kind]) for words, kind in line)]
                mark = " " * len(mark)

        yield from told(stop.narration)
        if stop.question:
            yield from told(stop.question, "? ")
            if playing.answered:
                yield from told(stop.answer, "→ ")


def _hint(keys: Sequence[tuple[str, str]], room: int) -> str:
    """As many of the keys as there is room for; the last ones, the way out among them, stay longest."""
    parts = [f"{key} {words}" for key, words in keys]
    while len(parts) > 1 and cells(" · ".join(parts)) > room:
        parts.pop(-2)
    return " · ".join(parts)


def paragraphs(text: str, width: int) -> Iterator[list[Piece]]:
    """Markdown's paragraphs with ``**strong**``, ``*emphasis*`` and ```code```, in lines of at most ``width`` cells.

    Code is quoted, since colour alone says nothing. Whatever else there is in a text stands as it is written.
    """
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield from _wrapped(_words(foreign(" ".join(paragraph.split()))), max(4, width))


def _words(text: str) -> Iterator[list[Piece]]:
    """The words of a text; one is of several pieces where it is set in several ways."""
    word: list[Piece] = []
    for piece, kind in _pieces(text):
        for n, part in enumerate(piece.split(" ")):
            if n and word:
                yield word
                word = []
            if part:
                word.append((part, kind))
    if word:
        yield word


def _pieces(text: str) -> Iterator[Piece]:
    at = 0
    for span in _SPAN.finditer(text):
        yield text[at : span.start()], ""
        kind = str(span.lastgroup)
        yield f"“{span[kind]}”" if kind == "code" else span[kind], kind
        at = span.end()
    yield text[at:], ""


def _wrapped(words: Iterator[list[Piece]], width: int) -> Iterator[list[Piece]]:
    line: list[Piece] = []
    used = 0
    for word in chain.from_iterable(_cut(word, width) for word in words):
        size = sum(cells(text) for text, _ in word)
        if used and used + 1 + size > width:
            yield line
            line, used = [], 0
        line += [(" ", ""), *word] if used else word
        used += size + (used > 0)
    if line:
        yield line


def _cut(word: list[Piece], width: int) -> Iterator[list[Piece]]:
    """A word in parts of at most ``width`` cells."""
    if sum(cells(text) for text, _ in word) <= width:
        yield word
        return
    for text, kind in word:
        while text:
            head = fit(text, min(width, cells(text)), cut="").rstrip() or text[:1]
            yield [(head, kind)]
            text = text[len(head) :]

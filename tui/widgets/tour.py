"""The panel of a tour: what is to be seen at a stop, a question, and the keys that lead on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.segment import Segment
from textual.app import ComposeResult
from textual.content import Content
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from engine.tours import Mark, Stop, Tour, Value, filled
from tui.actions import keymap_of
from tui.text import cells, fit, foreign
from tui.widgets.lines import LineView
from tui.widgets.pane import Pane
from tui.widgets.prose import said

Values = Mapping[Mark, Value]
MOST, MOST_LARGE = 1 / 2, 3 / 5
"""How much of the screen the words take at most; and where they are presented."""
RESERVED = 1 / 3
"""How much of the screen is theirs at every stop, if one of them needs it: pictures then stay where they are."""
MARGIN, WIDEST = 3, 96
"""Of the words where they are presented: cells at their left, and the longest line that is good to read."""


@dataclass(frozen=True, slots=True)
class Playing:
    """Where a tour is: its stop, whether the answer is shown, whether one walked away."""

    tour: Tour
    at: int = 0
    answered: bool = False
    away: bool = False

    @property
    def stop(self) -> Stop:
        """The stop that it is at."""
        return self.tour.stops[self.at]

    @property
    def following(self) -> Stop | None:
        """The stop after it."""
        return None if self.last else self.tour.stops[self.at + 1]

    @property
    def last(self) -> bool:
        """Whether it is at its last stop."""
        return self.at == len(self.tour.stops) - 1

    @property
    def asks(self) -> bool:
        """Whether a question waits for its answer."""
        return bool(self.stop.question) and not self.answered


class TourPanel(Pane):
    """A frame with the words of a stop, as high as they need, up to half of the screen.

    ``large``: they are presented, with room around them and no keys.
    """

    class Clicked(Message):
        """It was clicked: on."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.playing: Playing | None = None
        self._values: Values = {}
        self._large = False

    def compose(self) -> ComposeResult:
        """The words."""
        yield TourLines()

    def show(self, playing: Playing, values: Values, large: bool = False) -> None:
        """Draw a stop; ``values`` has what is here of what it quotes."""
        if (playing, values, large) != (self.playing, self._values, self._large):
            self.playing, self._values, self._large = playing, dict(values), large
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
        room, stop = self.outer_size.width - 2, playing.stop
        if self._large:  # the line at the top says it
            self.titled("")
            self.border_subtitle = Content("")
        else:
            count = f"{playing.at + 1} of {len(playing.tour.stops)}"
            self.titled(f"{foreign(playing.tour.title)} · {foreign(stop.title)}", count, short=foreign(stop.title))
        lines = self.query_one(TourLines)
        lines.show(playing, self._values, room - 1, self._large)
        most, reserved = (
            max(1, int(self.screen.size.height * part) - 2) for part in (MOST_LARGE if self._large else MOST, RESERVED)
        )
        least = max(lines.height_of(stop) for stop in playing.tour.stops)
        self.styles.height = min(max(lines.virtual_size.height, min(least, reserved)), most) + 2
        self._hint()

    @property
    def unread(self) -> int:
        """The lines below those that are seen."""
        lines, height = self.query_one(TourLines), self.styles.height
        seen = int(height.value) - 2 if height is not None else 0
        return max(0, lines.virtual_size.height - lines.scroll_offset.y - seen)

    def read_on(self, to: int | None = None) -> None:
        """See the lines that follow, or those from a line on, as far as there are any."""
        lines = self.query_one(TourLines)
        by = max(1, lines.room.height - 1) if to is None else to - lines.scroll_offset.y
        lines.scroll_to(y=lines.scroll_offset.y + min(by, self.unread), animate=False, force=True, immediate=True)
        self._hint()

    def see_answer(self) -> None:
        """See the answer, from its beginning on."""
        self.read_on(self.query_one(TourLines).answer_at)

    def _hint(self) -> None:
        if (playing := self.playing) is not None and not self._large:
            room = self.outer_size.width - 6
            hint = _fitting(_ways(playing, self.unread > 0, keymap_of(self.app).key), room)
            self.border_subtitle = Content(fit(hint, min(cells(hint), max(1, room))))


class TourLines(LineView, can_focus=False):
    """The narration, the question and its answer."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._playing: Playing | None = None
        self._values: Values = {}
        self._width, self._large = 0, False
        self._lines: list[list[Segment]] = []
        self.answer_at = 0

    def show(self, playing: Playing, values: Values, width: int, large: bool = False) -> None:
        """Other words, or another width; those of another stop from their beginning."""
        before = self._playing
        self._playing, self._values, self._width, self._large = playing, values, width, large
        self.lay_out()
        if before is None or before.at != playing.at:
            self.scroll_to(y=0, animate=False, force=True, immediate=True)

    def height_of(self, stop: Stop) -> int:
        """The lines of a stop with its answer."""
        return sum(1 for _ in self._write(stop, answered=True))

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        if place >= len(self._lines):
            return self.blank(width)
        return self.cached((place, width), lambda: self._lines[place], width)

    def lay_out(self) -> None:
        playing = self._playing
        self._lines = list(self._write(playing.stop, playing.answered)) if playing is not None else []
        self.answer_at = sum(1 for _ in self._write(playing.stop, answered=False)) if playing is not None else 0
        self.virtual_size = Size(self._width, len(self._lines))
        self.forget()

    def _write(self, stop: Stop, answered: bool) -> Iterator[list[Segment]]:
        keys, margin = keymap_of(self.app).key, MARGIN if self._large else 1
        width = min(self._width - 1 - margin, WIDEST) if self._large else self._width - 2

        def told(text: str, mark: str = "") -> Iterator[list[Segment]]:
            yield from said(self.inks, filled(text, self._values, keys), width, " " * margin, mark, self._large)

        yield from told(stop.narration)
        if stop.question:
            gap: list[list[Segment]] = [[]] if self._large else []
            yield from gap
            yield from told(stop.question, "? ")
            if answered:
                yield from gap
                yield from told(stop.answer, "→ ")


def _ways(playing: Playing, more: bool, key: Callable[[str], str]) -> list[tuple[str, str]]:
    """The keys and what they do; ``more``: the words go on below."""
    on, enter = key("step.next"), key("generate.branch")
    first = "more" if more else "answer" if playing.asks else "comes back" if playing.away else ""
    ways = [(enter, first), (on, "next")] if first else [(f"{on}/{enter}", "ends" if playing.last else "next")]
    back = [(key("step.previous"), "back")] if playing.at else []
    return [*ways, *back, (key("back"), "leaves")]


def _fitting(ways: Sequence[tuple[str, str]], room: int) -> str:
    """As many of the keys as there is room for; the last ones, the way out among them, stay longest."""
    parts = [f"{key} {words}" for key, words in ways]
    while len(parts) > 1 and cells(" · ".join(parts)) > room:
        parts.pop(-2)
    return " · ".join(parts)

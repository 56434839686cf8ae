"""What the sections of the cache view share: lines that are written anew when what they show is another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from tui.render.bars import bar
from tui.render.palette import Inks
from tui.state.numbers import size
from tui.text import cells, fit, foreign, right
from tui.widgets.lines import LineView, shortened, wrap

Line = list[Segment]
FACT = 23
"""Cells before the note of a fact."""


class Section(LineView, can_focus=True):
    """A scrolling text. A subclass writes it; ``show`` of a subclass sets what it is about and calls ``say``."""

    class Measured(Message):
        """It has more or fewer lines than before, or all of them have come to sight, or no longer have."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._shown: object = None
        self.trouble = ""
        self.lead = 0
        """Lines before the written ones: those that say what went wrong."""
        self._told = (0, False)

    def say(self, *shown: object, trouble: str = "") -> None:
        """Write anew if what is shown, or what went wrong with it, is another."""
        if (shown, trouble) != (self._shown, self.trouble):
            self._shown, self.trouble = shown, trouble
            self.lay_out()

    def write(self, width: int) -> Iterable[Line]:
        """The lines for a width."""
        raise NotImplementedError

    def in_sight(self) -> tuple[int, int]:
        """The first and the last line that are to be seen; where not both fit, the first."""
        return 0, -1

    def move(self, by: int) -> None:
        """``↑ ↓``: a section without a cursor of its own scrolls."""
        self.scroll_relative(y=by, animate=False)

    @property
    def needed(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    @property
    def scrolls(self) -> bool:
        """Whether not all lines are in sight."""
        return self.needed > self.room.height

    def lay_out(self) -> None:
        """Write the lines."""
        width = self.room.width
        if width < 4 or self._shown is None:
            self._lines = []
        else:
            wrong = list(paragraph(f"✗ {self.trouble}", self.inks.error, width)) if self.trouble else []
            self.lead = len(wrong)
            self._lines = [shortened(line, width) for line in (*wrong, *self.write(width))]
        total = Size(width, len(self._lines))
        if total != self.virtual_size:
            self.virtual_size = total
        if (told := (self.needed, self.scrolls)) != self._told:
            self._told = told
            self.post_message(self.Measured())
        self.follow()
        self.forget()

    def follow(self) -> None:
        """Scroll no more than is needed for what is to be in sight."""
        (first, last), height, top = self.in_sight(), max(1, self.room.height), self.scroll_offset.y
        if last >= first:
            y = min(first, max(top, last - height + 1))
            if y != top:
                self.scroll_to(y=y, animate=False, force=True, immediate=True)

    def around(self, line: int, row: int, rows: int) -> tuple[int, int]:
        """What is in sight while the cursor is on a row: its line, and all before the first and after the last one."""
        return 0 if row == 0 else line, self.needed - 1 if row >= rows - 1 else line

    def on_resize(self) -> None:
        """Wrap anew."""
        self.lay_out()

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        if place >= len(self._lines):
            return self.blank(width)
        return self.cached((place, width), lambda: self._lines[place], width)

    def waiting(self) -> Iterator[Line]:
        """What stands here until the answer comes; nothing where it will not come."""
        if not self.trouble:
            yield [Segment(" …", self.inks.faint)]

    def heading(self, text: str, note: str = "") -> Line:
        """A heading inside a section."""
        return [
            Segment(f" {foreign(text)}", self.inks.strong),
            Segment(f"  {foreign(note)}" if note else "", self.inks.muted),
        ]

    def fact(self, name: str, value: str, note: str, width: int) -> Iterator[Line]:
        """``name   value   note``, the note wrapped in its own column."""
        inks = self.inks
        lead = [Segment(f" {fit(name, 10)}", inks.muted), Segment(f"{right(value, 10)}  ", inks.text)]
        for words in wrap(foreign(note), max(8, width - FACT)):
            yield [*lead, Segment(words, inks.faint)]
            lead = [Segment(" " * FACT, inks.faint)]

    def bar(
        self, name: str, number: str, value: float, most: float, widths: tuple[int, int, int], mark: str = " "
    ) -> Line:
        """``● name   number ▇▇▇▇``; ``widths`` are of the name, the number and the whole line; ● is how it is."""
        inks, (names, numbers, width) = self.inks, widths
        here = mark.strip() != ""
        return [
            Segment(f" {mark} ", inks.accent),
            Segment(label(name, names) + " ", inks.strong if here else inks.text),
            Segment(right(number, numbers) + "  ", inks.strong if here else inks.muted),
            *bar(value, most, max(0, width - names - numbers - 7), False, inks.accent if here else inks.bar_weight,
                 inks.bar_down, inks.bar_track),
        ]  # fmt: skip


def paragraph(text: str, style: Style, width: int, indent: int = 1) -> Iterator[Line]:
    """Foreign text, wrapped."""
    for line in wrap(foreign(text), max(4, width - indent - 1)):
        yield [Segment(" " * indent + line, style)]


def keyed(key: str, text: str, inks: Inks, width: int) -> Iterator[Line]:
    """What a key does."""
    lead = Segment(f" {key} ", inks.primary)
    for words in wrap(text, max(4, width - lead.cell_length)):
        yield [lead, Segment(words, inks.muted)]
        lead = Segment(" " * lead.cell_length, inks.muted)


def flow(parts: Iterable[Segment], width: int, indent: int = 1) -> Iterator[Line]:
    """Segments one after another, each whole on a line; a ``·`` between two lines is left out."""
    line: Line = []
    used = 0
    for part in parts:
        if used + cells(part.text.rstrip()) > width and used > indent:
            yield line
            line, used = [Segment(" " * indent, part.style)], indent
        if used == indent and line:
            part = Segment(part.text.lstrip(" ·"), part.style)
        line.append(part)
        used += cells(part.text)
    yield line


def label(text: str, width: int) -> str:
    """A name in exactly ``width`` cells."""
    return fit(foreign(text), max(0, width))


def widest(texts: Iterable[str], most: int) -> int:
    """The cells of the widest of some names."""
    return min(most, max((cells(foreign(text)) for text in texts), default=0))


def bytes_right(number: float, width: int = 10) -> str:
    """Bytes for people, at the right end."""
    return right(size(number), width)

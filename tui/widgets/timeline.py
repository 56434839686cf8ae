"""The passes on one line: the prompt's as a block of its length, then a mark for each decoded token."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.events import Click
from textual.message import Message
from textual.strip import Strip

from tui.state.cursor import Cursor
from tui.state.numbers import count
from tui.state.trace import Pass, Trace
from tui.text import cells, fit, foreign
from tui.widgets.lines import LineView

HEAD = " passes  "
LOW, HIGH = "▂", "▆"
"""A pass, and one that is looked at; the height says it without a colour."""
TOKEN = 12


class Timeline(LineView, can_focus=False):
    """`` passes  ▂▂▂▂▂▂▂▂ ▂ ▂ ▆ ▂   pass @3 · ␣disk``; shown where there is more than one pass."""

    class Picked(Message):
        """A pass was clicked."""

        def __init__(self, at: int) -> None:
            super().__init__()
            self.at = at

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._trace: Trace | None = None
        self._at: int | None = None
        self._batch = 0
        self._note = ""
        self._spots: list[tuple[int, int, int]] = []

    def show(self, trace: Trace | None, cursor: Cursor | None, note: str = "") -> None:
        """Draw the passes of this trace, the cursor's marked; ``note`` is said beside them."""
        self.display = trace is not None and len(trace.passes) > 1
        at, batch = (cursor.at, cursor.batch) if cursor else (None, 0)
        if (trace, at, batch, note) != (self._trace, self._at, self._batch, self._note):
            self._trace, self._at, self._batch, self._note = trace, at, batch, note
            self.forget()

    def strip(self, y: int) -> Strip:
        width, trace = self.room.width, self._trace
        if trace is None or y:
            return self.blank(width)
        return self.cached((y, width), lambda: self._line(trace, width), width)

    def _line(self, trace: Trace, width: int) -> list[Segment]:
        inks, at = self.inks, self._at
        words = next((text for text in self._noted(trace) if cells(text) <= width // 2 - 4), "")
        room = width - len(HEAD) - cells(words) - 3
        first, sizes, gap = layout(trace.passes, len(trace.passes) - 1 if at is None else at, room)
        segments, x = [Segment(HEAD[:-1], inks.muted), Segment("‹" if first else " ", inks.faint)], len(HEAD)
        self._spots = []
        for n, size in enumerate(sizes, first):
            here = at is None or n == at
            style = inks.accent if n == at else inks.primary if here else inks.faint
            space = gap or int(size > 1)
            segments.append(Segment((HIGH if here else LOW) * size, style))
            segments.append(Segment(" " * space, inks.text))
            self._spots.append((x, x + size + space, n))
            x += size + space
        segments.append(Segment("›" if first + len(sizes) < len(trace.passes) else " ", inks.faint))
        segments.append(Segment(f" {words}", inks.text))
        return segments

    def _noted(self, trace: Trace) -> Sequence[str]:
        """What is looked at and the note, in words; the longest first."""
        words, note = self._words(trace), foreign(self._note)
        return [f"{text} · {note}" for text in words] + [note] if note else words

    def _words(self, trace: Trace) -> Sequence[str]:
        """What is looked at, in words; the longest first."""
        if self._at is None:
            passes, positions = count(len(trace.passes)), count(sum(one.length for one in trace.passes))
            return f"all {passes} passes · {positions} positions", f"all {passes} passes", "all"
        one = trace.passes[self._at]
        here = f"pass @{self._at}"
        label = trace.label(self._batch, one.start)
        what = fit(label, min(TOKEN, cells(label))) if one.length == 1 else f"{count(one.length)} positions"
        took = f" · {_time(one.seconds)}" if one.seconds else ""
        return f"{here} · {what}{took}", f"{here} · {what}", here

    def on_click(self, event: Click) -> None:
        """A click on a pass goes there."""
        for start, stop, at in self._spots:
            if event.y == 0 and start <= event.x < stop:
                self.post_message(self.Picked(at))


def layout(passes: Sequence[Pass], at: int, room: int) -> tuple[int, list[int], int]:
    """The first pass that is shown, the cells of each from there on, and the gap between those of one token.

    A pass of several positions has as many cells, fewer where there is no room, and a gap after it in any case; where
    not even one cell each fits, those around ``at`` are shown.
    """
    longer = sum(one.length > 1 for one in passes)
    for gap in (1, 0):
        left = room - (len(passes) - longer) * (1 + gap) - longer
        if left >= 2 * longer:
            return 0, _shared([one.length for one in passes], left), gap
    sizes = [2 if one.length > 1 else 1 for one in passes]
    first, used, stop = at, 0, at
    while stop < len(sizes) or first > 0:
        grown = False
        for side in (stop, first - 1):
            need = sizes[side] + (sizes[side] > 1) if 0 <= side < len(sizes) else room
            if used + need <= room and (side == stop or side == first - 1):
                used, grown = used + need, True
                first, stop = min(first, side), max(stop, side + 1)
        if not grown:
            break
    return first, sizes[first:stop], 0


def _shared(lengths: Sequence[int], left: int) -> list[int]:
    """The cells of each pass: 1 for one position, and the others share ``left`` by their lengths, none below 2."""
    several = sum(length for length in lengths if length > 1)
    if several <= left:
        return list(lengths)
    spare = left - 2 * sum(length > 1 for length in lengths)
    return [2 + spare * length // several if length > 1 else 1 for length in lengths]


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"

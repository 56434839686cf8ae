"""The tokens of the prompt, the current one bracketed, and what comes next at it, or what fits in its place."""

from __future__ import annotations

from rich.segment import Segment
from textual.events import Click
from textual.message import Message
from textual.strip import Strip

from tui.state.answers import Ranking
from tui.state.cursor import Cursor
from tui.state.numbers import share
from tui.state.trace import Trace
from tui.text import cells, fit
from tui.widgets.lines import LineView

WIDE = 100
LONGEST_TOKEN = 16


class TokenStrip(LineView, can_focus=False):
    """`` The server crashed … was [full]  →  . 0.41   and 0.12``; on two lines where it is narrow."""

    class Picked(Message):
        """A token was clicked."""

        def __init__(self, pos: int) -> None:
            super().__init__()
            self.pos = pos

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.trace: Trace | None = None
        self._cursor: Cursor | None = None
        self._next: Ranking | None = None
        self._spots: list[tuple[int, int, int]] = []

    def show(self, trace: Trace | None, cursor: Cursor | None, following: Ranking | None) -> None:
        """Draw the cursor's row of the batch; ``following`` ranks what is predicted there, None while unknown."""
        if (trace, following) != (self.trace, self._next) or _place(trace, cursor) != _place(self.trace, self._cursor):
            self.trace, self._cursor, self._next = trace, cursor, following
            self.forget()

    def strip(self, y: int) -> Strip:
        width = self.room.width
        if self.trace is None or self._cursor is None:
            return self.blank(width)
        return self.cached((y, width), lambda: self._line(y, width), width)

    def _line(self, y: int, width: int) -> list[Segment]:
        if self.room.height >= 2:
            return self._tokens(width) if y == 0 else self._candidates(width) if y == 1 else []
        tail = self._candidates(max(24, width * 2 // 5))
        length = sum(segment.cell_length for segment in tail)
        tokens = self._tokens(width - length)
        return [*tokens, *tail]

    def _tokens(self, width: int) -> list[Segment]:
        assert self.trace is not None
        assert self._cursor is not None
        batch, inks = self._cursor.batch, self.inks
        axis = self._cursor.token_axis(self.trace)
        row = self.trace.line(batch, axis)
        if not row or width < 4:
            return []
        here = min(self._cursor.src if axis == "src" else self._cursor.pos, len(row) - 1)
        sizes: dict[int, int] = {}
        first = last = here
        used = (size := self._cells_of(here)) + 4
        sizes[here] = size
        while True:  # grow to both sides while there is room
            grown = False
            for side in (first - 1, last + 1):
                if 0 <= side < len(row) and used + self._cells_of(side) + 1 <= width - 2:
                    sizes[side] = self._cells_of(side)
                    used += sizes[side] + 1
                    first, last, grown = min(first, side), max(last, side), True
            if not grown or last - first > 400:
                break
        self._spots = []
        segments = [Segment("‹" if first else " ", inks.faint)]
        x = 1
        for pos in range(first, last + 1):
            label = fit(row[pos].label, min(sizes[pos], max(1, width - 4)))
            self._spots.append((x, x + sizes[pos] + 1, pos))
            if pos == here:
                segments += [
                    Segment("[", inks.accent),
                    Segment(label, inks.strong),
                    Segment("]", inks.accent),
                    Segment(" ", inks.text),
                ]
                x += sizes[pos] + 3
            else:
                tone = inks.faint if row[pos].special else inks.muted
                segments.append(Segment(label + " ", tone))
                x += sizes[pos] + 1
        if last < len(row) - 1:
            segments.append(Segment("›", inks.faint))
        return segments

    def _cells_of(self, pos: int) -> int:
        assert self.trace is not None
        assert self._cursor is not None
        line = self.trace.line(self._cursor.batch, self._cursor.token_axis(self.trace))
        return max(1, min(cells(line[pos].label), LONGEST_TOKEN))

    def _candidates(self, width: int) -> list[Segment]:
        inks = self.inks
        predicts = self.trace.predicts if self.trace else None
        if self.trace is not None and predicts is None:
            kind = "no output head" if self.trace.config.get("causal") else "encoder"
            return [Segment(fit(f" {kind}: no next token", width), inks.muted)]
        sampled = self._next is not None and self._next.sampled
        arrow = " drawn:  " if sampled else " →  " if predicts == "next token" else " here:  "
        segments = [*self._follows(), Segment(arrow, inks.primary)]
        used = sum(segment.cell_length for segment in segments)
        if self._next is None:
            return [*segments, Segment("…", inks.faint)]
        if self._next.trouble:
            return [*segments, Segment(fit(f"the {predicts} is not in this trace", width - used), inks.muted)]
        if self._next.nonfinite:
            return [*segments, Segment(fit(f"not finite: no {predicts}", width - used), inks.error)]
        for n, (prob, token) in enumerate(_likeliest(self._next)):
            if prob < 0.005 and n:
                break
            label = fit(token, min(cells(token), LONGEST_TOKEN))
            number = f" {share(prob)}   "
            size = cells(label) + len(number)
            if used + size > width:
                break
            segments += [Segment(label, inks.text), Segment(number, inks.muted)]
            used += size
        return segments

    def _follows(self) -> list[Segment]:
        """After the source's tokens nothing is predicted: which token of the decoder the prediction follows."""
        trace, cursor = self.trace, self._cursor
        if trace is None or cursor is None or cursor.token_axis(trace) != "src":
            return []
        line = trace.line(cursor.batch)
        label = trace.label(cursor.batch, max(0, min(cursor.pos, len(line) - 1)))
        words = fit(label, min(cells(label), LONGEST_TOKEN))
        return [Segment(" decoder, after ", self.inks.muted), Segment(words, self.inks.text)]

    def on_click(self, event: Click) -> None:
        """A click on a token goes there."""
        for start, stop, pos in self._spots:
            if event.y == 0 and start <= event.x < stop:
                self.post_message(self.Picked(pos))


def _likeliest(ranking: Ranking) -> list[tuple[float, str]]:
    """Probability and label of each candidate: as it is drawn, where tokens are."""
    if not ranking.sampled:
        return [(row.prob, row.label) for row in ranking.rows]
    drawn = [(row.drawn, row.label) for row in ranking.rows if row.drawn is not None]
    return sorted(drawn, key=lambda row: -row[0])


def _place(trace: Trace | None, cursor: Cursor | None) -> tuple[int, int, int, str] | None:
    return (cursor.batch, cursor.pos, cursor.src, cursor.token_axis(trace)) if trace and cursor else None

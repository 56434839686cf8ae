"""Whole numbers per token: ids and positions, with the token's bytes and where it came from."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from engine.text import ORIGIN_WORDS
from tui.state.trace import Token
from tui.text import cells, fit, right
from tui.widgets.lines import shortened
from tui.widgets.plane import RowsView


class TokenTable(RowsView):
    """One line a token: position, label, the step's value, id, bytes, note."""

    HEADING = 1

    def measure(self) -> None:
        super().measure()
        row = self.plane.trace.line(self.plane.batch, self.plane.view.rows)[:200] if self.plane else ()
        widest = max((cells(_note(token)) for token in row), default=0)
        self._note_width = widest + 2 if widest else 0

    def strip(self, y: int) -> Strip:
        plane, width = self.plane, self.room.width
        if plane is None:
            return self.blank(width)
        if y == 0:
            ids = "" if self._is_ids else f"  {right('id', 6)}"
            value = right("id" if self._is_ids else plane.step.name, 9)
            note = fit("note" if self._note_width else "", self._note_width)
            head = f" {right('pos', 5)}  {fit('token', 16)} {value}{ids}  {note}bytes"
            return self.cached("head", lambda: [Segment(fit(head, width), self.inks.faint)], width)
        row = y - 1 + self.scroll_offset.y
        if row >= self.count:
            return self.blank(width)
        return self.cached((row, row == self.cell[0], width), lambda: shortened(self._line(row), width), width)

    @property
    def _is_ids(self) -> bool:
        """Whether the values are the ids themselves."""
        return self.plane is not None and self.plane.step.site in ("tokens", "source_tokens")

    def _line(self, row: int) -> list[Segment]:
        assert self.plane is not None
        line = self.plane.trace.line(self.plane.batch, self.plane.view.rows)
        pos = self.plane.step.first(self.plane.view.rows) + row
        token = line[pos] if pos < len(line) else Token(-1, "")
        here, value, inks = row == self.cell[0], self.value(row), self.inks
        text, quiet = (inks.cursor, inks.cursor_muted) if here else (inks.text, inks.muted)
        spaced = " ".join(token.hex[i : i + 2] for i in range(0, len(token.hex), 2))
        return [
            Segment("▸" if here else " ", inks.accent),
            Segment(right(str(pos), 5) + "  ", quiet),
            Segment(fit(token.label, 16) + " ", text),
            Segment(right("┄" if value is None else f"{value:.0f}", 9) + "  ", text),
            Segment("" if self._is_ids else right(str(token.id) if token.id >= 0 else "", 6) + "  ", quiet),
            Segment(fit(_note(token), self._note_width) + spaced, quiet),
        ]


def _note(token: Token) -> str:
    origin = ORIGIN_WORDS.get(token.origin, token.origin)
    notes = [origin] if origin else ["special"] if token.special else []
    if token.group is not None:
        part, of = token.group if isinstance(token.group, list | tuple) else (token.group, None)
        notes.append(f"part {part} of {of}" if of else f"group {part}")
    return ", ".join(notes)

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
    """One line a token: position, label, the step's value, id, bytes, note; narrow: no id, bytes close."""

    HEADING = 1

    def measure(self) -> None:
        super().measure()
        plane = self.plane
        row = plane.trace.line(plane.batch, plane.view.rows)[:200] if plane else ()
        self._token_width = max(5, min(16, max((cells(token.label) for token in row), default=0)))
        self._value_width = max(6, len(plane.step.name)) if plane and not self._is_ids else 6
        length = min(8, max((len(token.hex) // 2 for token in row), default=0))
        note = max((cells(_note(token)) for token in row), default=0)
        room = self.room.width - (8 + self._token_width + 1 + self._value_width + 2)
        self._id_width = 0 if self._is_ids or room < 8 + 2 * length + 2 + min(note, 9) else 8
        room -= self._id_width
        self._spaced = room >= 3 * length + 1 + note
        self._bytes_width = max(5, 3 * length - 1 if self._spaced else 2 * length)

    def strip(self, y: int) -> Strip:
        plane, width = self.plane, self.room.width
        if plane is None:
            return self.blank(width)
        if y == 0:
            ids = right("id", 6) + "  " if self._id_width else ""
            value = right("id" if self._is_ids else plane.step.name, self._value_width)
            data = fit("bytes", self._bytes_width)
            head = f" {right('pos', 5)}  {fit('token', self._token_width)} {value}  {ids}{data}  note"
            return self.cached(("head", width), lambda: [Segment(fit(head, width), self.inks.faint)], width)
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
        data = " ".join(token.hex[i : i + 2] for i in range(0, len(token.hex), 2)) if self._spaced else token.hex
        return [
            Segment("▸" if here else " ", inks.accent),
            Segment(right(str(pos), 5) + "  ", quiet),
            Segment(fit(token.label, self._token_width) + " ", text),
            Segment(right("┄" if value is None else f"{value:.0f}", self._value_width) + "  ", text),
            Segment(right(str(token.id) if token.id >= 0 else "", 6) + "  " if self._id_width else "", quiet),
            Segment(fit(data, self._bytes_width) + "  ", quiet),
            Segment(_note(token), quiet),
        ]


def _note(token: Token) -> str:
    origin = ORIGIN_WORDS.get(token.origin, token.origin)
    notes = [origin] if origin else ["special"] if token.special else []
    if token.group is not None:
        part, of = token.group if isinstance(token.group, list | tuple) else (token.group, None)
        notes.append(f"part {part} of {of}" if of else f"group {part}")
    return ", ".join(notes)

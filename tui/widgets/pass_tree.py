"""The left pane: every step of the pass, the cursor's always in sight."""

from __future__ import annotations

from rich.segment import Segment
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from tui.state.cursor import Cursor
from tui.state.trace import Trace
from tui.state.tree import Row, place_of, rows_of
from tui.text import cells, fit
from tui.widgets.lines import LineView


class PassTree(LineView, can_focus=True):
    """● is on the path to the outcome, ○ is computed when looked at; what the step reads is marked."""

    class Chosen(Message):
        """A step was chosen."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.trace: Trace | None = None
        self.cursor: Cursor | None = None
        self._rows: tuple[Row, ...] = ()

    def show(self, trace: Trace | None, cursor: Cursor | None) -> None:
        """Draw this trace with the cursor there."""
        step = cursor.step if cursor else -1
        if trace is self.trace and self.cursor is not None and self.cursor.step == step:
            return
        self.trace, self.cursor = trace, cursor
        self._rows = rows_of(trace, trace.steps[step].block) if trace and cursor and trace.steps else ()
        self.reach(Size(self.room.width, len(self._rows)))
        self._follow()
        self.refresh()

    def on_resize(self) -> None:
        """Keep the cursor in sight."""
        self.reach(Size(self.room.width, len(self._rows)))
        self._follow()

    def _follow(self) -> None:
        if self.trace is None or self.cursor is None or not self._rows:
            return
        y, height, top = place_of(self.trace, self.cursor.step), max(1, self.room.height), self.scroll_offset.y
        margin = min(3, height // 4)
        if y < top + margin or y >= top + height - margin:
            wanted = y - margin if y < top + margin else y - height + 1 + margin
            if abs(wanted - top) > height:
                wanted = y - height // 2
            self.scroll_to(y=max(0, wanted), animate=False, force=True, immediate=True)

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        if self.trace is None or self.cursor is None or place >= len(self._rows):
            return self.blank(width)
        row, step = self._rows[place], self.trace.steps[self.cursor.step]
        here = row.step == self.cursor.step and not row.heading
        read = not row.heading and self.trace.steps[row.step].site in step.reads
        focus = here and self.has_focus
        return self.cached((row, here, read, focus, width), lambda: self._line(row, here, read, width), width)

    def _line(self, row: Row, here: bool, read: bool, width: int) -> list[Segment]:
        inks = self.inks
        if row.heading:
            mark = "▾" if row.open else "▸"
            return [
                Segment(f" {mark} ", inks.primary if row.open else inks.muted),
                Segment(row.text, inks.strong if row.open else inks.text),
            ]
        dot = "●" if row.on_path else "○"
        lead = " │ " if row.inside else " "
        text = inks.cursor if here else inks.text if row.on_path else inks.muted
        spot = inks.cursor if here else inks.accent if read else inks.primary if row.on_path else inks.muted
        segments = [
            Segment("▌" if here else " ", inks.accent),
            Segment(lead[1:], inks.cursor_muted if here else inks.bar_track),
            Segment(f"{dot} ", spot),
        ]
        room = width - 1 - len(lead[1:]) - 2
        note = "◂ read" if read else row.part
        spare = room - cells(row.text) - cells(note) - 2
        if note and spare >= 0:
            tone = inks.cursor_muted if here else inks.accent if read else inks.faint
            return [*segments, Segment(fit(row.text, room - cells(note) - 1), text), Segment(note + " ", tone)]
        return [*segments, Segment(fit(row.text, max(0, room)), text)]

    def on_click(self, event: Click) -> None:
        """A click on a row goes there."""
        place = event.y + self.scroll_offset.y
        if 0 <= place < len(self._rows):
            self.post_message(self.Chosen(self._rows[place].step))

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor's row looks different with the focus."""
        super().watch_has_focus(has_focus)
        self.refresh()

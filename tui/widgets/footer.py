"""The bottom line: the keys that matter most, as many as fit."""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from textual.events import Click
from textual.message import Message
from textual.strip import Strip

from tui.actions import ACTIONS, Action
from tui.widgets.lines import LineView


class KeyLine(LineView, can_focus=False):
    """Hints from the action registry; a click does what the key does."""

    class Pressed(Message):
        """A hint was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, *, id: str | None = None, actions: tuple[Action, ...] = ACTIONS) -> None:
        super().__init__(id=id)
        self._actions = actions
        self._has_trace = self._has_target = self._has_passes = False
        self._spots: list[tuple[int, int, str]] = []

    def show(self, has_trace: bool, has_target: bool = False, has_passes: bool = False) -> None:
        """Only what can be done now."""
        if (has_trace, has_target, has_passes) != (self._has_trace, self._has_target, self._has_passes):
            self._has_trace, self._has_target, self._has_passes = has_trace, has_target, has_passes
            self.forget()

    def offer(self, actions: tuple[Action, ...]) -> None:
        """Hint at these."""
        if actions != self._actions:
            self._actions = actions
            self.forget()

    def strip(self, y: int) -> Strip:
        width = self.room.width
        return self.cached((y, width), lambda: self._line(width) if y == 0 else [], width)

    def _line(self, width: int) -> list[Segment]:
        able = [action for action in self._actions if action.hint and (self._has_trace or not action.needs_trace)]
        able = [action for action in able if self._has_target or not action.for_target]
        able = [action for action in able if self._has_passes or not action.for_passes]
        chosen = set(_fitting(able, width - 1))
        segments, x = [Segment(" ", self.inks.text)], 1
        self._spots = []
        for action in able:
            if action.id not in chosen:
                continue
            keys, _, words = action.hint.rpartition(" ")
            segments += [Segment(keys, self.inks.primary), Segment(f" {words}  ", self.inks.muted)]
            self._spots.append((x, x + len(action.hint), action.id))
            x += len(action.hint) + 2
        return segments

    def on_click(self, event: Click) -> None:
        """A click on a hint."""
        for start, stop, action in self._spots:
            if start <= event.x < stop:
                self.post_message(self.Pressed(action))


def _fitting(actions: Iterable[Action], width: int) -> list[str]:
    chosen, used = [], 0
    for action in sorted(actions, key=lambda action: action.rank):
        used += len(action.hint) + 2
        if used - 2 > width:
            break
        chosen.append(action.id)
    return chosen

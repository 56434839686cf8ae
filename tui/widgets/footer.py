"""The bottom line: the keys that matter most, as many as fit."""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from textual.events import Click
from textual.message import Message
from textual.strip import Strip

from tui.actions import Action, keymap_of
from tui.widgets.lines import LineView


class KeyLine(LineView, can_focus=False):
    """Hints from the action registry; a click does what the key does."""

    class Pressed(Message):
        """A hint was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._actions: tuple[Action, ...] | None = None
        self._has_trace = self._has_target = self._has_passes = self._goes_on = self._listed = False
        self._spots: list[tuple[int, int, str]] = []

    def show(
        self,
        has_trace: bool,
        has_target: bool = False,
        has_passes: bool = False,
        goes_on: bool = False,
        listed: bool = False,
    ) -> None:
        """Only what can be done now. ``goes_on``: tokens can be generated, ``listed``: candidates are listed."""
        state = (has_trace, has_target, has_passes, goes_on, listed)
        if state != (self._has_trace, self._has_target, self._has_passes, self._goes_on, self._listed):
            self._has_trace, self._has_target, self._has_passes, self._goes_on, self._listed = state
            self.forget()

    def offer(self, actions: tuple[Action, ...]) -> None:
        """Hint at these, not at those of the walk."""
        if actions != self._actions:
            self._actions = actions
            self.forget()

    def strip(self, y: int) -> Strip:
        width = self.room.width
        return self.cached((y, width), lambda: self._line(width) if y == 0 else [], width)

    def _line(self, width: int) -> list[Segment]:
        keymap = keymap_of(self.app)
        actions = keymap.actions if self._actions is None else self._actions
        hints = [(action, words) for action in actions if (words := self._hint(action))]
        able = [(action, hint) for action, hint in hints if self._has_trace or not action.needs_trace]
        able = [(action, hint) for action, hint in able if self._has_target or not action.for_target]
        able = [(action, hint) for action, hint in able if self._has_passes or not action.for_passes]
        able = [(action, hint) for action, hint in able if self._goes_on or not action.for_model]
        keys = {action.id: keymap.hint_keys(action) for action, _ in able}
        able = [(action, words) for action, words in able if keys[action.id]]
        chosen = set(self._fitting([(action, f"{keys[action.id]} {words}") for action, words in able], width - 1))
        segments, x = [Segment(" ", self.inks.text)], 1
        self._spots = []
        for action, words in able:
            if action.id not in chosen:
                continue
            key = keys[action.id]
            segments += [Segment(key, self.inks.primary), Segment(f" {words}  ", self.inks.muted)]
            stop = x + len(key) + 1 + len(words)
            self._spots.append((x, stop, action.id))
            x = stop + 2
        return segments

    def _hint(self, action: Action) -> str:
        return action.listed.strip() if self._listed and action.listed else action.hint

    def _fitting(self, able: Iterable[tuple[Action, str]], width: int) -> list[str]:
        """The most important ones; what concerns the candidates first where they are listed."""
        chosen, used = [], 0
        for action, hint in sorted(able, key=lambda one: (not (self._listed and one[0].listed), one[0].rank)):
            used += len(hint) + 2
            if used - 2 > width:
                break
            chosen.append(action.id)
        return chosen

    def on_click(self, event: Click) -> None:
        """A click on a hint."""
        for start, stop, action in self._spots:
            if start <= event.x < stop:
                self.post_message(self.Pressed(action))

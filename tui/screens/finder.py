"""Type a part of a name and choose: any site of the trace, any action, any address, any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Input

from tui.screens.dialog import Box, Dialog
from tui.widgets.ask_input import AskInput
from tui.widgets.pick_list import Choice, PickList

Matches = Callable[[str], Sequence[Choice]]


class FinderScreen(Dialog[Choice]):
    """An input over a list; ``matches`` gives the entries for what was typed."""

    BINDINGS = [  # noqa: RUF012
        Binding("up,ctrl+p", "move(-1)", show=False, priority=True),
        Binding("down,ctrl+n", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]

    def __init__(self, title: str, matches: Matches, placeholder: str = "", start: str = "") -> None:
        super().__init__()
        self._title, self._matches, self._placeholder, self._start = title, matches, placeholder, start

    def compose(self) -> ComposeResult:
        """The box."""
        with Box(self._title, "↑↓ choose · Enter goes · Esc leaves"):
            yield AskInput(placeholder=self._placeholder)
            yield PickList.within(6)

    def on_mount(self) -> None:
        """All entries, the cursor on the one to start with."""
        choices = self._matches("")
        at = next((n for n, choice in enumerate(choices) if choice.value == self._start), 0)
        self.query_one(PickList).show(choices, at)

    def action_move(self, by: int) -> None:
        """The cursor of the list."""
        self.query_one(PickList).move(by)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Other entries, the cursor on the best of them."""
        event.stop()
        choices = self._matches(event.value)
        self.query_one(PickList).show(choices, self._nearest(choices, event.value))

    def _nearest(self, choices: Sequence[Choice], typed: str) -> int:
        """Among steps that fit equally well, the one of the block at the cursor, else the nearest to it."""
        words = typed.casefold().split()
        if not words:
            return next((n for n, choice in enumerate(choices) if choice.value == self._start), 0)
        here, first = _step(self._start), _step(choices[0].value) if choices else -1
        if here < 0 or first < 0:
            return 0
        steps = [(n, choice) for n, choice in enumerate(choices) if _step(choice.value) >= 0]
        best = [(n, choice) for n, choice in steps if choice.text.casefold().endswith(words[-1])] or steps
        block = next((_block(choice.text) for choice in self._matches("") if choice.value == self._start), "")
        return min(best, key=lambda at: (_block(at[1].text) != block, abs(_step(at[1].value) - here)))[0]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Choose."""
        event.stop()
        if (choice := self.query_one(PickList).chosen) is not None:
            self.finish(choice)

    def on_pick_list_picked(self, event: PickList.Picked) -> None:
        """Clicked."""
        self.finish(event.choice)


def matching(choices: Sequence[Choice], text: str) -> list[Choice]:
    """The entries that have all the words that were typed."""
    words = text.casefold().split()
    return [one for one in choices if all(word in f"{one.text} {one.note}".casefold() for word in words)]


def starting(choices: Sequence[Choice], text: str) -> list[Choice]:
    """The entries in whose names each word that was typed begins a word; a number is all of one. Notes do not count."""
    typed = text.casefold().split()

    def fits(choice: Choice) -> bool:
        words = choice.text.casefold().split()
        return all(word in words if word.isdecimal() else any(w.startswith(word) for w in words) for word in typed)

    return sorted(filter(fits, choices), key=lambda choice: choice.text.casefold() != " ".join(typed))


def _step(value: str) -> int:
    """The number of the step that an entry stands for; -1 where it stands for something else."""
    kind, _, number = value.partition(" ")
    return int(number) if kind == "step" and number.isdecimal() else -1


def _block(site: str) -> str:
    """``1`` of ``blocks.1.attn.z``; '' outside the blocks."""
    return site.split(".")[1] if site.startswith("blocks.") else ""

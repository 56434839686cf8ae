"""The branches of a trace as a tree; Enter goes on with another one."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Static

from tui.screens.dialog import Box, Dialog
from tui.state.answers import Branch
from tui.state.branches import Row, rows_of
from tui.state.numbers import short
from tui.widgets.pick_list import Choice, PickList

COLUMNS = (("from", 5), ("tokens", 7), ("log p", 8))
"""Their headings and widths."""
LEGEND = "log p: sum of log p of its own tokens; of the first branch, of those that were generated"
ROOMY = 60
"""The width from which all of them are shown."""


class BranchScreen(Dialog[int]):
    """One row a branch: its text from where it leaves its parent, that position, its length, how likely it was."""

    CSS_PATH = ["dialog.tcss", "branches.tcss"]  # noqa: RUF012
    AUTO_FOCUS = ""
    BINDINGS = [  # noqa: RUF012
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("enter", "choose", show=False),
        Binding("u,q", "leave", show=False),
    ]

    def __init__(self, current: int, branches: Sequence[Branch]) -> None:
        super().__init__()
        self._current, self._rows = current, rows_of(branches)

    def compose(self) -> ComposeResult:
        """The box."""
        with Box("branches", "↑↓ choose · Enter switches · Esc leaves", id="branches"):
            yield Static("", classes="heading", markup=False)
            yield PickList.within(6)
            yield Static(LEGEND, classes="legend", markup=False)

    def on_mount(self) -> None:
        """The cursor on the branch that is looked at."""
        self._show(next((n for n, row in enumerate(self._rows) if row.branch.branch == self._current), 0))

    def on_resize(self) -> None:
        """As many columns as there is room for."""
        self._show(self.query_one(PickList).at)

    def _show(self, at: int) -> None:
        self.query_one(".heading", Static).update(self._cells(*(name for name, _ in COLUMNS)))
        self.query_one(PickList).show([self._choice(row) for row in self._rows], at)

    def _cells(self, *texts: str) -> str:
        """A row of figures; without the number of tokens where they would leave the text too little room."""
        narrow = self.size.width < ROOMY
        row = zip(texts, COLUMNS, strict=True)
        return " ".join(text.rjust(width) for text, (name, width) in row if not (narrow and name == "tokens"))

    def _choice(self, row: Row) -> Choice:
        branch = row.branch
        mark = "●" if branch.branch == self._current else "○"
        text = branch.text.strip(" ") or branch.label or f"(back at position {branch.tokens - 1})"
        logprob = "–" if branch.logprob is None else short(branch.logprob, 8)
        figures = self._cells(str(branch.pos), str(branch.tokens), logprob)
        return Choice(str(branch.branch), f"{row.lead}{mark} {text}", figures, middle=branch.parent is None)

    def action_move(self, by: int) -> None:
        """The cursor of the list."""
        self.query_one(PickList).move(by)

    def action_choose(self) -> None:
        """Go on with the branch at the cursor."""
        if (choice := self.query_one(PickList).chosen) is not None:
            self.finish(int(choice.value))

    def on_pick_list_picked(self, event: PickList.Picked) -> None:
        """Clicked."""
        self.finish(int(event.choice.value))

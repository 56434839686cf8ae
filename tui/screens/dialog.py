"""What the dialogs share: a framed box in the middle, Esc leaves, no markup anywhere."""

from __future__ import annotations

from typing import TypeVar

from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from tui.text import foreign

Result = TypeVar("Result")


class Box(Vertical, can_focus=False):
    """The frame of a dialog."""

    def __init__(self, title: str, hint: str = "", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = Content(foreign(title))
        self.border_subtitle = Content(hint)


class Dialog(ModalScreen[Result | None]):
    """A dialog over the main screen."""

    CSS_PATH = "dialog.tcss"
    AUTO_FOCUS = "Input"
    BINDINGS = [Binding("escape", "leave", "Back", show=False)]  # noqa: RUF012

    finished = False

    def action_leave(self) -> None:
        """Leave without a result."""
        self.finish(None)

    def finish(self, result: Result | None) -> None:
        """Leave with a result; once, however fast keys come."""
        if self.is_current and not self.finished:
            self.finished = True
            self.dismiss(result)

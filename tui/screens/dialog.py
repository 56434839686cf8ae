"""What the dialogs share: a framed box in the middle, Esc leaves, no markup anywhere."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual._path import CSSPathType
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input

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

    CSS_PATH: ClassVar[CSSPathType | None] = "dialog.tcss"
    AUTO_FOCUS = "Input"
    BINDINGS = [Binding("escape", "leave", "Back", show=False)]  # noqa: RUF012

    finished = False
    _early: tuple[Key, ...] = ()

    def on_mount(self) -> None:
        """What was typed meanwhile."""
        early, self._early = self._early, ()
        for event in early:
            self.type_ahead(event)

    def on_key(self, event: Key) -> None:
        """A key before anything had the focus."""
        if self.focused is None and not getattr(event, "typed_ahead", False):
            self.type_ahead(event)

    def type_ahead(self, event: Key) -> None:
        """Give the input a key that was typed before it was there: nothing of a fast ``/name`` is lost."""
        if boxes := self.query(Input):
            self.set_focus(boxes.first())
            again = Key(event.key, event.character)
            again.typed_ahead = True  # type: ignore[attr-defined]
            boxes.first()._forward_event(again)
        elif not self.is_mounted:
            self._early += (event,)

    def action_leave(self) -> None:
        """Leave without a result."""
        self.finish(None)

    def finish(self, result: Result | None) -> None:
        """Leave with a result; once, however fast keys come."""
        if self.is_current and not self.finished:
            self.finished = True
            self.dismiss(result)

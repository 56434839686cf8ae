"""An input that is safe to paste into: what it shows is always printable."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual.events import Paste
from textual.message import Message
from textual.widgets import Input

from tui.text import one_to_one

LONGEST = 65_536


class AskInput(Input):
    """One line of text. Line breaks and controls that are pasted stay in the value and are shown as marks."""

    class TooLong(Message):
        """More was pasted than is taken."""

        def __init__(self, length: int) -> None:
            super().__init__()
            self.length = length

    @property
    def _value(self) -> Text:
        return Text(one_to_one(self.value), no_wrap=True, overflow="ignore", end="")

    def _position_to_cell(self, position: int) -> int:
        return cell_len(one_to_one(self.value[:position]))

    def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()
        if len(event.text) + len(self.value) > LONGEST:
            self.post_message(self.TooLong(len(event.text)))
        elif event.text:
            start, end = sorted(self.selection)
            self.replace(event.text, start, end)

"""The model that is open: its architecture, and what loading its weights did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding

from tui.screens.dialog import Box, Dialog
from tui.screens.help import HelpLines
from tui.state.trace import Trace
from tui.text import fit, foreign
from tui.widgets.why import wrap

NAMED = 18


class AboutLines(HelpLines):
    """The text, scrollable."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def _write(self) -> Iterator[list[Segment]]:
        inks, trace = self.inks, self._trace
        yield [Segment(f" {foreign(trace.model)}", inks.strong)]
        for words in (f"{trace.device} {trace.dtype}", *trace.notices):
            yield from self._told(words)
        for title, lines in (("Loading the weights", trace.report), ("Config", tuple(_told(trace.config)))):
            yield []
            yield [Segment(f" {title}", inks.strong)]
            for words in lines or ("nothing to report",):
                yield from self._told(words)

    def _told(self, words: str) -> Iterator[list[Segment]]:
        for line in wrap(foreign(words), max(20, self.room.width - 5)):
            yield [Segment(f"   {line}", self.inks.text)]

    def on_resize(self) -> None:
        """Lines break elsewhere."""
        self.on_mount()
        self.forget()


def _told(config: Mapping[str, object]) -> Iterator[str]:
    """What a config says, field by field; what it leaves at nothing is left out."""
    for key, value in config.items():
        if key != "name" and value not in (None, False, [], "none", 0):
            yield f"{fit(key, NAMED)} {'yes' if value is True else value}"


class AboutScreen(Dialog[str]):
    """The dialog; its own key leaves."""

    CSS_PATH = ["dialog.tcss", "help.tcss"]  # noqa: RUF012
    AUTO_FOCUS = "AboutLines"
    BINDINGS = [Binding("a,q,enter", "leave", show=False)]  # noqa: RUF012

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def compose(self) -> ComposeResult:
        """The box."""
        with Box("this model", "↑↓ scroll · Esc closes"):
            yield AboutLines(self._trace)

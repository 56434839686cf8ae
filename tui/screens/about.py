"""The model that is open: its architecture, and what loading its weights did."""

from __future__ import annotations

from collections.abc import Iterator

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding

from tui.screens.dialog import Box, Dialog
from tui.screens.help import HelpLines
from tui.state.trace import Trace
from tui.text import cells, fit, foreign
from tui.widgets.lines import wrap


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
        none = "opened from a file: its weights are not loaded" if trace.from_file else "nothing to report"
        yield []
        yield [Segment(" Loading the weights", inks.strong)]
        for words in trace.report or (none,):
            yield from self._told(words)
        yield []
        yield [Segment(" Config, where it is not as usual", inks.strong)]
        widest = max((cells(foreign(name)) for name, _ in trace.facts), default=0)
        for name, words in trace.facts:
            room = max(20, self.room.width - widest - 6)
            for n, line in enumerate(wrap(foreign(words), room)):
                label = fit(foreign(name) if n == 0 else "", widest)
                yield [Segment(f"   {label}  ", inks.muted), Segment(line, inks.text)]

    def _told(self, words: str) -> Iterator[list[Segment]]:
        for line in wrap(foreign(words), max(20, self.room.width - 5)):
            yield [Segment(f"   {line}", self.inks.text)]

    def on_resize(self) -> None:
        """Lines break elsewhere."""
        self.on_mount()
        self.forget()


class AboutScreen(Dialog[str]):
    """The dialog; its own key leaves."""

    CSS_PATH = ["dialog.tcss", "help.tcss"]  # noqa: RUF012
    AUTO_FOCUS = "AboutLines"
    BINDINGS = [  # noqa: RUF012
        Binding("a", "leave", show=False, id="trace.about"),
        Binding("q,enter", "leave", show=False),
    ]

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def compose(self) -> ComposeResult:
        """The box."""
        with Box("this model", "↑↓ scroll · Esc closes"):
            yield AboutLines(self._trace)

"""How tokens are chosen: a form of a few figures, checked by the engine before they count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.widgets import Input, Static

from tui.client import EngineError
from tui.screens.dialog import Box, Dialog
from tui.state.sampling import FIELDS, Sampling, read, written
from tui.text import foreign
from tui.widgets.ask_input import AskInput

Check = Callable[..., Awaitable[Any]]
"""Raises EngineError where tokens cannot be chosen like that."""
PAUSE = 0.15
"""Seconds without another key after which a figure is tried."""


class SamplingScreen(Dialog[Sampling]):
    """One line a field. Enter accepts from any of them; what is typed is tried where that can be seen."""

    CSS_PATH = ["dialog.tcss", "sampling.tcss"]  # noqa: RUF012
    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (60, "-roomy")]  # noqa: RUF012
    BINDINGS = [  # noqa: RUF012
        Binding("up,shift+tab", "app.focus_previous", show=False, priority=True),
        Binding("down,tab", "app.focus_next", show=False, priority=True),
    ]

    def __init__(
        self,
        sampling: Sampling,
        check: Check,
        drawn: int | None = None,
        tried: Callable[[Sampling], None] | None = None,
    ) -> None:
        """``drawn``: the seed that was drawn last; ``tried`` is told what is typed, once the engine knows it."""
        super().__init__(classes="-below" if tried else None)
        self._sampling, self._check_it, self._drawn, self._tried = sampling, check, drawn, tried

    def compose(self) -> ComposeResult:
        """The box."""
        texts = written(self._sampling)
        with Box("sampling", "Enter accepts · ↑↓ field · Esc leaves", id="sampling"):
            for name, label, _, about in FIELDS:
                last = self._drawn is not None and name == "seed"
                words = f"last drawn: {self._drawn}; type it to repeat" if last else about
                with Horizontal(classes="field"):
                    yield Static(label, classes="label", markup=False)
                    yield AskInput(texts[name], id=f"field-{name}", select_on_focus=True)
                    yield Static(words, classes="about", markup=False)
            yield Static("", classes="words trouble", id="trouble", markup=False)

    def on_mount(self) -> None:
        """No empty line while nothing is wrong."""
        self.query_one("#trouble").display = False

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Read the fields, have the engine check them, and give them."""
        event.stop()
        sampling, wrong = self._typed()
        if sampling is None:
            self._say(wrong)
        else:
            self.run_worker(self._accept(sampling), exclusive=True)

    async def _accept(self, sampling: Sampling) -> None:
        try:
            await self._check_it(**sampling.params)
        except EngineError as error:
            self._say(str(error))
        else:
            self.finish(sampling)

    def _typed(self) -> tuple[Sampling | None, str]:
        return read({name: self.query_one(f"#field-{name}", AskInput).value for name, *_ in FIELDS})

    def on_input_changed(self) -> None:
        """What was wrong may be right now."""
        self.query_one("#trouble").display = False
        if self._tried is not None:
            self.run_worker(self._try(self._tried), exclusive=True)

    async def _try(self, tried: Callable[[Sampling], None]) -> None:
        await asyncio.sleep(PAUSE)
        sampling, _ = self._typed()
        if sampling is not None and sampling != self._sampling:
            with suppress(EngineError):
                await self._check_it(**sampling.params)
                if self.is_current:
                    self._sampling = sampling
                    tried(sampling)

    def _say(self, trouble: str) -> None:
        label = self.query_one("#trouble", Static)
        label.update(foreign(trouble))
        label.display = True

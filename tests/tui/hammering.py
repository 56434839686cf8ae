"""Random keys, resizes and kills for an app, told afterwards so that a failure can be had again."""

from __future__ import annotations

import random
import string
from collections import deque
from collections.abc import Callable
from typing import Any

from helpers import main_of, press_fast, settled, text_of, until
from rich.cells import cell_len
from textual.pilot import Pilot

from tui.actions import ACTIONS, CACHE_ACTIONS
from tui.app import LayerstepApp
from tui.state.cursor import Cursor

LEAVING = ("q", "ctrl+c", "ctrl+z")
WALK = sorted({key for action in ACTIONS for key in action.keys} - {*LEAVING})
CACHE = sorted({key for action in CACHE_ACTIONS for key in action.keys} - {*LEAVING})
TEXT = [*string.ascii_lowercase.replace("q", ""), *string.digits, *"[]/.:=,-_ ", "backspace", "delete", "f5"]
USUAL = ["escape"] * 12 + ["enter"] * 6 + ["right", "left", "down", "up", "tab"] * 4
BURST = 40
"""Keys at most before the app is looked at."""


class Hammer:
    """Strikes an app; ``kill`` ends its engine, every now and then."""

    def __init__(self, app: LayerstepApp, pilot: Pilot[Any], seed: int, kill: Callable[[], None] | None = None) -> None:
        self.app, self.pilot, self.kill = app, pilot, kill
        self.dice = random.Random(seed)
        self.last: deque[str] = deque(maxlen=150)
        main = main_of(app)
        main.do_quit = lambda: None  # type: ignore[method-assign]  # the palette has it too

    async def strike(self, count: int) -> None:
        """``count`` keys; raises AssertionError at an exception, a fault, or a screen that is not whole."""
        while count > 0:
            burst = min(count, self.dice.randrange(1, BURST))
            count -= burst
            for key in self.dice.choices(self.dice.choice((WALK, WALK, CACHE, TEXT, USUAL)) + USUAL, k=burst):
                self.last.append(key)
                await press_fast(self.app, key)
            await self.done()
            if self.dice.random() < 0.15:
                size = self.dice.choice(((120, 40), (80, 24), (160, 45), None))
                size = size or (self.dice.randrange(1, 200), self.dice.randrange(1, 60))
                self.last.append(f"<{size[0]}×{size[1]}>")
                await self.pilot.resize_terminal(*size)
            if self.kill is not None and self.dice.random() < 0.01:
                self.last.append("<kill>")
                self.kill()
            assert main_of(self.app).faults == []

    async def done(self) -> None:
        """Wait until no key is left to be looked at: raises AssertionError where that takes ages."""
        await self.pilot.pause()
        app = self.app
        await until(
            self.pilot, lambda: bool(app._exception) or not app._running or not (app._typed or app._typing), seconds=60
        )
        if app._exception is not None:
            raise AssertionError("the app ended with an exception") from app._exception
        assert app._running, "the app has ended"

    async def responds(self) -> None:
        """Esc leads out of everything, and the walk goes on: raises AssertionError where not."""
        await self.pilot.resize_terminal(120, 40)
        main = main_of(self.app)
        for _ in range(12):
            if self.app.screen is main:
                break
            self.last.append("escape")
            await self.pilot.press("escape")
            await self.done()
        assert self.app.screen is main, type(self.app.screen).__name__
        if main.client.state == "gone":
            await self.pilot.press("E")
        await settled(self.pilot)
        if main.trace is None:  # an opening that was cancelled or failed
            main.open({"model": "modern", "prompt": "once more"})
            await until(self.pilot, lambda: main.trace is not None)
        await self.pilot.press(*["escape"] * 6, "home", "right")
        await self.done()
        await settled(self.pilot)
        assert isinstance(main.cursor, Cursor)
        assert main.cursor.step == 1, main.cursor
        lines = text_of(self.app)
        assert "step 2/" in lines[0]
        assert {cell_len(line) for line in lines} == {120}

    def told(self) -> str:
        """The last keys, and what is on the screen."""
        return "\n".join([" ".join(self.last), *text_of(self.app)])

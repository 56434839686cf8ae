"""What the tests of the cache view share: an engine whose prompt ran in several passes, and the view on the screen."""

from __future__ import annotations

import re
from typing import Any

from fake_engine import FakeEngine
from fake_generation import Branch
from helpers import settled, text_of
from textual.pilot import Pilot

from tui.app import LayerstepApp
from tui.screens.cache import CacheScreen

WIDE, NARROW = (160, 45), (80, 24)
MARKS = {"▒": "held", "█": "added", "×": "dropped", "┄": "absent"}


def engine_of(first: int = 5, **options: Any) -> FakeEngine:
    """A fake whose prompt ran in one pass of some tokens and then token by token; odd layers look back 4 positions."""
    engine = FakeEngine(**{"layers": 4, "window": 4, **options})
    opened = engine._open

    def stepwise(params: dict[str, Any]) -> dict[str, Any]:
        opened(params)
        total = len(engine.tokens)
        engine.passes = [(0, min(first, total)), *((pos, 1) for pos in range(first, total))]
        engine.branches = [Branch(engine.tokens, engine.passes)]
        return engine.retold()

    engine._open = stepwise  # type: ignore[method-assign]
    return engine


def shown(app: LayerstepApp) -> str:
    return "\n".join(text_of(app))


def told(app: LayerstepApp) -> str:
    """The words on the screen, wherever their lines end; of one section at a time."""
    return " ".join(shown(app).replace("│", " ").split())


def view_of(app: LayerstepApp) -> CacheScreen:
    assert isinstance(app.screen, CacheScreen)
    return app.screen


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


def cells_on_screen(app: LayerstepApp) -> list[list[str]]:
    """What the rows of layers say, cell by cell."""
    rows = [line for line in text_of(app) if re.match(r"│[▸ ] +\d+ (full|window \d+) ", line)]
    return [[MARKS[run[0]] for run in re.findall(r"▒+|█+|×|┄", line)] for line in rows]

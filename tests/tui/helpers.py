"""What the app's tests share: a running app on the fake engine, and its screen as text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fake_engine import FakeEngine, MemoryLink
from textual.events import Key
from textual.pilot import Pilot

from tui.app import LayerstepApp
from tui.client import EngineClient
from tui.screens.main import MainScreen
from tui.widgets.plane import PlaneView
from tui.widgets.stage import Stage


def text_of(app: LayerstepApp) -> list[str]:
    """The screen, line by line."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


def main_of(app: LayerstepApp) -> MainScreen:
    """The main screen, wherever it is in the stack."""
    return next(screen for screen in app.screen_stack if isinstance(screen, MainScreen))


def has_main(app: LayerstepApp) -> bool:
    """Whether the app is past its first frame."""
    return any(isinstance(screen, MainScreen) and screen.is_mounted for screen in app.screen_stack)


async def until(pilot: Pilot[Any], true: Callable[[], bool], seconds: float = 8.0) -> None:
    """Wait for something; fails after some seconds."""
    for _ in range(int(seconds / 0.01)):
        if true():
            return
        await pilot.pause(0.01)
    raise AssertionError("it did not happen in time:\n" + "\n".join(text_of(pilot.app)))  # type: ignore[arg-type]


async def settled(pilot: Pilot[Any]) -> None:
    """Wait until nothing is under way."""
    await pilot.pause()
    await until(pilot, lambda: has_main(pilot.app) and not len(main_of(pilot.app).workers))  # type: ignore[arg-type]
    await pilot.pause()


async def press_fast(app: LayerstepApp, key: str) -> None:
    """A key without waiting for what it does, as from somebody hammering."""
    named = {"space": " ", "comma": ",", "full_stop": ".", "slash": "/", "colon": ":"}
    event = Key(key, key if len(key) == 1 else named.get(key))
    event.set_sender(app)
    assert app._driver is not None
    app._driver.send_message(event)


@asynccontextmanager
async def running(
    size: tuple[int, int] = (120, 40),
    engine: FakeEngine | None = None,
    link: Any = None,
    wait: bool = True,
    notifications: bool = False,
    **options: Any,
) -> AsyncIterator[tuple[LayerstepApp, Pilot[None]]]:
    """The app on a fake engine, with its trace open unless told not to wait."""
    make = link or (lambda: MemoryLink(engine or FakeEngine()))
    app = LayerstepApp(lambda: EngineClient(make), **options)
    async with app.run_test(size=size, notifications=notifications) as pilot:
        await until(pilot, lambda: has_main(app))
        if wait:
            await until(pilot, lambda: main_of(app).trace is not None)
            await settled(pilot)
        yield app, pilot
        assert main_of(app).faults == []
    if app.client is not None:
        await app.client.close()
    await asyncio.sleep(0)


def picture(app: LayerstepApp) -> PlaneView:
    """The picture that is shown."""
    found = main_of(app).query_one(Stage).picture
    assert found is not None
    return found


async def go(app: LayerstepApp, pilot: Pilot[None], site: str) -> None:
    """The cursor to a site."""
    main = main_of(app)
    assert main.trace is not None
    main.go_to_step(main.trace.by_site[site].index)
    await settled(pilot)

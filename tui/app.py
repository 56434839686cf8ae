"""The Textual app: a first frame at once, then the rest of the app, then the engine's answers."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.binding import Binding
from textual.events import Event, Key

from tui.screens.splash import SplashScreen
from tui.settings import Settings
from tui.themes import THEMES

if TYPE_CHECKING:
    from textual.widget import Widget

    from tui.actions import Keymap
    from tui.client import EngineClient
    from tui.screens.main import MainScreen

PROMPT = "The server crashed because the disk was full"

PARTS = (
    "engine.sites", "engine.text", "tui.state.trace", "tui.state.cursor", "tui.state.views", "tui.state.block",
    "tui.render.palette", "tui.client", "tui.actions", "tui.session", "tui.widgets.lines", "tui.widgets.plane",
    "tui.widgets.heatmap", "tui.widgets.why", "tui.widgets.token_strip", "tui.widgets.stage", "tui.screens.asking",
    "tui.screens.walking", "tui.screens.generating", "tui.screens.fetching", "tui.screens.main",
)  # fmt: skip
"""What is imported after the first frame, in pieces that do not hold the event loop up."""


KEY_PATIENCE = 0.5
"""Seconds that a key waits at most for what the key before it set off."""


class LayerstepApp(App[None]):
    """One screen and its dialogs. ``make_client`` is called once, after the first frame."""

    TITLE = "layerstep"
    ENABLE_COMMAND_PALETTE = False
    NOTIFICATION_TIMEOUT = 3
    BINDINGS = [  # noqa: RUF012
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "To the shell", show=False, priority=True),
    ]

    def __init__(
        self,
        make_client: Callable[[], EngineClient],
        request: dict[str, Any] | None = None,
        address: str = "",
        theme: str = "",
        settings: Settings | None = None,
        memory: Path | None = None,
        last: bool = False,
        tour: str | None = None,
        present: bool = False,
    ) -> None:
        """``memory``: the file of what is remembered, None: nothing is; ``last``: be where the app was left; ``tour``:
        play this one, by its file or its name; ``present``: full screen."""
        super().__init__()
        self.client: EngineClient | None = None
        self._make_client = make_client
        self._request = request or {"model": "modern", "prompt": PROMPT}
        self._address = address
        self.settings = settings or Settings()
        self.keymap: Keymap | None = None  # from the second frame on
        self.memory, self._last, self._tour, self._present = memory, last, tour, present
        self._typed: deque[Key] = deque()
        self._typing: asyncio.Task[None] | None = None
        self._interrupted = False
        self._main: MainScreen | None = None
        for known in THEMES.values():
            self.register_theme(known)
        self.theme = theme or self.settings.theme

    def get_default_screen(self) -> SplashScreen:
        """What is painted first."""
        return SplashScreen()

    def on_mount(self) -> None:
        """A terminal that goes away, and a polite kill, end the app as ``q`` does."""
        loop = asyncio.get_running_loop()
        for name in ("SIGTERM", "SIGHUP"):
            with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(getattr(signal, name), self.exit)
        self.call_after_refresh(self._unfold)

    def on_unmount(self) -> None:
        """However the app is left, it is remembered where."""
        if self._main is not None:
            from tui.state.remembered import remember

            self._main.end_presenting()
            with suppress(OSError, ValueError):
                remember(self.memory, self._main.leaving())

    def notify(self, message: str, **options: Any) -> None:
        """A notice; one that says the same is replaced."""
        for notice in [notice for notice in self._notifications if notice.message == message]:
            self._unnotify(notice)
        super().notify(message, **options)

    def interrupt(self) -> None:
        """Ctrl+C as a signal: leave, once there is a first frame to leave."""
        self._interrupted = True
        if self.client is not None:
            self.exit()

    async def on_event(self, event: Event) -> None:
        """However fast keys come, one is done, with the dialog that it opened or left, before the next is looked at."""
        if isinstance(event, Key) and not event.is_forwarded and event.key != "ctrl+c":
            self._typed.append(event)
            if self._typing is None:
                await self._next_key()
        else:
            await super().on_event(event)

    async def _next_key(self) -> None:
        self._typing = None
        if self._typed and not self._exit:
            target = self.focused or self.screen
            await super().on_event(self._typed.popleft())
            self._typing = asyncio.create_task(self._key_done(target))

    async def _key_done(self, target: Widget) -> None:
        """Wait until a key went all the way up, and then what it set off; then comes the next one."""
        screen, way = self.screen, tuple(target.ancestors_with_self)
        with suppress(TimeoutError):
            async with asyncio.timeout(KEY_PATIENCE):
                for node in way * 2:
                    if self.screen is not screen:
                        break
                    passed = asyncio.Event()
                    if node.call_later(passed.set):  # behind what is in its queue
                        await passed.wait()
                while not self.screen.is_mounted:
                    await asyncio.sleep(0.002)
        self.call_later(self._next_key)

    async def _unfold(self) -> None:
        """Import and show the rest, unless the app is left meanwhile."""
        for part in PARTS:
            import_module(part)
            await asyncio.sleep(0)
            if self._interrupted and not self._exit:
                self.exit()
            if self._exit:
                return
        from tui.actions import Keymap
        from tui.screens.main import MainScreen
        from tui.state.remembered import recall

        gc.freeze()  # code and styles live as long as the app: no pause is spent on them again
        self.client = self._make_client()
        self.keymap = Keymap(self.settings.keys)
        self.set_keymap(self.keymap.for_textual)
        left, unread = recall(self.memory)
        again = self._last and bool(left.request)
        main = MainScreen(self.client, dict(left.request) if again else self._request, self._address)
        main.settle(self.settings, self.memory, left)
        if again:
            main.take_up(left)
        main.starts(self._tour, self._present)
        self.add_mode("walk", lambda: main)  # a mode of its own: the first frame's screen is left behind
        self._main = main
        await self.switch_mode("walk")
        if unread:
            main.say(unread, "warning")

    async def run_async(self, **options: Any) -> None:
        """Run; the terminal is given back first, then the engine is ended."""
        try:
            await super().run_async(**options)
        finally:
            if self.client is not None:
                await self.client.close()

"""Walks the real app on the real engine in a terminal and notes when each frame came: run by ``app_keys``.

    python -m tests.bench.walked MODEL TOKENS WHAT REPORT

WHAT is ``moves`` (every movement at several sites, then the event loop idle and while a pass is recorded) or ``steps``
(every step of the pass, and every picture of those of block 0).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import tui.app
from tui.start import run

WORDS = ("The", "server", "crashed", "because", "the", "disk", "was", "full", "and", "nobody", "had", "noticed", "it")
MOVES = (
    "step.next", "step.previous", "layer.next", "layer.previous", "row.up", "row.down", "row.page_up", "row.page_down",
    "col.next", "col.previous", "col.page_next", "col.page_previous", "head.next", "head.previous", "step.last",
    "step.first",
)  # fmt: skip
SITES = ("tokens", "resid_pre", "attn.q", "attn.scores", "attn.pattern", "mlp.post", "logits")
PATIENCE = 0.25
"""Seconds without a frame after which a key is taken to have changed nothing."""
LONGEST = 5.0
"""Seconds after which numbers are taken not to come."""


class Walk:
    """Presses keys inside the app's own process, and sees what ``App._display`` sees."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.frames = 0
        self.drawn = asyncio.Event()
        self.gaps: list[tuple[float, float]] = []
        display = app._display

        def displayed(screen: Any, renderable: Any) -> None:
            display(screen, renderable)
            if renderable is not None:
                self.frames += 1
                self.drawn.set()

        app._display = displayed

    @property
    def main(self) -> Any:
        return self.app.screen

    async def press(self, key: str) -> tuple[float, float] | None:
        """Seconds until the frame after a key, and of CPU of this thread; None where there is none."""
        from textual.events import Key

        event = Key(key, key if len(key) == 1 else None)
        event.set_sender(self.app)
        self.drawn.clear()
        start, busy = time.perf_counter(), time.thread_time()
        self.app._driver.send_message(event)
        try:
            await asyncio.wait_for(self.drawn.wait(), PATIENCE)
        except TimeoutError:
            return None
        return time.perf_counter() - start, time.thread_time() - busy

    async def settled(self) -> None:
        """Until nothing is asked for any more and all is drawn."""
        for _ in range(400):
            await asyncio.sleep(0.03)
            if not len(self.main.workers):
                return

    async def opened(self, model: str, tokens: int) -> None:
        """The app's first trace, then one of so many tokens."""
        from tui.screens.main import MainScreen

        while not (isinstance(self.app.screen, MainScreen) and self.app.screen.trace):
            await asyncio.sleep(0.05)
        await self.open(model, tokens)

    async def open(self, model: str, tokens: int, turn: int = 0) -> None:
        """A trace of about so many tokens, and no more than the model has positions for."""
        words, old = [WORDS[(turn + n) % len(WORDS)] for n in range(tokens)], self.main.trace
        while self.main.trace is old:
            self.main.open({"model": model, "prompt": " ".join(words)})
            await self.settled()
            if self.main.trace is old:
                await self.press("escape")
                words = words[: -len(words) // 20]

    async def tick(self) -> None:
        """Note how late the event loop is, and how much of that it worked itself."""
        while True:
            start, busy = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self.gaps.append((time.perf_counter() - start, time.thread_time() - busy))

    async def moves(self, model: str, tokens: int) -> dict[str, Any]:
        from tui.actions import BY_ID

        told: dict[str, list[tuple[float, float]]] = {move: [] for move in MOVES}
        for site in SITES:
            name = next(s.site for s in self.main.trace.steps if s.site.endswith(site))
            for move in MOVES:
                self.main.go_to_step(self.main.trace.by_site[name].index)
                await self.settled()
                for _ in range(1 if move in ("step.first", "step.last") else 3):
                    took = await self.press(BY_ID[move].keys[0])
                    if took is not None:
                        told[move].append(took)
                    await asyncio.sleep(0.05)
        await self.settled()
        ticking = asyncio.create_task(self.tick())
        await asyncio.sleep(2.0)
        idle, self.gaps = self.gaps, []
        for turn in range(1, 4):
            await self.open(model, tokens, turn)
        busy = self.gaps
        ticking.cancel()
        return {"moves": told, "idle": idle, "busy": busy}

    async def steps(self) -> dict[str, Any]:
        """For each step and picture: its first frame, seconds until its numbers are there, whether work was shown."""
        from tui.state.views import views_of

        rows: list[Any] = []
        main = self.main
        await self.press("home")
        await self.settled()
        for index in range(len(main.trace.steps)):
            trace, cursor = main.here
            step = trace.step(cursor.step, cursor.at)
            views = views_of(step) if ".0." in step.site or "." not in step.site else ()
            if index:
                rows.append(await self.looked("right"))
            for n in range(1, min(9, len(views)) + 1) if views else ():
                rows.append(await self.looked(str(n)))
            if views:
                await self.press("1")
                await self.settled()
        return {"steps": rows}

    async def looked(self, key: str) -> tuple[str, tuple[float, float] | None, float, bool]:
        start = time.perf_counter()
        first = await self.press(key)
        shown = False
        while not self.there() and time.perf_counter() - start < LONGEST:
            shown = shown or self.main.query_one("#job").display
            await asyncio.sleep(0.005)
        took = time.perf_counter() - start
        await self.settled()
        return f"{self.main.plane.step.site} {self.main.plane.view.name}", first, took, shown

    def there(self) -> bool:
        """Whether the numbers of the picture are here."""
        main, plane = self.main, self.main.named(self.main.plane, self.main.cursor)
        return bool(main.trouble or main.ranking_of(plane) or main.session.known(plane))


def main() -> None:
    """Run the app to its end."""
    model, tokens, what, report = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    mount = tui.app.LayerstepApp.on_mount

    def on_mount(self: Any) -> None:
        mount(self)

        async def work() -> None:
            try:
                walk = Walk(self)
                await walk.opened(model, tokens)
                told = await (walk.moves(model, tokens) if what == "moves" else walk.steps())
                told["tokens"] = walk.main.trace.steps[0].shape[-1]
                Path(report).write_text(json.dumps(told))
            except Exception as error:
                Path(report).write_text(json.dumps({"error": repr(error)}))
                raise
            finally:
                self.exit()

        self.working = asyncio.get_running_loop().create_task(work())

    tui.app.LayerstepApp.on_mount = on_mount  # type: ignore[method-assign]
    run("The server", model)


if __name__ == "__main__":
    main()

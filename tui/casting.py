"""A walk as an asciinema cast: the app itself, run without a terminal, and what it draws at each stop.

The file is asciicast v2: a line of JSON with the size, then one line for each frame: seconds, "o", what a terminal is
sent. A frame holds only the lines that changed. How long it stays is the time that its words take to be read.
https://docs.asciinema.org/manual/asciicast/v2/
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.color import ColorSystem
from textual.geometry import Size

from engine.errors import ExportError
from engine.text import display
from engine.wholefile import check_target, whole_file
from tui.app import LayerstepApp
from tui.client import EngineClient
from tui.themes import DARK, LIGHT
from tui.tours import read_tour

if TYPE_CHECKING:
    from textual.pilot import Pilot
    from textual.strip import Strip

    from engine.tours import Tour
    from tui.screens.main import MainScreen

SIZE = (100, 30)
SMALLEST, LARGEST = (40, 10), (400, 120)
WORDS = 200 / 60
"""Words that are read in a second: a little slower than silently (238 a minute; Brysbaert 2019), as there is also a
picture to look at."""
LEAST, STEP = 3.0, 1.6
"""Seconds that a stop stays at least, and that a step does where the whole pass is walked."""
PATIENCE = 60.0
"""Seconds that the numbers of one frame may take."""

Watch = Callable[[int, int, str], None]


def write(
    request: Mapping[str, Any],
    path: Path,
    *,
    tour: str | None = None,
    force: bool = False,
    address: str = "",
    size: tuple[int, int] = SIZE,
    pace: float = 1.0,
    light: bool = False,
    watch: Watch | None = None,
    make_client: Callable[[], EngineClient] = EngineClient,
) -> int:
    """Record the walk through a tour (a file, or the name of one that comes along), or through all steps of what
    ``request`` opens, from ``address`` on; the bytes that were written to ``path``.

    ``pace``: how much faster than usual it is read. Raises ExportError, TourError, and what ``watch`` raises.
    """
    check_target(path, ExportError, force=force)
    if not all(low <= n <= high for low, n, high in zip(SMALLEST, size, LARGEST, strict=True)):
        raise ExportError(f"a cast of {size[0]}×{size[1]} cells is no terminal; ask for 40×10 to 400×120")
    if not 0.05 <= pace <= 20:
        raise ExportError(f"a pace of {pace:g} is out of range; 2 is twice as fast as usual, 0.5 half as fast")
    walked = read_tour(tour) if tour is not None else None
    what = {key: value for key, value in request.items() if value is not None}
    app = _Recorded(make_client, walked.request if walked else what, address, (LIGHT if light else DARK).name)
    walk = _Walk(app, Cast(*size), pace, watch or (lambda *_: None))
    asyncio.run(_run(app, walk, walked, size))
    if walk.fault is not None:
        raise walk.fault
    data = "".join(walk.cast.lines()).encode("ascii")
    with whole_file(path, ExportError, force=force, size=len(data)) as file:
        file.write(data)
    return len(data)


async def _run(app: LayerstepApp, walk: _Walk, tour: Tour | None, size: tuple[int, int]) -> None:
    async def drive(pilot: Pilot[None]) -> None:
        try:
            await walk.through(pilot, tour)
        except Exception as fault:
            walk.fault = fault
        finally:
            app.exit()

    await app.run_async(headless=True, mouse=False, size=size, auto_pilot=drive)


class _Recorded(LayerstepApp):
    """Notices do not come between a picture and who looks at it."""

    def __init__(
        self, make_client: Callable[[], EngineClient], request: dict[str, Any], address: str, theme: str
    ) -> None:
        super().__init__(make_client, request, address, theme)
        self.console._color_system = ColorSystem.TRUECOLOR  # wherever it is recorded: it is seen elsewhere

    def notify(self, message: str, **options: Any) -> None:
        """Nothing."""


@dataclass
class _Walk:
    """What is done to the app, and what has become of it."""

    app: LayerstepApp
    cast: Cast
    pace: float
    watch: Watch
    fault: Exception | None = None

    async def through(self, pilot: Pilot[None], tour: Tour | None) -> None:
        """Go from stop to stop, or from step to step."""
        main = await self.opened(pilot)
        self.cast.title = f"layerstep · {tour.title if tour else main.here[0].model}"
        await (self.steps(main, pilot) if tour is None else self.stops(main, pilot, tour))

    async def opened(self, pilot: Pilot[None]) -> MainScreen:
        """The main screen, once it has a trace."""
        from tui.screens.main import MainScreen

        while True:
            found = [one for one in self.app.screen_stack if isinstance(one, MainScreen)]
            if found and found[0].trace is not None:
                await self.settled(found[0], pilot)
                return found[0]
            self.refused()
            await asyncio.sleep(0.01)

    async def steps(self, main: MainScreen, pilot: Pilot[None]) -> None:
        trace, cursor = main.here
        for n in range(cursor.step, len(trace.steps)):
            self.watch(n - cursor.step, len(trace.steps) - cursor.step, trace.steps[n].site)
            main.go_to_step(n)
            await self.settled(main, pilot)
            self.frame(trace.steps[n].where, STEP)

    async def stops(self, main: MainScreen, pilot: Pilot[None], tour: Tour) -> None:
        main.play_tour(tour, sure=True)
        await self.settled(main, pilot)
        for n, stop in enumerate(tour.stops):
            self.watch(n, len(tour.stops), stop.title)
            if n:
                main.tour_on()
                await self.settled(main, pilot)
            self.frame(stop.title, self.reading(stop.narration + " " + stop.question))
            if stop.question:
                main.tour_enter()
                await self.settled(main, pilot)
                self.frame("", self.reading(stop.answer))

    def reading(self, text: str) -> float:
        """The seconds that a text takes to be read."""
        return max(LEAST, len(text.split()) / WORDS)

    def frame(self, marker: str, seconds: float) -> None:
        """What is on the screen now, for so long."""
        strips = self.app.screen._compositor.render_strips(Size(self.cast.width, self.cast.height))
        self.cast.add(strips, seconds / self.pace, marker)

    async def settled(self, main: MainScreen, pilot: Pilot[None]) -> None:
        """Wait until nothing is under way: what is drawn then stays so."""
        until = asyncio.get_running_loop().time() + PATIENCE
        quiet = 0
        while quiet < 2:
            await pilot.pause()
            quiet = 0 if len(main.workers) or main.working else quiet + 1
            self.refused()
            if asyncio.get_running_loop().time() > until:
                raise ExportError("the numbers of a picture did not come in time; record a shorter prompt")
            if not quiet:
                await asyncio.sleep(0.005)

    def refused(self) -> None:
        """Raises ExportError where the app says that something could not be done."""
        from tui.screens.notice import NoticeScreen

        if isinstance(told := self.app.screen, NoticeScreen):
            raise ExportError(told.message)
        if self.app._exit:
            raise ExportError("the recording was ended before it was done")


@dataclass
class Cast:
    """Frames of a terminal of a size, and when each is drawn."""

    width: int
    height: int
    title: str = ""
    seconds: float = 0.0
    events: list[tuple[float, str, str]] = field(default_factory=list)
    _shown: list[str] = field(default_factory=list)

    def add(self, strips: list[Strip], seconds: float, marker: str = "") -> None:
        """One more frame, which stays for so long; ``marker`` is what a player lists it as."""
        lines = [_ansi(strip) for strip in strips]
        before = self._shown or [""] * len(lines)
        rows = enumerate(zip(before, lines, strict=True), 1)
        changed = [f"\x1b[{y};1H{line}" for y, (was, line) in rows if was != line]
        start = "" if self._shown else "\x1b[?25l\x1b[2J"
        if marker:
            self.events.append((self.seconds, "m", display(marker)))
        if changed:
            self.events.append((self.seconds, "o", start + "".join(changed)))
        self._shown, self.seconds = lines, self.seconds + seconds

    def lines(self) -> Iterator[str]:
        """The file, line by line."""
        head = {"version": 2, "width": self.width, "height": self.height, "title": display(self.title),
                "env": {"TERM": "xterm-256color"}}  # fmt: skip
        yield json.dumps(head) + "\n"
        for seconds, kind, data in (*self.events, (self.seconds, "o", "\x1b[0m\x1b[?25h")):
            yield json.dumps([round(seconds, 3), kind, data]) + "\n"


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def _ansi(strip: Strip) -> str:
    """A line as a terminal is sent it. No text of it is a control: that is the app's rule, and is kept here too."""
    parts = []
    for text, style, control in strip.simplify():
        if not control:
            clean = _CONTROL.sub("�", text)
            plain = style.update_link(None) if style is not None and style.link else style
            parts.append(plain.render(clean, color_system=ColorSystem.TRUECOLOR) if plain is not None else clean)
    return "".join(parts)

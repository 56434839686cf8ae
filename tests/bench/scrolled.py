"""Scrolls a picture in a real terminal and writes what a frame costs: run by ``app_frames``.

    python -m tests.bench.scrolled KIND WAY SIZE FRAMES REPORT

KIND is ``app`` (the whole app on a pattern), ``bare`` (the least that the Line API allows: one widget, strips cached
by row and returned from ``render_lines``) or ``table`` (Textual's DataTable). All show the same numbers in cells of
the same width. WAY is ``line``, ``page`` or ``column``: how far a frame goes on.
"""

from __future__ import annotations

import asyncio
import json
import math
import resource
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import DataTable

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tui"))

from fake_engine import FakeEngine, MemoryLink

from engine.sites import Address, Span
from tui.app import LayerstepApp
from tui.client import EngineClient
from tui.render.palette import LEVELS, palette
from tui.screens.main import MainScreen
from tui.state.cursor import goto
from tui.widgets.stage import Stage

PATTERN = "blocks.1.attn.pattern"
CELL = 4
WARM = 2
COLOURS = palette(True)


RING = array("f", (0.02 + 0.9 * abs(math.sin(7 * key)) ** 9 for key in range(8192)))


def weights(row: int, size: int) -> array[float]:
    """Row ``row`` of a pattern: unequal, and 0 for the keys that come later."""
    start = 17 * row % 61
    return RING[start : start + row + 1][:size] + array("f", bytes(4 * max(0, size - row - 1)))


class CheapEngine(FakeEngine):
    """Answers windows of the pattern from one array, so that what is measured is the app."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def _window(self, params: dict[str, Any]) -> tuple[dict[str, Any], array[float]]:
        address = Address.parse(params["address"])
        if address.site != PATTERN:
            return super()._window(params)
        index = dict(address.index)
        rows, cols = index["q"], index["k"]
        assert isinstance(rows, Span)
        assert isinstance(cols, Span)
        values = array("f")
        for row in range(rows.start or 0, rows.stop or 0):
            values += weights(row, self.size)[cols.start : cols.stop]
        stats = {"min": 0.0, "max": 1.0, "mean": 1 / self.size, "std": 0.02, "norm": 9.0, "nonfinite": 0, "count": 9}
        return {"stats": stats | {"masked": self.size * (self.size - 1) // 2}, "origin": {}}, values


def cell(value: float) -> tuple[str, Style]:
    """A value as text of ``CELL`` cells on its colour."""
    if not value:
        return " ·  ", COLOURS.masked
    return f"{value:.2f}"[1:].rjust(CELL - 1) + " ", COLOURS.weights[min(LEVELS, math.floor(value * LEVELS + 0.5))]


class Bare(ScrollView):
    """The least: a row is sliced, equal styles are merged, and its strip is kept."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.count = size
        self.kept: dict[tuple[int, int, int], Strip] = {}

    def on_mount(self) -> None:
        self.virtual_size = Size(self.count * CELL, self.count)

    def line(self, row: int, left: int, width: int) -> Strip:
        key = (row, left, width)
        if key not in self.kept:
            segments: list[Segment] = []
            text, last = "", None
            for words, style in map(cell, weights(row, self.count)[left : left + width // CELL]):
                if style is not last and text:
                    segments.append(Segment(text, last))
                    text = ""
                text += words
                last = style
            segments.append(Segment(text, last))
            self.kept[key] = Strip(segments).adjust_cell_length(width, COLOURS.masked)
        return self.kept[key]

    def render_lines(self, crop: Region) -> list[Strip]:
        x, y = self.scroll_offset
        width = self.scrollable_content_region.width
        lines = [self.line(row + y, x // CELL, width) for row in range(crop.y, crop.bottom)]
        return lines if crop.width == width else [line.crop_extend(crop.x, crop.right, None) for line in lines]


class Alone(App[None]):
    """One widget on a screen."""

    def __init__(self, make: Callable[[], Widget]) -> None:
        super().__init__()
        self.make = make

    def compose(self) -> ComposeResult:
        yield self.make()


def table(size: int) -> Widget:
    """A DataTable of ``size`` × ``size`` numbers."""
    made: DataTable[str] = DataTable(show_header=False, cell_padding=0, cursor_type="none")
    for column in range(size):
        made.add_column("", width=CELL)
        del column
    for row in range(size):
        made.add_row(*(Text(text, style) for text, style in (cell(value) for value in weights(row, size))))
    return made


async def pattern(app: LayerstepApp, size: int) -> Widget:
    """The app at its pattern, once the picture is whole."""
    while not (isinstance(app.screen, MainScreen) and app.screen.trace):
        await asyncio.sleep(0.02)
    main = app.screen
    before = memory()
    if size:
        await main._open({"model": "modern", "prompt": " ".join(["word"] * (size - 1))})
    assert main.trace
    assert main.cursor
    main.move_to(goto(main.trace, main.cursor, Address.parse(f"{PATTERN}[q={size // 2},k=0]")))
    while not (main.plane and main.session.known(main.plane)):
        await asyncio.sleep(0.02)
    app.grown = lambda: memory() - before  # type: ignore[attr-defined]
    picture = main.query_one(Stage).picture
    assert picture
    return picture


def memory() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def scroll(app: App[None], view: Widget, size: int, way: str, frames: int) -> list[float]:
    """CPU seconds of each frame, all threads of the process."""
    costs = []
    x, y = 0, size // 4
    for frame in range(frames + WARM):
        start = time.process_time()
        painted = asyncio.Event()
        x, y = x + (CELL if way == "column" else 0), y + {"line": 1, "column": 0, "page": view.size.height - 1}[way]
        view.scroll_to(x=x, y=y, animate=False, force=True, immediate=True)
        app.screen.call_after_refresh(painted.set)
        await painted.wait()
        await asyncio.sleep(0.02)  # what was drawn reaches the terminal, and a window that was asked for comes
        if frame >= WARM:
            costs.append(time.process_time() - start)
    return costs


def main() -> None:
    """Run one program to its end."""
    kind, way, size, frames, report = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]), sys.argv[5]
    app: App[None]
    if kind == "app":
        app = LayerstepApp(lambda: EngineClient(lambda: MemoryLink(CheapEngine(size))), {"prompt": "a b"})
    else:
        app = Alone(lambda: Bare(size) if kind == "bare" else table(size))
    told: dict[str, Any] = {}

    async def work() -> None:
        await asyncio.sleep(0.3)
        view = (
            await pattern(app, size)
            if isinstance(app, LayerstepApp)
            else app.query_one(Bare if kind == "bare" else DataTable)
        )
        await asyncio.sleep(0.3)
        if size and isinstance(app, LayerstepApp):
            view.focus()
        told["costs"] = await scroll(app, view, size, way, frames)
        told["area"] = tuple(view.size)
        told["grown"] = getattr(app, "grown", int)()
        app.exit()

    app.call_later(lambda: setattr(app, "working", asyncio.create_task(work())))
    app.run()
    Path(report).write_text(json.dumps(told))


if __name__ == "__main__":
    main()

"""One picture alone: planes made by hand, and an app that shows nothing but a widget."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

from engine.text import display
from engine.views import View
from tui.state.block import Block, Stats
from tui.state.looks import Look
from tui.state.trace import Pass, Step, Token, Trace
from tui.state.views import Plane
from tui.themes import THEMES

WORDS = "<|bos|> The server crash ed because the disk was full . It had to be restarted"
TOKENS = [word if n < 2 or word in ("ed", ".") else f"␣{word}" for n, word in enumerate(WORDS.split())]
PATTERN = View("attention", "query", "key", "heatmap")
ARCS = View("arcs", "query", "key", "arcs")
TEXT = View("text", "", "key", "text")


def a_trace(tokens: Sequence[str] = TOKENS, start: int = 0, heads: int = 4, layers: int = 2) -> Trace:
    """With a pattern step; its queries are the tokens from ``start`` on."""
    n = len(tokens)

    def step(index: int, site: str, axes: tuple[str, ...], shape: tuple[int, ...], **more: object) -> Step:
        return Step(index, site, int(site.split(".")[1]), "attention", site.rsplit(".", 1)[-1], axes, shape, **more)  # type: ignore[arg-type]

    attention = ("batch", "head", "query", "key")
    steps = [
        step(2 * layer + part, f"blocks.{layer}.attn.{name}", attention, (1, heads, n - start, n))
        for layer in range(layers)
        for part, name in enumerate(("scores", "pattern"))
    ]
    if start:
        places = (0, 0, start, 0)
        steps = [Step(s.index, s.site, s.block, s.part, s.label, s.axes, s.shape, origin=places) for s in steps]
    shown = tuple(Token(n, display(token)) for n, token in enumerate(tokens))
    return Trace("modern", tokens=(shown,), steps=tuple(steps), passes=(Pass(0, n),), config={"n_heads": heads}, run=1)


def a_plane(trace: Trace, view: View = PATTERN, site: str = "blocks.1.attn.pattern", query: int = 0) -> Plane:
    """The picture of a site, with the cursor at this query where the view has none."""
    step = trace.by_site[site]
    at = {"batch": 0, "head": 0, "query": query}
    return Plane(trace, step, view, tuple((axis, at[axis]) for axis in view.fixed(step.axes)), 0)


def weights(rows: int, cols: int, seed: int = 1, sharp: float = 1.6) -> list[list[float]]:
    """A causal pattern: rows that add up to one."""
    rng = random.Random(seed)
    lines = []
    for row in range(rows):
        known = row + 1 + cols - rows
        high = [math.exp(sharp * rng.gauss(0, 1)) for _ in range(known)]
        lines.append([value / sum(high) for value in high] + [0.0] * (cols - known))
    return lines


def a_block(
    plane: Plane, lines: Sequence[Sequence[float]], told: Look | None = None, masked: int | None = None
) -> Block:
    """All of a plane, with its statistics."""
    cells = [value for line in lines for value in line]
    finite = [value for value in cells if math.isfinite(value)]
    mean = math.fsum(finite) / len(finite) if finite else 0.0
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / len(finite)) if finite else 0.0
    zeros = sum(value == 0 for value in cells) if masked is None else masked
    stats = Stats(
        min(finite, default=0.0), max(finite, default=0.0), mean, std, masked=zeros, count=len(cells),
        nonfinite=len(cells) - len(finite),
    )  # fmt: skip
    return Block(plane.key, 0, 0, len(lines), len(lines[0]) if lines else 0, array("f", cells), stats, told=told)


class Alone(App[None]):
    """Widgets and nothing else."""

    CSS = "Screen > * { height: 1fr; width: 1fr; } LineView { scrollbar-size: 1 1; } #chain, #readout { height: 2; }"

    def __init__(self, *widgets: Widget, theme: str = "layerstep-dark") -> None:
        super().__init__()
        self.widgets, self._theme_name = widgets, theme
        self.told: list[object] = []
        for known in THEMES.values():
            self.register_theme(known)

    def compose(self) -> ComposeResult:
        yield from self.widgets

    def on_mount(self) -> None:
        self.theme = self._theme_name

    def on_plane_view_picked(self, event: object) -> None:
        self.told.append((event.row, event.col))  # type: ignore[attr-defined]

    def on_chain_line_chosen(self, event: object) -> None:
        self.told.append(event.site)  # type: ignore[attr-defined]

    @property
    def lines(self) -> list[str]:
        """The screen, line by line."""
        return [strip.text for strip in self.screen._compositor.render_strips()]


@asynccontextmanager
async def alone(
    *widgets: Widget,
    size: tuple[int, int] = (80, 24),
    theme: str = "layerstep-dark",
    then: Callable[[], None] = lambda: None,
) -> AsyncIterator[tuple[Alone, Pilot[None]]]:
    """An app with these widgets; ``then`` is done once they are there."""
    app = Alone(*widgets, theme=theme)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        then()
        await pilot.pause()
        yield app, pilot

"""All screens there are, as a table: where to go and what to press to see each. One row for each view and dialog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cache_view import engine_of
from fake_engine import FakeEngine
from helpers import go, main_of, settled
from textual.pilot import Pilot
from textual.widgets import Input

from tui.app import LayerstepApp
from tui.state.views import views_of

PATTERN, RESID, QUERY = "blocks.1.attn.pattern", "blocks.1.resid_post", "blocks.1.attn.rot_q"


@dataclass(frozen=True, slots=True)
class Shown:
    """A screen: the site it is of, the picture of it by name, and then keys."""

    name: str
    site: str = ""
    view: str = ""
    keys: tuple[str, ...] = ()
    engine: Callable[[], FakeEngine] = field(default=FakeEngine)

    async def reach(self, app: LayerstepApp, pilot: Pilot[Any]) -> None:
        """Go there from the start of the app."""
        if self.site:
            await go(app, pilot, self.site)
        if self.view:
            trace, cursor = main_of(app).here
            names = [view.name for view in views_of(trace.step(cursor.step, cursor.at))]
            await pilot.press(str(names.index(self.view) + 1))
        await settled(pilot)
        for key in self.keys:
            await pilot.press(key)
            await settled(pilot)
        for box in app.screen.query(Input):
            box.cursor_blink = False
        app.clear_notifications()
        await settled(pilot)


def rotary() -> FakeEngine:
    """One whose queries and keys are rotated."""
    return FakeEngine(rotary=True)


def _views(site: str, *names: str, engine: Callable[[], FakeEngine] = FakeEngine) -> tuple[Shown, ...]:
    last = site.rpartition(".")[2]
    return tuple(Shown(f"{last}-{name.replace(' ', '-')}", site, name, engine=engine) for name in names)


def _cache(n: int, *keys: str) -> Shown:
    return Shown(f"cache-{n}", keys=("K", str(n), *keys), engine=engine_of)


VIEWS = (
    *_views("tokens", "tokens"),
    *_views("embed", "heatmap", "row", "neighbours", "histogram"),
    *_views("rotary_cos", "heatmap", "curves"),
    *_views(QUERY, "heatmap", "row", "all heads", "rotation", engine=rotary),
    *_views("blocks.1.attn.masked", "heatmap", "heads"),
    *_views(PATTERN, "heatmap", "row", "arcs", "text", "heads", "layers", "mean", "max", "histogram"),
    *_views(RESID, "heatmap", "lens", "norms"),
    *_views("blocks.1.attn_out", "added"),
    *_views("blocks.1.mlp.post", "neurons"),
    *_views("logits", "ranked", "row", "heatmap"),
)
LOOKS = (
    Shown("pattern-shades", PATTERN, keys=("c",)),
    Shown("scores-scale-row", "blocks.1.attn.scores", keys=("l",)),
    Shown("scores-scale-log", "blocks.1.attn.scores", keys=("l", "l", "l")),
    Shown("beside", PATTERN, keys=("d",)),
    Shown("difference", PATTERN, keys=("d", "d")),
    Shown("maximised", PATTERN, keys=("z",)),
    Shown("generated", "logits", keys=("g", "g")),
    Shown("presented", PATTERN, keys=("P",)),
)
DIALOGS = (
    Shown("prompt", keys=("p",)),
    Shown("model", keys=("m",)),
    Shown("about", keys=("a",)),
    Shown("open", keys=("o",)),
    Shown("save", keys=("s",)),
    Shown("find-step", keys=("slash", *"pattern")),
    Shown("find-any", keys=("ctrl+p", *"next")),
    Shown("address", keys=("colon",)),
    Shown("sampling", keys=("x",)),
    Shown("branches", keys=("g", "u")),
    Shown("choose-beside", PATTERN, keys=("D",)),
    Shown("copy", PATTERN, keys=("C",)),
    Shown("export", PATTERN, keys=("e",)),
    Shown("settings", keys=("O",)),
    Shown("help", PATTERN, keys=("question_mark",)),
    Shown("tours", keys=("W",)),
    Shown("tour", keys=("W", "enter")),
    Shown("record", PATTERN, keys=("r",)),
    Shown("recording", PATTERN, keys=("r", "enter", "enter", "r")),
)
CACHE = (_cache(1), _cache(2), _cache(3, "m"), _cache(4, "m"), _cache(5, "m"), _cache(6))
SCREENS = (*VIEWS, *LOOKS, *CACHE, *DIALOGS)

"""What a picture says of itself where it is not the step's own tensor, and what notices say and hide."""

from __future__ import annotations

import pytest
from fake_engine import FakeEngine, MemoryLink
from helpers import go, main_of, picture, running, settled, text_of, until
from textual.widgets._toast import Toast

from tui.state.block import Stats
from tui.widgets.heatmap import Heatmap
from tui.widgets.view_tabs import ViewTabs
from tui.widgets.why import WhyPane

PATTERN = "blocks.0.attn.pattern"


def pane(app: object, kind: type = WhyPane) -> str:
    """All the lines of the explanation."""
    widget = main_of(app).query_one(kind)  # type: ignore[arg-type]
    return "\n".join(widget.strip(y).text.rstrip() for y in range(widget.virtual_size.height))


@pytest.mark.parametrize(
    ("how", "title", "formula"),
    [
        ("mean", "Mean weight over heads: mean over h", "mean over h of pattern[h, query, key]"),
        ("max", "Largest weight over heads: max over h", "max over h of pattern[h, query, key]"),
    ],
)
async def test_heads_together_are_explained_as_such_and_no_head_is_marked(how: str, title: str, formula: str) -> None:
    async with running(size=(160, 60)) as (app, pilot):
        await go(app, pilot, PATTERN)
        own = pane(app)
        assert "The pattern step" in own
        assert "▸ kv 0 ← [0] 1" in own
        assert "of the step itself" not in own
        main_of(app).show_view(how)
        await settled(pilot)
        shown = " ".join(pane(app).split())
        assert title in shown
        assert formula in shown
        assert "The pattern step" not in shown
        assert "This step writes" not in shown
        assert "checks of the step itself ✓" in shown
        assert "▸ kv" not in shown
        assert "kv 0 ← 0 1" in shown
        assert f"over heads: {how}" in "\n".join(text_of(app))


async def test_a_difference_is_explained_as_one() -> None:
    async with running(size=(160, 60)) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("d", "d")
        await settled(pilot)
        shown = " ".join(pane(app).split())
        assert "Difference of pattern: head 0 − head 1" in shown
        assert "This step writes" not in shown
        assert "checks of the step itself ✓" in shown


@pytest.mark.parametrize(
    ("site", "view", "title"),
    [
        ("blocks.1.resid_mid", "lens", "residual stream · lens"),
        ("blocks.0.resid_post", "norms", "residual stream · norms"),
        ("blocks.1.mlp_out", "added", "residual stream · added"),
        (PATTERN, "layers", "attention · pattern · layers"),
    ],
)
async def test_what_is_of_all_layers_is_titled_as_such(site: str, view: str, title: str) -> None:
    async with running(size=(160, 45)) as (app, pilot):
        await go(app, pilot, site)
        main_of(app).show_view(view)
        await settled(pilot)
        assert f"─ {title} ─" in "\n".join(text_of(app))


async def test_a_fixed_scale_ends_where_the_automatic_one_does_whatever_came_before_it() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        heatmap, main = picture(app), main_of(app)
        assert isinstance(heatmap, Heatmap)
        assert heatmap.scale is not None
        automatic = heatmap.scale.limit
        while main.scale_mode != "fixed":
            assert main.fixed_limit == 0
            await pilot.press("l")
        assert main.fixed_limit == automatic == Stats.limit.fget(heatmap.scale.stats)  # type: ignore[attr-defined]
        await settled(pilot)


async def test_a_notice_hides_neither_the_tabs_nor_the_legend_and_stands_once() -> None:
    async with running(size=(100, 30), notifications=True) as (app, pilot):
        await go(app, pilot, PATTERN)
        for _ in range(3):
            await pilot.press("f")
            await settled(pilot)
        assert len(app._notifications) == 1
        assert next(iter(app._notifications)).timeout == 3
        await until(pilot, lambda: len(app.screen.query(Toast)) == 1)
        toast = app.screen.query_one(Toast)
        assert toast.region.right >= 99
        await until(pilot, lambda: toast.region.bottom <= 8)
        assert toast.region.bottom <= main_of(app).query_one(ViewTabs).region.y


async def test_a_key_before_the_trace_is_refused_and_once_it_is_drawn_nothing_says_so_any_more() -> None:
    link = MemoryLink(FakeEngine(), hold=True)
    async with running(link=lambda: link, wait=False) as (app, pilot):
        main = main_of(app)
        await pilot.press("up", "h")
        assert [notice.message for notice in app._notifications] == [
            "↑: not yet, there is no trace", "h: not yet, there is no trace",
        ]  # fmt: skip
        link.release()
        await until(pilot, lambda: main.trace is not None)
        await settled(pilot)
        assert not app._notifications
        before = main.here[1]
        await pilot.press("up")
        assert main.here[1].pos == before.pos - 1
        link.hold = True  # another one is recorded: what is drawn can still be walked
        main.open({"model": "modern", "prompt": "a cat"})
        await pilot.press("up", "right")
        assert (main.here[1].pos, main.here[1].step) == (before.pos - 2, before.step + 1)
        assert not app._notifications
        link.release()
        await settled(pilot)

"""The cache view where something goes wrong, the terminal is tiny, or another trace comes: a line, never a dead app."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from cache_view import NARROW, WIDE, cells_on_screen, engine_of, press, shown, view_of
from fake_engine import HOSTILE, FakeEngine, FakeError, MemoryLink
from helpers import main_of, press_fast, running, settled, text_of, until
from rich.cells import cell_len
from rich.segment import Segment

from tui.actions import CACHE_ACTIONS
from tui.screens.cache import CacheScreen
from tui.screens.notice import NoticeScreen

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ud800-\udfff]")


async def test_a_model_without_a_cache_says_why() -> None:
    engine = FakeEngine(mask=2)
    async with running(size=NARROW, engine=engine) as (app, pilot):
        await press(pilot, "K")
        assert "no KV cache" in shown(app)
        assert "an encoder sees the whole text at once" in shown(app)
        await press(pilot, "right", "down", "h", "4", "m", "i", "plus", "tab", "enter", "v", "space")
        assert "no KV cache" in shown(app)
        assert not {"timing", "drift", "quantised"} & {method for method, _ in engine.asked}
        await press(pilot, "escape")
        assert app.screen is main_of(app)


@pytest.mark.parametrize(
    ("method", "keys"),
    [("cache", "2"), ("cache", "1"), ("timing", "4m"), ("drift", "3m"), ("quantised", "5m"), ("pages", "6")],
)
@pytest.mark.parametrize("answer", ["error", "nonsense", "half"])
async def test_what_goes_wrong_is_a_line_in_its_section(
    method: str, keys: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of()
    honest = getattr(engine, f"_{method}")

    def broken(params: dict[str, Any]) -> dict[str, Any]:
        if answer == "error":
            raise FakeError("MemoryError", "too large [/] \x1b[31m for this device")
        whole = honest(params)
        rows = next((key for key in ("layers", "rows", "cached_ms") if key in whole), "")
        return {} if answer == "nonsense" else whole | {rows: "x" if rows == "cached_ms" else [{}]}

    monkeypatch.setattr(engine, f"_{method}", broken)
    async with running(size=(100, 30), engine=engine) as (app, pilot):
        await press(pilot, "K", *keys)
        words = "✗ too large [/] ␛[31m for this device" if answer == "error" else "✗ the engine's answer makes no sense"
        assert words in shown(app)
        for key in (*"123456", "right", "down", "h", "i", "plus", "space", "space"):
            await press_fast(app, key)
        await settled(pilot)
        assert isinstance(app.screen, CacheScreen)
        monkeypatch.setattr(engine, f"_{method}", honest)
        if keys.endswith("m"):
            await press(pilot, *keys)
            assert "✗ the" not in shown(app)
            assert "✗ too" not in shown(app)


async def test_a_trace_that_lacks_the_rows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    program = engine._program
    monkeypatch.setattr(
        engine, "_program", lambda n: (step for step in program(n) if not step["site"].endswith("cache_v"))
    )
    async with running(engine=engine) as (app, pilot):
        await press(pilot, "K", "v")
        assert [notice.message for notice in app._notifications] == ["this trace has no site blocks.0.attn.cache_v"]
        assert isinstance(app.screen, CacheScreen)


async def test_an_engine_that_dies_while_it_measures_is_a_dialog_over_the_view() -> None:
    links = [MemoryLink(engine_of(die_on="drift")), MemoryLink(engine_of())]
    async with running(size=NARROW, link=lambda: links.pop(0)) as (app, pilot):
        await press(pilot, "K", "3", "m")
        await until(pilot, lambda: isinstance(app.screen, NoticeScreen))
        assert "out of memory" in shown(app)
        await press(pilot, "E")
        assert isinstance(app.screen, CacheScreen)
        await press(pilot, "m")
        assert "within the tolerance" in shown(app)
        await press(pilot, "1")
        assert "pass 4 of 0–4" in shown(app)


async def test_another_trace_has_another_cache() -> None:
    async with running(size=NARROW, engine=engine_of()) as (app, pilot):
        await press(pilot, "K", "4", "m", "escape", "p", "end", *" again", "enter")
        await settled(pilot)
        await press(pilot, "K")
        assert "10 positions on cpu" in shown(app)
        await press(pilot, "4")
        assert "m measures a token" in shown(app)  # what was measured was measured for the other one


async def test_a_generated_token_is_a_pass_more() -> None:
    async with running(size=NARROW, engine=FakeEngine(window=4)) as (app, pilot):
        await press(pilot, "g", "g", "K")
        assert "pass 2 of 0–2" in shown(app)
        assert "11 positions on cpu" in shown(app)


async def test_it_grows_along_while_tokens_are_generated_under_it() -> None:
    async with running(size=NARROW, engine=FakeEngine(window=4)) as (app, pilot):
        await press(pilot, "g", "K")
        for passes in (2, 3):
            main_of(app).action_do("generate.token")
            await until(pilot, lambda last=passes: f"pass {last} of 0–{last}" in shown(app))  # type: ignore[misc]
        await press(pilot, "left")
        main_of(app).action_do("generate.token")
        await until(pilot, lambda: "pass 2 of 0–4" in shown(app))  # who looks back is left there


async def test_small_tolerances_keep_their_numbers_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    gaps = {"rows": [{"at": 0, "gaps": [3e-15, 4e-13]}], "tolerance": 2e-13, "ok": False, "dtype": "float64"}
    monkeypatch.setattr(engine, "_drift", lambda params: gaps)
    async with running(size=NARROW, engine=engine) as (app, pilot):
        await press(pilot, "K", "3", "m")
        assert re.search(r"layer 0 +3e-15 ", shown(app))
        assert re.search(r"layer 1 +✗4e-13 ", shown(app))


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (10, 3), (20, 5), (39, 9), (40, 10), (60, 20), (131, 33), (400, 120)])
async def test_every_section_fills_any_terminal_exactly(size: tuple[int, int]) -> None:
    async with running(size=size, engine=engine_of(heads=8, kv=4)) as (app, pilot):
        await press(pilot, "K")
        for keys in ("1", "2", "3m", "4m", "5m", "6"):
            for key in (*keys, "down", "down", "left", "pagedown", "end"):
                await press_fast(app, key)
            await settled(pilot)
            lines = text_of(app)
            assert len(lines) == size[1]
            assert {cell_len(line) for line in lines} == {size[0]}
        await pilot.resize_terminal(*WIDE)
        await settled(pilot)
        assert all(f"─ {n} " in shown(app) for n in range(1, 7))


async def test_a_storm_of_resizes() -> None:
    async with running(size=WIDE, engine=engine_of()) as (app, pilot):
        await press(pilot, "K", "3", "m", "5", "m")
        for size in [(30, 2), (1, 1), (100, 30), (40, 10), (2, 1), (79, 24), WIDE, (90, 50)]:
            await pilot.resize_terminal(*size)
        await settled(pilot)
        assert {cell_len(line) for line in text_of(app)} == {90}
        assert "5 quantised" in shown(app)


@pytest.mark.parametrize("seed", range(3))
async def test_three_hundred_random_keys(seed: int) -> None:
    dice = random.Random(seed)
    keys = [key for action in CACHE_ACTIONS for key in action.keys if key not in ("q", "K", "escape", "enter", "v")]
    async with running(size=(140, 40), engine=engine_of(hostile=seed == 1)) as (app, pilot):
        await press(pilot, "K")
        for _ in range(6):
            for key in dice.choices(keys, k=50):
                await press_fast(app, key)
            await pilot.pause()
            await pilot.resize_terminal(dice.randrange(1, 170), dice.randrange(1, 50))
            assert app._exception is None
        await settled(pilot)
        await pilot.resize_terminal(*WIDE)
        while not isinstance(app.screen, CacheScreen):
            await press(pilot, "escape")
        await until(pilot, lambda: {cell_len(line) for line in text_of(app)} == {160})


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_hostile_text_is_shown_and_harmless(size: tuple[int, int]) -> None:
    request = {"model": "modern", "prompt": "x"}
    async with running(size=size, engine=engine_of(hostile=True), request=request) as (app, pilot):
        await press(pilot, "K", "home")
        seen = []
        for at in range(len(HOSTILE)):
            view_of(app).go(at=at)
            await pilot.pause()
            seen.append(shown(app))
        for keys in ("2", "3m", "4m", "5m", "6"):
            await press(pilot, *keys)
            seen.append(shown(app))
            await press(pilot, "pagedown", "pagedown")
            seen.append(shown(app))
        for text in seen:
            assert not UNPRINTABLE.search(text.replace("\n", ""))
        assert sum("␛]52;c;Y2FjaGU=␇[/]" in text for text in seen) >= 4


@pytest.mark.parametrize("theme", ["layerstep-dark", "layerstep-light"])
async def test_without_colour_the_marks_stay(theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running(size=NARROW, engine=engine_of(), theme=theme) as (app, pilot):
        await press(pilot, "K")
        assert cells_on_screen(app)[1] == ["dropped"] * 6 + ["held", "held", "added"]
        styles = {
            segment.style.color.triplet
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            if isinstance(segment, Segment) and segment.style and segment.style.color and segment.style.color.triplet
        }
        assert all(max(colour) - min(colour) <= 1 for colour in styles)  # greys


async def test_the_theme_changes_every_line() -> None:
    async with running(size=WIDE, engine=engine_of()) as (app, pilot):
        await press(pilot, "K", "3", "m", "5", "m", "T")
        assert app.theme == "layerstep-light"
        backgrounds = {
            segment.style.bgcolor.name
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            if segment.style and segment.style.bgcolor and segment.text.strip() in ("held", "bfloat16")
        }
        assert backgrounds == {"#fbfaf7"}


async def test_sections_get_the_height_they_need_when_there_is_room_for_all() -> None:
    async with running(size=NARROW, engine=engine_of(layers=6)) as (app, pilot):
        await press(pilot, "K", "4", "m", "2")
        await pilot.resize_terminal(*WIDE)
        await settled(pilot)
        assert "▸  0 full" in shown(app)
        assert re.search(r" 5 window 4 ", shown(app))
        assert "who shares what" in shown(app)
        assert "8.0 × as long without" in shown(app)
        assert re.search(r" 5 +1 +3 of 16 ", shown(app))

"""Candidates in the app: walking and taking them, what they are drawn from, the seed, and the branch one is on."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fake_engine import FakeEngine
from helpers import go, main_of, picture, running, settled, text_of
from rich.cells import cell_len
from textual.pilot import Pilot

from tui.app import LayerstepApp
from tui.state.sampling import Sampling
from tui.text import middle
from tui.widgets.footer import KeyLine
from tui.widgets.header import HeaderLine
from tui.widgets.manual import ManualLines
from tui.widgets.pick_list import PickList
from tui.widgets.stage import Stage
from tui.widgets.token_strip import TokenStrip
from tui.widgets.why import WhyPane

PATTERN, LAST = "blocks.0.attn.pattern", 8


def drawn(app: LayerstepApp, kind: type[Any]) -> str:
    """A widget of the main screen as it is drawn, without its neighbours."""
    region = main_of(app).query_one(kind).region
    return "\n".join(line[region.x : region.right] for line in text_of(app)[region.y : region.bottom])


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


def asked(engine: FakeEngine, method: str) -> list[dict[str, Any]]:
    return [params for name, params in engine.asked if name == method]


# walking them


@pytest.mark.parametrize("site", ["logits", "probs"])
async def test_up_and_down_walk_the_candidates_and_enter_takes_the_marked_one(site: str) -> None:
    engine = FakeEngine()
    async with running((80, 24), engine) as (app, pilot):
        await go(app, pilot, site)
        await press(pilot, "down", "down")
        assert re.search(r"▸ +3  , ", "\n".join(text_of(app)))
        assert main_of(app).here[1].pos == LAST
        await press(pilot, "enter")
        assert asked(engine, "branch") == [{"pos": LAST + 1, "id": 15}]


async def test_comma_and_full_stop_walk_the_tokens_there() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, "logits")
        await press(pilot, "comma", "comma", "full_stop")
        assert main_of(app).here[1].pos == LAST - 1


async def test_the_footer_says_so_at_80_columns() -> None:
    async with running((80, 24)) as (app, pilot):
        await go(app, pilot, "logits")
        assert re.search(r"↑↓ candidate  ,\. token .*Enter take it .*\? help", drawn(app, KeyLine))
        await go(app, pilot, PATTERN)
        assert "↑↓ token" in drawn(app, KeyLine)
        assert "Enter" not in drawn(app, KeyLine)


async def test_enter_takes_the_bar_at_the_cursor() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (app, pilot):
        await go(app, pilot, "logits")
        await press(pilot, "v", *["down"] * 15)
        assert picture(app).plane is not None
        assert picture(app).cell == (15, 0)
        await press(pilot, "enter")
        assert asked(engine, "branch") == [{"pos": LAST + 1, "id": 15}]


# what they are drawn from


async def test_a_temperature_adds_what_tokens_are_drawn_from() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (app, pilot):
        await go(app, pilot, "logits")
        assert "drawn" not in "\n".join(text_of(app))
        main_of(app).sampling = Sampling(temperature=0.7, top_k=3, seed=5)
        main_of(app).show_all()
        await settled(pilot)
        assert asked(engine, "top")[-1].items() >= {"temperature": 0.7, "top_k": 3}.items()
        assert "seed" not in asked(engine, "top")[-1]
        table = drawn(app, type(picture(app)))
        assert "probability  drawn from" in table
        assert re.search(r" 1  \. .*0\.6000", table)
        assert re.search(r" 4  \S+ .* ·", table)
        assert " drawn:  . 0.60   ␣and 0.40   , 0.20" in drawn(app, TokenStrip)
        main_of(app).sampling = Sampling()
        main_of(app).show_all()
        await settled(pilot)
        assert "drawn" not in "\n".join(text_of(app))


async def test_the_seed_that_was_drawn_is_shown_and_can_be_typed_again() -> None:
    engine = FakeEngine()
    async with running((80, 24), engine) as (app, pilot):
        main_of(app).sampling = Sampling(temperature=0.7)
        await press(pilot, "g")
        assert "T 0.7 seed 4711 · step" in drawn(app, HeaderLine)
        await press(pilot, "x")
        assert "last drawn: 4711; type it to repeat" in "\n".join(text_of(app))
        await press(pilot, "escape")
        main_of(app).sampling = Sampling(temperature=0.7, seed=4711)
        await press(pilot, "g")
        assert asked(engine, "generate")[-1]["seed"] == 4711
        assert "seed" not in drawn(app, HeaderLine)


# branches


async def test_the_header_says_which_branch_one_is_on() -> None:
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "g", "g")
        assert "branch" not in drawn(app, HeaderLine)
        await press(pilot, "backspace")
        assert "branch 2 of 2 (u) · step" in drawn(app, HeaderLine)


async def test_a_branch_with_nothing_of_its_own_says_where_it_is() -> None:
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "g", "g", "backspace", "u")
        assert app.screen.query_one(PickList).choices[1].text == f"└ ● (back at position {LAST + 1})"
        assert "log p: sum of log p of its own tokens" in "\n".join(text_of(app))


async def test_of_the_first_branch_the_end_is_seen() -> None:
    async with running((80, 24)) as (app, pilot):
        main_of(app).sampling = Sampling(tokens=6)
        await press(pilot, "G", "u")
        assert any(re.search(r"● <\|bos\|>The .*….* full\. and, of a then ", line) for line in text_of(app))


@pytest.mark.parametrize("width", [8, 9, 20, 200])
@pytest.mark.parametrize("text", ["", "short", "the beginning and then a long way to the end", "日本語の文章です" * 9])
def test_a_text_without_its_middle_has_its_width_and_its_end(text: str, width: int) -> None:
    cut = middle(text, width)
    assert cell_len(cut) == width
    if cell_len(text) > width:
        assert text.endswith(cut.split("…")[1].rstrip() or text[-1:])
        assert text.startswith(cut.split("…")[0])


# of which pass numbers and checks are


async def test_each_pass_has_its_own_numbers_and_checks() -> None:
    engine = FakeEngine()
    async with running((160, 45), engine) as (app, pilot):
        await go(app, pilot, PATTERN)
        assert "checks" not in drawn(app, WhyPane)  # of one pass there is nothing to say
        await press(pilot, "g", "g")
        assert "checks, worst of 3 passes" in drawn(app, WhyPane)
        await press(pilot, "left_curly_bracket")
        assert "11 tokens in pass 2" in drawn(app, WhyPane)
        assert "checks of pass @2" in drawn(app, WhyPane)
        assert "off by 3.0e-08" in drawn(app, WhyPane)
        await press(pilot, "left_curly_bracket")
        assert "11 tokens in pass 1" in drawn(app, WhyPane)
        assert "off by 2.0e-08" in drawn(app, WhyPane)
        await go(app, pilot, "logits")
        assert "over 64 tokens in pass 1" in drawn(app, WhyPane)
        assert [params["at"] for params in asked(engine, "checks") if "at" in params][:2] == [2, 1]


# around them


async def test_without_a_model_nothing_is_offered_that_needs_one() -> None:
    engine = FakeEngine()
    async with running((160, 45), engine) as (app, pilot):
        await go(app, pilot, "logits")
        assert "g token" in drawn(app, KeyLine)
    request = {"file": "lecture.trace.safetensors"}
    async with running((160, 45), FakeEngine(), request=request) as (app, pilot):
        await go(app, pilot, "logits")
        for hint in ("g token", "G run", "x sampling", "Enter take it"):
            assert hint not in drawn(app, KeyLine)
        assert "↑↓ candidate" in drawn(app, KeyLine)


async def test_a_file_with_its_model_keeps_its_name_in_the_header() -> None:
    request = {"file": "talks/lecture.trace.safetensors", "model": "modern"}
    async with running((80, 24), request=request) as (app, _):
        assert "modern · lecture.trace.safetensors" in drawn(app, HeaderLine)


async def test_keys_that_come_too_early_are_refused_and_not_swallowed() -> None:
    from fake_engine import MemoryLink

    link = MemoryLink(hold=True)
    async with running(link=lambda: link, wait=False) as (app, pilot):
        await pilot.press("g", "K", "g")
        assert [notice.message for notice in app._notifications] == [
            "g: not yet, there is no trace",
            "K: not yet, there is no trace",
        ]
        link.release()
        await settled(pilot)
        await press(pilot, "g")
        assert len(main_of(app).here[0].passes) == 2


@pytest.mark.parametrize(("site", "section"), [("logits", "Generate"), (PATTERN, "Walk")])
async def test_the_help_has_the_keys_of_what_is_looked_at_before_the_others(site: str, section: str) -> None:
    async with running((80, 24)) as (app, pilot):
        await go(app, pilot, site)
        await press(pilot, "question_mark")
        await press(pilot, "tab")
        lines = app.screen.query_one(ManualLines)
        assert text_of(app)[lines.region.y][lines.region.x :].split()[:2] == ["Keys:", section]


async def test_the_help_of_the_cache_view_opens_at_its_keys() -> None:
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "K")
        await press(pilot, "question_mark", "tab")
        assert "Keys: In the cache view" in "\n".join(text_of(app))


async def test_where_there_is_little_room_the_logit_goes_and_the_probability_stays() -> None:
    async with running((50, 24)) as (app, pilot):
        await go(app, pilot, "logits")
        assert "probability" in "\n".join(text_of(app))
        assert re.search(r"\b0\.\d{4}\b", drawn(app, Stage))

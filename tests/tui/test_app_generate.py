"""Generating in the app: a token, a run, another candidate, back, branches, sampling, and walking along the passes."""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

import pytest
from fake_engine import HOSTILE, FakeEngine, MemoryLink
from fake_generation import VOCABULARY, Generation
from helpers import go, main_of, picture, press_fast, running, settled, text_of, until
from rich.cells import cell_len
from textual.pilot import Pilot

from tui.app import LayerstepApp
from tui.screens.branches import BranchScreen
from tui.screens.notice import NoticeScreen
from tui.screens.sampling import SamplingScreen
from tui.state.answers import Branch
from tui.state.branches import rows_of
from tui.state.cursor import Cursor
from tui.state.sampling import Sampling, read, written
from tui.state.trace import Pass, Trace
from tui.widgets.job import JobLine
from tui.widgets.pick_list import PickList
from tui.widgets.timeline import Timeline, layout
from tui.widgets.token_strip import TokenStrip

PATTERN, Q, CACHE = "blocks.0.attn.pattern", "blocks.0.attn.q", "blocks.0.attn.cache_k"
PROMPT = 9
"""Tokens of the prompt that the app opens with."""


def words(app: LayerstepApp) -> list[str]:
    """The labels of the text."""
    return [token.label for token in place(app)[0].line(0)]


def place(app: LayerstepApp) -> tuple[Trace, Cursor]:
    """The trace and the cursor."""
    return main_of(app).here


def told(app: LayerstepApp) -> list[str]:
    """The notices that were said."""
    return [notice.message for notice in app._notifications]


def line_of(app: LayerstepApp, kind: type[Any]) -> str:
    """The lines of a widget of the main screen, as they are drawn."""
    region = main_of(app).query_one(kind).region
    return "\n".join(text_of(app)[region.y : region.bottom])


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


def asked(engine: FakeEngine, method: str) -> list[dict[str, Any]]:
    """The parameters of the requests of one kind."""
    return [params for name, params in engine.asked if name == method]


# tokens and runs


async def test_a_token_is_one_more_pass_and_the_cursor_stands_on_it() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        step = place(app)[1].step
        await press(pilot, "up", "up", "g")
        trace, cursor = place(app)
        assert words(app)[PROMPT:] == ["."]
        assert [(one.start, one.length) for one in trace.passes] == [(0, PROMPT), (PROMPT, 1)]
        assert (cursor.step, cursor.pos, cursor.at) == (step, PROMPT, None)
        assert "[.]" in line_of(app, TokenStrip)
        assert picture(app).plane.size == (PROMPT + 1, PROMPT + 1)  # type: ignore[union-attr]


async def test_no_key_is_lost_however_fast_they_come() -> None:
    async with running() as (app, pilot):
        await press(pilot, *"ggggg", "backspace", "backspace", "g")
        assert words(app)[PROMPT:] == [label(word) for word in (".", " and", ",", " of")]


def label(word: str) -> str:
    return word.replace(" ", "␣")


async def test_a_run_ends_at_its_limit_and_shows_its_text() -> None:
    engine = FakeEngine()
    async with running(link=lambda: MemoryLink(engine, pace=0.1), size=(160, 40)) as (app, pilot):
        main_of(app).sampling = Sampling(tokens=5)
        await press_fast(app, "G")
        await until(pilot, lambda: len(words(app)) >= PROMPT + 3)
        assert "generating  . and," in line_of(app, JobLine)
        assert "3/5  Esc stops" in line_of(app, JobLine)
        await settled(pilot)
        assert len(words(app)) == PROMPT + 5
        assert main_of(app).query_one(JobLine).job is None
        assert asked(engine, "generate") == [{"n": 1}] * 5


@pytest.mark.parametrize("key", ["escape", "G"])
async def test_a_run_is_ended_by_a_key_and_what_it_made_stays(key: str) -> None:
    async with running(link=lambda: MemoryLink(pace=0.03)) as (app, pilot):
        await press_fast(app, "G")
        await until(pilot, lambda: len(words(app)) >= PROMPT + 3)
        begun = asyncio.get_running_loop().time()
        await press_fast(app, key)
        await until(pilot, lambda: not main_of(app).working)
        assert asyncio.get_running_loop().time() - begun < 0.5
        assert PROMPT + 3 <= len(words(app)) <= PROMPT + 5
        assert not main_of(app).working
        await press(pilot, "g")
        assert len(words(app)) <= PROMPT + 6


async def test_a_token_key_ends_the_run_and_makes_one_more() -> None:
    async with running(link=lambda: MemoryLink(pace=0.03)) as (app, pilot):
        await press_fast(app, "G")
        await until(pilot, lambda: len(words(app)) >= PROMPT + 2)
        await press_fast(app, "g")
        await settled(pilot)
        made = len(words(app))
        assert made < PROMPT + 10
        await press(pilot, "backspace")
        assert len(words(app)) == made - 1


async def test_a_run_can_be_walked_through_while_it_goes_on() -> None:
    async with running(link=lambda: MemoryLink(pace=0.03)) as (app, pilot):
        main_of(app).sampling = Sampling(tokens=200)
        await go(app, pilot, PATTERN)
        await press_fast(app, "G")
        await until(pilot, lambda: len(words(app)) >= PROMPT + 2)
        for key in ("right", "up", "up", "up", "up", "up"):
            await press_fast(app, key)
        await until(pilot, lambda: place(app)[1].pos < len(words(app)) - 5 and not app._typed and not app._typing)
        here, length = place(app)[1], len(words(app))
        await until(pilot, lambda: len(words(app)) >= length + 3)
        assert place(app)[1].pos == here.pos  # who looks back is left there
        assert place(app)[0].steps[place(app)[1].step].label == "z"
        await press_fast(app, "escape")
        await settled(pilot)


async def test_a_picture_grows_without_an_empty_frame() -> None:
    async with running() as (app, pilot):
        main_of(app).sampling = Sampling(tokens=6)
        await go(app, pilot, PATTERN)
        view, missing = picture(app), []
        show = view.show

        def spy(plane: Any, cell: Any, block: Any) -> None:
            missing.append(block is None)
            show(plane, cell, block)

        view.show = spy  # type: ignore[method-assign]
        await press(pilot, "G")
        assert len(words(app)) == PROMPT + 6
        assert len(missing) >= 6
        assert not any(missing)


async def test_half_a_character_is_a_label_and_no_text() -> None:
    engine = FakeEngine(going=Generation(halves=True))
    async with running(link=lambda: MemoryLink(engine, pace=0.03)) as (app, pilot):
        main = main_of(app)
        texts: list[str] = []
        show = main._work

        def spy(job: Any) -> None:
            texts.append(job.what if job else "")
            show(job)

        main._work = spy  # type: ignore[method-assign]
        main.sampling = Sampling(tokens=4)
        await press_fast(app, "G")
        await until(pilot, lambda: len(words(app)) == PROMPT + 4)
        await settled(pilot)
        assert words(app)[PROMPT:] == [".", "‹F0·9F›", "‹91·8D›", "␣of"]
        assert not any("\ufffd" in text or "\udcf0" in text for text in texts)
        assert [text for text in texts if text] == [".", ".", ".👍"]  # while the second, third and fourth one run


@pytest.mark.parametrize(
    ("engine", "sampling", "why", "made"),
    [
        (FakeEngine(going=Generation(ends=PROMPT + 3)), Sampling(), "stopped: end token <|eos|>", 3),
        (FakeEngine(n_ctx=PROMPT + 2), Sampling(), "stopped: context", 2),
        (FakeEngine(), Sampling(stop=", of"), "stopped: stop string", 4),
    ],
)
async def test_why_a_run_ended_is_said(engine: FakeEngine, sampling: Sampling, why: str, made: int) -> None:
    async with running(engine=engine) as (app, pilot):
        main_of(app).sampling = sampling
        await press(pilot, "G")
        assert why in line_of(app, Timeline)  # and not in a notice over the candidates
        assert not told(app)
        assert len(words(app)) == PROMPT + made
        await press(pilot, "backspace")
        assert "stopped" not in line_of(app, Timeline)


@pytest.mark.parametrize("key", ["g", "G"])
async def test_out_of_memory_at_a_step_is_a_dialog_and_the_trace_so_far_stays(key: str) -> None:
    line = "out of memory [/]; shorten the prompt or keep less \x1b[31m"
    engine = FakeEngine(going=Generation(fails={PROMPT + 2: ("OutOfMemory", line)}))
    async with running(engine=engine) as (app, pilot):
        await go(app, pilot, PATTERN)
        await press(pilot, *(key * 3))
        assert isinstance(app.screen, NoticeScreen)
        shown = "\n".join(text_of(app))
        assert "out of memory [/]" in shown
        assert ("stopped after 2 tokens" if key == "G" else "could not generate") in shown
        await press(pilot, "escape")
        assert len(words(app)) == PROMPT + 2
        await press(pilot, "right", "left", "up", "s")  # it can be walked and saved
        await press(pilot, "enter")
        assert asked(engine, "save")
        engine.going.fails.clear()
        await press(pilot, "g")
        assert len(words(app)) == PROMPT + 3


async def test_keys_that_wait_behind_a_failing_token_say_nothing_more() -> None:
    engine = FakeEngine(going=Generation(fails={PROMPT + 1: ("OutOfMemory", "out of memory")}))
    async with running(engine=engine) as (app, pilot):
        for key in "ggggg":
            await press_fast(app, key)
        await settled(pilot)
        assert len(words(app)) == PROMPT + 1
        assert len(app.screen_stack) == 2
        await press(pilot, "escape")
        assert app.screen is main_of(app)


async def test_a_slow_change_says_what_is_done_and_can_be_stopped() -> None:
    link = MemoryLink()
    async with running(link=lambda: link) as (app, pilot):
        link.hold = True
        await press_fast(app, "g")
        await until(pilot, lambda: main_of(app).query_one(JobLine).job is not None)
        assert "generating" in line_of(app, JobLine)
        assert "Esc stops" in line_of(app, JobLine)
        link.release()
        await settled(pilot)
        assert main_of(app).query_one(JobLine).job is None


async def test_a_model_that_cannot_go_on_says_so() -> None:
    async with running(engine=FakeEngine(mask=2)) as (app, pilot):
        await press(pilot, "g")
        assert "looks both ways" in " ".join(text_of(app))


async def test_an_engine_that_dies_mid_run_leaves_the_trace_to_look_at() -> None:
    engine = FakeEngine(die_on="crop")
    links = [MemoryLink(engine), MemoryLink(FakeEngine())]
    async with running(link=lambda: links.pop(0)) as (app, pilot):
        await press(pilot, "g", "g", "backspace")
        assert "the engine ended" in "\n".join(text_of(app))
        await press(pilot, "escape", "g")
        assert told(app) == ["the engine is not running; press E to start it again"]
        assert len(words(app)) == PROMPT + 2
        await press(pilot, "E")
        await press(pilot, "g")
        assert len(words(app)) == PROMPT + 1


async def test_another_prompt_ends_the_run_and_no_token_of_it_comes_late() -> None:
    engine = FakeEngine()
    async with running(link=lambda: MemoryLink(engine, pace=0.03)) as (app, pilot):
        await press_fast(app, "G")
        await until(pilot, lambda: len(words(app)) >= PROMPT + 2)
        main_of(app).open({"model": "modern", "prompt": "another one"})
        await until(pilot, lambda: words(app)[1:] == ["another", "␣one"])
        await settled(pilot)
        await pilot.pause(0.1)
        assert words(app)[1:] == ["another", "␣one"]
        assert engine.tokens == ["<|bos|>", "another", " one"]


async def test_an_answer_for_the_trace_before_is_dropped() -> None:
    link = MemoryLink()
    async with running(link=lambda: link) as (app, pilot):
        await go(app, pilot, PATTERN)
        main = main_of(app)
        link.hold = True
        await pilot.press("h")  # a window is asked for, and then the trace changes
        await pilot.press("g")
        await pilot.pause(0.05)
        assert [request["method"] for request in link._queue][-1] == "generate"
        link.release()
        await settled(pilot)
        assert len(words(app)) == PROMPT + 1
        late = {"id": main.client._last_id, "run": main.client.looked_at - 1, "ok": True, "result": {"rows": []}}
        dropped = main.client.dropped
        main.client._received(late, b"")
        assert main.client.dropped == dropped + 1


async def test_nothing_is_asked_for_a_trace_that_another_one_is_about_to_replace() -> None:
    engine = FakeEngine()
    link = MemoryLink(engine)
    crop = engine._crop

    def held(params: dict[str, Any]) -> dict[str, Any]:
        link.hold = True  # the shorter trace is here, but none of its numbers
        return crop(params)

    engine._crop = held  # type: ignore[method-assign]
    async with running(link=lambda: link) as (app, pilot):
        await press(pilot, "g", "g", "up", "up")
        for key in ("backspace", "down", "down"):
            await press_fast(app, key)
        await until(pilot, lambda: link.hold and place(app)[1].pos == PROMPT + 1)
        assert len(words(app)) == PROMPT + 2
        assert not [request for request in link._queue if f"p={PROMPT + 1}]" in str(request["params"])]
        link.release()
        await settled(pilot)
        assert len(words(app)) == PROMPT + 1
        assert place(app)[1].pos == PROMPT
        assert main_of(app).trouble == ""


async def test_esc_drops_the_keys_that_wait() -> None:
    links = [MemoryLink()]
    async with running(link=lambda: links[0]) as (app, pilot):
        links[0].hold = True
        await pilot.press("g", "g", "g", "escape")
        assert "stopping" in line_of(app, JobLine)
        links[0].release()
        await settled(pilot)
        assert len(words(app)) <= PROMPT + 1
        assert not main_of(app).working


# other candidates


async def test_enter_on_a_candidate_takes_it_at_the_cursors_position() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (app, pilot):
        await press(pilot, "g", "g", "g")
        await go(app, pilot, "logits")
        await press(pilot, "comma", "comma", "down", "down", "enter")
        assert asked(engine, "branch") == [{"pos": PROMPT + 1, "id": 13 + 3}]
        assert words(app)[PROMPT:] == [".", label(VOCABULARY[3])]
        assert place(app)[1].pos == PROMPT + 1
        assert len(engine.branches) == 2


async def test_at_the_last_position_the_candidate_is_forced() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, "probs")
        await press(pilot, "down", "enter")
        assert words(app)[PROMPT:] == ["␣and"]
        await press(pilot, "enter")
        assert words(app)[PROMPT:] == ["␣and", "␣and"]  # the likeliest there is the row that is marked


async def test_in_one_pass_the_candidate_is_for_its_position_in_the_text() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (app, pilot):
        await press(pilot, "g", "g", "g")
        await go(app, pilot, "logits")
        await press(pilot, "left_curly_bracket", "left_curly_bracket", "left_curly_bracket", "down", "enter")
        assert asked(engine, "branch")[0]["pos"] == PROMPT + 1


async def test_what_follows_already_is_not_branched_off() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (app, pilot):
        await press(pilot, "g")
        await go(app, pilot, "logits")
        await press(pilot, "comma", "enter")
        assert told(app) == ["the text goes on with . already"]
        assert not asked(engine, "branch")


async def test_the_marked_row_is_the_likeliest_whatever_its_id() -> None:
    engine = FakeEngine()
    ranked = engine.ranked
    engine.ranked = lambda pos: [*ranked(pos), (0, "!", 0.001)]  # type: ignore[method-assign]
    async with running(engine=engine) as (app, pilot):
        await go(app, pilot, "logits")
        assert picture(app).cell == (0, 0)
        await press(pilot, "enter")
        assert asked(engine, "branch") == [{"pos": PROMPT, "id": 13}]


async def test_enter_elsewhere_says_where_it_does_something() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        await press(pilot, "enter")
        assert "at logits or probs" in told(app)[0]


# back, and the branches


async def test_backspace_goes_a_pass_back_and_not_behind_the_prompt() -> None:
    async with running() as (app, pilot):
        await press(pilot, "g", "g", "backspace")
        assert words(app)[PROMPT:] == ["."]
        assert place(app)[1].pos == PROMPT
        await press(pilot, "backspace", "backspace")
        assert words(app)[PROMPT:] == []
        assert told(app) == ["this is the first pass; p changes the prompt"]
        assert not main_of(app).query_one(Timeline).display


async def test_the_branches_are_a_tree_and_enter_switches() -> None:
    async with running(size=(80, 24)) as (app, pilot):
        await press(pilot, "g", "g", "g")
        await go(app, pilot, "logits")
        await press(pilot, "comma", "comma", "down", "enter", "g", "u")
        assert isinstance(app.screen, BranchScreen)
        rows = [(choice.text, choice.note.split()) for choice in app.screen.query_one(PickList).choices]
        assert rows[0][0].startswith("○ <|bos|>The server")
        assert rows[0][1] == ["0", str(PROMPT + 3), "–"]
        assert rows[1] == ("└ ● ,,", [str(PROMPT + 1), str(PROMPT + 3), "-1.4"])
        assert {cell_len(line) for line in text_of(app)} == {80}
        await press(pilot, "up", "enter")
        assert words(app)[PROMPT:] == [".", "␣and", ","]
        assert place(app)[1].pos == PROMPT + 2
        await press(pilot, "u", "enter")  # the one that is looked at: nothing happens
        assert words(app)[PROMPT:] == [".", "␣and", ","]


async def test_a_narrow_table_of_branches_shows_fewer_figures_and_those_whole() -> None:
    async with running(size=(40, 20)) as (app, pilot):
        await press(pilot, "g", "g", "g")
        await go(app, pilot, "logits")
        await press(pilot, "comma", "comma", "down", "enter", "u")
        table = "\n".join(text_of(app))
        assert "  from    log p  │" in table
        assert re.search(rf"└ ● , +{PROMPT + 1} +-0\.\d  │", table)
        await pilot.resize_terminal(80, 20)
        await until(pilot, lambda: " from  tokens    log p " in "\n".join(text_of(app)))


def test_branches_stand_under_the_one_they_leave_in_the_order_of_where_they_leave_it() -> None:
    def branch(number: int, parent: int | None, pos: int) -> Branch:
        return Branch(number, parent, pos, "", f"text {number}", 9, None)

    rows = rows_of([branch(0, None, 0), branch(1, 0, 7), branch(2, 0, 5), branch(3, 2, 6), branch(4, 2, 8)])
    assert [f"{row.lead}{row.branch.branch}" for row in rows] == ["0", "├ 2", "│ ├ 3", "│ └ 4", "└ 1"]
    odd = rows_of([branch(0, 0, 0), branch(1, 7, 3)])  # its own parent, and one that is not there
    assert [f"{row.lead}{row.branch.branch}" for row in odd] == ["0", "1"]


# how tokens are chosen


async def fill(app: LayerstepApp, pilot: Pilot[None], **texts: str) -> None:
    """Open the form, type into fields and press Enter."""
    await pilot.press("x")
    await until(pilot, lambda: isinstance(app.screen, SamplingScreen) and app.screen.is_mounted)
    for name, text in texts.items():
        app.screen.query_one(f"#field-{name}").value = text  # type: ignore[attr-defined]
    await pilot.press("enter")
    await until(pilot, lambda: not len(app.screen.workers))
    await pilot.pause()


async def test_sampling_is_sent_with_each_token_and_shown_in_the_header() -> None:
    engine = FakeEngine()
    async with running(engine=engine, size=(80, 24)) as (app, pilot):
        await fill(app, pilot, temperature="0.8", top_k="40", seed="7", stop=r"\n", tokens="2")
        await press(pilot, "G")
        chosen = {"temperature": 0.8, "top_k": 40, "seed": 7, "stop": ["\n"]}
        assert asked(engine, "generate") == [{"n": 0, **chosen}, {"n": 1, **chosen}, {"n": 1, **chosen}]
        assert text_of(app)[0].endswith("T 0.8 k 40 · step 1/45 ")
        await fill(app, pilot, temperature="", top_k="", seed="", stop="")
        await press(pilot, "g")
        assert asked(engine, "generate")[-1] == {"n": 1}
        assert text_of(app)[0].endswith("float32          step 1/45 ")


async def test_in_a_narrow_header_the_step_stays_whole() -> None:
    async with running(size=(40, 12)) as (app, pilot):
        main_of(app).sampling = Sampling(0.8, 40, 0.9, 0.05, 1.1)
        main_of(app).show_all()
        await settled(pilot)
        assert text_of(app)[0].endswith(" T 0.8 k 40 p … · step 1/45 ")


async def test_every_field_can_be_reached_in_a_low_terminal() -> None:
    async with running(size=(60, 10)) as (app, pilot):
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, SamplingScreen) and app.focused is not None)
        await pilot.press("up", "5")
        await pilot.pause()
        assert re.search(r"tokens a run +5", "\n".join(text_of(app)))
        await press(pilot, "enter")
        assert main_of(app).sampling.tokens == 5


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ({"temperature": "warm"}, "temperature: 'warm' is no number"),
        ({"temperature": "1", "top_k": "2.5"}, "top-k: '2.5' is no whole number"),
        ({"temperature": "1", "top_p": "7"}, "top_p must be a number from 0"),
        ({"temperature": "-1"}, "temperature must be a number from 0"),
        ({"top_k": "40"}, "top-k does nothing while the likeliest is always taken"),
        ({"tokens": "0"}, "tokens a run: at least 1"),
        ({"tokens": "many"}, "tokens a run: 'many' is no whole number"),
    ],
)
async def test_what_is_out_of_range_is_said_and_the_form_stays(texts: dict[str, str], line: str) -> None:
    async with running(size=(80, 24)) as (app, pilot):
        await fill(app, pilot, **texts)
        assert isinstance(app.screen, SamplingScreen)
        assert line in "\n".join(text_of(app))
        await press(pilot, "escape")
        assert main_of(app).sampling == Sampling()


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(0.75, 40, 0.9, 0.05, 1.1, 7, "\n", 5), Sampling(temperature=0.0), Sampling(stop="the end")],
)
def test_the_form_gives_back_what_it_was_opened_with(sampling: Sampling) -> None:
    assert read(written(sampling)) == (sampling, "")
    assert read({}) == (Sampling(), "")


async def test_the_form_is_walked_by_arrows_and_by_tab() -> None:
    async with running() as (app, pilot):
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, SamplingScreen) and app.focused is not None)
        await pilot.press("1", "down", "5", "tab", "0", "full_stop", "9", "up", "shift+tab", "end", "full_stop", "5")
        await pilot.press("enter")
        await settled(pilot)
        assert main_of(app).sampling == Sampling(temperature=1.5, top_k=5, top_p=0.9)


# along the passes


async def test_passes_are_walked_one_by_one_and_then_all_together() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (app, pilot):
        await go(app, pilot, Q)
        await press(pilot, "left_curly_bracket")
        assert told(app) == ["there is one pass; g adds one of one token"]
        assert not main_of(app).query_one(Timeline).display
        await press(pilot, "g", "g")
        assert picture(app).plane.size[0] == PROMPT + 2  # type: ignore[union-attr]
        assert "all 3 passes · 11 positions" in line_of(app, Timeline)
        await press(pilot, "left_curly_bracket")
        assert picture(app).plane.size[0] == 1  # type: ignore[union-attr]
        assert asked(engine, "window")[-1]["address"] == f"{Q}[b=0,p=0:1,h=0,d=0:8]@2"
        assert "pass @2 · ␣and · 1 ms" in line_of(app, Timeline)
        await press(pilot, *["left_curly_bracket"] * 5)
        assert place(app)[1].at == 0
        assert place(app)[1].pos == PROMPT - 1
        assert "pass @0 · 9 positions" in line_of(app, Timeline)
        await press(pilot, *["right_curly_bracket"] * 5)
        assert place(app)[1].at is None


async def test_keys_and_queries_of_a_pass_are_labelled_with_their_places_in_the_text() -> None:
    engine = FakeEngine(window=4)
    async with running(engine=engine) as (app, pilot):
        await press(pilot, "g", "g", "g", "left_curly_bracket")
        for site, keys in ((PATTERN, PROMPT + 3), ("blocks.1.attn.pattern", 4)):
            await go(app, pilot, site)
            plane = picture(app).plane
            assert plane is not None
            assert plane.size == (1, keys)
            assert plane.label("query", 0) == words(app)[-1]
            assert [plane.label("key", n) for n in range(keys)] == words(app)[-keys:]
            block = main_of(app).session.known(plane)
            assert block is not None
            here = {"batch": 0, "head": 0, "query": PROMPT + 2}
            whole = [engine.value(site, {**here, "key": key}) for key in range(PROMPT + 3)]
            assert block.line(0, 0, keys) == pytest.approx(whole[-keys:])
        assert f"key {words(app)[-1]} ({PROMPT + 2})" in "\n".join(text_of(app))


async def test_who_looks_at_one_pass_looks_at_the_newest_after_a_token() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, Q)
        await press(pilot, "g", "g", "left_curly_bracket", "left_curly_bracket", "g")
        assert place(app)[1].at == 3
        await press(pilot, "backspace")
        assert place(app)[1].at == 2


async def test_a_token_of_another_pass_brings_its_pass_along() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, Q)
        await press(pilot, "g", "g", "left_curly_bracket")
        main_of(app).go_to_token(3)
        await settled(pilot)
        assert (place(app)[1].at, place(app)[1].pos) == (0, 3)


async def test_an_address_names_a_pass_or_all_of_them() -> None:
    async with running() as (app, pilot):
        await press(pilot, "g", "g")
        main = main_of(app)
        trace = place(app)[0]
        assert main.go_to_address(f"{PATTERN}[h=1]@2") == ""
        assert str(place(app)[1].address(trace)) == f"{PATTERN}[b=0,h=1,q=0,k=10]@2"
        assert main.go_to_address(f"{PATTERN}[q=4]") == ""
        assert str(place(app)[1].address(trace)) == f"{PATTERN}[b=0,h=1,q=4,k=4]"
        assert main.go_to_address(f"{PATTERN}@3") == f"{PATTERN}@3: there is no pass 3; write @0 … @2"
        assert "query 1 is outside 0…0" in main.go_to_address(f"{PATTERN}[q=1]@1")


async def test_a_mark_of_the_timeline_can_be_clicked() -> None:
    async with running(size=(80, 24)) as (app, pilot):
        await press(pilot, "g", "g", "g")
        line = line_of(app, Timeline)
        column = line.rindex("▆")
        await pilot.click(Timeline, offset=(column, 0))
        await settled(pilot)
        assert place(app)[1].at == 3
        await pilot.click(Timeline, offset=(line.index("▆") + 4, 0))
        await settled(pilot)
        assert place(app)[1].at == 0


def grown(tokens: int) -> FakeEngine:
    """An engine whose trace has passes of generated tokens as soon as it is open, as a saved one may have."""
    engine = FakeEngine()
    opened = engine._open

    def longer(params: dict[str, Any]) -> dict[str, Any]:
        opened(params)
        return engine._generate({"n": tokens})

    engine._open = longer  # type: ignore[method-assign]
    return engine


@pytest.mark.parametrize(
    ("lengths", "at", "room", "shown"),
    [
        ([9, 1, 1, 1], 3, 40, (0, [9, 1, 1, 1], 1)),
        ([9, 1, 1, 1], 3, 12, (0, [5, 1, 1, 1], 1)),
        ([9, 1, 1, 1], 3, 10, (0, [3, 1, 1, 1], 1)),
        ([9, 1, 1, 1], 3, 6, (0, [2, 1, 1, 1], 0)),
        ([9, 1, 1, 1], 3, 3, (1, [1, 1, 1], 0)),
        ([400, 1, 30, 1], 0, 20, (0, [11, 1, 2, 1], 1)),
        ([4] + [1] * 90, 50, 11, (45, [1] * 11, 0)),
        ([4] + [1] * 90, 0, 11, (0, [2] + [1] * 8, 0)),
        ([4] + [1] * 90, 90, 11, (80, [1] * 11, 0)),
        ([4, 1], 1, 0, (1, [], 0)),
    ],
)
def test_a_line_has_the_passes_by_their_length_while_there_is_room(
    lengths: list[int], at: int, room: int, shown: tuple[int, list[int], int]
) -> None:
    first, sizes, gap = layout([Pass(sum(lengths[:n]), length) for n, length in enumerate(lengths)], at, room)
    assert (first, sizes, gap) == shown
    cells = sum(size + (gap or int(size > 1)) for size in sizes)
    assert cells <= max(room, 0) + 1  # the gap after the last one may hang over


# rough weather


@pytest.mark.parametrize("seed", range(3))
async def test_keys_and_resizes_in_any_order_while_it_generates(seed: int) -> None:
    dice = random.Random(seed)
    keys = ["g", "G", "escape", "enter", "backspace", "left_curly_bracket", "right_curly_bracket", "up", "right", "end"]
    keys += ["full_stop", "v", "h", "u", "x", "left_square_bracket"]
    engine = FakeEngine(hostile=seed == 1, window=4, n_ctx=60, going=Generation(halves=seed == 2))
    engine.going.fails[PROMPT + 9] = ("OutOfMemory", "out of memory")
    async with running(size=(90, 28), engine=engine) as (app, pilot):
        main = main_of(app)
        for _ in range(8):
            for key in dice.choices(keys, k=12):
                await press_fast(app, key)
            if dice.random() < 0.5:
                await pilot.resize_terminal(dice.randrange(1, 160), dice.randrange(1, 50))
            await pilot.pause(0.02)
            assert app._exception is None
        await pilot.resize_terminal(100, 30)
        for _ in range(4):
            await press(pilot, "escape")
        assert app.screen is main
        assert [token.label for token in place(app)[0].line(0)] == [
            engine._token(n, text)["label"] for n, text in enumerate(engine.tokens)
        ]
        assert {cell_len(line) for line in text_of(app)} == {100}
        await press(pilot, "end")


async def test_hostile_tokens_are_shown_and_harmless() -> None:
    async with running(size=(160, 50), engine=FakeEngine(hostile=True)) as (app, pilot):
        main_of(app).sampling = Sampling(tokens=len(HOSTILE))
        await press(pilot, "G")
        await go(app, pilot, "logits")
        await press(pilot, "comma", "comma", "down", "enter", "g", "u")
        shown = text_of(app)
        await press(pilot, "escape", *["left_curly_bracket"] * 2)
        for line in shown + text_of(app):
            assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or char in "\u202e\u200b" for char in line)


@pytest.mark.parametrize("size", [(40, 10), (60, 20), (80, 24), (160, 45), (250, 60)])
async def test_the_passes_fit_at_every_size_and_are_told_apart_without_colour(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running(size=size, engine=grown(90)) as (app, pilot):
        assert len(place(app)[0].passes) == 91
        assert place(app)[1].at is None
        await until(pilot, lambda: bool(line_of(app, Timeline)))
        line = line_of(app, Timeline)
        assert cell_len(line) == size[0]
        assert "▂" not in line
        await press(pilot, *["left_curly_bracket"] * 4)
        line = line_of(app, Timeline)
        assert line.count("▆") == 1
        assert "@87" in line
        assert {cell_len(row) for row in text_of(app)} == {size[0]}


async def test_what_is_typed_is_seen_in_the_ranking_at_once_and_esc_takes_it_back() -> None:
    async with running(size=(120, 40)) as (app, pilot):
        await go(app, pilot, "logits")
        assert "drawn from" not in "\n".join(text_of(app))
        await pilot.press("x", *"0.5", "tab", "2")
        await until(pilot, lambda: main_of(app).sampling == Sampling(temperature=0.5, top_k=2))
        await until(pilot, lambda: "drawn from" in "\n".join(text_of(app)))
        assert isinstance(app.screen, SamplingScreen)
        await pilot.press("escape")
        await settled(pilot)
        assert main_of(app).sampling == Sampling()
        assert "drawn from" not in "\n".join(text_of(app))

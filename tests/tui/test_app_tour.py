"""Tours in the app: the guided walk, and the offer of it at the first start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers import go, main_of, running, settled, text_of, until
from textual.pilot import Pilot
from textual.widgets import Input

from engine.markdown import parse
from engine.tours import FIRST, quoted
from tui.app import PROMPT, LayerstepApp
from tui.link import ProcessLink
from tui.render.prose import lines_of
from tui.screens.help import HelpScreen
from tui.screens.notice import NoticeScreen
from tui.screens.offer import OfferScreen
from tui.settings import Settings
from tui.state.remembered import Remembered, recall, remember
from tui.tours import read_tour
from tui.widgets.tour import TourPanel

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "models" / "modern" / "model.safetensors"
HEAD = f'title = "A tour"\nmodel = "modern"\nprompt = "{PROMPT}"\n'
STOP = '[[stop]]\ntitle = "Begin"\naddress = "tokens[p=2]"\nview = "tokens"\nnarration = "Here."\n'
PATTERN = "blocks.0.attn.pattern[b=0,h=1,q=7,k=6]"
THREE = f"""{HEAD}{STOP}
[[stop]]
title = "Look"
address = "{PATTERN}"
view = "arcs"
narration = "It is **{{value:{PATTERN}}}**, so `was` looks. Press {{key:help}}."
question = "And the first token?"
answer = "{{value:{PATTERN.replace("q=7,k=6", "q=7,k=0")}}} of it."
[[stop]]
title = "End"
address = "logits[p=8,v=16]"
view = "row"
narration = "Over."
"""


def tour_file(folder: Path, text: str) -> Path:
    path = folder / "tour.toml"
    path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------------ the words


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["one two", "three"]),
        ("a\nb\n\nc", ["a b", "c"]),
        ("**bold words** and *so*", ["bold", "words and", "so"]),
        ("`x`, (**y**).", ["“x”, (y)."]),
        ("2 * 3 * 4 ** 5", ["2 * 3 * 4", "** 5"]),
        ("abcdefghijklm no", ["abcdefghi", "jklm no"]),
        ("漢字漢字漢字", ["漢字漢字", "漢字"]),
        ("- a b c d\n- e", ["• a b c d", "• e"]),
        ("1. abc def\n2. g", ["1. abc", "   def", "2. g"]),
        ("```\nx  y\n```", ["x  y"]),
        ("<b>a</b>", ["<b>a</b>"]),
        ("", []),
    ],
)
def test_markdown_is_set_in_lines(text: str, lines: list[str]) -> None:
    shown = ["".join(piece for piece, _ in line) for line in lines_of(parse(text), 9)]
    assert shown == lines


def test_what_is_set_in_another_way_says_so() -> None:
    (line,) = lines_of(parse("a **b c** `d` *e*"), 40)
    kinds = {text: kind for text, kind in line if text.strip()}
    assert kinds == {"a": "", "b": "strong", "c": "strong", "“d”": "code", "e": "em"}


# ------------------------------------------------------------------------------------------------------ the walk


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


async def begun(app: LayerstepApp, pilot: Pilot[None], folder: Path, text: str = THREE) -> None:
    main_of(app).play_tour(read_tour(tour_file(folder, text)))
    await settled(pilot)


def panel(app: LayerstepApp) -> str:
    """The panel's text; '' where no tour is played."""
    found = [one for one in main_of(app).query(TourPanel) if one.display]
    if not found:
        return ""
    region = found[0].region
    return "\n".join(line[region.x : region.right] for line in text_of(app)[region.y : region.bottom])


def words(app: LayerstepApp) -> str:
    """The panel's words on one line, without its frame."""
    return " ".join(panel(app).replace("│", " ").split())


def here(app: LayerstepApp) -> tuple[str, str]:
    main = main_of(app)
    assert main.view is not None
    trace, cursor = main.here
    return str(cursor.address(trace)), main.view.name


async def test_it_leads_from_stop_to_stop_and_ends(tmp_path: Path) -> None:
    async with running((80, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path)
        assert "─ A tour · Begin ─" in panel(app)
        assert "─ 1 of 3 ─" in panel(app)
        assert "→/Enter next · Esc leaves" in panel(app)
        assert here(app) == ("tokens[b=0,p=2]@0", "tokens")
        await press(pilot, "right")
        assert here(app) == (f"{PATTERN}@0", "arcs")
        value = (await main_of(app).client.request("window", address=PATTERN)).values[0]
        assert f"It is {quoted(value)}, so “was” looks. Press ?." in words(app)
        await press(pilot, "left")
        assert here(app)[0] == "tokens[b=0,p=2]@0"
        await press(pilot, "left")
        assert "1 of 3" in panel(app)
        await press(pilot, "right", "right")
        assert here(app) == ("logits[b=0,p=8,v=16]@0", "row")
        assert "→/Enter ends · ← back · Esc leaves" in panel(app)
        await press(pilot, "enter")
        assert panel(app) == ""
        assert here(app)[0] == "logits[b=0,p=8,v=16]@0"
        await press(pilot, "left")  # a step of the pass again
        assert here(app)[0].startswith("ln_final.normalized")


async def test_an_answer_is_hidden_until_it_is_asked_for(tmp_path: Path) -> None:
    async with running((80, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path)
        await press(pilot, "right")
        assert "? And the first token?" in words(app)
        assert "of it." not in panel(app)
        assert "Enter answer · → next" in panel(app)
        await press(pilot, "enter")
        value = (await main_of(app).client.request("window", address=PATTERN.replace("k=6", "k=0"))).values[0]
        assert f"→ {quoted(value)} of it." in words(app)
        assert "2 of 3" in panel(app)
        await press(pilot, "enter")
        assert "3 of 3" in panel(app)


async def test_one_may_wander_and_come_back(tmp_path: Path) -> None:
    async with running((80, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path)
        await press(pilot, "right", "right_square_bracket", "h")
        elsewhere = PATTERN.replace("blocks.0", "blocks.1").replace("h=1", "h=2") + "@0"
        assert here(app)[0] == elsewhere
        assert "Enter answer · → next" in panel(app)
        await press(pilot, "enter")
        assert "of it." in words(app)
        assert here(app)[0] == elsewhere  # the answer stands beside what one went to see for it
        assert "Enter comes back · → next" in panel(app)
        await press(pilot, "enter")
        assert here(app) == (f"{PATTERN}@0", "arcs")
        await press(pilot, "v")
        assert "Enter comes back" in panel(app)
        await press(pilot, "enter")
        assert here(app) == (f"{PATTERN}@0", "arcs")
        await press(pilot, "question_mark")
        assert isinstance(app.screen, HelpScreen)
        await press(pilot, "escape")
        assert "2 of 3" in panel(app)
        await press(pilot, "h", "right")
        assert "3 of 3" in panel(app)


async def test_escape_leaves_and_the_place_stays(tmp_path: Path) -> None:
    async with running((80, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path)
        before = text_of(app)
        await press(pilot, "right", "escape")
        assert panel(app) == ""
        assert here(app)[0] == f"{PATTERN}@0"
        assert len(text_of(app)) == len(before)
        body = main_of(app).query_one("#body")
        assert body.region.bottom >= app.size.height - 4


async def test_it_is_left_and_begun_again_as_fast_as_keys_come(tmp_path: Path) -> None:
    async with running((80, 24)) as (app, pilot):
        tour = read_tour(tour_file(tmp_path, THREE))
        for _ in range(5):
            main_of(app).play_tour(tour)
            main_of(app).leave_tour()
        await settled(pilot)
        assert panel(app) == ""
        main_of(app).play_tour(tour)
        await settled(pilot)
        assert "1 of 3" in panel(app)


async def test_a_click_on_the_panel_leads_on(tmp_path: Path) -> None:
    async with running((80, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path)
        await pilot.click("#tour", offset=(4, 1))
        await settled(pilot)
        assert "2 of 3" in panel(app)


async def test_its_keys_are_those_that_are_set(tmp_path: Path) -> None:
    async with running((80, 24), settings=Settings(keys={"step.next": ("J",), "help": ("F",)})) as (app, pilot):
        await begun(app, pilot, tmp_path)
        assert "J/Enter next" in panel(app)
        await press(pilot, "J")
        assert "2 of 3" in panel(app)
        assert "Press F." in words(app)


async def test_another_prompt_ends_it(tmp_path: Path) -> None:
    async with running((80, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path)
        main_of(app).open({"model": "modern", "prompt": "dog bites man"})
        await settled(pilot)
        assert panel(app) == ""
        assert main_of(app).playing is None


async def test_a_token_more_does_not(tmp_path: Path) -> None:
    async with running((80, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path)
        await press(pilot, "right", "g")
        assert len(main_of(app).here[0].passes) == 2
        assert "2 of 3" in panel(app)
        await press(pilot, "enter", "enter")
        assert here(app)[0] == PATTERN


async def test_where_something_else_is_open_it_asks_first(tmp_path: Path) -> None:
    async with running((80, 24), request={"model": "modern", "prompt": "dog bites man"}) as (app, pilot):
        await begun(app, pilot, tmp_path)
        assert isinstance(app.screen, NoticeScreen)
        await press(pilot, "escape")
        assert main_of(app).request["prompt"] == "dog bites man"
        await begun(app, pilot, tmp_path)
        assert "Enter walks · Esc closes" in "\n".join(text_of(app))
        await press(pilot, "enter")
        assert main_of(app).request["prompt"] == PROMPT
        assert "1 of 3" in panel(app)


@pytest.mark.parametrize(
    ("stop", "trouble"),
    [
        (STOP.replace("tokens[p=2]", "blocks.7.attn.q"), "there is no site blocks.7.attn.q"),
        (STOP.replace("tokens[p=2]", "tokens[p=99]"), "tokens[p=99]: pos 99 is outside 0…8"),
        (STOP.replace("tokens[p=2]", "tokens@3"), "tokens@3: there is no pass 3"),
        (STOP.replace('"tokens"', '"arcs"'), "tokens[p=2] has no view arcs; it has tokens"),
        (STOP.replace("Here.", "{value:embed[p=1]}"), "embed[p=1] is not one number"),
        (STOP.replace("Here.", "{value:embed[p=1:2,d=0]}"), "embed[p=1:2,d=0] is not one number"),
    ],
)
async def test_one_that_does_not_fit_says_which_stop_and_why(tmp_path: Path, stop: str, trouble: str) -> None:
    async with running((100, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path, HEAD + STOP + stop)
        assert isinstance(app.screen, NoticeScreen)
        assert f"stop 2, Begin: {trouble}" in " ".join(" ".join(text_of(app)).replace("│", " ").split())
        await press(pilot, "escape")
        assert panel(app) == ""


async def test_a_model_that_is_not_there_is_a_dialog(tmp_path: Path) -> None:
    async with running((80, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path, HEAD.replace("modern", "missing") + STOP)
        await press(pilot, "w")
        assert "there is no model" in " ".join(text_of(app))
        await press(pilot, "escape")
        assert panel(app) == ""
        assert main_of(app).trace is not None


async def test_one_is_chosen_from_those_that_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.tours.ROOTS", (tmp_path,))
    for name, title in (("first", "Zeroth"), ("deep", "Alpha"), ("broken", "")):
        (tmp_path / f"{name}.toml").write_text(THREE.replace("A tour", title) if title else "x = 3", encoding="utf-8")
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "W")
        shown = "\n".join(text_of(app))
        order = [shown.index(title) for title in ("Zeroth", "broken", "Alpha", "a file of one's own")]
        assert order == sorted(order)
        assert "is not known" in shown
        await press(pilot, "down", "enter")
        assert isinstance(app.screen, NoticeScreen)
        await press(pilot, "escape", "W", *"alpha", "enter")
        assert "─ Alpha · Begin ─" in panel(app)
        assert main_of(app).tour_file == str(tmp_path / "deep.toml")


async def test_a_file_of_ones_own_is_played(tmp_path: Path) -> None:
    path = tour_file(tmp_path, THREE)
    async with running((80, 24)) as (app, pilot):
        await press(pilot, "W", *["down"] * 99, "enter")
        app.screen.query_one(Input).value = str(tmp_path / "none.toml")
        await press(pilot, "enter")
        assert "there is no file" in " ".join(text_of(app))
        app.screen.query_one(Input).value = str(path)
        await press(pilot, "enter")
        assert "1 of 3" in panel(app)
        assert main_of(app).tour_file == str(path)


async def test_hostile_words_stay_words(tmp_path: Path) -> None:
    text = (HEAD + STOP).replace("A tour", "[/b] \\u001b]0;PWNED\\u0007").replace("Begin", "[bold]漢字\\u202e")
    text = text.replace("Here.", "[/] \\u001b[5;5H `[link=x]` \\u0000 \\u200b")
    async with running((80, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path, text)
        shown = panel(app)
        assert "[/b]" in shown
        assert "“[link=x]”" in shown
        assert all(line.isprintable() for line in shown.split("\n"))
        assert "\u202e" not in shown
        assert "\x1b" not in shown


async def test_it_fits_every_size(tmp_path: Path) -> None:
    long = (HEAD + STOP).replace("Here.", "word " * 400)
    async with running((80, 24)) as (app, pilot):
        await begun(app, pilot, tmp_path, long)
        for size in ((1, 1), (40, 10), (60, 20), (200, 60), (2, 30), (80, 24)):
            await pilot.resize_terminal(*size)
            await settled(pilot)
        assert main_of(app).query_one(TourPanel).region.height <= 12
        assert here(app)[0] == "tokens[b=0,p=2]@0"
        assert main_of(app).query_one("#stage").region.height >= 4


async def test_the_cell_that_is_spoken_of_is_in_sight(tmp_path: Path) -> None:
    text = THREE.replace('"arcs"', '"heatmap"').replace("Over.", "word " * 60)
    async with running((60, 20)) as (app, pilot):
        await begun(app, pilot, tmp_path, text)
        await press(pilot, "right", "enter")
        region = main_of(app).query_one("#stage").region
        rows = text_of(app)[region.y : region.bottom]
        assert any(row.lstrip("│ ").startswith("␣was") for row in rows)


# ------------------------------------------------------------------------------------------------ the first start


@pytest.mark.parametrize(
    ("key", "site"), [("j", "tokens"), ("escape", "tokens"), ("right", "positions"), ("end", "probs")]
)
async def test_the_first_start_offers_it_once_and_any_other_key_does_what_it_does(
    tmp_path: Path, key: str, site: str
) -> None:
    memory = tmp_path / "state" / "session.json"
    async with running((80, 24), memory=memory) as (app, pilot):
        assert isinstance(app.screen, OfferScreen)
        assert "later with W" in " ".join(text_of(app))
        await press(pilot, key)
        await until(pilot, lambda: app.screen is main_of(app) and here(app)[0].startswith(site))
        assert panel(app) == ""
    assert recall(memory)[0].seen
    async with running((80, 24), memory=memory) as (app, pilot):
        assert app.screen is main_of(app)


@pytest.mark.parametrize("key", ["enter", "W"])
async def test_who_wants_it_walks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr("engine.tours.ROOTS", (tmp_path,))
    tour_file(tmp_path, THREE).rename(tmp_path / "first.toml")
    request = {"model": "modern", "prompt": "dog bites man"}
    async with running((80, 24), memory=tmp_path / "session.json", request=request) as (app, pilot):
        await press(pilot, key)
        await until(pilot, lambda: "1 of 3" in panel(app))
        assert main_of(app).request["prompt"] == PROMPT


@pytest.mark.parametrize(
    "more", [{"request": {"file": "lecture.trace.safetensors"}}, {"address": PATTERN}, {"memory": None}]
)
async def test_who_has_other_plans_is_not_asked(tmp_path: Path, more: dict[str, Any]) -> None:
    memory = tmp_path / "session.json"
    async with running((80, 24), **{"memory": memory, **more}) as (app, _):
        assert app.screen is main_of(app)
    assert not recall(memory)[0].seen


async def test_who_was_here_before_is_not_asked(tmp_path: Path) -> None:
    memory = tmp_path / "session.json"
    remember(memory, Remembered(seen=True))
    async with running((80, 24), memory=memory) as (app, _):
        assert app.screen is main_of(app)


# ------------------------------------------------------------------------------------------------- with the engine


SAID = re.compile(r"\{(\w+):([^{}]*)\}|`([^`]+)`|(?<![\w.])(\d+)(?![\w.])")
"""What the walk speaks of: a value, a word, a number."""


def seen(app: LayerstepApp) -> str:
    """The screen without the tour's panel."""
    region = main_of(app).query_one(TourPanel).region
    lines = text_of(app)
    return "\n".join([*lines[: region.y], *lines[region.bottom :]])


def is_seen(value: float, text: str) -> bool:
    """Whether a number is on the screen, with at least two of its digits."""
    found = [float(word) for word in re.findall(r"(?<![\w.])-?\d*\.?\d+(?![\w.])", text)]
    return any(abs(one - value) <= 0.005 * abs(value) for one in found)


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample model is not here")
@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_the_guided_walk_goes_through_and_what_it_says_is_seen(size: tuple[int, int]) -> None:
    tour = read_tour(FIRST)
    async with running(size, link=ProcessLink, wait=False) as (app, pilot):
        await until(pilot, lambda: main_of(app).trace is not None, 60)
        await settled(pilot)
        await go(app, pilot, "logits")
        await press(pilot, "W", "enter")
        for number, stop in enumerate(tour.stops, 1):
            assert f"{number} of {len(tour.stops)}" in panel(app)
            if stop.question:
                await press(pilot, "enter")
            assert here(app) == (f"{stop.address}@0", stop.view)
            assert "…" not in words(app)
            for place in stop.values:
                value = (await main_of(app).client.request("window", address=str(place))).values[0]
                assert quoted(value) in words(app)
                assert is_seen(value, seen(app)), f"{stop.title}: {place} is not seen"
            for _, _, word, digits in SAID.findall(f"{stop.narration} {stop.question} {stop.answer}"):
                assert (word or digits) in seen(app), f"{stop.title}: {word or digits} is not seen"
            await press(pilot, "enter")
        assert panel(app) == ""


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample model is not here")
async def test_the_guided_walk_follows_the_pass_in_ninety_seconds() -> None:
    tour = read_tour(FIRST)
    text = " ".join(f"{stop.narration} {stop.question} {stop.answer}" for stop in tour.stops)
    assert len(text.split()) <= 340
    async with running((80, 24), link=ProcessLink, wait=False) as (app, pilot):
        await until(pilot, lambda: main_of(app).trace is not None, 60)
        trace = main_of(app).here[0]
        steps = [trace.by_site[stop.address.site].index for stop in tour.stops]
    assert steps == sorted(steps)
    assert all(word in text for word in ("norm", "residual stream", "temperature", "KV cache"))

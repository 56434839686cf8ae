"""Tours with a second trace, edits and generated tokens; presenting them, and the notes on a second terminal."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine, MemoryLink
from helpers import has_main, main_of, running, settled, text_of, until
from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as some
from textual.app import App

from engine.tours import quoted
from tui.app import PROMPT
from tui.notes import NotesApp
from tui.state.presented import NAME, Presented, presented, publish, withdraw
from tui.themes import DARK
from tui.tours import read_tour, trouble
from tui.widgets.tour import TourPanel

PATTERN = "blocks.0.attn.pattern[b=0,h=1,q=3,k=2]"
OTHER = "blocks.1.attn.pattern[b=0,h=2,q=3,k=2]"
TEXT = f"""
title = "Two [/]"
model = "modern"
prompt = "{PROMPT}"
edits = ["blocks.0.attn.z = 0"]
generate = 2
[other]
prompt = "The printer crashed because the disk was full"
[[stop]]
title = "Begin"
address = "tokens[b=0,p=2]"
view = "tokens"
narration = \"\"\"
After {{token:tokens[b=0,p=2]}} comes {{top:logits[b=0,p=2]}}, by {{other:{PATTERN}}} or {{value:{PATTERN}}}.

- one
- two
\"\"\"
notes = "Ask *them* first."
[[stop]]
title = "Both"
address = "{PATTERN}"
view = "heatmap"
beside = "{OTHER}"
narration = "See."
question = "Why?"
answer = "Because."
[[stop]]
title = "Alone"
address = "{PATTERN}"
view = "heatmap"
narration = "Over."
"""


def tour_file(folder: Path, text: str = TEXT) -> Path:
    path = folder / "two.toml"
    path.write_text(text, encoding="utf-8")
    return path


async def press(pilot: Any, *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


def shown(app: App[Any]) -> str:
    lines = [strip.text for strip in app.screen._compositor.render_strips()]
    return " ".join(" ".join(line.strip("│ ") for line in lines).split())


# ---------------------------------------------------------------------------------------------- what a tour opens


async def test_it_opens_what_it_says_and_quotes_both_traces(tmp_path: Path) -> None:
    link = MemoryLink()
    async with running((100, 36), link=lambda: link, wait=False, tour=str(tour_file(tmp_path))) as (app, pilot):
        main = main_of(app)
        await until(pilot, lambda: main.playing is not None)
        await settled(pilot)
        first, second = (sent["params"] for sent in link.sent if sent["method"] == "open")
        assert first == {"model": "modern", "prompt": PROMPT, "edits": ["blocks.0.attn.z = 0"], "generate": 2}
        assert second == {**first, "prompt": "The printer crashed because the disk was full", "trace": "other"}
        assert len(main.here[0].passes) == 3
        ask = main.client.request
        mine, its = [(await ask("window", address=PATTERN, **more)).values[0] for more in ({}, {"trace": "other"})]
        likeliest = (await ask("top", address="logits[b=0,p=2]", k=1)).result["rows"][0]["label"]
        assert mine != its
        words = f"After “␣server” comes “{likeliest}”, by {quoted(its)} or {quoted(mine)}. • one • two"
        assert words in shown(app)
        await press(pilot, "right")
        assert main.beside is not None
        assert main.beside.of is main.session.other
        place = main.beside_cursor()
        assert place is not None
        assert str(place[1].address(place[0])).startswith(OTHER)
        await press(pilot, "right")
        assert main.beside is None
        assert main.session.other is not None  # it is needed when one goes back
        await press(pilot, "left")
        assert main.beside is not None
        await press(pilot, "right", "right")
        assert main.playing is None
        assert main.session.other is None


async def test_a_second_trace_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    text = TEXT.replace("[other]\n", '[other]\nmodel = "missing"\n')
    async with running((80, 24)) as (app, pilot):
        main_of(app).play_tour(read_tour(tour_file(tmp_path, text)), sure=True)
        await settled(pilot)
        assert "there is no model 'missing [/]'" in shown(app)
        await press(pilot, "escape")
        assert main_of(app).playing is None


async def test_an_engine_that_ends_ends_it(tmp_path: Path) -> None:
    links = [MemoryLink(), MemoryLink()]
    left = iter(links)
    async with running((80, 24), link=lambda: next(left)) as (app, pilot):
        main_of(app).play_tour(read_tour(tour_file(tmp_path)), sure=True)
        await settled(pilot)
        links[0].die()
        await press(pilot, "E")
        await until(pilot, lambda: main_of(app).playing is None)
        assert main_of(app).client.state == "ready"


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("{other:nowhere[b=0]}", "there is no site nowhere"),
        ("{top:embed[b=0,p=1]}", "tokens are ranked at one position of logits or probs"),
        ("{token:embed[b=0,p=1,d=0]}", "embed[b=0,p=1,d=0] is no token"),
        ("{token:tokens[b=0]}", "tokens[b=0] is no token"),
        ("{value:tokens[b=0,p=1]@7}", "there is no pass 7"),
    ],
)
async def test_what_cannot_be_quoted_is_said_beforehand(mark: str, words: str, tmp_path: Path) -> None:
    tour = read_tour(tour_file(tmp_path, TEXT.replace("See.", mark)))
    async with running((80, 24)) as (app, _):
        trace, _ = main_of(app).here
        wrong = trouble(tour, trace, trace)
        assert words in wrong
        assert bool(wrong) == bool(words)


async def test_words_that_go_on_below_are_read_by_enter_before_the_answer_is_seen(tmp_path: Path) -> None:
    words = " ".join(f"word{n}" for n in range(200))
    text = TEXT.replace("See.", words).replace("Because.", f"{words} Because.")
    async with running((80, 24), address="embed") as (app, pilot):
        main_of(app).play_file(str(tour_file(tmp_path, text)), sure=True)
        await settled(pilot)
        await press(pilot, "right")
        assert "Enter more · → next" in shown(app)
        read = shown(app)
        for _ in range(9):
            if "Enter answer" in shown(app):
                break
            await press(pilot, "enter")
            read += shown(app)
        assert all(f"word{n}" in read for n in range(200))
        assert "? Why?" in shown(app)
        await press(pilot, "enter")
        assert "→ word0 word1" in shown(app)
        while "Enter more" in shown(app):
            await press(pilot, "enter")
        assert "Because." in shown(app)
        await press(pilot, "enter")
        assert "3 of 3" in shown(app)


async def test_what_comes_beside_while_presenting_has_its_title_and_its_chances(tmp_path: Path) -> None:
    text = TEXT.replace("- one", "- one" + " word" * 400)
    text = text.replace('view = "heatmap"\nbeside', 'view = "ranked"\nbeside')
    text = text.replace(f'"{PATTERN}"\nview = "ranked"', '"logits[b=0,p=3]"\nview = "ranked"')
    text = text.replace(f'beside = "{OTHER}"', 'beside = "logits[b=0,p=3]"')
    async with running((80, 24), address="embed") as (app, pilot):
        main_of(app).play_file(str(tour_file(tmp_path, text)), sure=True)
        await settled(pilot)
        await press(pilot, "P")
        await press(pilot, "right")
        top = text_of(app)[2]
        assert "“The server" in top
        assert "“The printer" in top
        assert "id" not in text_of(app)[3].split()
        assert text_of(app)[3].count("probability") == 2


async def test_one_that_cannot_be_read_leaves_an_app_that_works(tmp_path: Path) -> None:
    async with running((80, 24), wait=False, tour=str(tour_file(tmp_path, "x = 3"))) as (app, pilot):
        await until(pilot, lambda: "no such tour" in shown(app))
        await press(pilot, "escape")
        assert "no trace" in shown(app)
        await press(pilot, "p", "a", "enter")
        assert main_of(app).trace is not None


# ------------------------------------------------------------------------------------------------------ presenting


async def test_a_presentation_shows_the_picture_and_the_words_alone(tmp_path: Path) -> None:
    request = {"model": "modern", "prompt": PROMPT}
    options: dict[str, Any] = {"request": request, "tour": str(tour_file(tmp_path)), "present": True, "wait": False}
    async with running((100, 30), **options) as (app, pilot):
        main = main_of(app)
        await until(pilot, lambda: main.playing is not None)
        await settled(pilot)
        lines = text_of(app)
        assert lines[0].split() == ["Two", "[/]", "·", "Begin", "1/3"]
        for name in ("#header", "#tokens", "#keys", "#tree-pane", "#why-pane"):
            assert not main.query_one(name).region.area, name
        assert "next" not in shown(app)
        assert main.query_one(TourPanel).region.bottom == 30
        await press(pilot, "pagedown")  # as a presenter's remote says it
        assert lines[0] != text_of(app)[0]
        assert "Because." not in shown(app)
        await press(pilot, "enter")
        assert "→ Because." in shown(app)
        await press(pilot, "h", "i")  # all keys do what they do
        assert main.query_one("#why-pane").region.area
        await press(pilot, "i", "Z")
        assert shown(app) == ""
        await press(pilot, "right")  # it only brings the screen back
        assert "2/3" in text_of(app)[0]
        await press(pilot, "pageup", "pagedown", "pagedown", "right")
        assert "3/3" in text_of(app)[0]
        assert main.playing is not None
        await press(pilot, "escape")
        assert "layerstep" in text_of(app)[0]
        assert "3 of 3" in shown(app)
        assert main.query_one("#why-pane").region.area
        await press(pilot, "P")
        assert "3/3" in text_of(app)[0]
        for size in ((40, 10), (60, 20), (200, 60), (30, 5), (80, 24)):
            await pilot.resize_terminal(*size)
            await settled(pilot)
            assert {len(line) for line in text_of(app)} == {size[0]}
        assert main.leaving().tree is None


async def test_a_walk_is_presented_without_a_tour() -> None:
    async with running((100, 30)) as (app, pilot):
        await press(pilot, "P", "right")
        assert "positions" in text_of(app)[0]
        assert "2/45" in text_of(app)[0]
        await press(pilot, "Z")
        await pilot.click(offset=(10, 10))
        assert "2/45" in text_of(app)[0]


# ------------------------------------------------------------------------------------------ the second terminal


async def test_the_notes_follow_the_presentation(tmp_path: Path) -> None:
    notes = NotesApp(tmp_path / "state", DARK.name)
    async with notes.run_test(size=(80, 24)) as pilot:
        assert "No presentation runs." in shown(notes)
        mine = Presented(
            os.getpid(), "Two [/]", 3, "two.toml", 5.0, 0, 6.0, "Begin", "Words **bold**.", "Why?", "Because.", False,
            "Ask *them* first.\n\n- and\n- so", "Both",
        )  # fmt: skip
        publish(tmp_path / "state", mine)
        words = "Ask them first. • and • so on the screen Words bold. ? Why? the answer, hidden yet"
        await until_shown(notes, pilot, words)
        assert "Two [/] · 1/3" in shown(notes)
        assert "→ Because. next: Both" in shown(notes)
        publish(tmp_path / "state", replace(mine, at=2, stop="Alone", answered=True, following="", blank=True))
        await until_shown(notes, pilot, "on the screen, which is blank")
        assert "the answer, shown" in shown(notes)
        assert "this is the last stop" in shown(notes)
        other = replace(mine, process=os.getppid(), title="Another", began=1.0)
        publish(tmp_path / "state", other)
        await until_shown(notes, pilot, "presentation 1 of 2")
        assert "Alone" in shown(notes)
        await pilot.press("tab")
        assert "Another · 1/3" in shown(notes)
        withdraw(tmp_path / "state", os.getppid())
        await until_shown(notes, pilot, "Two [/] · 3/3")
        for size in ((10, 3), (1, 1), (200, 60)):
            await pilot.resize_terminal(*size)
        await pilot.press("q")
    assert notes.return_code == 0


async def until_shown(app: App[Any], pilot: Any, words: str) -> None:
    for _ in range(400):
        await pilot.pause(0.02)
        if words in shown(app):
            return
    raise AssertionError(shown(app))


async def test_the_app_tells_what_it_presents_until_it_ends(tmp_path: Path) -> None:
    memory = tmp_path / "state" / "session.json"
    async with running((80, 24), memory=memory, address="embed") as (app, pilot):
        main_of(app).play_file(str(tour_file(tmp_path)), sure=True)
        await settled(pilot)
        (told,) = presented(memory.parent)
        assert (told.title, told.at, told.stops, told.stop, told.following) == ("Two [/]", 0, 3, "Begin", "Both")
        assert told.notes == "Ask *them* first."
        assert "…" not in told.narration
        assert told.file.endswith("two.toml")
        await press(pilot, "right", "enter", "Z")
        (told,) = presented(memory.parent)
        assert (told.at, told.answered, told.blank) == (1, True, True)
        assert told.arrived >= told.began > 1e9
        await press(pilot, "Z", "escape")
        assert presented(memory.parent) == []
        main_of(app).play_file(str(tour_file(tmp_path)), sure=True)
        await settled(pilot)
        assert len(presented(memory.parent)) == 1
    assert presented(memory.parent) == []
    assert list(memory.parent.glob("presenting-*")) == []


NAMES = some.sampled_from([*Presented.__dataclass_fields__, "format", "x"])
VALUES = some.none() | some.booleans() | some.integers() | some.text(max_size=5) | some.floats() | some.just([None])


def changed(values: dict[str, Any]) -> bytes:
    """A file of ours with other values."""
    return json.dumps({**asdict(Presented(os.getpid(), "t", 1)), "format": 1, **values}).encode()


@run_settings(max_examples=60, deadline=None)
@given(some.binary(max_size=80) | some.dictionaries(NAMES, VALUES).map(changed))
def test_whatever_lies_there_is_ours_or_left_out(tmp_path_factory: Any, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("state")
    (folder / NAME.format(os.getpid())).write_bytes(data)
    for shown in presented(folder):
        assert shown.process == os.getpid()
        publish(folder, shown)
        assert presented(folder) == [shown]


async def test_a_presentation_of_a_process_that_has_ended_is_none(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    publish(tmp_path, Presented(process.pid, "Gone", 1))
    assert presented(tmp_path) == []
    assert presented(tmp_path / "nowhere") == []


async def test_a_state_folder_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    engine = FakeEngine()
    async with running((80, 24), engine, memory=tmp_path / "state" / "session.json", address="embed",
                       notifications=True) as (app, pilot):  # fmt: skip
        assert has_main(app)
        main_of(app).play_file(str(tour_file(tmp_path)), sure=True)
        await settled(pilot)
        await press(pilot, "right", "right")
        assert sum("cannot follow" in one.message for one in app._notifications) == 1
        assert "3 of 3" in shown(app)

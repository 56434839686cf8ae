"""The engine's formats from the app: what it is asked for, and that nothing is overwritten or left half written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine, MemoryLink
from helpers import go, main_of, running, settled, text_of, until
from textual.widgets import Input

from engine.export.formats import FORMATS
from tui.screens.ask import AskScreen
from tui.screens.exporting import KINDS
from tui.screens.formats import PICTURE, WHOLE, of_picture
from tui.screens.notice import NoticeScreen
from tui.state.cursor import start
from tui.state.trace import Trace
from tui.state.views import Plane, views_of
from tui.widgets.job import JobLine

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "models" / "modern" / "model.safetensors"
PATTERN = "blocks.1.attn.pattern"


async def ordered(app: Any, pilot: Any, letter: str, path: Path) -> dict[str, Any]:
    """What the engine was asked for by ``e`` and a letter; the fake one writes it to the file."""
    await pilot.press("e", letter)
    await until(pilot, lambda: isinstance(app.screen, AskScreen) and bool(app.screen.query(Input)))
    app.screen.query_one(Input).value = str(path)
    await pilot.press("enter")
    await settled(pilot)
    return dict(json.loads(path.read_text()))


def told(app: Any) -> str:
    return " ".join(" ".join(line.strip("│ ") for line in text_of(app)).split())


def test_every_format_has_its_letter() -> None:
    assert {*PICTURE, "csv"} == {form.name for form in FORMATS.values() if "picture" in form.of}
    assert set(WHOLE) == {form.name for form in FORMATS.values() if "trace" in form.of} - {"cast"}
    letters = [*KINDS, *PICTURE.values(), *WHOLE.values()]
    assert len(set(letters)) == len(letters)


async def test_a_picture_is_ordered_as_it_is_shown(tmp_path: Path) -> None:
    async with running() as (app, pilot):
        main = main_of(app)
        main.go_to_address(f"{PATTERN}[h=2,q=5,k=3]")
        order = await ordered(app, pilot, "v", tmp_path / "a.svg")
        assert order == {"to": "svg", "path": str(tmp_path / "a.svg"), "force": False,
                         "address": f"{PATTERN}[b=0,h=2]@0", "view": "heatmap"}  # fmt: skip
        assert main.show_view("row")
        order = await ordered(app, pilot, "d", tmp_path / "a.pdf")
        assert (order["address"], order["view"]) == (f"{PATTERN}[b=0,h=2,q=5]@0", "row")
        assert main.show_view("mean")
        order = await ordered(app, pilot, "g", tmp_path / "a.png")
        assert (order["address"], order["view"]) == (f"{PATTERN}[b=0]@0", "mean")
        assert main.show_view("heatmap")
        await pilot.press("d", "d")
        await settled(pilot)
        order = await ordered(app, pilot, "k", tmp_path / "a.tex")
        assert order["minus"] == {"address": f"{PATTERN}[b=0,h=3]@0"}


async def test_what_is_taken_away_may_be_of_the_other_trace(tmp_path: Path) -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        main_of(app)._open_beside({"model": "modern", "prompt": "The printer crashed because the disk was full"})
        await settled(pilot)
        await pilot.press("d")
        await settled(pilot)
        order = await ordered(app, pilot, "j", tmp_path / "a.json")
        assert order["minus"] == {"address": f"{PATTERN}[b=0,h=0]@0", "trace": "other"}


async def test_a_whole_trace_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("e", "J")
        await until(pilot, lambda: isinstance(app.screen, AskScreen) and bool(app.screen.query(Input)))
        assert app.screen.query_one(Input).value == "the-server-crashed-because-the.json"
        await pilot.press("enter")
        await settled(pilot)
        path = tmp_path / "the-server-crashed-because-the.json"
        assert json.loads(path.read_text()) == {"to": "json", "path": path.name, "force": False}


async def test_a_file_is_overwritten_only_by_saying_so(tmp_path: Path) -> None:
    path = tmp_path / "there.html"
    path.write_text('{"mine": true}')
    async with running() as (app, pilot):
        assert await ordered(app, pilot, "h", path) == {"mine": True}
        assert "exists already; choose another name, or overwrite it" in told(app)
        await pilot.press("f")
        await settled(pilot)
        assert json.loads(path.read_text())["force"] is True


async def test_what_the_engine_refuses_is_said(tmp_path: Path) -> None:
    async with running(engine=FakeEngine(withheld="keep more [/]")) as (app, pilot):
        await pilot.press("e", "z", "enter")
        await until(pilot, lambda: isinstance(app.screen, NoticeScreen))
        assert "keep more [/]" in told(app)
        assert list(tmp_path.glob("*.npz")) == []


async def test_it_is_cancelled_by_escape() -> None:
    link = MemoryLink()
    async with running(link=lambda: link) as (app, pilot):
        link.hold = True
        await pilot.press("e", "a", "enter")
        await until(pilot, lambda: link.sent[-1]["method"] == "export" and "exporting safetensors" in told(app))
        await pilot.press("escape")
        await until(pilot, lambda: main_of(app).query_one(JobLine).job is None)
        assert link.sent[-1]["method"] == "cancel"
        link.release()


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
async def test_all_formats_are_in_reach_on_small_screens(size: tuple[int, int]) -> None:
    async with running(size) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("e")
        await settled(pilot)
        assert "▌ s the" in told(app)
        assert "what is shown" in told(app)
        await pilot.press(*["down"] * 30)
        await settled(pilot)
        assert "▌ Q a table" in told(app)
        await pilot.press(*["up"] * 30)
        assert "what is shown" in told(app)
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        assert "the screen as text" in told(app)


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample model is not here")
def test_every_picture_of_the_app_is_one_that_the_engine_knows() -> None:
    from engine import generate, load_model
    from engine.pictures import Wish, picture
    from engine.summary import summary

    *_, last = generate(load_model("modern", device="cpu"), "dog bites man", max_new_tokens=2)
    trace, seen = Trace.read(summary(last.trace)), set()
    for at in (None, 0, 1):
        for step in trace.steps:
            cursor = replace(start(trace), step=step.index, at=at)
            for view in views_of(trace.step(step.index, at)):
                if (kind := (step.axes, view, at)) not in seen:
                    seen.add(kind)
                    how = of_picture(Plane.of(trace, cursor, view))
                    assert picture(Wish(last.trace, **how)).view == view
    assert len(seen) > 100

"""Recording a tour by walking: what is in the file, that it plays, and that nothing is lost or overwritten."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from helpers import main_of, running, settled, text_of, until
from textual.widgets import Input

from engine.tours import Tour, parse_tour, read_tour
from tui.screens.ask import AskScreen
from tui.screens.stop import StopScreen
from tui.state import recorded
from tui.tours import trouble

PATTERN = "blocks.1.attn.pattern"


async def press(pilot: Any, *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


async def stop(app: Any, pilot: Any, title: str = "", narration: str = "", menu: bool = True) -> None:
    """Record the place that is looked at."""
    await press(pilot, "r", *(["r"] if menu else []))
    assert isinstance(app.screen, StopScreen)
    if title:
        app.screen.query_one("#stop-title", Input).value = title
    await press(pilot, "enter")
    app.screen.query_one("#stop-narration", Input).value = narration
    await press(pilot, "enter")


async def written(app: Any, pilot: Any, path: Path) -> Tour:
    """Write the tour to a file."""
    await press(pilot, "r", "w", "enter")
    assert isinstance(app.screen, AskScreen)
    app.screen.query_one(Input).value = str(path)
    await press(pilot, "enter")
    return read_tour(path)


def shown(app: Any) -> str:
    return " ".join(" ".join(line.strip("│ ") for line in text_of(app)).split())


async def test_places_become_stops_and_the_file_plays(tmp_path: Path) -> None:
    path = tmp_path / "walk.toml"
    async with running((120, 36)) as (app, pilot):
        main = main_of(app)
        await stop(app, pilot, "Begin [/]", "Words \x1b[31m & **more**.", menu=False)
        assert "● recording, 1 stop " in text_of(app)[0]
        main.go_to_address(f"{PATTERN}[h=2,q=5,k=3]")
        assert main.show_view("arcs")
        await stop(app, pilot, narration="It is {value}.")
        await press(pilot, "1", "d")
        await stop(app, pilot, "Two")
        await press(pilot, "escape")
        assert "recording, 3 stops" in text_of(app)[0]
        tour = await written(app, pilot, path)
        assert (tour.model, tour.prompt, tour.other) == ("modern", main.request["prompt"], None)
        assert [one.title for one in tour.stops] == ["Begin [/]", "pattern", "Two"]
        assert [str(one.address) for one in tour.stops[1:]] == [f"{PATTERN}[b=0,h=2,q=5,k=3]"] * 2
        assert [one.view for one in tour.stops] == ["tokens", "arcs", "heatmap"]
        assert tour.stops[1].narration == f"It is {{value:{PATTERN}[b=0,h=2,q=5,k=3]@0}}."
        assert tour.stops[2].narration == "The pattern step"
        assert str(tour.stops[2].beside) == f"{PATTERN}[b=0,h=3,q=5,k=3]"
        assert "\x1b" not in path.read_text()
        assert trouble(tour, main.here[0]) == ""
        assert main.recorded is None
        main.play_file(str(path))
        await press(pilot, "right", "right")
        assert "3 of 3" in shown(app)
        assert main.beside is not None


async def test_a_stop_is_taken_back_and_a_recording_given_up(tmp_path: Path) -> None:
    async with running() as (app, pilot):
        main = main_of(app)
        await stop(app, pilot, "One", menu=False)
        await stop(app, pilot, "Two")
        await press(pilot, "r", "u")
        assert main.recorded is not None
        assert [one.title for one in main.recorded.stops] == ["One"]
        await press(pilot, "r", "x", "escape")
        assert main.recorded is not None
        await press(pilot, "r", "x", "x")
        assert main.recorded is None
        assert "recording" not in text_of(app)[0]


async def test_another_prompt_is_no_stop_of_it_and_another_trace_is_beside(tmp_path: Path) -> None:
    async with running() as (app, pilot):
        main = main_of(app)
        main.go_to_address(f"{PATTERN}[h=0,q=2,k=1]")
        await stop(app, pilot, menu=False)
        main._open_beside({"model": "modern", "prompt": "The printer crashed because the disk was full"})
        await settled(pilot)
        await stop(app, pilot, "Both")
        tour = await written(app, pilot, tmp_path / "two.toml")
        assert tour.other is not None
        assert tour.other.prompt.startswith("The printer")
        assert [str(one.beside) for one in tour.stops] == ["None", f"{PATTERN}[b=0,h=0,q=2,k=1]"]
        await stop(app, pilot, "Again", menu=False)
        main.open({"model": "modern", "prompt": "man bites dog"})
        await settled(pilot)
        await press(pilot, "r", "r")
        assert "a tour has one prompt" in shown(app)
        await press(pilot, "escape")


async def test_tokens_that_were_generated_are_there_again() -> None:
    async with running() as (app, pilot):
        await press(pilot, "g", "g")
        await stop(app, pilot, menu=False)
        tour = main_of(app).recorded
        assert tour is not None
        assert tour.generate == 2
        assert tour.request["generate"] == 2


async def test_what_a_tour_cannot_say_is_refused(tmp_path: Path) -> None:
    for request in ({"file": "lecture.trace.safetensors"}, {"prompt": "Hi", "model": "modern", "chat": "yes"}):
        async with running(request=request) as (app, pilot):
            await press(pilot, "r")
            assert "a tour opens a prompt anew" in shown(app)
            await press(pilot, "escape")
    async with running() as (app, pilot):
        await press(pilot, "r", "enter")
        for text, words in (("{valeu:x}", "is not known; write {value}"), ("{value:a b}", "is not an address")):
            app.screen.query_one("#stop-narration", Input).value = text
            await press(pilot, "enter")
            assert words in shown(app)


async def test_a_file_is_overwritten_only_by_saying_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("mine")
    async with running() as (app, pilot):
        await stop(app, pilot, menu=False)
        await press(pilot, "r", "w", "enter")
        app.screen.query_one(Input).value = "tour.txt"
        await press(pilot, "enter")
        assert "ends with .toml" in shown(app)
        app.screen.query_one(Input).value = str(path)
        await press(pilot, "enter")
        assert path.read_text() == "mine"
        assert main_of(app).recorded is not None
        await press(pilot, "f")
        assert read_tour(path).stops


async def test_what_was_not_written_is_a_draft_that_is_gone_on_with(tmp_path: Path, monkeypatch: Any) -> None:
    memory = tmp_path / "state" / "session.json"
    async with running((80, 24), memory=memory, address="embed") as (app, pilot):
        await stop(app, pilot, "Kept", menu=False)
        await press(pilot, "q")
        assert app._exit
    (draft,) = memory.parent.glob("recording-*.toml")
    assert oct(draft.stat().st_mode)[-2:] == "00"
    assert parse_tour(draft.read_bytes(), draft.name).stops[0].title == "Kept"
    assert recorded.left(memory.parent) == []  # its process lives
    ended = memory.parent / f"recording-{await _ended()}.toml"
    draft.rename(ended)
    request = {"model": "modern", "prompt": "dog bites man"}
    async with running((80, 24), memory=memory, address="embed", request=request, notifications=True) as (app, pilot):
        assert any("a recording of 1 stop was left" in one.message for one in app._notifications)
        await press(pilot, "r", "1")
        main = main_of(app)
        assert main.request["prompt"] != "dog bites man"
        await stop(app, pilot, "More")
        assert main.recorded is not None
        assert [one.title for one in main.recorded.stops] == ["Kept", "More"]
        assert not ended.exists()
        assert draft.exists()
        await written(app, pilot, tmp_path / "whole.toml")
        assert not draft.exists()


async def _ended() -> int:
    """The number of a process that has ended."""
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    return process.pid


async def test_without_room_for_a_draft_quitting_asks(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    async with running(memory=tmp_path / "state" / "session.json", address="embed") as (app, pilot):
        await stop(app, pilot, menu=False)
        await press(pilot, "q")
        assert "no draft of it can be kept" in shown(app)
        await press(pilot, "escape")
        assert not app._exit
        await pilot.press("q", "q")
        await until(pilot, lambda: app._exit)

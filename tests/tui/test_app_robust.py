"""Tiny and changing terminals, random keys, hostile text, a dying engine, cancelling."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from fake_engine import HOSTILE, FakeEngine, MemoryLink
from hammering import Hammer
from helpers import go, main_of, press_fast, running, settled, text_of, until
from rich.cells import cell_len
from textual.events import Paste

from tui.app import LayerstepApp
from tui.client import EngineClient, EngineGone
from tui.screens.ask import AskScreen
from tui.screens.notice import NoticeScreen
from tui.widgets.ask_input import LONGEST, AskInput
from tui.widgets.job import JobLine

PATTERN = "blocks.0.attn.pattern"
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ud800-\udfff]")
OPENERS = ("p", "o", "m", "s", "colon", "slash", "ctrl+p", "question_mark")


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (10, 3), (20, 5), (39, 9), (40, 10)])
async def test_starting_in_a_small_terminal(size: tuple[int, int]) -> None:
    async with running(size=size) as (app, pilot):
        await pilot.press("right", "h", "v", "tab", "i", "t", "end")
        await settled(pilot)
        if size in ((20, 5), (39, 9)):
            assert "too small" in "\n".join(text_of(app))
        if size[0] >= 40 and size[1] >= 10:
            assert "too small" not in "\n".join(text_of(app))
        await pilot.resize_terminal(100, 30)
        await settled(pilot)
        shown = "\n".join(text_of(app))
        assert "layerstep · modern" in shown
        assert main_of(app).here[1].step > 0


async def test_a_storm_of_resizes_on_every_screen() -> None:
    storm = [(30, 2), (1, 1), (100, 30), (40, 10), (2, 1), (79, 24), (120, 40)]
    async with running(size=(120, 40)) as (app, pilot):
        main = main_of(app)
        for site in ("tokens", PATTERN, "blocks.0.ln1.scale", "logits"):
            await go(app, pilot, site)
            cursor = main.here[1]
            for size in storm:
                await pilot.resize_terminal(*size)
            await settled(pilot)
            assert main.here[1] == cursor
            assert {cell_len(line) for line in text_of(app)} == {120}
        for key in ("p", "slash", "question_mark"):
            await pilot.press(key)
            await settled(pilot)
            for size in storm[:3]:
                await pilot.resize_terminal(*size)
            await pilot.press("escape")
        await main_tells(app, pilot)
        for size in storm:
            await pilot.resize_terminal(*size)
        await pilot.press("escape")
        await settled(pilot)
        assert app.screen is main


async def main_tells(app: object, pilot: object) -> None:
    main_of(app).tell("title [/]", "message [/] \x1b[31m " * 20, (("E", "starts it again"),))  # type: ignore[arg-type]
    await pilot.pause()  # type: ignore[attr-defined]


async def test_resizing_while_a_trace_is_opened() -> None:
    link = MemoryLink(hold=True)
    async with running(link=lambda: link, wait=False) as (app, pilot):
        for size in ((1, 1), (100, 30), (10, 3), (80, 24)):
            await pilot.resize_terminal(*size)
        link.release()
        await until(pilot, lambda: main_of(app).trace is not None)
        await settled(pilot)
        assert "step 1/" in text_of(app)[0]


@pytest.mark.parametrize("seed", range(2))
async def test_six_hundred_random_keys(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # dialogs may write files
    links: list[MemoryLink] = []

    def link() -> MemoryLink:
        links.append(MemoryLink(FakeEngine(hostile=seed % 2 == 1)))
        return links[-1]

    async with running(size=(120, 40), link=link) as (app, pilot):
        hammer = Hammer(app, pilot, seed, kill=lambda: links[-1].die())
        try:
            await hammer.strike(600)
            await hammer.responds()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{hammer.told()}") from error


async def test_hostile_text_is_shown_and_harmless_everywhere() -> None:
    async with running(size=(160, 60), engine=FakeEngine(hostile=True)) as (app, pilot):
        main = main_of(app)
        seen: list[str] = []

        async def look() -> None:
            await settled(pilot)
            lines = text_of(app)
            assert not [line for line in lines if UNPRINTABLE.search(line)]
            seen.extend(lines)

        for site in ("tokens", PATTERN, "blocks.0.ln1.scale", "logits"):
            await go(app, pilot, site)
            for pos in range(0, len(HOSTILE) + 1, 7):
                main.go_to_token(pos)
                await look()
        for key in OPENERS:
            await pilot.press(key)
            await look()
            if app.screen.query(AskInput):
                app.screen.query_one(AskInput).value = " ".join(HOSTILE[9:20])
                await look()
                await pilot.press("enter")
                await look()
            for _ in range(3):
                await pilot.press("escape")
        for text in (*HOSTILE[:2], HOSTILE[9], " ".join(HOSTILE)):
            main.tell(text, text)
            main.say(text)
            await look()
            await pilot.press("escape")
        shown = "\n".join(seen)
        for verbatim in ("[/]", "[/#888]", "[b", "[bold]", "[1,2]", "\\[b]", "␛", "‹U+202E›", "漢字"):
            assert verbatim in shown, verbatim


async def test_pasting_into_a_dialog() -> None:
    async with running() as (app, pilot):
        await pilot.press("p")
        box = app.screen.query_one(AskInput)
        box.value = ""
        box.post_message(Paste("two\nlines \x1b]52;c;x\x07"))
        await pilot.pause()
        assert box.value == "two\nlines \x1b]52;c;x\x07"
        assert "two⏎lines ␛]52;c;x␇" in "\n".join(text_of(app))
        started = time.monotonic()
        box.post_message(Paste("a" * 1_000_000))
        await pilot.pause()
        assert time.monotonic() - started < 2
        assert len(box.value) < LONGEST
        assert "1,000,000 characters are too many" in "\n".join(text_of(app))
        await pilot.press("left", "left", "home", "delete", "end", "enter")
        await settled(pilot)
        assert main_of(app).here[0].prompt.startswith("wo\nlines")


async def test_escape_cancels_an_opening() -> None:
    link = MemoryLink(hold=True)
    async with running(link=lambda: link, wait=False) as (app, pilot):
        main = main_of(app)
        await until(pilot, lambda: "Esc cancels" in "\n".join(text_of(app)))
        await pilot.press("escape")
        await settled(pilot)
        assert main.query_one(JobLine).job is None
        assert link.sent[-1]["method"] == "cancel"
        assert "cancelled" in "\n".join(text_of(app))
        link.release()
        await settled(pilot)
        assert main.trace is None  # the answer that came after all changes nothing
        await pilot.press("p", *"hi", "enter")
        await until(pilot, lambda: main.trace is not None)


async def test_another_prompt_during_an_opening_wins() -> None:
    link = MemoryLink(hold=True)
    async with running(link=lambda: link, wait=False) as (app, pilot):
        main = main_of(app)
        main.open({"model": "modern", "prompt": "second"})
        main.open({"model": "modern", "prompt": "third"})
        await pilot.pause()
        link.release()
        await until(pilot, lambda: main.trace is not None)
        await settled(pilot)
        assert main.here[0].prompt == "third"


async def test_a_failed_opening_leaves_the_old_trace_whole() -> None:
    link = MemoryLink()
    async with running(link=lambda: link) as (app, pilot):
        main = main_of(app)
        link.hold = True
        main.go_to_step(main.here[0].by_site["embed"].index)
        await pilot.pause()
        main.open({"model": "missing", "prompt": "x"})
        await pilot.pause()
        link.release()
        await settled(pilot)
        assert isinstance(app.screen, NoticeScreen)
        await pilot.press("escape")
        await settled(pilot)
        assert main.here[0].model == "modern"
        assert "┄" not in "\n".join(text_of(app))


async def test_answers_for_an_older_trace_never_reach_the_screen() -> None:
    link = MemoryLink()
    async with running(link=lambda: link) as (app, pilot):
        main = main_of(app)
        link.hold = True
        main.go_to_step(main.here[0].by_site["embed"].index)
        await pilot.pause()
        main.open({"model": "classic", "prompt": "new"})
        await pilot.pause()
        link.release()
        await settled(pilot)
        assert main.here[0].model == "classic"
        assert not main.trouble


async def test_progress_is_shown() -> None:
    link = MemoryLink(hold=True)
    async with running(link=lambda: link, wait=False) as (app, pilot):
        main = main_of(app)
        await until(pilot, lambda: any(sent["method"] == "open" for sent in link.sent))
        number = next(sent["id"] for sent in link.sent if sent["method"] == "open")
        assert main.client._pending[number].on_progress
        main.client._received(
            {"event": "progress", "id": number, "run": 1, "done": 41, "total": 93, "what": "blocks.2.attn.z"}, b""
        )
        await until(pilot, lambda: "recording the pass  blocks.2.attn.z" in "\n".join(text_of(app)))
        assert "41/93" in "\n".join(text_of(app))


async def test_a_dead_engine_is_a_dialog_and_r_starts_another() -> None:
    links = [MemoryLink(FakeEngine(die_on="models")), MemoryLink(FakeEngine())]
    async with running(link=lambda: links.pop(0)) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, PATTERN)
        cursor = main.here[1]
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, NoticeScreen))
        await settled(pilot)
        shown = "\n".join(text_of(app))
        assert "out of memory" in shown
        while isinstance(app.screen, NoticeScreen):
            await pilot.press("escape")
        await pilot.press("right", "h", "slash", "escape", "left")  # still usable
        assert "gone" not in "\n".join(text_of(app)[1:-2])
        with pytest.raises(EngineGone):
            await main.client.request("models")
        await pilot.press("E")
        await settled(pilot)
        assert main.client.state == "ready"
        assert main.here[1].step == cursor.step
        await pilot.press("m")
        await settled(pilot)
        assert "classic" in "\n".join(text_of(app))


async def test_a_trace_that_came_in_spite_of_esc_is_not_asked_about_in_place_of_the_one_shown() -> None:
    link = MemoryLink(FakeEngine())
    async with running(link=lambda: link) as (app, pilot):
        main = main_of(app)
        link.hold = True
        main.open({"model": "modern", "prompt": "a cat"})
        await until(pilot, lambda: main.working)
        await pilot.press("escape")
        link._cancelled.clear()  # the engine was done before it heard of that
        link.release()
        await settled(pilot)
        assert main.trace is not None
        assert link.engine.summary["prompt"] == main.trace.prompt != "a cat"


async def test_a_fault_of_our_own_is_a_dialog(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as (app, pilot):
        main = main_of(app)

        async def broken() -> list[dict[str, str]]:
            raise ZeroDivisionError("[/] \x1b[31m")

        monkeypatch.setattr(main.session, "models", broken)
        await pilot.press("m")
        await settled(pilot)
        assert "ZeroDivisionError: [/] ␛[31m" in "\n".join(text_of(app))
        await pilot.press("escape", "right")
        assert isinstance(main.faults.pop(), ZeroDivisionError)


async def test_an_error_for_one_window_is_said_under_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    from fake_engine import FakeError

    engine = FakeEngine()
    window = engine._window

    def refuse(params: dict[str, object]) -> object:
        if "attn.v" in str(params["address"]):
            raise FakeError("NotKeptError", "that was not kept [/] \x1b[31m")
        return window(params)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "_window", refuse)
    async with running(engine=engine) as (app, pilot):
        await go(app, pilot, "blocks.0.attn.v")
        assert "✗ that was not kept [/] ␛[31m" in "\n".join(text_of(app))
        await pilot.press("right")
        await settled(pilot)
        assert "not kept" not in "\n".join(text_of(app))


@pytest.mark.parametrize("answer", [{}, {"steps": [{}]}, {"steps": "x"}, {"tokens": [[{}]]}, {"passes": [{}]}])
async def test_an_answer_that_makes_no_sense_is_a_dialog(
    answer: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()
    monkeypatch.setattr(engine, "_open", lambda params: answer)
    async with running(engine=engine, wait=False) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, NoticeScreen))
        await pilot.press("escape", "p")
        assert isinstance(app.screen, AskScreen)


@pytest.mark.parametrize("turns", range(0, 44, 2))
async def test_leaving_at_any_moment_of_the_start(turns: int) -> None:
    app = LayerstepApp(lambda: EngineClient(MemoryLink))
    async with app.run_test() as pilot:
        for _ in range(turns):
            await asyncio.sleep(0)
        await press_fast(app, "ctrl+c" if turns % 4 else "q")
        await until(pilot, lambda: not app._running)
    assert app.return_code == 0
    if app.client is not None:
        await app.client.close()


async def test_keys_typed_ahead_keep_their_order() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (app, pilot):
        for key in ("p", *"hello", "enter", "p", *"second one", "enter", "slash", *"logits", "enter", "p", *"third"):
            await press_fast(app, key)
        await until(pilot, lambda: bool(app.screen.query(AskInput)) and app.screen.query_one(AskInput).value == "third")
        prompts = [asked["prompt"] for method, asked in engine.asked if method == "open"]
        assert prompts[-2:] == ["hello", "second one"]
        await pilot.press("escape")


@pytest.mark.parametrize("key", ["s", "o"])
async def test_a_path_that_cannot_be_one_is_said_in_the_dialog(key: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong = {
        "n" * 300: "file name too long",
        "~nouser/x": "~nouser/x: there is no such user",
        str(tmp_path / "file" / "x"): "not a directory",
        "a\0b": "that is no path",
        str(tmp_path): "is a folder",
        "/dev/zero": "/dev/zero is no ordinary file",
        "  ": "write a path",
    }
    async with running(size=(200, 40)) as (app, pilot):
        trace = main_of(app).trace
        await pilot.press(key)
        for text, words in wrong.items():
            app.screen.query_one(AskInput).value = text
            await pilot.press("enter")
            await pilot.pause()
            assert words in " ".join(" ".join(text_of(app)).replace("│", " ").split()), text
        await pilot.press("escape", "right")
        assert main_of(app).trace is trace


@pytest.mark.parametrize("key", ["s", "o"])
async def test_a_folder_that_may_not_be_searched(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = Path.stat

    def refuse(path: Path, **options: bool) -> object:
        if path.name == "locked":
            raise PermissionError(13, "Permission denied")
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    async with running() as (app, pilot):
        await pilot.press(key)
        app.screen.query_one(AskInput).value = "/x/locked"
        await pilot.press("enter")
        await pilot.pause()
        assert "/x/locked: permission denied" in "\n".join(text_of(app))
        await pilot.press("escape")

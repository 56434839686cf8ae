"""What an attack on the app found: files that nobody would write by hand, and tensors without one finite number."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from helpers import go, main_of, picture, running, settled, until

from tui.client import OnProgress
from tui.settings import SettingsError, read_settings
from tui.state.looks import Histogram
from tui.state.remembered import Remembered, recall, remember
from tui.state.views import Plane
from tui.widgets.histogram import HistogramView

DEEP = b".".join([b"a"] * 3000)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"theme = " + b"9" * 6000, "a number in it has thousands of digits"),
        (b"theme = 0x" + b"f" * 6000, "a number in it has thousands of digits"),
        (b"[keys]\nhelp = 0x" + b"f" * 6000, "a number in it has thousands of digits"),
        (b"[keys]\n" + DEEP + b' = "x"', "a key has more than 50 parts"),
        (b"theme." + DEEP + b" = 1", "a key has more than 50 parts"),
    ],
)
def test_settings_that_python_cannot_hold_are_one_line(data: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(data)
    with pytest.raises(SettingsError, match=r"settings\.toml(:\d)?: is no settings file: " + words) as caught:
        read_settings(str(file))
    assert str(caught.value).isprintable()


def test_settings_may_begin_with_a_mark_of_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes('\ufefftheme = "light"\n'.encode())
    assert read_settings(str(file)).theme == "layerstep-light"


@pytest.mark.parametrize(
    "given",
    [
        '"limit": NaN', '"limit": Infinity', '"limit": 1e999', f'"limit": {10**400}',
        '"sampling": {"temperature": NaN}', f'"sampling": {{"top_p": {10**400}}}', '"sampling": {"seed": -1e999}',
    ],
)  # fmt: skip
def test_a_session_with_a_number_that_cannot_be_written_again_counts_as_none(given: str, tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    file.write_text(f'{{"format": 1, "request": {{"model": "m"}}, {given}}}')
    found, wrong = recall(file)
    assert found == Remembered()
    assert "is no session of layerstep's" in wrong
    remember(file, found)
    assert json.loads(file.read_text())["limit"] == 0


def test_the_folder_of_a_session_is_named_without_its_escapes(tmp_path: Path) -> None:
    folder = tmp_path / "\x1b]0;x\x07"
    folder.mkdir()
    (folder / "session.json").write_bytes(b"\0")
    assert recall(folder / "session.json")[1].isprintable()


async def test_a_histogram_without_a_finite_number_marks_a_value_all_the_same() -> None:
    async with running(size=(120, 40), engine=FakeEngine()) as (app, pilot):
        await go(app, pilot, "blocks.0.mlp.post")
        main_of(app).show_view("histogram")
        await settled(pilot)
        view = picture(app)
        assert isinstance(view, HistogramView)
        assert view.plane is not None
        assert view.block is not None
        view.show(view.plane, view.cell, replace(view.block, told=Histogram(nan=64)))
        view.mark(math.nan)
        await pilot.pause()
        assert view.marked == ("NaN", "")


async def test_a_window_on_its_way_gives_way_to_another_place_alone_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line of long work makes the picture smaller: had that asked anew, the window would never have come."""
    began: list[tuple[int, int]] = []

    async def never(plane: Plane, rows: tuple[int, int], cols: tuple[int, int], watch: OnProgress) -> None:
        began.append(rows)
        watch(1, 2, "")
        await asyncio.Event().wait()

    async with running(size=(120, 40), engine=FakeEngine()) as (app, pilot):
        main = main_of(app)
        plane = main.plane
        assert plane is not None
        monkeypatch.setattr("tui.screens.fetching.PATIENCE", 1e-6)
        monkeypatch.setattr(Plane, "window", lambda plane, rows, cols: ((rows[0] - 40, rows[1] + 40), cols))
        monkeypatch.setattr(main.session, "block", never)
        main.fetch(plane, (100, 140), (0, 10))
        await until(pilot, lambda: began == [(60, 180)])
        main.fetch(plane, (102, 140), (0, 10))
        main.fetch(plane, (100, 140), (0, 10))
        await pilot.pause()
        assert len(began) == 1
        main.fetch(plane, (300, 340), (0, 10))
        await until(pilot, lambda: began == [(60, 180), (260, 380)])
        await pilot.pause()
        assert main.trouble == ""
        await pilot.press("escape")
        await settled(pilot)
        assert "cancelled" in main.trouble

"""Exporting: what foreign readers find in the files, and that there is a whole file or none."""

from __future__ import annotations

import csv
import errno
import math
import os
import re
import resource
import time
import xml.etree.ElementTree as ElementTree
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine, MemoryLink
from helpers import go, main_of, running, settled, text_of, until
from rich.segment import Segment
from rich.style import Style
from textual.widgets import Input, Static

from tui import saving
from tui.render.svg import HEIGHT, WIDTH, svg
from tui.screens.ask import AskScreen
from tui.screens.notice import NoticeScreen
from tui.state import looks, sheet
from tui.state.answers import Candidate, Ranking
from tui.state.block import EVERYTHING
from tui.state.views import Plane, views_of
from tui.themes import THEMES
from tui.widgets.job import JobLine
from tui.widgets.stage import WIDGETS

PATTERN, Z = "blocks.0.attn.pattern", "blocks.0.attn.z"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\ud800-\udfff]")
NAMESPACE = "{http://www.w3.org/2000/svg}"


async def exported(app: Any, pilot: Any, key: str, path: Path) -> bytes:
    """What ``e`` and a letter write."""
    await pilot.press("e", key)
    (await asked(app, pilot)).value = str(path)
    await pilot.press("enter")
    await settled(pilot)
    return path.read_bytes()


async def asked(app: Any, pilot: Any) -> Input:
    """The input that asks where to."""
    await until(pilot, lambda: isinstance(app.screen, AskScreen) and bool(app.screen.query(Input)))
    return app.screen.query_one(Input)  # type: ignore[no-any-return]


def rows_of(data: bytes) -> list[list[str]]:
    """CSV as Python's reader takes it."""
    return list(csv.reader(data.decode().splitlines(keepends=True), strict=True))


def bits(values: Any) -> bytes:
    return array("f", map(float, values)).tobytes()


# CSV


@pytest.mark.parametrize("site", [PATTERN, "blocks.0.attn.masked", "blocks.1.resid_post", Z])
async def test_numbers_come_back_bit_for_bit_from_csv(site: str, tmp_path: Path) -> None:
    engine = FakeEngine(hostile=True)
    async with running(engine=engine) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, site)
        main.go_to_token(1)
        await settled(pilot)
        head, *rows = rows_of(await exported(app, pilot, "c", tmp_path / "numbers.csv"))
        plane = main.plane
        size, view, place = plane.size, plane.view, dict.fromkeys(plane.step.axes, 0) | dict(plane.place)
        assert (len(rows), {len(row) for row in (head, *rows)}) == (size[0], {size[1] + 1})
        for row, line in enumerate(rows):
            expected = [engine.value(site, place | {view.rows: row, view.cols: col}) for col in range(size[1])]
            assert bits(line[1:]) == bits(expected)
        labels = [token.label for token in main.trace.line(0)]
        assert [line[0].removeprefix("'") for line in rows] == labels
        assert head[0] == f"{view.rows}/{view.cols}"


async def test_what_is_not_finite_and_what_is_masked_is_a_number_in_csv(tmp_path: Path) -> None:
    async with running(engine=FakeEngine(hostile=True)) as (app, pilot):
        await go(app, pilot, "blocks.0.attn.masked")
        assert rows_of(await exported(app, pilot, "c", tmp_path / "masked.csv"))[1][2] == "-inf"
        await go(app, pilot, PATTERN)
        assert rows_of(await exported(app, pilot, "c", tmp_path / "pattern.csv"))[1][2] == "0"
        await go(app, pilot, Z)
        assert rows_of(await exported(app, pilot, "c", tmp_path / "z.csv"))[2][1:3] == ["inf", "NaN"]


@pytest.mark.parametrize(
    "value",
    [0.1, -0.0, 1e-45, 1.1754942e-38, 3.4028234663852886e38, 1 / 3, 16777217.0, 123456789.0, 5e-324, 1e300, 2.5],
)
def test_a_number_is_as_short_as_it_can_be_and_no_shorter(value: float) -> None:
    for exact in (value, array("f", [value])[0] if abs(value) < 1e39 else value):
        text = sheet.number(exact)
        back = float(text)
        assert back == exact or array("f", [back])[0] == exact
        assert math.copysign(1, back) == math.copysign(1, exact)
    assert len(sheet.number(array("f", [value])[0] if abs(value) < 1e39 else 0.5)) <= 14


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_label_is_no_formula(text: str) -> None:
    assert sheet.label(text) == "'" + text
    assert sheet.label(f" {text}")[0] not in "=+-@"


async def test_a_picture_larger_than_a_window_is_exported_whole(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.d |= {"d_vocab": 9000}
    async with running(engine=engine) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, "logits")
        main.do_view(3)
        await settled(pilot)
        drawn = main.session.known(main.plane)
        assert EVERYTHING < 9 * 9000
        head, *rows = rows_of(await exported(app, pilot, "c", tmp_path / "logits.csv"))
        assert (len(head), len(rows)) == (9001, 9)
        for pos in (0, 6, 8):
            at = {"batch": 0, "pos": pos}
            assert bits(rows[pos][1:]) == bits(engine.value("logits", at | {"d_vocab": n}) for n in range(9000))
        assert main.session.known(main.plane) is drawn


async def test_every_picture_of_every_kind_of_step_has_a_table() -> None:
    async with running(size=(80, 24), engine=FakeEngine(hostile=True)) as (app, _):
        main, done = main_of(app), set()
        for step in main.trace.steps:
            for view in views_of(step):
                kind = (view.kind, view.name, view.rows, view.cols)
                if kind in done:
                    continue
                done.add(kind)
                plane = Plane.of(main.trace, replace(main.cursor, step=step.index), view)
                shot = main._picture(plane)
                data = b"".join([part async for part, _, _ in main._parts("c", plane, shot)])
                rows = rows_of(data)
                assert len(rows) > 1, kind
                assert {len(row) for row in rows} == {len(rows[0])}, kind
                assert not CONTROLS.search(data.decode().replace("\r\n", "\n")), kind
                assert not [cell for row in rows for cell in row if cell[:1] in ("=", "@", "+")], kind
        assert {kind for kind, *_ in done} >= set(WIDGETS) - {"rotation"}  # the fake has none


def test_tables_of_what_the_engine_derived() -> None:
    table = looks.Table(
        columns=(looks.Column("token", "label"), looks.Column("cosine", "bar"), looks.Column("promotes", "labels")),
        rows=(("=x", 0.25, ("␣a", "b")), ("\x1b[31m", None, ())),
    )
    assert sheet.of_look(table) == [["token", "cosine", "promotes"], ["'=x", "0.25", "␣a b"], ["␛[31m", "", ""]]
    tiles = looks.Thumbs(tiles=(looks.Tile("mean", PATTERN, None, "mean", None), looks.Tile("0", PATTERN, 0, "", 1.5)))
    assert sheet.of_look(tiles)[1:] == [["mean", PATTERN, "", "mean", ""], ["0", PATTERN, "0", "", "1.5"]]
    turned = looks.Rotation(pairs=(looks.Pair(3, (3, 7), 0.5, 1.0, 0.25, 0.75, (1.0, 2.0), (3.0, 4.0)),))
    assert sheet.of_look(turned)[1] == ["3", "3", "7", "0.5", "1", "0.25", "0.75", "1", "2", "3", "4"]
    bars = looks.Histogram(edges=(-1.0, 0.0, 2.0), counts=(3, 4), nan=1, masked=2)
    assert sheet.of_look(bars)[1:] == [
        ["-1", "0", "3"],
        ["0", "2", "4"],
        ["NaN", "NaN", "1"],
        ["masked", "masked", "2"],
    ]
    drawn = Ranking((Candidate(7, "-x", 0.5, 1.0, 0.75), Candidate(8, "y", 0.25, 0.5, None)), sampled=True)
    assert sheet.of_ranking(drawn)[1:] == [["1", "'-x", "7", "1", "0.5", "0.75"], ["2", "y", "8", "0.5", "0.25", ""]]


# text and SVG


def written(picture: ElementTree.Element, high: int, wide: int) -> list[str]:
    """The text of an SVG picture, put back into cells by its coordinates; a wide glyph takes two."""
    lines = [[" "] * wide for _ in range(high)]
    for text in picture.iter(f"{NAMESPACE}text"):
        x, y = round(float(text.attrib["x"]) / WIDTH), int(text.attrib["y"]) // HEIGHT
        content = text.text or ""
        count = round(float(text.attrib["textLength"]) / WIDTH)
        narrow = len(content) == count
        lines[y][x : x + count] = list(content) if narrow else [content, *[""] * (count - 1)]
    return ["".join(line).rstrip() for line in lines]


@pytest.mark.parametrize("theme", ["layerstep-dark", "layerstep-light"])
@pytest.mark.parametrize("site", ["tokens", PATTERN, "logits"])
async def test_the_picture_says_what_the_screen_says(site: str, theme: str, tmp_path: Path) -> None:
    async with running(size=(130, 50), engine=FakeEngine(hostile=True), theme=theme) as (app, pilot):
        await go(app, pilot, site)
        main_of(app).go_to_token(23)
        await settled(pilot)
        screen = [line.rstrip() for line in text_of(app)]
        data = await exported(app, pilot, "s", tmp_path / "screen.svg")
        picture = ElementTree.fromstring(data)
        blocks = str.maketrans(dict.fromkeys(map(chr, range(0x2581, 0x2590)), " "))  # those are drawn, not written
        assert written(picture, 50, 130) == [line.translate(blocks).rstrip() for line in screen]
        text = await exported(app, pilot, "t", tmp_path / "screen.txt")
        assert text.decode().split("\n") == [*screen, ""]
        title = picture.find(f"{NAMESPACE}title")
        assert title is not None
        assert site in str(title.text)
        for file in (data, text):
            assert not CONTROLS.search(file.decode())
        assert THEMES[theme].background.encode() in data  # type: ignore[union-attr]
        assert b"font-face" not in data
        assert re.findall(rb'="[a-z]+:[^"]*"', data) == [b'="http://www.w3.org/2000/svg"']
        assert b"href" not in data
        assert b"url(" not in data


def test_glyphs_and_grounds_of_a_picture_lie_where_the_cells_are() -> None:
    red = Style(color="#ff0000", bgcolor="#00ff00", bold=True)
    line = [Segment("a<", None), Segment("漢字 e\u0301█▄▌", red), Segment(" ", red), Segment("z", Style(reverse=True))]
    root = ElementTree.fromstring(svg([line], 12, "</title><script>\x1b", "#101010", "#f0f0f0"))
    cells = [
        (t.text, round(float(t.attrib["x"]) / WIDTH), round(float(t.attrib["textLength"]) / WIDTH))
        for t in root.iter(f"{NAMESPACE}text")
    ]
    assert cells == [("a<", 0, 2), ("漢", 2, 2), ("字", 4, 2), ("e\u0301", 7, 1), ("z", 12, 1)]
    rects = [
        (r.attrib["fill"], round(float(r.attrib["x"]) / WIDTH), round(float(r.attrib["width"]) / WIDTH))
        for r in root.iter(f"{NAMESPACE}rect")
    ]
    assert rects == [("#00ff00", 2, 10), ("#f0f0f0", 12, 1)]
    full, half, left = (p.attrib["d"] for p in root.iter(f"{NAMESPACE}path") if "class" in p.attrib)
    assert full == f"M{8 * WIDTH:g} 0h{WIDTH:g}v{HEIGHT}h{-WIDTH:g}z"
    assert half == f"M{9 * WIDTH:g} {HEIGHT // 2}h{WIDTH:g}v{HEIGHT // 2}h{-WIDTH:g}z"
    assert left == f"M{10 * WIDTH:g} 0h{WIDTH / 2:g}v{HEIGHT}h{-WIDTH / 2:g}z"
    title = root.find(f"{NAMESPACE}title")
    assert title is not None
    assert title.text == "</title><script>␛"


async def test_the_pane_is_what_lies_inside_its_frame(tmp_path: Path) -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        stage = (await exported(app, pilot, "p", tmp_path / "stage.txt")).decode().split("\n")
        assert stage[0].startswith("╭─ block 0 · attention · pattern")
        assert stage[-2][0] + stage[-2][-1] == "╰╯"
        assert len({len(line) for line in stage[:-1]}) == 1
        await pilot.press("shift+tab")
        await settled(pilot)
        tree = (await exported(app, pilot, "p", tmp_path / "tree.txt")).decode()
        assert tree.startswith("╭─ pass")
        assert "block 0" in tree


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (39, 9)])
async def test_a_tiny_screen_has_a_tiny_picture(size: tuple[int, int], tmp_path: Path) -> None:
    async with running(size=size) as (app, pilot):
        for key in "stpc":
            assert await exported(app, pilot, key, tmp_path / key)
        picture = ElementTree.fromstring((tmp_path / "s").read_bytes())
        assert picture.attrib["viewBox"] == f"0 0 {size[0] * WIDTH + 20:g} {size[1] * HEIGHT + 20}"
        assert (tmp_path / "t").read_text().count("\n") == size[1]


async def test_a_screen_without_colours_is_a_picture_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        ElementTree.fromstring(await exported(app, pilot, "s", tmp_path / "grey.svg"))


# a whole file, or none


async def test_the_name_that_is_offered_and_the_palette(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with running() as (app, pilot):
        main = main_of(app)
        main.go_to_address(f"{PATTERN}[h=2,q=5,k=3]")
        await settled(pilot)
        await pilot.press("ctrl+p", *"whole", "space", *"numbers", "enter")
        box = await asked(app, pilot)
        assert box.value == f"{PATTERN}-h2.csv"
        box.value = f"~/{box.value}"
        await pilot.press("enter")
        await settled(pilot)
        assert len(rows_of((tmp_path / f"{PATTERN}-h2.csv").read_bytes())) == 10
        for action in ("svg", "text", "pane"):
            main.action_do(f"export.{action}")
            assert (await asked(app, pilot)).value.startswith(f"{PATTERN}-h2.")
            await pilot.press("escape")


async def test_a_file_is_overwritten_only_by_saying_so(tmp_path: Path) -> None:
    path = tmp_path / "there.csv"
    path.write_text("mine")
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        assert await exported(app, pilot, "c", path) == b"mine"
        assert isinstance(app.screen, NoticeScreen)
        await pilot.press("escape")
        await settled(pilot)
        assert path.read_text() == "mine"
        await exported(app, pilot, "c", path)
        await pilot.press("f")
        await settled(pilot)
        assert len(rows_of(path.read_bytes())) == 10
        assert os.listdir(tmp_path) == ["there.csv"]


async def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    link, target = tmp_path / "link.txt", tmp_path / "target.txt"
    target.write_text("old")
    link.symlink_to(target)
    async with saving.new_file(link, force=True) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"


async def test_a_file_that_came_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x"

    async def write() -> None:
        async with saving.new_file(path) as file:
            file.write(b"ours")
            path.write_text("theirs")

    with pytest.raises(FileExistsError):
        await write()
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["x"]


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        monkeypatch.setattr(saving.os, "fsync", full)
        with pytest.raises(FileNotFoundError):
            await exported(app, pilot, "c", tmp_path / "x.csv")
        assert "there is no room for it" in "\n".join(text_of(app))
        assert os.listdir(tmp_path) == []


async def test_a_file_that_the_system_does_not_let_grow_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            async with saving.new_file(tmp_path / "x") as file:
                file.write(b"a" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "no room" in saving.why_not(caught.value, tmp_path / "x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("typed", "words"),
    [("", "write a path"), ("{}", "is a folder"), ("{}/none/x.csv", "there is no folder"), ("/dev/null", "no ordinary"),
     ("{}/" + "x" * 300, "too long"), ("{}/a\0b", "no path")],
)  # fmt: skip
async def test_a_path_that_cannot_be_is_said_in_one_line(typed: str, words: str, tmp_path: Path) -> None:
    async with running(size=(200, 40)) as (app, pilot):
        main = main_of(app)
        main.action_do("export.csv")
        (await asked(app, pilot)).value = typed.format(tmp_path)
        await pilot.press("enter")
        await settled(pilot)
        assert words in " ".join(str(line.content) for line in app.screen.query(Static))
        assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_one_may_not_write_in(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError) as caught:
        async with saving.new_file(tmp_path / "x"):
            pass
    assert "no permission" in saving.why_not(caught.value, tmp_path / "x")


async def test_cancelling_is_quick_and_leaves_nothing(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.d |= {"d_vocab": 9000}
    link = MemoryLink(engine)
    async with running(link=lambda: link) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, "logits")
        main.do_view(3)
        await settled(pilot)
        link.hold = True
        main.action_do("export.csv")
        (await asked(app, pilot)).value = str(tmp_path / "x.csv")
        await pilot.press("enter")
        await until(pilot, lambda: bool(os.listdir(tmp_path)))
        assert main.query_one(JobLine).display
        started = time.monotonic()
        await pilot.press("escape")
        await until(pilot, lambda: not os.listdir(tmp_path))
        assert time.monotonic() - started < 0.5
        link.release()
        await settled(pilot)
        assert not main.query_one(JobLine).display
        assert os.listdir(tmp_path) == []


async def test_an_engine_that_has_no_values_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running(size=(200, 40), engine=engine) as (app, pilot):
        await go(app, pilot, PATTERN)
        engine.withheld = "the trace does not keep it [/]\x1b[31m"
        with pytest.raises(FileNotFoundError):
            await exported(app, pilot, "c", tmp_path / "x.csv")
        assert "the trace does not keep it [/]␛[31m" in "\n".join(text_of(app))
        assert os.listdir(tmp_path) == []

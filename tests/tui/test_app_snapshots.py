"""Each screen as it was when it was last looked at; ``make snapshots`` writes the pictures anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from helpers import running, settled
from screens import DIALOGS, SCREENS, Shown
from snapshots import PICTURES, difference, svg
from textual.geometry import Size

from tui.app import LayerstepApp
from tui.themes import THEMES

WIDE, NARROW = (160, 45), (80, 24)
DARK, LIGHT = "dark", "light"
ALL = ((WIDE, DARK), (WIDE, LIGHT), (NARROW, DARK), (NARROW, LIGHT))
TWO = ((WIDE, DARK), (NARROW, LIGHT))
RENEW = os.environ.get("LAYERSTEP_SNAPSHOTS") == "renew"


def looks(shown: Shown) -> tuple[tuple[tuple[int, int], str], ...]:
    """The sizes and lights that a screen has a picture in: of a view all, of a dialog two."""
    return TWO if shown in DIALOGS else ALL


def name(shown: Shown, size: tuple[int, int], light: str) -> str:
    return f"{shown.name}-{size[0]}x{size[1]}-{light}.svg"


def drawn(app: LayerstepApp) -> str:
    """The screen as a picture."""
    ground = THEMES[app.theme].background
    assert ground
    return svg([list(strip) for strip in app.screen._compositor.render_strips(Size(*app.size))], app.size.width, ground)


@pytest.mark.parametrize("shown", SCREENS, ids=lambda shown: shown.name)
async def test_a_screen_is_as_its_picture(shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # dialogs name no folder of whoever runs this
    wrong = []
    async with running(size=WIDE, engine=shown.engine()) as (app, pilot):
        await shown.reach(app, pilot)
        for size, light in looks(shown):
            app.theme = f"layerstep-{light}"
            await pilot.resize_terminal(*size)
            await settled(pilot)
            found, path = drawn(app), PICTURES / name(shown, size, light)
            if RENEW:
                path.parent.mkdir(exist_ok=True)
                path.write_text(found, encoding="utf-8")
            known = path.read_text(encoding="utf-8") if path.exists() else ""
            if found != known:
                new = tmp_path / path.name
                new.write_text(found, encoding="utf-8")
                wrong.append(f"{path.name}: {difference(known, found)}\n    the new one is {new}")
    assert not wrong, "\n".join([*wrong, "if that is as it should be: make snapshots, and look at them"])


def test_every_picture_is_of_a_screen_in_the_table() -> None:
    names = [name(shown, size, light) for shown in SCREENS for size, light in looks(shown)]
    assert sorted(path.name for path in PICTURES.iterdir()) == sorted(names)


async def test_a_picture_shows_each_character_and_colour() -> None:
    async with running(size=NARROW) as (app, pilot):
        await settled(pilot)
        lines = [list(strip) for strip in app.screen._compositor.render_strips(Size(*NARROW))]
        before = svg(lines, 80, "#000000")
        texts = re.findall(r"<text .*?>(.*)</text>", before)
        assert len(texts) == 24
        for text, line in zip(texts, lines, strict=True):
            bare = re.sub(r"<.*?>", "", text).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
            assert bare == "".join(segment.text for segment in line).rstrip()
        for y, line in enumerate(lines):
            for x, segment in enumerate(line):
                if not segment.text.strip() or segment.style is None:
                    continue
                for style in (segment.style + segment.style.parse("#123456"), segment.style.parse("on #123456")):
                    other = [*lines[:y], [*line[:x], segment._replace(style=style), *line[x + 1 :]], *lines[y + 1 :]]
                    assert svg(other, 80, "#000000") != before

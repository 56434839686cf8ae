"""Every screen and dialog: in terminals far too small, through a storm of resizes, and full of hostile text."""

from __future__ import annotations

import re

import pytest
from fake_engine import HOSTILE, FakeEngine
from helpers import main_of, running, settled, text_of
from rich.cells import cell_len
from screens import SCREENS, Shown

TINY = ((1, 1), (2, 1), (10, 3))
STORM = ((200, 2), (3, 60), (79, 23), (39, 9))
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ud800-\udfff]")
AT_ONCE = 8
ALIKE = (
    "pattern-mean", "pattern-max", "masked-heads", "masked-heatmap", "embed-heatmap", "embed-row", "embed-histogram",
    "rot_q-all-heads", "rot_q-heatmap", "rot_q-row", "logits-heatmap", "logits-row", "rotary_cos-heatmap",
    "resid_post-heatmap", "scores-scale-log", "scores-scale-row", "attn_out-added",
)  # fmt: skip
"""Screens of a widget that another screen in the table has as well."""


def groups() -> list[tuple[Shown, ...]]:
    """The screens in groups that one app can show one after the other."""
    found = []
    screens = [shown for shown in SCREENS if shown.name not in ALIKE]
    for engine in {shown.engine: None for shown in screens}:
        same = [shown for shown in screens if shown.engine is engine]
        found += [tuple(same[at : at + AT_ONCE]) for at in range(0, len(same), AT_ONCE)]
    return found


def named(group: tuple[Shown, ...]) -> str:
    return f"{group[0].name}-to-{group[-1].name}"


@pytest.mark.parametrize("group", groups(), ids=named)
async def test_screens_live_through_any_size(group: tuple[Shown, ...]) -> None:
    async with running(size=(100, 30), engine=group[0].engine()) as (app, pilot):
        for shown in group:
            await shown.reach(app, pilot)
            screen = app.screen
            for width, height in TINY:
                await pilot.resize_terminal(width, height)
                await pilot.pause()
                lines = text_of(app)
                assert len(lines) == height
                assert {cell_len(line) for line in lines} == {width}, shown.name
            for size in STORM:
                await pilot.resize_terminal(*size)
            await pilot.resize_terminal(100, 30)
            await settled(pilot)
            assert app.screen is screen
            assert {cell_len(line) for line in text_of(app)} == {100}, shown.name
            while app.screen is not main_of(app):
                await pilot.press("escape")


@pytest.mark.parametrize("group", groups(), ids=named)
async def test_hostile_text_is_harmless_on_every_screen(group: tuple[Shown, ...]) -> None:
    engine = group[0].engine()
    assert isinstance(engine, FakeEngine)
    engine.hostile, engine.vocabulary = True, HOSTILE
    async with running(size=(160, 40), engine=engine, request={"model": "modern", "prompt": "x"}) as (app, pilot):
        for shown in group:
            await shown.reach(app, pilot)
            lines = text_of(app)
            assert not [line for line in lines if UNPRINTABLE.search(line)], shown.name
            assert {cell_len(line) for line in lines} == {160}, shown.name
            assert any("[/" in line for line in lines), shown.name
            while app.screen is not main_of(app):
                await pilot.press("escape")

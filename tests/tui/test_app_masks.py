"""Masked cells in a difference of attention weights."""

from __future__ import annotations

import math
import random
from array import array
from dataclasses import replace
from itertools import product

import pytest
from fake_engine import FakeEngine
from helpers import go, main_of, picture, running, settled, text_of
from planes import ARCS, PATTERN, TEXT, TOKENS, a_block, a_plane, a_trace, alone

from engine.views import View
from tui.state.trace import Trace
from tui.state.views import Plane
from tui.widgets.arcs import Arcs
from tui.widgets.plane import PlaneView
from tui.widgets.weighted_text import WeightedText

SITE = "blocks.1.attn.pattern"
N = len(TOKENS)


def difference(view: View = PATTERN, query: int = 0) -> Plane:
    """Head 0 minus head 1 of a softmax step."""
    trace = a_trace()
    steps = tuple(replace(step, looks=("arcs", "text")) if step.site == SITE else step for step in trace.steps)
    trace = Trace("modern", tokens=trace.tokens, steps=steps, passes=trace.passes, run=1)
    plane = a_plane(trace, view, SITE, query)
    return plane.without(replace(plane, place=tuple((a, 1 if a == "head" else i) for a, i in plane.place)))


def values_of(plane: Plane) -> array[float]:
    """The difference as the engine tells it: −∞ where the key is after the query, and anything else before."""
    rng, view, (rows, cols) = random.Random(1), plane.view, plane.size
    cells = []
    for place in product(range(rows), range(cols)):
        index = dict(plane.place) | dict(zip((view.rows, view.cols), place, strict=True))
        cells.append(-math.inf if index["key"] > index["query"] else rng.uniform(-1, 1))
    return array("f", cells)


@pytest.mark.parametrize("kind", [Arcs, WeightedText])
async def test_arcs_and_text_mark_them_and_say_what_differs(kind: type[PlaneView]) -> None:
    plane = difference(ARCS if kind is Arcs else TEXT, query=4)
    rows, cols = plane.size
    cells = values_of(plane)
    stats = replace(a_block(plane, [[0.9, -0.9]]).stats, masked=sum(value == -math.inf for value in cells))
    block = replace(a_block(plane, [list(cells[r * cols : (r + 1) * cols]) for r in range(rows)]), stats=stats)
    view = kind(id="a")
    cell = (4, 1) if kind is Arcs else (0, 1)
    async with alone(view, size=(100, 40), then=lambda: view.show(plane, cell, block)) as (app, _):
        shown = "\n".join(app.lines)
        assert "∞" not in shown
        assert "reads" not in shown
        assert shown.count("·") >= N - 5
        assert "differs" in shown
        if kind is WeightedText:
            assert f"differs at 5 of {N} tokens" in app.lines[0]


async def test_a_difference_of_two_heads_marks_masked_cells_and_names_both() -> None:
    async with running(size=(120, 40), engine=FakeEngine()) as (app, pilot):
        await go(app, pilot, SITE)
        for _ in range(2):
            await pilot.press("d")
            await settled(pilot)
        block, plane = picture(app).block, main_of(app).plane
        assert block is not None
        assert plane is not None
        n = plane.size[0]
        for row in range(n):
            for col in range(n):
                assert (block.value(row, col) == -math.inf) == (col > row)
        lines = text_of(app)
        assert any("pattern · head 0 − head 1" in line for line in lines)
        assert any(f"{n * (n - 1) // 2} masked" in line for line in lines)
        await pilot.press("up", "up", *["full_stop"] * n)
        await settled(pilot)
        assert any(" masked   query" in line for line in text_of(app))

"""Masked cells in a difference of attention weights."""

from __future__ import annotations

import math
import random
from array import array
from dataclasses import replace

import pytest
from fake_engine import FakeEngine
from helpers import go, main_of, picture, running, settled, text_of
from planes import ARCS, PATTERN, TEXT, TOKENS, a_block, a_plane, a_trace, alone

from engine.views import View
from tui.state.masks import with_masks
from tui.state.trace import Trace
from tui.state.views import Plane
from tui.widgets.arcs import Arcs
from tui.widgets.plane import PlaneView
from tui.widgets.weighted_text import WeightedText

SITE = "blocks.1.attn.pattern"
ROW = View("bars", "key", "", "row")
N = len(TOKENS)


def difference(view: View = PATTERN, query: int = 0, start: int = 0, predicts: str = "next token") -> Plane:
    """Head 0 minus head 1 of a softmax step."""
    trace = a_trace(start=start)
    steps = tuple(replace(step, looks=("arcs", "text")) if step.site == SITE else step for step in trace.steps)
    trace = Trace("modern", predicts=predicts, tokens=trace.tokens, steps=steps, passes=trace.passes, run=1)
    plane = a_plane(trace, view, SITE, query)
    return plane.without(replace(plane, place=tuple((a, 1 if a == "head" else i) for a, i in plane.place)))


def values_of(plane: Plane, row: int = 0, col: int = 0, height: int = 0, width: int = 0) -> array[float]:
    """What a window of the difference holds: zeros where the key is after the query, and anything else before."""
    rng = random.Random(row + col)
    first, view = plane.step.first("query"), plane.view
    rows, cols = plane.size
    cells = []
    for r in range(row, row + (height or rows)):
        for c in range(col, col + (width or cols)):
            index = dict(plane.place) | {view.rows: r, view.cols: c}
            cells.append(0.0 if index["key"] > first + index["query"] else rng.uniform(-1, 1))
    return array("f", cells)


@pytest.mark.parametrize("start", [0, 9])
@pytest.mark.parametrize("view", [PATTERN, ARCS, TEXT, ROW])
def test_a_key_after_its_query_is_masked_on_both_sides(view: View, start: int) -> None:
    plane = difference(view, query=4, start=start)
    values = values_of(plane)
    found, stats = with_masks(plane, 0, 0, plane.size[1], values, a_block(plane, [[0.5, -0.5]]).stats)
    for before, after in zip(values, found, strict=True):
        assert after == (-math.inf if before == 0 else before)
    assert stats.masked == sum(value == 0 for value in values) > 0


def test_a_window_is_marked_where_it_lies() -> None:
    plane = difference()
    values = values_of(plane, 5, 3, 4, 6)
    found, stats = with_masks(plane, 5, 3, 6, values, a_block(plane, [[0.5]]).stats)
    assert [value == -math.inf for value in found] == [value == 0 for value in values]
    assert stats.masked == N * (N - 1) // 2, "of the whole plane"


def test_what_could_be_two_equal_weights_stays_a_zero() -> None:
    equal = array("f", [0.0] * N * N)
    seen = [key <= query for query in range(N) for key in range(N)]
    found, _ = with_masks(difference(), 0, 0, N, equal, a_block(difference(), [[0.0]]).stats)
    assert [value == 0 for value in found] == seen
    both_ways = difference(predicts="masked token")
    assert with_masks(both_ways, 0, 0, N, equal, a_block(both_ways, [[0.0]]).stats)[0] == equal
    scores = a_plane(a_trace(), PATTERN, "blocks.1.attn.scores")
    scores = scores.without(scores)
    assert with_masks(scores, 0, 0, N, equal, a_block(scores, [[0.0]]).stats)[0] == equal, "not weights"


@pytest.mark.parametrize("kind", [Arcs, WeightedText])
async def test_arcs_and_text_mark_them_and_say_what_differs(kind: type[PlaneView]) -> None:
    plane = difference(ARCS if kind is Arcs else TEXT, query=4)
    rows, cols = plane.size
    cells, stats = with_masks(plane, 0, 0, cols, values_of(plane), a_block(plane, [[0.9, -0.9]]).stats)
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

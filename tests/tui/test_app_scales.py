"""Colour scales: whatever the scale, a number in a cell is its value, and what cannot be told apart is marked."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from fake_engine import FakeEngine
from helpers import go, main_of, picture, running, settled, text_of
from hypothesis import given
from hypothesis import strategies as st
from planes import PATTERN, TOKENS, a_block, a_plane, a_trace, alone, weights
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from textual.app import App

from engine.views import View
from tui.render.cells import ABOVE, BELOW, DECADES, DOWN, MASKED, UP, Scale, legend, worded_width
from tui.render.palette import LEVELS, contrast, palette
from tui.state.block import Stats
from tui.state.drawing import MODES, Drawing
from tui.state.looks import Grid
from tui.state.views import Plane
from tui.widgets.heatmap import Heatmap
from tui.widgets.readout import Readout

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
ANY = st.floats(width=32)
SIZES = st.floats(2.0**-40, 2.0**40, width=32)


def stats_of(values: list[float]) -> Stats:
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    mean = math.fsum(finite) / len(finite)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / len(finite))
    return Stats(min(finite), max(finite), mean, std, count=len(values))


def a_scale(values: list[float], mode: str, width: int = 6, weight: bool = False, **more: Any) -> Scale:
    return Scale(stats_of(values), palette(True), width, weight, mode=mode, **more)


def text(segments: list[Any]) -> str:
    return "".join(segment.text for segment in segments)


def parts(line: str, width: int) -> list[str]:
    return [line[at : at + width] for at in range(0, len(line), width)]


@given(st.lists(FLOATS, min_size=2, max_size=40), st.sampled_from(MODES), SIZES)
def test_levels_rise_with_the_values_and_stay_inside_the_styles(values: list[float], mode: str, fixed: float) -> None:
    scale = a_scale(values, mode, fixed=fixed)
    limit = scale.row_limit(values)
    levels = [scale.level(value, limit) for value in sorted(values)]
    assert levels == sorted(levels)
    assert max(map(abs, levels)) <= LEVELS
    assert scale.level(0.0, limit) == 0
    assert all(
        abs(scale.level(-value, limit) + level) <= 1 for value, level in zip(sorted(values), levels, strict=True)
    )


@given(st.lists(ANY, min_size=1, max_size=20), st.sampled_from(MODES), st.integers(1, 9), st.booleans(), st.booleans())
def test_every_cell_has_its_width_and_what_is_not_finite_is_marked(
    values: list[float], mode: str, width: int, shades: bool, weight: bool
) -> None:
    scale = a_scale(values, mode, width, weight, shades=shades)
    limit = scale.row_limit(values)
    line = scale.segments([*values, None], limit=limit)
    assert cell_len(text(line)) == width * (len(values) + 1)
    for value, shown in zip(values, parts(text(line), width), strict=False):
        if not math.isfinite(value):
            assert shown.strip() == ("NaN" if math.isnan(value) else "∞" if value > 0 else "-∞")[: max(1, width - 1)]
            assert scale.segments([value])[0].style is scale.palette.odd


@given(
    st.lists(st.floats(-99, 99, width=32), min_size=1, max_size=20),
    st.sampled_from(MODES),
    st.integers(4, 9),
    st.booleans(),
)
def test_digits_are_the_value_rounded_whatever_the_scale(
    values: list[float], mode: str, width: int, shades: bool
) -> None:
    scale = a_scale(values, mode, width, shades=shades, fixed=0.5)
    usual = a_scale(values, "auto", width, shades=shades)
    assert (scale.places, scale.needed()) == (usual.places, usual.needed()), "the geometry is that of all modes"
    if scale.places < 0:
        return
    line = text(scale.segments(values, limit=scale.row_limit(values)))
    for value, part in zip(values, parts(line, width), strict=True):
        digits = part[shades:-1].strip()
        if digits != "…":
            assert abs(float(digits) - value) <= 0.5 * 10 ** -len(digits.partition(".")[2]) * 1.001


@pytest.mark.parametrize("shades", [False, True])
@pytest.mark.parametrize("width", range(1, 10))
def test_what_lies_beyond_an_end_is_marked(width: int, shades: bool) -> None:
    scale = Scale(Stats(-3, 3, 0, 0.5), palette(True), width, False, shades, mode="clipped")
    assert scale.limit == 1.0  # 2 rms
    inside, above, below = parts(text(scale.segments([0.9, 1.5, -1.5])), width)
    assert (above[-1], below[-1]) == (ABOVE, BELOW)
    assert not {ABOVE, BELOW} & set(inside)


def test_a_scale_ends_where_its_mode_says() -> None:
    values = Stats(low=-2.0, high=10.0, mean=0.3, std=0.4)
    ends = {mode: Scale(values, palette(True), 6, False, mode=mode, fixed=0.7).limit for mode in MODES}
    assert ends == {"auto": 2.0, "row": 10.0, "symmetric": 10.0, "log": 10.0, "clipped": 1.0, "fixed": 0.7}
    some = Scale(values, palette(True), 6, False, mode="row")
    assert some.row_limit([0.1, -0.4, math.nan, -math.inf, None]) == pytest.approx(0.4)
    assert some.level(-0.4, 0.4) == -LEVELS


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_see_is_no_fault(mode: str) -> None:
    scale = Scale(Stats(), palette(True), 5, True, mode=mode)
    assert text(scale.segments([0.0, None, math.nan], limit=scale.row_limit([0.0, None, math.nan])))
    assert scale.level(0.0) == 0


def test_a_logarithmic_scale_has_as_many_steps_for_each_decade() -> None:
    scale = a_scale([1.0, -1.0], "log")
    levels = [scale.level(10.0**-power) for power in range(DECADES + 2)]
    assert levels == [12, 9, 6, 3, 0, 0]
    assert [scale.level(-(10.0**-power)) for power in range(DECADES)] == [-12, -9, -6, -3]


def test_a_symmetric_scale_has_zero_in_its_middle_even_of_weights() -> None:
    scale = a_scale([0.2, 0.8], "symmetric", weight=True)
    assert scale.ends == ("-0.8", "0.8")
    shown = legend(scale, 25)
    assert text(shown) == "-" * LEVELS + " " * (LEVELS + 1)
    assert scale.segments([0.8])[0].style is palette(True).fills[-1]


@pytest.mark.parametrize(
    ("mode", "words", "ends"),
    [
        ("auto", "", ("≤-1.6", "≥1.6")),
        ("row", "per row", ("-row max", "row max")),
        ("symmetric", "symmetric", ("-4", "4")),
        ("log", "log, 4 decades", ("-4", "4")),
        ("clipped", "clipped at ±0.8 = 2 rms", ("≤-0.8", "≥0.8")),
        ("fixed", "fixed at ±0.25", ("≤-0.25", "≥0.25")),
    ],
)
def test_the_legend_names_the_scale_and_its_ends(mode: str, words: str, ends: tuple[str, str]) -> None:
    scale = Scale(Stats(-4, 4, 0, 0.4), palette(True), 6, False, mode=mode, fixed=0.25)
    assert (scale.words, scale.ends) == (words, ends)


def test_the_scale_of_weights_starts_at_nothing_or_at_the_least_decade() -> None:
    weights = Stats(0, 1, 0.1, 0.2, masked=3)
    assert Scale(weights, palette(True), 6, True).ends == ("0", "1")
    assert Scale(weights, palette(True), 6, True, mode="log").ends == ("≤0.0001", "1")


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_a_picture_has_few_styles_and_all_can_be_read(mode: str, dark: bool) -> None:
    values = [n / 40 for n in range(-120, 121)]
    scale = Scale(stats_of(values), palette(dark), 6, False, mode=mode, fixed=1.0)
    line = scale.segments([*values, None, math.nan, math.inf, -math.inf], cursor=3)
    styles = {segment.style for segment in line}
    assert len(styles) <= 64

    def rgb(colour: Color | None) -> tuple[int, int, int]:
        assert colour is not None
        return tuple(colour.get_truecolor())  # type: ignore[return-value]

    for style in styles:
        assert isinstance(style, Style)
        assert contrast(rgb(style.color), rgb(style.bgcolor)) >= 4.5


def test_shades_tell_signs_and_sizes_without_colour_in_every_mode() -> None:
    for mode in MODES:
        scale = a_scale([-1.0, 1.0], mode, 1, shades=True, fixed=1.0)
        line = text(scale.segments([-1.0, 0.001, 1.0], limit=1.0))
        assert line[0] + line[2] == DOWN[-1] + UP[-1]
        assert line[1] in ("·", UP[1])


# the picture


async def test_the_cells_hold_still_while_one_toggles_from_scores_to_pattern() -> None:
    async with running(size=(120, 40), engine=FakeEngine()) as (app, pilot):
        seen = []
        for site in ("scores", "scaled", "masked", "pattern", "masked", "scores"):
            await go(app, pilot, f"blocks.1.attn.{site}")
            heatmap = picture(app)
            assert isinstance(heatmap, Heatmap)
            seen.append(
                (heatmap.cell_width, heatmap._height, heatmap._gutter, heatmap.seen(), tuple(heatmap.scroll_offset))
            )
        assert len(set(seen)) == 1


async def test_cells_grow_where_the_numbers_do_not_fit() -> None:
    heatmap = Heatmap(id="a")
    trace = a_trace()
    low, high = a_plane(trace, site="blocks.0.attn.scores"), a_plane(trace, site="blocks.1.attn.scores")
    n = len(TOKENS)
    async with alone(heatmap, size=(60, 24)) as (_, pilot):
        heatmap.show(low, (0, 0), a_block(low, weights(n, n), masked=0))
        await pilot.pause()
        narrow = heatmap.cell_width
        heatmap.show(high, (0, 0), a_block(high, [[-123.4 * (row + 1)] * n for row in range(n)], masked=0))
        assert heatmap.cell_width > narrow
        wide = heatmap.cell_width
        heatmap.show(low, (0, 0), a_block(low, weights(n, n), masked=0))
        assert heatmap.cell_width == wide


@pytest.mark.parametrize("mode", MODES)
async def test_a_scale_changes_colours_and_not_one_character(mode: str) -> None:
    heatmap, trace, n = Heatmap(id="a"), a_trace(), len(TOKENS)
    plane = a_plane(trace)
    block = a_block(plane, weights(n, n))
    async with alone(heatmap, size=(90, 20)) as (app, pilot):
        heatmap.show(plane, (3, 1), block)
        await pilot.pause()
        before = app.lines
        heatmap.restyle(Drawing(mode=mode, fixed=2.0))
        await pilot.pause()
        assert [line.translate({ord(ABOVE): " "}) for line in app.lines] == before


async def test_per_row_each_row_has_a_strongest_cell() -> None:
    heatmap, trace, n = Heatmap(id="a"), a_trace(), len(TOKENS)
    plane, rows = a_plane(trace), weights(len(TOKENS), len(TOKENS))
    async with alone(heatmap, size=(100, 20)) as (_, pilot):
        heatmap.restyle(Drawing(mode="row"))
        heatmap.show(plane, (0, 0), a_block(plane, rows))
        await pilot.pause()
        strongest = palette(True, "layerstep-dark").weights[-1]
        for row in range(1, n):
            strip = heatmap.strip(row + 1)
            assert sum(segment.style == strongest for segment in strip) == 1


async def test_the_readout_names_the_scale() -> None:
    async with running(size=(160, 45)) as (app, pilot):
        await go(app, pilot, "blocks.1.attn.masked")
        shown = set()
        for _ in MODES:
            await pilot.press("l")
            await settled(pilot)
            readout = main_of(app).query_one(Readout)
            shown.add(readout._scale.words if readout._scale else "")
            assert readout._scale is not None
            low, high = readout._scale.ends
            assert any(low in line and high in line and readout._scale.words in line for line in text_of(app))
        assert {"per row", "symmetric", "log, 4 decades"} <= shown
        assert any(words.startswith("clipped") for words in shown)
        assert any(words.startswith("fixed at ±") for words in shown)


# words in cells


def lens(rows: int = 4, words: tuple[str, ...] = ("␣disk", "full", "漢字", "[/b]", "␛]0;x␇")) -> tuple[Plane, Grid]:
    trace = a_trace(TOKENS[:rows])
    depth = tuple(f"blocks.{n}.resid_{part}" for n in range(2) for part in ("mid", "post"))
    view = View("grid", "query", "depth", "lens", look="lens", free=("head", "key"))
    plane = Plane(trace, trace.steps[0], view, (("batch", 0),), 0, depth=depth)
    texts = tuple(tuple(words[(row + col) % len(words)] for col in range(4)) for row in range(rows))
    return plane, Grid(size=rows, sites=depth, texts=texts)


@pytest.mark.parametrize(("size", "shades"), [((80, 20), False), ((60, 12), True), ((20, 5), False), ((1, 1), False)])
async def test_the_lens_has_a_word_and_its_probability_in_each_cell(size: tuple[int, int], shades: bool) -> None:
    heatmap = Heatmap(id="a")
    plane, grid = lens()
    block = a_block(plane, [[0.63, 0.04, 1.0, math.nan]] * 4, grid, masked=0)
    async with alone(heatmap, size=size) as (app, pilot):
        heatmap.restyle(Drawing(shades=shades))
        heatmap.show(plane, (1, 1), block)
        await pilot.pause()
        assert {cell_len(line) for line in app.lines} == {size[0]}
        if size[0] >= 60:
            shown = "\n".join(app.lines)
            assert re.search(r"␣disk +\.63 .?full +\.04 .?漢字 +1\.00 +NaN", shown)
            assert "0.mid" in shown
            assert "1.post" in shown


@given(st.lists(st.text(max_size=12), min_size=1, max_size=5), st.integers(1, 16), st.booleans())
def test_words_never_move_the_columns(labels: list[str], width: int, shades: bool) -> None:
    scale = Scale(Stats(0, 1, 0.3, 0.2), palette(True), width, False, shades)
    for words in (True, False):
        assert cell_len(text(scale.worded([0.5] * len(labels), labels, 0, words))) == width * len(labels)


def test_words_get_what_they_need_where_there_is_room() -> None:
    assert worded_width(4, 200, 5) == 11
    assert worded_width(4, 200, 40) == 16
    assert worded_width(12, 120, 20) == 10
    assert worded_width(50, 80, 20) == 11
    assert MASKED not in text(Scale(Stats(0, 1), palette(True), 12, True).worded([0.0], ["a"]))


async def test_styles_are_made_anew_for_another_theme() -> None:
    heatmap, trace, n = Heatmap(id="a"), a_trace(), len(TOKENS)
    plane = a_plane(trace, PATTERN)
    async with alone(heatmap, size=(90, 20)) as (app, pilot):
        heatmap.show(plane, (3, 1), a_block(plane, weights(n, n)))
        await pilot.pause()
        dark = heatmap.strip(5)
        assert isinstance(app, App)
        app.theme = "layerstep-light"
        await pilot.pause()
        light = heatmap.strip(5)
        assert dark.text == light.text
        assert {segment.style for segment in dark}.isdisjoint({segment.style for segment in light})

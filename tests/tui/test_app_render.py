"""Cells, bars and profiles: widths, marks, contrast."""

from __future__ import annotations

import math
import random

import pytest
from rich.color import Color
from rich.style import Style

from engine.text import cells as cells_of
from tui.render.bars import bar
from tui.render.cells import Scale, auto_height, auto_width, legend
from tui.render.palette import LEVELS, contrast, inks, palette
from tui.render.profile import profile
from tui.state.block import Stats
from tui.text import centred, fit, foreign, one_to_one, right
from tui.themes import THEMES
from tui.widgets.lines import wrap

PLAIN = Style()
SIGNED, WEIGHTS = Stats(low=-2.5, high=2.5, std=1.5, masked=1), Stats(low=0, high=1.0, mean=0.1, std=0.2)
ODD = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-30, 2.5, -2.5, 99.0, -99.0, 0.3]


def text(segments: list) -> str:  # type: ignore[type-arg]
    return "".join(segment.text for segment in segments)


def ratio(style: Style) -> float:
    def rgb(colour: Color | None) -> tuple[int, int, int]:
        assert colour is not None
        return tuple(colour.get_truecolor())  # type: ignore[return-value]

    return contrast(rgb(style.color), rgb(style.bgcolor))


@pytest.mark.parametrize("shades", [False, True])
@pytest.mark.parametrize("width", range(1, 10))
@pytest.mark.parametrize(
    "stats", [SIGNED, WEIGHTS, Stats(), Stats(low=-5e8, high=3e8, std=1e8), Stats(low=1e-9, high=2e-9)]
)
def test_every_cell_has_the_width(stats: Stats, width: int, shades: bool) -> None:
    scale = Scale(stats, palette(True), width, weight=stats is WEIGHTS, shades=shades)
    for words in (True, False):
        for cursor in (-1, 0, 5):
            assert cells_of(text(scale.segments(ODD, cursor, words))) == width * len(ODD)
    assert cells_of(text(legend(scale, 20))) <= 25


def test_digits_shades_and_marks() -> None:
    assert (
        text(Scale(WEIGHTS, palette(True), 5, weight=True).segments([1.0, 0.634, 0.0, None, math.nan]))
        == "1.00 .634   ·    ┄   NaN "
    )
    assert text(Scale(SIGNED, palette(True), 5, weight=False).segments([-2.5, 0.34, -math.inf])) == "-2.5   .3   ·  "
    assert text(Scale(SIGNED, palette(True), 2, weight=False).segments([-2.5, 1.3, 0.01])) == "-     "
    assert text(Scale(SIGNED, palette(True), 4, weight=False).segments([-2.5, 1.3, -0.01])) == "  -         "
    assert text(Scale(SIGNED, palette(True), 1, weight=False).segments([-2.5, 1.3, 0.0])) == "-  "
    assert text(Scale(SIGNED, palette(True), 1, weight=False, shades=True).segments([-2.5, -0.3, 0.3, 2.5])) == "#-░█"


@pytest.mark.parametrize(
    ("ends", "weight", "width", "shown"),
    [
        ((0.0, 1.0), True, 4, " .54 1.0"),
        ((-0.9, 0.94), False, 4, " -.5  .5"),
        ((-1.0, 1.0), False, 5, " -.5  .5"),
        ((-4.0, 9.0), False, 5, "-1.2 1.2"),
        ((-48.0, 86.0), False, 5, " -48 1.2"),
        ((-480.0, 86.0), False, 5, "-480 1.2"),
        ((-0.395, 0.33), False, 5, "-.03 .14"),
        ((-4e-5, 4e-5), False, 0, ""),
        ((-5e8, 3e8), False, 0, ""),
    ],
)
def test_the_width_is_what_the_numbers_need(ends: tuple[float, float], weight: bool, width: int, shown: str) -> None:
    stats = Stats(low=ends[0], high=ends[1], std=max(map(abs, ends)))
    scale = Scale(stats, palette(True), 1, weight)
    assert scale.needed() == width
    if width:
        values = [float(number) for number in shown.split()]
        line = text(Scale(stats, palette(True), width, weight).segments(values))
        assert [round(float(number), 2) for number in line.split()] == [round(value, 2) for value in values]


@pytest.mark.parametrize("shades", [False, True])
@pytest.mark.parametrize("width", range(2, 10))
@pytest.mark.parametrize("most", [0.004, 0.1, 0.395, 0.96, 1.0, 2.5, 9.96, 34.0, 5e4, 1e9])
def test_numbers_are_the_values_and_never_run_together(most: float, width: int, shades: bool) -> None:
    rng = random.Random(3)
    values = [rng.uniform(-most, most) for _ in range(200)] + [-most, most]
    stats = Stats(low=-most, high=most, std=most / 2)
    scale = Scale(stats, palette(True), width, weight=False, shades=shades)
    line = text(scale.segments(values))
    parts = [line[at : at + width] for at in range(0, len(line), width)]
    assert {part[-1] for part in parts} == {" "}
    for value, part in zip(values, parts, strict=True):
        number = part[shades:].strip()
        if scale.places < 0:
            assert not any(char.isdigit() for char in part)
        else:
            assert abs(float(number) - value) <= 0.5 * 10 ** -len(number.partition(".")[2]) * 1.001
            assert "." in number or abs(value) > 9.9 or (scale.places == 0 and most > 9.9)


def test_a_shade_never_doubles_the_sign_of_a_number() -> None:
    scale = Scale(SIGNED, palette(True), 6, weight=False, shades=True)
    values = [-0.3, -2.5, 0.3, -math.inf]
    assert text(scale.segments(values)) == "  -.3 #-2.5 ░  .3   ·   "
    assert text(scale.segments(values, words=False)) == "----- ##### ░░░░░       "


def test_neighbours_of_one_style_are_one_segment() -> None:
    scale = Scale(WEIGHTS, palette(True), 3, weight=True)
    assert len(scale.segments([0.5] * 100)) == 1
    assert len(scale.segments([0.5] * 100, cursor=50)) == 3


def test_levels_are_inside_the_prebuilt_styles() -> None:
    scale = Scale(SIGNED, palette(False), 3, weight=False)
    for value in (random.Random(1).uniform(-9, 9) for _ in range(500)):
        assert -LEVELS <= scale.level(value) <= LEVELS
    assert scale.level(0.0) == 0


@pytest.mark.parametrize("dark", [True, False])
def test_all_of_the_palette_can_be_read(dark: bool) -> None:
    colours = palette(dark)
    styles = [
        *colours.fills,
        *colours.inks,
        *colours.weights,
        *colours.weight_inks,
        colours.masked,
        colours.odd,
        colours.cursor,
    ]
    assert len(styles) <= 84
    assert min(map(ratio, styles)) >= 4.5


@pytest.mark.parametrize("name", list(THEMES))
def test_all_text_has_contrast(name: str) -> None:
    styles = inks(name)
    for field in (
        "text",
        "strong",
        "muted",
        "faint",
        "primary",
        "accent",
        "success",
        "error",
        "cursor",
        "cursor_muted",
    ):
        assert ratio(getattr(styles, field)) >= 4.5, field


def test_cell_sizes_fill_the_room() -> None:
    assert auto_width(9, 80, 5) == 8
    assert auto_width(64, 80, 5) == 5
    assert auto_width(64, 80, 0) == 1
    assert auto_width(500, 80, 0) == 2
    assert auto_height(9, 36, 8) == 3
    assert auto_height(9, 20, 8) == 2
    assert auto_height(40, 36, 8) == 1
    assert auto_height(9, 36, 2) == 1


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("width", [0, 1, 2, 3, 10, 41])
def test_bars_have_their_width(width: int, signed: bool) -> None:
    for value in (-9.0, -1.0, -0.01, 0.0, 0.01, 0.5, 1.0, 9.0, math.nan, math.inf):
        if signed or not value < 0:
            assert len(text(bar(value, 1.0, width, signed, PLAIN, PLAIN, PLAIN))) == max(0, width)


def test_bars_point_away_from_zero() -> None:
    assert text(bar(1.0, 1.0, 9, True, PLAIN, PLAIN, PLAIN)) == "    │████"
    assert text(bar(-1.0, 1.0, 9, True, PLAIN, PLAIN, PLAIN)) == "████│    "
    assert text(bar(0.5, 1.0, 4, False, PLAIN, PLAIN, PLAIN)) == "██  "


def test_a_profile_has_its_size_and_its_zero() -> None:
    for width in (1, 2, 5):
        for low, high in ((0.0, 1.0), (-1.0, 1.0), (-1.0, 0.0), (0.0, 0.0), (-9.0, 0.1)):
            lines = profile([0.5, -0.5, None, math.nan, math.inf, 0.0], low, high, (width, 7), (PLAIN,) * 4, cursor=1)
            assert [cells_of(text(line)) for line in lines] == [6 * width] * 7
    lines = profile([1.0, 0.5, 0.0], 0.0, 1.0, (1, 4), (PLAIN,) * 4)
    assert [text(line) for line in lines] == ["█  ", "█  ", "██ ", "██_"]


def test_foreign_text_is_fitted_exactly() -> None:
    for word in ("[/]", "漢字", "e\u0301", "\u200d" * 3 + "a" * 79, "\x1b]52;c;x\x07", "", "👍🏽"):
        for width in (0, 1, 2, 5, 12, 40):
            assert {cells_of(made(word, width)) for made in (fit, right, centred)} == {width}
        assert len(one_to_one(word)) == len(word)
        assert foreign(one_to_one(word)) == one_to_one(word)


def test_words_are_wrapped() -> None:
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert wrap("", 4) == [""]
    assert all(cells_of(line) <= 5 for line in wrap("漢字漢字漢字 ab 漢字", 5))

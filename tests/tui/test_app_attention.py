"""Attention's pictures: arcs, the weighted text, small pictures of all heads, the chain of a cell."""

from __future__ import annotations

import math
import random
import re
from array import array
from collections.abc import Callable

import pytest
from fake_engine import HOSTILE, FakeEngine
from helpers import go, main_of, picture, running, settled, text_of
from hypothesis import given
from hypothesis import strategies as st
from planes import ARCS, TEXT, TOKENS, Alone, a_block, a_plane, a_trace, alone, weights
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from textual.pilot import Pilot

from engine.views import View
from tui.app import LayerstepApp
from tui.render.blocks import NOTHING, STEPS, halves, pairs, shade
from tui.render.braille import BLANK, Canvas
from tui.render.cells import Scale
from tui.render.palette import contrast, inks, palette
from tui.state.block import Block, Stats
from tui.state.drawing import Drawing
from tui.state.looks import Chain, Stage, Tile
from tui.state.looks import Thumbs as Told
from tui.state.views import Plane
from tui.widgets.arcs import Arcs
from tui.widgets.chain import ChainLine
from tui.widgets.heatmap import Heatmap
from tui.widgets.plane import PlaneView
from tui.widgets.thumbs import Thumbs
from tui.widgets.weighted_text import WeightedText, wrapped

PATTERN = "blocks.1.attn.pattern"
SIZES = [(80, 24), (160, 45), (54, 14), (30, 8), (12, 3), (2, 1), (1, 1)]
PLAIN = Style()
LONG = [f"␣w{n}" for n in range(300)]


def shown(app: Alone) -> str:
    return "\n".join(app.lines)


def arcs(query: int, tokens: list[str] = TOKENS, start: int = 0) -> tuple[Plane, tuple[int, int], Block]:
    plane = a_plane(a_trace(tokens, start), ARCS)
    return plane, (query, query + start), a_block(plane, weights(len(tokens) - start, len(tokens)))


def row(query: int, tokens: list[str] = TOKENS, key: int = 0) -> tuple[Plane, tuple[int, int], Block]:
    plane = a_plane(a_trace(tokens), TEXT, query=query)
    return plane, (0, key), a_block(plane, [weights(len(tokens), len(tokens))[query]])


def thumbs(
    look: str = "heads", heads: int = 4, layers: int = 3, n: int = 16, here: int = 2
) -> tuple[Plane, tuple[int, int]]:
    trace = a_trace([f"t{k}" for k in range(n)], heads=heads, layers=layers)
    view = View("thumbs", name=look, look=look, free=("head", "query", "key"))
    return a_plane(trace, view, f"blocks.{layers - 1}.attn.pattern"), (here, 0)


def told(plane: Plane, tile: tuple[int, int], title: Callable[[int], str] = "tile {}".format) -> Block:
    """Pictures of the size that was asked for; a causal pattern each."""
    heads, layers = plane.step.size("head"), len(plane.trace.blocks)
    count = heads * layers if plane.view.look == "layers" else heads + 2
    height, width = min(tile[0], plane.step.shape[-2]), min(tile[1], plane.step.shape[-1])
    values = array("f")
    rng = random.Random(1)
    for _ in range(count):
        for y in range(height):
            values.extend(rng.random() if x * height <= y * width else math.nan for x in range(width))
    tiles = tuple(Tile(title(n), plane.step.site, n % heads, "", 1.5 + n) for n in range(count))
    pictures = Told(
        tiles=tiles, shape=(count, height, width), columns=heads * (plane.view.look == "layers"), values=values
    )
    return Block(plane.key, 0, 0, *tile, values, Stats(), told=pictures)


def a_chain(masked: bool = False) -> Chain:
    state = "masked" if masked else ""
    return Chain(
        stages=(
            Stage("blocks.1.attn.scores", "scores", 2.3125, "", "q · k"),
            Stage("blocks.1.attn.scaled", "scaled", 0.578, "", "× 0.25 = 1/√16"),
            Stage("blocks.1.attn.masked", "masked", None if masked else 0.578, state, "+ mask"),
            Stage("blocks.1.attn.pattern", "pattern", 0.0 if masked else 0.634, state, "softmax"),
        )
    )


# arcs


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_each_key_has_its_weight_beside_it(size: tuple[int, int]) -> None:
    view = Arcs(id="a")
    plane, cell, block = arcs(10)
    async with alone(view, size=size, then=lambda: view.show(plane, cell, block)) as (app, _):
        for key, token in enumerate(TOKENS):
            value = block.value(10, key)
            assert value is not None
            number = re.escape(f"{value:.3f}"[1:]) if value else "·"
            assert any(re.search(rf" {re.escape(token)} +{number}(?!\d)", line) for line in app.lines), token
        assert any(re.search(r"▸ +\. ●", line) for line in app.lines), "the query is marked"
        best = max(range(len(TOKENS)), key=lambda key: block.value(10, key) or 0)
        assert f"reads {TOKENS[best]} .298" in app.lines[0]
        assert len({line.index("●", 20) for line in app.lines if line.count("●")}) == 1


async def test_masked_keys_have_no_arc() -> None:
    view = Arcs(id="a")
    plane, cell, block = arcs(0)
    async with alone(view, size=(80, 24), then=lambda: view.show(plane, cell, block)) as (app, pilot):
        view.restyle(Drawing(shades=True))  # without the faint links of other queries
        await pilot.pause()
        drawn = [line for line in app.lines if any(BLANK < ord(char) < BLANK + 256 for char in line)]
        assert len(drawn) == 1
        assert "<|bos|>" in drawn[0]


async def test_a_stronger_weight_has_the_thicker_arc() -> None:
    dots = []
    for weight in (0.001, 0.01, 0.05, 0.15, 0.3, 0.8):
        view = Arcs(id="a")
        plane = a_plane(a_trace(TOKENS[:2]), ARCS)
        block = a_block(plane, [[weight, 0.0], [0.0, 0.0]], masked=3)
        async with alone(view, size=(60, 6)) as (app, pilot):
            view.show(plane, (0, 0), block)
            await pilot.pause()
            dots.append(sum((ord(char) - BLANK).bit_count() for char in shown(app) if BLANK < ord(char) < BLANK + 256))
    assert dots == sorted(set(dots))


async def test_a_pass_of_few_queries_reads_all_keys_before_it() -> None:
    view = Arcs(id="a")
    plane, cell, block = arcs(2, start=10)
    async with alone(view, size=(80, 24), then=lambda: view.show(plane, cell, block)) as (app, _):
        line = next(line for line in app.lines if "▸" in line)
        assert line.count(TOKENS[12]) == 2, "a token's query and its key stand side by side"
        assert sum("●" in line or "·" in line for line in app.lines) == len(TOKENS)


async def test_a_long_prompt_scrolls_and_says_what_is_out_of_sight() -> None:
    view = Arcs(id="a")
    plane, cell, block = arcs(250, LONG)
    async with alone(view, size=(80, 24), then=lambda: view.show(plane, cell, block)) as (app, pilot):
        assert any("▸" in line and "␣w250" in line for line in app.lines)
        found = re.search(r"↑ (\.\d+)", app.lines[0])
        assert found
        top = view.scroll_offset.y
        assert float(found[1]) == pytest.approx(sum(block.line(250, 0, top)), abs=6e-4)  # type: ignore[arg-type]
        view.scroll_to(0, 0, animate=False, immediate=True)
        await pilot.pause()
        assert "␣w0" in app.lines[1]
        assert "↓" in app.lines[0]
        view.show(plane, (10, 10), block)
        await pilot.pause()
        assert any("▸" in line and "␣w10 " in line for line in app.lines)
        assert view.seen() == ((10, 11), (0, 300)), "of a long prompt only the row that is looked at is asked for"


async def test_clicks_at_the_left_pick_queries_and_at_the_right_keys() -> None:
    view = Arcs(id="a")
    plane, cell, block = arcs(10)
    async with alone(view, size=(80, 18), then=lambda: view.show(plane, cell, block)) as (app, pilot):
        await pilot.click(view, offset=(6, 3))
        await pilot.click(view, offset=(app.lines[5].index("ed", 20), 5))
        await pilot.click(view, offset=(30, 5))
        assert app.told == [(2, None), (None, 4)]


@given(
    st.integers(0, 40),
    st.integers(0, 12),
    st.integers(-5, 20),
    st.integers(-5, 20),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_curves_stay_on_their_canvas(width: int, height: int, start: int, stop: int, thick: int, gap: int) -> None:
    canvas = Canvas(width, height)
    canvas.curve(start, stop, PLAIN, 1.0, thick, gap)
    assert [sum(cell_len(s.text) for s in canvas.segments(y, PLAIN)) for y in range(height)] == [width] * height
    if gap == 1 and width and 0 <= start < height and 0 <= stop < height:
        lines = ["".join(s.text for s in canvas.segments(y, PLAIN)) for y in range(height)]
        assert lines[start][0] != " "
        assert lines[stop][-1] != " "


def test_of_two_curves_the_stronger_has_the_cell() -> None:
    canvas, strong, weak = Canvas(4, 1), Style(bold=True), Style(italic=True)
    canvas.curve(0, 0, strong, 0.9)
    canvas.curve(0, 0, weak, 0.1)
    assert [segment.style for segment in canvas.segments(0, PLAIN)] == [strong]


# the text


async def test_the_text_has_each_tokens_weight_below_it() -> None:
    view = WeightedText(id="a")
    plane, cell, block = row(10)
    async with alone(view, size=(60, 20), then=lambda: view.show(plane, cell, block)) as (app, _):
        lines = app.lines
        assert "▲ . (10) reads 11 of 16 tokens" in lines[0]
        for key, token in enumerate(TOKENS):
            n, slot = next((n, s) for n, line in enumerate(view._lines) for s in line if s.key == key)
            y, x = 2 + n * 3, 1 + slot.start
            assert lines[y][x : x + slot.width].rstrip() == token.replace("␣", " ")
            below = lines[y + 1][x : x + slot.width].strip(" ▲")
            assert below == ("·" if key > 10 else f"{block.value(0, key):.2f}"[1:])
        assert sum(line.count("▲") for line in lines[1:]) == 1


async def test_below_a_short_text_stands_what_is_read_most() -> None:
    view = WeightedText(id="a")
    plane, cell, block = row(12)
    async with alone(view, size=(84, 40), then=lambda: view.show(plane, cell, block)) as (app, _):
        start = next(n for n, line in enumerate(app.lines) if "reads most" in line)
        numbers = [float(found[1]) for line in app.lines[start:] if (found := re.search(r" (\.\d{3}) ", line))]
        want = sorted((round(value, 3) for value in block.line(0, 0, 13) if value), reverse=True)
        assert numbers == want[: len(numbers)]
        assert len(numbers) == 12


@pytest.mark.parametrize("shades", [False, True])
async def test_a_long_text_scrolls_with_bars_or_shades_and_its_query_in_sight(shades: bool) -> None:
    view = WeightedText(id="a")
    plane, cell, block = row(200, LONG)

    def then() -> None:
        view.restyle(Drawing(shades=shades))
        view.show(plane, cell, block)

    async with alone(view, size=(54, 14), then=then) as (app, pilot):
        assert " w200" in shown(app)
        assert "▲" in "\n".join(app.lines[1:])
        assert "·" in shown(app), "masked tokens are marked"
        assert bool(set("░▒▓█") & set(shown(app))) == shades or not shades
        view.show(plane, (0, 3), block)
        await pilot.pause()
        assert " w3 " in shown(app)


async def test_the_text_holds_still_while_the_query_moves() -> None:
    view = WeightedText(id="a")
    trace = a_trace()
    async with alone(view, size=(60, 20)) as (app, pilot):
        words = set()
        for query in range(len(TOKENS)):
            plane = a_plane(trace, TEXT, query=query)
            view.show(plane, (0, 3), a_block(plane, [weights(16, 16)[query]]))
            await pilot.pause()
            words.add((app.lines[2], app.lines[5]))
        assert len(words) == 1


async def test_a_click_on_a_token_makes_it_the_key() -> None:
    view = WeightedText(id="a")
    plane, cell, block = row(10)
    async with alone(view, size=(60, 20), then=lambda: view.show(plane, cell, block)) as (app, pilot):
        await pilot.click(view, offset=(app.lines[2].index("because"), 2))
        await pilot.click(view, offset=(app.lines[2].index("because"), 3))
        await pilot.click(view, offset=(3, 0))
        assert app.told == [(None, 5), (None, 5)]


@given(st.lists(st.text(max_size=8), max_size=30), st.integers(1, 40), st.integers(1, 6))
def test_wrapped_tokens_fill_no_line_beyond_its_width(labels: list[str], width: int, least: int) -> None:
    lines = wrapped(labels, width, least)
    assert [slot.key for line in lines for slot in line] == list(range(len(labels)))
    for line in lines:
        assert sum(slot.width for slot in line) <= width
        assert all(cell_len(slot.text) <= slot.width for slot in line)
        assert [slot.start for slot in line] == [sum(s.width for s in line[:n]) for n in range(len(line))]


def test_blank_tokens_keep_their_marks() -> None:
    assert [slot.text for slot in wrapped(["␣disk", "␣", "␣␣", "⏎", "⇥"], 40, 1)[0]] == [" disk", "␣", "␣␣", "⏎"]
    assert [len(line) for line in wrapped(["a", "⏎", "b"], 40, 1)] == [2, 1], "a new line is one"


# small pictures


@pytest.mark.parametrize("size", [(80, 24), (160, 45), (30, 8), (1, 1)])
@pytest.mark.parametrize("look", ["heads", "layers"])
@pytest.mark.parametrize(("heads", "layers", "n"), [(1, 1, 1), (4, 3, 16), (12, 12, 40), (32, 4, 300)])
async def test_small_pictures_fit_and_ask_for_an_apt_size(
    size: tuple[int, int], look: str, heads: int, layers: int, n: int
) -> None:
    view = Thumbs(id="a")
    plane, cell = thumbs(look, heads, layers, n, here=min(heads, heads * layers - 1))

    def then() -> None:
        view.show(plane, cell, None)
        view.show(plane, cell, told(plane, view.tile_size))

    async with alone(view, size=size, then=then) as (app, pilot):
        assert {cell_len(line) for line in app.lines} == {size[0]}
        height, width = view.tile_size
        assert height >= 1
        assert width in range(1, size[0] + 1)
        for _ in range(3):
            view.show(plane, cell, told(plane, view.tile_size))  # with the scrollbars that there are now
            await pilot.pause()
        if size[0] >= 54:
            assert "┏" in shown(app)
            assert "┛" in shown(app)


async def test_the_framed_picture_stays_in_sight() -> None:
    view = Thumbs(id="a")
    for look, count in (("heads", 34), ("layers", 32 * 6)):
        plane, _ = thumbs(look, 32, 6, 60)
        async with alone(view, size=(54, 14)) as (app, pilot):
            for here in (0, count - 1, 17, 33, 5):
                view.show(plane, (here, 0), view.block or told(plane, view.tile_size))
                await pilot.pause()
                assert "┏" in shown(app), here
                if look == "heads":
                    assert f"tile {here}" in shown(app)
        view = Thumbs(id="a")


async def test_titles_have_their_entropy_and_a_click_opens() -> None:
    view = Thumbs(id="a")
    plane, cell = thumbs(heads=4)

    def then() -> None:
        view.show(plane, cell, None)
        view.show(plane, cell, told(plane, view.tile_size))

    async with alone(view, size=(100, 30), then=then) as (app, pilot):
        assert "tile 0 · 1.50 bits" in shown(app) or "tile 0 1.50" in shown(app)
        y, line = next((y, line) for y, line in enumerate(app.lines) if "tile 1" in line)
        await pilot.click(view, offset=(line.index("tile 1"), y + 2))
        await pilot.click(view, offset=(99, 29))
        assert app.told == [(1, None)]


async def test_a_picture_that_came_larger_loses_no_strong_cell() -> None:
    view = Thumbs(id="a")
    plane, cell = thumbs(heads=30, n=40)
    values = array("f", bytes(4 * 32 * 40 * 40))
    for tile in range(32):
        values[tile * 1600 + 40 * 23 + 11] = 1.0
    tiles = tuple(Tile(f"tile {n}", plane.step.site, n, "", None) for n in range(32))
    block = Block(plane.key, 0, 0, 40, 40, values, Stats(), told=Told(tiles=tiles, shape=(32, 40, 40), values=values))
    async with alone(view, size=(60, 20), then=lambda: view.show(plane, cell, block)) as (app, _):
        assert view.tile_size[1] < 40
        titles = sum(line.count("tile ") for line in app.lines)
        assert titles > 4
        assert sum(line.count("▀") for line in app.lines) >= titles - 4, "one of each picture that is whole"


def test_a_picture_has_at_most_64_styles() -> None:
    for dark in (True, False):
        for weight in (True, False):
            styles = pairs(dark, weight, palette(dark).masked.bgcolor)
            assert sum(map(len, styles)) == (STEPS + 1) ** 2 <= 64


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=12),
    st.lists(st.floats(width=32), min_size=12, max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_half_blocks_are_as_wide_as_the_plane(
    upper: list[float], lower: list[float], weight: bool, shades: bool
) -> None:
    scale = Scale(Stats(-1.0 * (not weight), 1.0, 0, 0.3), palette(True), 6, weight, shades)
    line = halves(upper, lower[: len(upper)], scale)
    assert cell_len("".join(segment.text for segment in line)) == len(upper)


@given(st.lists(st.floats(-9, 9, width=32), min_size=2, max_size=30))
def test_colours_of_small_pictures_rise_with_the_values(values: list[float]) -> None:
    scale = Scale(Stats(min(values), max(values), 0, 3), palette(True), 6, False)
    levels = [shade(scale, value) for value in sorted(values)]
    assert levels == sorted(levels)
    assert 0 <= levels[0] <= levels[-1] < NOTHING
    assert shade(scale, math.nan) == NOTHING


# the chain


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (120, " scores 2.3125 → × 0.25 = 1/√16 → scaled 0.578 → + mask → masked 0.578 → softmax → [pattern 0.634]"),
        (92, " scores 2.3125 → × 0.25 → scaled 0.578 → + mask → masked 0.578 → softmax → [pattern 0.634]"),
        (64, " scores 2.3125 → scaled 0.578 → masked 0.578 → [pattern 0.634]"),
        (60, " scores 2.31 → scaled .578 → masked .578 → [pattern .634]"),
        (50, " 2.31 → .578 → .578 → [pattern .634]"),
        (24, " ‹ [pattern .634]"),
    ],
)
async def test_the_chain_says_as_much_as_fits(width: int, line: str) -> None:
    view = ChainLine(id="chain")
    async with alone(view, size=(width, 5), then=lambda: view.show(a_chain(), PATTERN)) as (app, _):
        assert app.lines[0].rstrip() == line


async def test_the_chain_marks_where_one_is_and_a_click_goes_on() -> None:
    view = ChainLine(id="chain")
    async with alone(view, size=(100, 5), then=lambda: view.show(a_chain(True), "blocks.1.attn.masked")) as (
        app,
        pilot,
    ):
        assert "[masked -∞]" in app.lines[0]
        assert "pattern 0" in app.lines[0]
        for word in ("scores", "scaled", "pattern"):
            await pilot.click(view, offset=(app.lines[0].index(word) + 1, 0))
        assert app.told == [f"blocks.1.attn.{word}" for word in ("scores", "scaled", "pattern")]


async def test_the_chain_keeps_its_place_while_the_next_is_not_known() -> None:
    view = ChainLine(id="chain")
    async with alone(view, size=(100, 5)) as (app, pilot):
        view.show(None, PATTERN)
        assert view.display, "nothing jumps when it comes"
        view.show(a_chain(), PATTERN)
        view.show(None, "blocks.1.attn.scores")
        await pilot.pause()
        assert view.display
        assert "[scores …]" in app.lines[0]
        view.show(Chain(), "blocks.0.mlp.post")
        assert not view.display, "a step that has none"


# all of them


def _hostile(make: str) -> tuple[PlaneView, Callable[[], None]]:
    tokens = [*HOSTILE, "a" * 300]
    if make == "arcs":
        view: PlaneView = Arcs(id="a")
        return view, lambda: view.show(*arcs(20, tokens))
    if make == "text":
        view = WeightedText(id="a")
        return view, lambda: view.show(*row(20, tokens, 4))
    view = Thumbs(id="a")
    plane, cell = thumbs(heads=20, n=20)

    def show() -> None:
        assert isinstance(view, Thumbs)
        view.show(plane, cell, told(plane, view.tile_size, lambda n: HOSTILE[n % len(HOSTILE)]))

    return view, show


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", ["arcs", "text", "thumbs"])
async def test_hostile_tokens_are_harmless_at_any_size(make: str, size: tuple[int, int]) -> None:
    view, show = _hostile(make)
    async with alone(view, size=size, then=show) as (app, pilot):
        for shades in (True, False):
            view.restyle(Drawing(shades=shades))
            await pilot.pause()
            assert {cell_len(line) for line in app.lines} == {size[0]}
            assert all(char.isprintable() for char in shown(app).replace("\n", ""))
            assert not set("\u202e\u200b\u2060\u200d") & set(shown(app))
        await pilot.resize_terminal(40, 10)
        await pilot.resize_terminal(*size)
        assert {cell_len(line) for line in app.lines} == {size[0]}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("make", [Arcs, WeightedText])
async def test_values_that_are_not_finite_are_named(make: type[PlaneView], value: float) -> None:
    view = make(id="a")
    plane, cell, block = arcs(2) if make is Arcs else row(2)
    block.values[2 * 16 + 1 if make is Arcs else 1] = value
    async with alone(view, size=(80, 20), then=lambda: view.show(plane, cell, block)) as (app, _):
        assert re.search({"nan": "NaN", "inf": r"[^-]∞", "-inf": "-∞"}[str(value)], shown(app))


@pytest.mark.parametrize("make", [Arcs, WeightedText, Thumbs])
async def test_nothing_is_drawn_of_what_is_not_here_yet(make: type[PlaneView]) -> None:
    view = make(id="a")
    plane, cell = thumbs() if make is Thumbs else arcs(3)[:2] if make is Arcs else row(3)[:2]
    async with alone(view, size=(80, 24), then=lambda: view.show(plane, cell, None)) as (app, _):
        assert not re.search(r"\.\d\d", shown(app))
        assert not set("█▀▓") & set(shown(app))


@pytest.mark.parametrize("theme", ["layerstep-dark", "layerstep-light"])
@pytest.mark.parametrize("make", [Arcs, WeightedText])
async def test_all_words_and_numbers_can_be_read(make: type[PlaneView], theme: str) -> None:
    view = make(id="a")
    plane, cell, block = arcs(10) if make is Arcs else row(10)

    def rgb(colour: Color | None) -> tuple[int, int, int]:
        assert colour is not None
        return tuple(colour.get_truecolor())  # type: ignore[return-value]

    async with alone(view, size=(80, 30), theme=theme, then=lambda: view.show(plane, cell, block)):
        ground = inks(theme).text.bgcolor
        for y in range(view.size.height):
            for segment in view.strip(y):
                if segment.style and re.search(r"\w", segment.text):
                    assert contrast(rgb(segment.style.color), rgb(segment.style.bgcolor or ground)) >= 4.5, segment


# in the app


async def test_the_pictures_of_a_pattern_show_the_engines_numbers() -> None:
    engine = FakeEngine()
    async with running(size=(160, 45), engine=engine) as (app, pilot):
        await go(app, pilot, PATTERN)
        for kind, name in ((Arcs, "arcs"), (WeightedText, "text"), (Thumbs, "heads"), (Thumbs, "layers")):
            await shown_as(app, pilot, name)
            assert isinstance(picture(app), kind)
            lines = text_of(app)
            assert {cell_len(line) for line in lines} == {160}
            if kind is Arcs:
                value = engine.value(PATTERN, {"batch": 0, "head": 0, "query": 8, "key": 3})
                assert any(f"{value:.3f}"[1:] in line and "␣crashed" in line for line in lines)
            if kind is Thumbs:
                assert "bits of entropy" in "\n".join(lines)


async def shown_as(app: LayerstepApp, pilot: Pilot[None], name: str) -> None:
    """Go on to the picture of that name."""
    for _ in range(12):
        plane = main_of(app).plane
        if plane is not None and plane.view.name == name:
            return
        await pilot.press("v")
        await settled(pilot)
    raise AssertionError(name)


@pytest.mark.parametrize(("look", "title"), [("heads", "head {}"), ("layers", "1.{}")])
async def test_the_frame_goes_with_the_head_and_enter_opens_it(look: str, title: str) -> None:
    async with running(size=(120, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        await shown_as(app, pilot, look)
        for head in (1, 2):
            await pilot.press("h")
            await settled(pilot)
            assert main_of(app).here[1].head == head
            assert title.format(head) + "   " in "\n".join(text_of(app))
            assert "┏" in "\n".join(text_of(app))
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(picture(app), Heatmap)
        assert "head 2 of 4" in "\n".join(text_of(app))


async def test_the_chain_line_walks_through_the_steps() -> None:
    async with running(size=(160, 45)) as (app, pilot):
        await go(app, pilot, "blocks.1.attn.scores")
        chain = main_of(app).query_one(ChainLine)
        lines = text_of(app)
        assert any("[scores " in line for line in lines)
        await pilot.click(chain, offset=(chain._spots[-1][0] + 1, 0))
        await settled(pilot)
        assert main_of(app).plane.step.site == PATTERN  # type: ignore[union-attr]
        assert any("[pattern " in line for line in text_of(app))


@pytest.mark.parametrize(
    ("size", "look", "times"), [((76, 35), "heads", 2), ((150, 40), "heads", 3), ((150, 60), "layers", 1)]
)
async def test_small_planes_are_magnified_by_whole_numbers_until_all_of_them_fill_the_room(
    size: tuple[int, int], look: str, times: int
) -> None:
    view = Thumbs(id="a")
    plane, cell = thumbs(look, heads=8, layers=4, n=11)

    def then() -> None:
        view.show(plane, cell, None)
        view.show(plane, cell, told(plane, view.tile_size))

    async with alone(view, size=size, then=then) as (app, _):
        height, width = view.tile_size
        assert width == times * 11
        assert height % 11 == 0
        assert max(width, height) <= 2 * min(width, height), "about square"
        assert view.virtual_size.height <= view.room.height, "all of them are seen"
        if look == "heads":
            assert all(f"tile {n}" in shown(app) for n in range(10))


async def test_every_cell_of_a_magnified_plane_is_as_large() -> None:
    view = Thumbs(id="a")
    plane, cell = thumbs(heads=8, n=11)
    values = array("f", [float((row + col) % 2) for _ in range(10) for row in range(11) for col in range(11)])
    tiles = tuple(Tile(f"tile {n}", plane.step.site, n, "", None) for n in range(10))
    block = Block(plane.key, 0, 0, 11, 11, values, Stats(), told=Told(tiles=tiles, shape=(10, 11, 11), values=values))
    async with alone(view, size=(76, 35), then=lambda: view.show(plane, cell, block)):
        pixels = view._pixels(view.told, 3, 2)  # type: ignore[arg-type]
        assert {segment.cell_length for segment in pixels} == {2}
        assert len(pixels) == 11

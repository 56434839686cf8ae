"""What the engine derives, as pictures: curves, lists, rotations, histograms, and the explanation beside them."""

from __future__ import annotations

import json
import math
import re
from array import array
from typing import Any

import pytest
from fake_engine import HOSTILE, FakeEngine
from helpers import go, main_of, picture, running, settled, text_of
from planes import alone
from rich.cells import cell_len

from engine.sites import Address
from engine.views import View
from tui.state.block import Block, Stats
from tui.state.cursor import Cursor
from tui.state.looks import Chain, Grid, Histogram, Rotation, Stage, Table, Thumbs, read
from tui.state.trace import Pass, Step, Token, Trace
from tui.state.views import Plane
from tui.widgets.curves import Curves
from tui.widgets.histogram import HistogramView
from tui.widgets.listing import Listing
from tui.widgets.plane import PlaneView
from tui.widgets.rotation import RotationView
from tui.widgets.why import WhyPane

SIZES = [(1, 1), (2, 1), (7, 3), (20, 5), (40, 10), (80, 24), (160, 45)]
RAW = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f\u2060]")
BAD = "\x1b]52;c;UFdORUQ=\x07[/]\n\u202e漢字\u0301"


def opened(prompt: str = "The server crashed because the disk was full", **options: Any) -> FakeEngine:
    """A fake engine with a trace."""
    engine = FakeEngine(rotary=True, **options)
    engine.answer("open", {"prompt": prompt}, lambda *_: None, lambda: False)
    return engine


def asked(engine: FakeEngine, name: str, address: str, **params: Any) -> tuple[dict[str, Any], array[float]]:
    """A look as it comes over the wire."""
    result, values = engine.answer("look", {"name": name, "address": address, **params}, lambda *_: None, lambda: False)
    return json.loads(json.dumps(result, allow_nan=False) if name != "lens" else json.dumps(result)), values


ADDRESSES = {
    "lens": "blocks.0.resid_mid[b=0,p=1:4]@0", "norms": "blocks.0.resid_mid[b=0]@0", "added": "blocks.1.mlp_out[b=0]@0",
    "heads": "blocks.1.attn.pattern[b=0]@0", "layers": "blocks.1.attn.scores[b=0]@0", "neighbours": "embed[b=0,p=2]@0",
    "neurons": "blocks.1.mlp.post[b=0,p=2]@0", "rotation": "blocks.1.attn.rot_q[b=0,p=3,h=1,d=5]@0",
    "chain": "blocks.1.attn.scores[b=0,h=1,q=3,k=2]@0", "histogram": "blocks.1.attn.masked[b=0,h=1]@0",
}  # fmt: skip


# answers

KINDS = {
    "lens": Grid, "norms": Grid, "added": Grid, "heads": Thumbs, "layers": Thumbs, "neighbours": Table,
    "neurons": Table, "rotation": Rotation, "chain": Chain, "histogram": Histogram,
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_an_answer_is_read_into_the_class_of_its_kind(name: str) -> None:
    told = read(*asked(opened(), name, ADDRESSES[name], size=[4, 4]))
    assert type(told) is KINDS[name]
    assert (told.look, told.numbers) == (name, "9 tokens, d_model = 32")


@pytest.mark.parametrize("name", KINDS)
def test_an_answer_that_lacks_or_twists_something_is_refused_and_never_half_read(name: str) -> None:
    result, values = asked(opened(), name, ADDRESSES[name], size=[4, 4])
    words = {"look", "title", "formula", "story", "numbers", "stats", "texts", "columns", "convention", "theta",
             "scaling", "nan", "above", "below", "masked", "q01", "q50", "q99"}  # fmt: skip
    for key in result.keys() - words | ({"columns"} if name in ("neighbours", "neurons") else set()):
        for twisted in ({k: v for k, v in result.items() if k != key}, result | {key: "no"}):
            with pytest.raises((KeyError, TypeError, ValueError)):
                read(twisted, values)
    if values:
        with pytest.raises(ValueError, match="were expected"):
            read(result, values[:-1])


def test_numbers_that_are_not_finite_come_as_null_and_are_no_error() -> None:
    pair = {"pair": 0, "dims": [0, 1], "inv_freq": None, "angle": None, "cos": None, "sin": 0.5,
            "before": [None, 1.0], "after": [1.0, None]}  # fmt: skip
    told = read(
        {"kind": "rotation", "pairs": [pair], "pair": None, "theta": None, "position": 2, "rotated": 2, "of": 4}
    )
    assert isinstance(told, Rotation)
    assert math.isnan(told.pairs[0].before[0])
    assert told.pairs[0].sin == 0.5
    assert told.chosen is None
    empty = read({"kind": "histogram", "edges": [], "counts": [], "nan": 3, "q50": None})
    assert isinstance(empty, Histogram)
    assert (empty.nan, empty.q50) == (3, None)


def test_a_look_and_a_window_say_the_same_of_a_cell() -> None:
    engine = opened()
    chain = read(*asked(engine, "chain", ADDRESSES["chain"]))
    assert isinstance(chain, Chain)
    assert [stage.label for stage in chain.stages] == ["scores", "scaled", "masked", "pattern"]
    for stage in chain.stages:
        assert stage.value == engine.cells(Address.parse(f"{stage.site}[b=0,h=1,q=3,k=2]@0")).values[0]


# widgets, alone

N = 9


def plane_of(kind: str, axes: tuple[str, ...], shape: tuple[int, ...], view: View, **more: Any) -> Plane:
    """A picture of a step made by hand, the cursor at 2 wherever it can be."""
    tokens = tuple(Token(n, f"t{n}") for n in range(max(N, shape[1])))
    step = Step(0, f"blocks.0.{kind}", 0, "attention", kind, axes, shape)
    trace = Trace("m", tokens=(tokens,), steps=(step,), passes=(Pass(0, len(tokens)),), config=more, run=1)
    return Plane(trace, step, view, tuple((a, min(2, step.size(a) - 1)) for a in view.fixed(step.axes)), 0)


def curves_plane(positions: int = N, dims: int = 8) -> Plane:
    return plane_of("cos", ("batch", "pos", "d_rot"), (1, positions, dims), View("curves", "pos", "d_rot", "curves"))


def curves_block(plane: Plane, value: Any = None) -> Block:
    rows, cols = plane.size
    wave = value or (lambda p, d: math.cos(p * 100.0 ** (-d / cols)))
    cells = array("f", (wave(p, d) for p in range(rows) for d in range(cols)))
    return Block(plane.key, 0, 0, rows, cols, cells, Stats(-1, 1, 0, 1, count=rows * cols))


def look_plane(name: str, dim: int = 2) -> Plane:
    axes, shape = ("batch", "pos", "head", "d_head"), (1, N, 4, 8)
    free = ("head", "d_head") if name != "rotation" else ()
    plane = plane_of("rot_q", axes, shape, View(name, name=name, look=name, free=free))
    place = tuple((axis, dim if axis == "d_head" else index) for axis, index in plane.place)
    return Plane(plane.trace, plane.step, plane.view, place, 0)


def told_block(plane: Plane, told: Any) -> Block:
    return Block(plane.key, 0, 0, 1, 1, array("f"), told=told)


def listing(rows: list[list[Any]], columns: list[tuple[str, str]]) -> Table:
    told = read({"kind": "list", "columns": [{"name": n, "kind": k} for n, k in columns], "rows": rows})
    assert isinstance(told, Table)
    return told


WORDS = [("token", "label"), ("id", "int"), ("cosine", "bar"), ("norm", "number"), ("promotes", "labels")]


async def drawn(widget: PlaneView, plane: Plane, block: Block | None, cell: tuple[int, int], **how: Any) -> list[str]:
    """The lines of a widget that shows this and nothing else."""
    async with alone(widget, then=lambda: widget.show(plane, cell, block), **how) as (app, _):
        return app.lines


async def test_curves_name_the_dims_they_draw_and_their_values_at_the_cursor() -> None:
    plane = curves_plane()
    lines = await drawn(Curves(), plane, curves_block(plane), (4, 2), size=(80, 24))
    assert "dim 2" in lines[0]
    assert f"dim 2 {math.cos(4 * 100.0 ** (-2 / 8)):.5f}"[:12] in lines[0]
    assert lines[0].index("dim 2") < lines[0].index("dim 0")
    assert sum("●" in line for line in lines[1:]) == 1, "the chosen dim at the cursor"
    assert sum(line.count("○") for line in lines[1:]) == lines[0].count("dim ") - 1, "the others there"
    assert "t4 (4)" in lines[-1]


async def test_curves_are_told_apart_without_colour() -> None:
    plane = curves_plane(dims=40)
    lines = await drawn(Curves(), plane, curves_block(plane), (4, 2), size=(140, 24))
    samples = re.findall("([\u2800-\u28ff ]{4}) dim ", lines[0])
    assert len(set(samples)) == len(samples) == 5


@pytest.mark.parametrize("width", [54, 80, 120, 200])
async def test_every_curve_that_is_drawn_is_in_the_legend(width: int) -> None:
    plane, view = curves_plane(dims=64), Curves()
    async with alone(view, size=(width, 20), then=lambda: view.show(plane, (4, 9), curves_block(plane))) as (app, _):
        assert len(view.dims) > 1
        for dim in view.dims:
            assert re.search(rf" {dim} -?[\d.]+ ", app.lines[0] + " "), dim


async def test_curves_break_where_a_value_is_not_finite() -> None:
    plane = curves_plane()
    whole = await drawn(Curves(), plane, curves_block(plane, lambda p, d: 1.0), (0, 0), size=(12, 8))
    broken = await drawn(
        Curves(), plane, curves_block(plane, lambda p, d: math.nan if 3 <= p <= 5 else 1.0), (0, 0), size=(12, 8)
    )
    assert sum(map(_braille, broken)) < sum(map(_braille, whole))
    nothing = await drawn(Curves(), plane, curves_block(plane, lambda p, d: math.inf), (0, 0), size=(30, 8))
    assert "∞" in nothing[0]


def _braille(line: str) -> int:
    return sum(0x2800 < ord(char) < 0x2900 for char in line)


async def test_of_a_long_text_the_positions_around_the_cursor_are_asked_for() -> None:
    plane = curves_plane(5000, 64)
    async with alone(view := Curves(), size=(80, 24)) as (_, pilot):
        for at in (0, 2500, 4999):
            view.show(plane, (at, 3), None)
            await pilot.pause()
            (first, last), (low, high) = view.seen()
            assert first <= at < last <= 5000
            assert last - first == 2 * (80 - 7)
            assert (low, high) == (0, 17)


async def test_a_list_has_a_heading_a_number_for_each_row_and_words_in_columns() -> None:
    rows = [[f"w{n}", n, 1 - n / 10, 2.0, ["a", "b"]] for n in range(30)]
    plane = look_plane("list")
    lines = await drawn(Listing(), plane, told_block(plane, listing(rows, WORDS)), (0, 0), size=(100, 12))
    assert lines[0].split() == ["#", "token", "id", "cosine", "norm", "promotes"]
    assert lines[1].startswith("▸  1")
    assert re.search("w0 .*█", lines[1])
    assert [line.split()[0] for line in lines[2:5]] == ["2", "3", "4"]


async def test_a_narrow_list_keeps_the_name_the_bar_and_the_last_number() -> None:
    rows = [["word", 12345, 0.5, 3.25, ["one", "two", "three"]]]
    plane = look_plane("list")
    lines = await drawn(Listing(), plane, told_block(plane, listing(rows, WORDS)), (0, 0), size=(36, 5))
    assert lines[0].split() == ["#", "token", "cosine", "norm", "promotes"]
    wider = await drawn(Listing(), plane, told_block(plane, listing(rows, WORDS)), (0, 0), size=(60, 5))
    assert wider[0].split() == ["#", "token", "id", "cosine", "norm", "promotes"]


NEURON = [("neuron", "int"), ("post", "bar"), ("pre", "number"), ("pre_linear", "number"), ("‖w_out‖", "number"),
          ("contribution", "number"), ("promotes", "labels")]  # fmt: skip


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (140, "neuron post pre pre_linear ‖w_out‖ contribution promotes"),
        (82, "neuron post pre pre_linear contribution promotes"),
        (53, "neuron post pre pre_l… contribu… promotes"),
        (36, "neuron contribution promotes"),
        (30, "neuron contri… promotes"),
    ],
)
async def test_a_narrow_list_of_neurons_keeps_what_it_is_sorted_by_and_what_it_promotes(width: int, names: str) -> None:
    rows = [[347, 25.774 - n, 5.6246, 4.5988, 2.0051, 51.679 - n, ["␣new", "␣dog", "␣bird"]] for n in range(3)]
    plane = look_plane("list")
    lines = await drawn(Listing(), plane, told_block(plane, listing(rows, NEURON)), (0, 0), size=(width, 6))
    assert lines[0].split() == ["#", *names.split()]
    shown = lines[1].split()
    assert "51.679" in shown
    assert "␣new" in shown
    assert ("4.5988" in shown) == (width >= 53)


async def test_the_marked_row_is_said_in_full_whatever_was_left_out() -> None:
    rows = [[n, 25.774, 5.6246, None, 2.0051, 51.679, ["␣new"]] for n in range(9)]
    plane = look_plane("list")
    view = Listing()
    block = told_block(plane, listing(rows, NEURON))
    async with alone(view, size=(30, 10), then=lambda: view.show(plane, (0, 0), block)):
        view.choose(3)
        assert view.marked == (
            "neuron 3  post 25.774",
            "pre 5.6246  ‖w_out‖ 2.0051  contribution 51.679  promotes ␣new",
        )


async def test_the_mark_of_a_list_moves_and_stays_in_sight() -> None:
    rows = [[f"w{n}", n, 1.0, 2.0, []] for n in range(50)]
    plane = look_plane("list")
    view = Listing()
    block = told_block(plane, listing(rows, WORDS))
    async with alone(view, size=(60, 10), then=lambda: view.show(plane, (0, 0), block)) as (app, pilot):
        view.choose(29)
        await pilot.pause()
        assert any(line.startswith("▸ 30") for line in app.lines)
        await pilot.click(Listing, offset=(5, 1))
        assert app.lines[1].startswith("▸")
        view.choose(-1000)
        view.show(plane, (0, 0), block)
        await pilot.pause()
        assert app.lines[1].startswith("▸  1")


async def test_missing_cells_and_values_that_are_not_finite_are_marked_in_a_list() -> None:
    plane = look_plane("list")
    told = listing([["x", None, None, None, []]], WORDS)
    lines = await drawn(Listing(), plane, told_block(plane, told), (0, 0), size=(80, 5))
    assert lines[1].split() == ["▸", "1", "x", "·", "·", "·", "·"]


async def test_every_row_of_a_list_is_as_wide_whatever_is_written_in_it() -> None:
    rows = [[text, n, n / 3, float(n), [text, text, text]] for n, text in enumerate([*HOSTILE, BAD])]
    columns = [(BAD + name, kind) for name, kind in WORDS]
    plane = look_plane("list")
    for width in (20, 36, 60, 100, 160):
        told = told_block(plane, listing(rows, columns))
        lines = await drawn(Listing(), plane, told, (0, 0), size=(width, 45))
        assert {cell_len(line) for line in lines} == {width}
        assert not RAW.search("".join(lines))


def rotation(dim: int = 2, **more: Any) -> Rotation:
    told = read(*asked(opened(), "rotation", f"blocks.1.attn.rot_q[b=0,p=3,h=1,d={dim}]@0"))
    assert isinstance(told, Rotation)
    return told


async def test_a_rotation_says_how_the_pair_at_the_cursor_is_turned() -> None:
    plane, told = look_plane("rotation", dim=6), rotation()
    shown = "\n".join(await drawn(RotationView(), plane, told_block(plane, told), (0, 0), size=(80, 30)))
    pair = told.pairs[2]
    assert f"3 × {pair.inv_freq:g} = {pair.angle:g} rad" in shown
    assert "2 and 6  pair 2 of 4" in shown
    assert (shown.count("●"), shown.count("○")) == (2, 2), "in the circle and before the numbers"
    assert "halves: dim i with i + d/2" in shown
    assert "10,000" in shown
    assert "a turn in 6.3 … pair 3: in 6,283 positions" in shown


async def test_where_there_is_room_all_pairs_are_in_a_table() -> None:
    plane, told = look_plane("rotation", dim=6), rotation()
    lines = await drawn(RotationView(), plane, told_block(plane, told), (0, 0), size=(110, 45))
    rows = [line.split() for line in lines[lines.index(next(line for line in lines if "a turn in  " in line)) + 1 :]]
    assert [row[:2] for row in rows if row] == [[str(n), f"{n},"] for n in range(4)]


async def test_a_click_on_a_pair_goes_to_its_dim_on_the_cursors_side() -> None:
    plane, told = look_plane("rotation", dim=6), rotation()
    view = RotationView()
    async with alone(view, size=(110, 45), then=lambda: view.show(plane, (0, 0), told_block(plane, told))) as (
        app,
        pilot,
    ):
        y = next(n for n, line in enumerate(app.lines) if line.strip().startswith("3 "))
        await pilot.click(view, offset=(20, y))
        y, x = next((n, line.index("→")) for n, line in enumerate(app.lines) if "points to" in line)
        await pilot.click(view, offset=(x, y))
        await pilot.click(view, offset=(20, 0))
        where = told.pairs.index(next(pair for pair in told.pairs if round(pair.angle / (math.tau / 8)) % 8 == 0))
        assert app.told == [(None, 7), (None, 4 + where)]
        assert view.marked[0] == f"{told.pairs[2].after[1]:.6g}"


async def test_turning_keeps_the_length_and_says_so() -> None:
    plane, told = look_plane("rotation"), rotation()
    for pair in told.pairs:
        assert math.hypot(*pair.before) == pytest.approx(math.hypot(*pair.after))
    lines = await drawn(RotationView(), plane, told_block(plane, told), (0, 0), size=(80, 30))
    assert any("a turn keeps it" in line for line in lines)


async def test_a_narrow_rotation_is_numbers_alone() -> None:
    plane, told = look_plane("rotation"), rotation()
    lines = await drawn(RotationView(), plane, told_block(plane, told), (0, 0), size=(54, 14))
    assert not any(map(_braille, lines))
    assert any("○ before" in line for line in lines)
    assert any("▴ pair 2" in line for line in lines)


async def test_a_dim_that_is_not_turned_says_so() -> None:
    plane, told = look_plane("rotation", dim=7), rotation()
    half = Rotation(pairs=told.pairs[:2], rotated=4, of=8)
    trimmed = Rotation(pairs=tuple(p._replace(dims=(n, n + 2)) for n, p in enumerate(half.pairs)), rotated=4, of=8)
    lines = await drawn(RotationView(), plane, told_block(plane, trimmed), (0, 0), size=(80, 24))
    assert "dim 7 is not turned: RoPE turns 4 of 8 dims" in lines[0]


async def test_other_dims_of_the_head_are_drawn_before_their_answer_is_here() -> None:
    view, first = RotationView(), look_plane("rotation", dim=2)
    async with alone(view, size=(80, 30), then=lambda: view.show(first, (0, 0), told_block(first, rotation()))) as (
        app,
        pilot,
    ):
        view.show(look_plane("rotation", dim=3), (0, 0), None)
        await pilot.pause()
        assert any("3 and 7" in line for line in app.lines)


def histogram(counts: list[int], low: float = -1.0, high: float = 1.0, **more: Any) -> Histogram:
    edges = [low + (high - low) * n / len(counts) for n in range(len(counts) + 1)] if counts else []
    told = read({"kind": "histogram", "edges": edges, "counts": counts, **more})
    assert isinstance(told, Histogram)
    return told


async def test_the_highest_bar_reaches_the_top_and_a_single_value_is_still_seen() -> None:
    plane = look_plane("histogram")
    told = histogram([1, 1000, 0, 500], q01=-0.9, q50=-0.2, q99=0.9)
    lines = await drawn(HistogramView(), plane, told_block(plane, told), (0, 0), size=(60, 20))
    columns = list(zip(*(line[8:60] for line in lines[:15]), strict=True))
    tall = ["".join(column).rstrip("─┻╵0").count("█") for column in columns]
    assert lines[0].strip().startswith("1,000")
    assert max(tall) == next(y for y, line in enumerate(lines) if "─" in line)
    assert any("▁" in line for line in lines), "one of a thousand"
    assert any("median" in line and "-0.2" in line for line in lines)


@pytest.mark.parametrize("width", [30, 61, 76, 200])
async def test_upright_bars_fill_the_width_and_the_axis_is_as_long(width: int) -> None:
    plane = look_plane("histogram")
    told = histogram([5] * 20, low=0.0, high=20.0)
    lines = await drawn(HistogramView(), plane, told_block(plane, told), (0, 0), size=(width, 20))
    axis = next(line for line in lines if "─" in line)
    assert len(axis.rstrip()) == width - 1
    assert len(lines[5].rstrip()) in (width - 1, width - 2), "there may be a blank after each bar"


async def test_the_value_at_the_cursor_is_marked_below_its_bar() -> None:
    plane, view = look_plane("histogram"), HistogramView()
    told = histogram([0, 3, 0, 0], low=0.0, high=4.0)
    async with alone(view, size=(60, 20), then=lambda: view.show(plane, (0, 0), told_block(plane, told))) as (
        app,
        pilot,
    ):
        assert view.marked == ("", "")
        view.mark(1.25)
        await pilot.pause()
        axis = next(line for line in app.lines if "▴" in line)
        above = app.lines[app.lines.index(axis) - 1]
        assert above[axis.index("▴")] == "█"
        assert view.marked == ("1.25", "in the bin 1 … 2 with 3 of 3 values")
        view.mark(9.0)
        await pilot.pause()
        assert not any("▴" in line for line in app.lines), "outside"
        await pilot.resize_terminal(26, 14)
        view.mark(1.25)
        await pilot.pause()
        assert [line.split()[:3] for line in app.lines if "▸" in line] == [["▸", "1…2", "3"]]


async def test_what_is_not_finite_is_counted_by_kind() -> None:
    plane = look_plane("histogram")
    told = histogram([3, 4], nan=2, above=1, below=5, masked=7)
    shown = " ".join(await drawn(HistogramView(), plane, told_block(plane, told), (0, 0), size=(100, 20)))
    for words in ("values 22", "· masked 7", "✗ NaN 2", "✗ +∞ 1", "✗ -∞ 5"):
        assert words in shown
    nothing = histogram([], nan=4)
    shown = " ".join(await drawn(HistogramView(), plane, told_block(plane, nothing), (0, 0), size=(100, 20)))
    assert re.search("no value here is finite.*✗ NaN 4", shown)


async def test_a_small_histogram_has_a_line_for_each_bin_and_loses_no_value() -> None:
    plane = look_plane("histogram")
    told = histogram(list(range(1, 41)))
    lines = await drawn(HistogramView(), plane, told_block(plane, told), (0, 0), size=(26, 14))
    numbers = [int(match[1].replace(",", "")) for line in lines if (match := re.search(r"…\S+\s+([\d,]+)", line))]
    assert sum(numbers) == sum(range(1, 41))


@pytest.mark.parametrize("theme", ["layerstep-dark", "layerstep-light", "layerstep-contrast"])
async def test_every_widget_fills_any_room_in_every_theme(theme: str) -> None:
    curves = curves_plane()
    shown: list[tuple[type[PlaneView], Plane, Block]] = [
        (Curves, curves, curves_block(curves)),
        *(
            (widget, plane := look_plane(name), told_block(plane, told))
            for widget, name, told in (
                (Listing, "list", listing([["漢字", 1, -0.5, 2.0, ["a"]]] * 3, WORDS)),
                (RotationView, "rotation", rotation()),
                (HistogramView, "histogram", histogram([1, 2, 3], nan=1)),
            )
        ),
    ]
    for kind, plane, block in shown:
        await resized(kind(), plane, block, theme)


async def resized(view: PlaneView, plane: Plane, block: Block, theme: str) -> None:
    """Every size, one after the other."""
    async with alone(view, theme=theme, then=lambda: view.show(plane, (2, 2), block)) as (app, pilot):
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert {cell_len(line) for line in app.lines} == {size[0]}, (view, size)
        view.show(plane, (0, 0), None)  # and with nothing at all
        await pilot.pause()


# in the app


async def test_the_pictures_of_a_step_are_reached_by_their_number() -> None:
    async with running(size=(120, 40), engine=FakeEngine(rotary=True)) as (app, pilot):
        for site, name, kind in (
            ("rotary_cos", "curves", Curves), ("embed", "neighbours", Listing),
            ("blocks.0.mlp.post", "neurons", Listing),
            ("blocks.0.attn.rot_q", "rotation", RotationView), ("blocks.0.attn.z", "histogram", HistogramView),
        ):  # fmt: skip
            await go(app, pilot, site)
            tabs = next(line for line in text_of(app) if "1 heatmap" in line)
            number = re.search(rf"(\d) {name}", tabs)
            assert number, tabs
            await pilot.press(number[1])
            await settled(pilot)
            assert isinstance(picture(app), kind)
            assert picture(app).block is not None


async def test_comma_and_full_stop_go_through_the_dims_of_curves_and_pairs_of_a_rotation() -> None:
    async with running(size=(120, 40), engine=FakeEngine(rotary=True)) as (app, pilot):
        await go(app, pilot, "rotary_cos")
        main_of(app).show_view("curves")
        await pilot.press("full_stop", "full_stop")
        await settled(pilot)
        assert any(" dim 2 " in line for line in text_of(app))
        await go(app, pilot, "blocks.0.attn.rot_k")
        main_of(app).show_view("rotation")
        await settled(pilot)
        assert any("2 and 6" in line for line in text_of(app))
        await pilot.press("full_stop")
        await settled(pilot)
        assert any("3 and 7" in line for line in text_of(app))


async def test_comma_and_full_stop_go_through_a_list() -> None:
    async with running(size=(120, 40)) as (app, pilot):
        await go(app, pilot, "embed")
        main_of(app).show_view("neighbours")
        await settled(pilot)
        await pilot.press("full_stop", "full_stop", "comma")
        await settled(pilot)
        assert any(re.search("▸ +2 ", line) for line in text_of(app))
        await pilot.press("up")  # another token begins at its first neighbour
        await settled(pilot)
        assert any(re.search("▸ +1 ", line) for line in text_of(app))


async def test_foreign_words_of_a_look_are_made_printable_everywhere() -> None:
    async with running(size=(160, 45), engine=FakeEngine(rotary=True, hostile=True)) as (app, pilot):
        for site, name in (
            ("embed", "neighbours"), ("blocks.0.mlp.post", "neurons"), ("blocks.0.attn.rot_q", "rotation"),
            ("blocks.0.attn.z", "histogram"), ("blocks.0.resid_mid", "lens"), ("blocks.0.attn.pattern", "heatmap"),
            ("rotary_cos", "curves"),
        ):  # fmt: skip
            await go(app, pilot, site)
            assert main_of(app).show_view(name)
            await settled(pilot)
            lines = text_of(app)
            assert not RAW.search("".join(lines))
            assert {cell_len(line) for line in lines} == {160}


# the explanation


async def explained(size: tuple[int, int] = (60, 40), **how: Any) -> list[str]:
    """The right pane alone."""
    pane = WhyPane()
    async with alone(pane, size=size, then=lambda: pane.show(**how)) as (app, _):
        return app.lines


def attention(heads: int, kv: int, axis: str = "head", head: int = 0) -> tuple[Plane, Cursor]:
    shape = (1, N, heads if axis == "head" else kv, 8)
    view = View("matrix", "pos", "d_head")
    plane = plane_of("q", ("batch", "pos", axis, "d_head"), shape, view, n_heads=heads, n_kv_heads=kv)
    return plane, Cursor(head=head)


async def test_heads_that_share_keys_and_values_are_listed_with_the_current_one_marked() -> None:
    plane, cursor = attention(8, 2, head=6)
    lines = [line.rstrip() for line in await explained(plane=plane, cursor=cursor, block=None, checks=())]
    assert "  kv 0 ← 0 1 2 3" in lines
    assert "▸ kv 1 ← 4 5 [6] 7" in lines
    plane, cursor = attention(8, 2, "kv_head", head=6)
    lines = [line.rstrip() for line in await explained(plane=plane, cursor=cursor, block=None, checks=())]
    assert "▸ kv 1 ← 4 5 [6] 7" in lines


async def test_many_heads_are_wrapped_and_of_many_kv_heads_those_around_the_cursor_are_listed() -> None:
    plane, cursor = attention(64, 1, head=40)
    lines = await explained((30, 40), plane=plane, cursor=cursor, block=None, checks=())
    shared = " ".join(line for line in lines if re.search(r"^\W*(kv|\d)", line[2:]))
    assert [int(n) for n in re.findall(r"\b\d+\b", shared.split("←", 1)[1])] == list(range(64))
    assert "[40]" in shared
    plane, cursor = attention(64, 32, head=40)
    lines = await explained(plane=plane, cursor=cursor, block=None, checks=())
    assert sum("←" in line for line in lines) == 8
    assert any("▸ kv 20 ← [40] 41" in line for line in lines)
    assert any("of 32 kv heads" in line for line in lines)


async def test_heads_that_share_nothing_are_not_listed() -> None:
    plane, cursor = attention(8, 8)
    assert not any("←" in line for line in await explained(plane=plane, cursor=cursor, block=None, checks=()))


async def test_the_way_of_a_cell_has_a_row_for_each_stage_and_marks_the_one_that_is_shown() -> None:
    trace_step = ("batch", "head", "query", "key"), (1, 4, N, N)
    plane = plane_of("attn.masked", *trace_step, View("attention", "query", "key"))
    chain = Chain(stages=(
        Stage("blocks.0.attn.scores", "scores", 2.312, "", "q · k"),
        Stage("blocks.0.attn.scaled", "scaled", 0.578, "", "× 0.25 = 1/√16"),
        Stage("blocks.0.attn.masked", "masked", None, "masked", f"the key comes later {BAD}"),
        Stage("blocks.0.attn.pattern", "pattern", None, "nan", "e^s / Σ e^s"),
    ))  # fmt: skip
    lines = await explained(plane=plane, cursor=Cursor(), block=None, checks=(), chain=chain)
    assert any(re.match(r" scores +2.312 +q · k", line) for line in lines)
    assert any(re.match(r" scaled +0.578 +× 0.25 = 1/√16", line) for line in lines)
    assert any(re.match(r"▸masked +masked +the key comes later", line) for line in lines)
    assert any(re.match(r" pattern +NaN", line) for line in lines)
    assert not RAW.search("".join(lines))
    narrow = await explained((30, 40), plane=plane, cursor=Cursor(), block=None, checks=(), chain=chain)
    assert any(line.strip() == "× 0.25 = 1/√16" for line in narrow)


async def test_a_look_is_explained_in_its_own_words() -> None:
    plane = look_plane("histogram")
    told = Histogram(
        title="Histogram of q", formula="counts", story="How often.", numbers="40 bins", edges=(0, 1), counts=(3,)
    )
    lines = await explained(plane=plane, cursor=Cursor(), block=told_block(plane, told), checks=())
    shown = "\n".join(lines)
    for words in ("Histogram of q", "counts", "How often.", "40 bins"):
        assert words in shown
    assert "value" not in shown


async def test_the_token_of_a_lens_is_named_beside_it() -> None:
    engine = FakeEngine()
    async with running(size=(160, 45), engine=engine) as (app, pilot):
        await go(app, pilot, "blocks.1.resid_mid")
        main_of(app).show_view("lens")
        await settled(pilot)
        told, (row, col) = picture(app).block.told, picture(app).cell  # type: ignore[union-attr]
        assert isinstance(told, Grid)
        assert told.sites[col] == "blocks.1.resid_mid"
        assert any(f" token    {told.text(row, col)} " in line for line in text_of(app))


async def test_the_readout_names_what_is_listed_and_the_row_that_is_marked() -> None:
    async with running(size=(120, 40), engine=FakeEngine(rotary=True)) as (app, pilot):
        await go(app, pilot, "blocks.0.mlp.post")
        main_of(app).show_view("neurons")
        await settled(pilot)
        label = main_of(app).trace.label(0, main_of(app).here[1].pos)  # type: ignore[union-attr]
        assert any(f"neurons of {label} (" in line for line in text_of(app))
        await pilot.press("full_stop")
        await settled(pilot)
        table = picture(app).table  # type: ignore[attr-defined]
        assert any(f"neuron {table.rows[1][0]}  post" in line for line in text_of(app))


async def test_the_readout_of_a_histogram_and_a_rotation_has_the_value_at_the_cursor() -> None:
    engine = FakeEngine(rotary=True)
    async with running(size=(120, 40), engine=engine) as (app, pilot):
        for site, name, axes in (
            ("blocks.0.attn.rot_q", "rotation", ("batch", "pos", "head", "d_head")),
            ("blocks.0.mlp.post", "histogram", ("batch", "pos", "d_mlp")),
        ):
            await go(app, pilot, site)
            main_of(app).show_view(name)
            await settled(pilot)
            for _ in range(2):
                trace, cursor = main_of(app).here
                value = engine.value(site, {axis: cursor.index(trace, axis) for axis in axes})
                place = rf"│ (\S+)   .*{axes[-1]} {cursor.index(trace, axes[-1])} "
                shown = next(found[1] for line in text_of(app) if (found := re.search(place, line)))
                assert float(shown) == pytest.approx(value, rel=1e-4)
                await pilot.press("full_stop")
                await settled(pilot)


async def test_a_click_in_a_rotation_moves_the_cursor() -> None:
    async with running(size=(160, 45), engine=FakeEngine(rotary=True)) as (app, pilot):
        await go(app, pilot, "blocks.0.attn.rot_q")
        main_of(app).show_view("rotation")
        await settled(pilot)
        view = picture(app)
        y, line = next((n, line) for n, line in enumerate(text_of(app)) if "points to" in line)
        x = line.index("points to") + 12 + 2 * 3 + 2
        await pilot.click(offset=(x, y))
        await settled(pilot)
        trace, cursor = main_of(app).here
        assert view.pair.pair == 2  # type: ignore[attr-defined]
        assert cursor.index(trace, "d_head") in view.pair.dims  # type: ignore[attr-defined]

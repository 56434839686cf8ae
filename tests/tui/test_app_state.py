"""Trace, cursor, views, windows, numbers: all that follows without a widget."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

import pytest
from fake_engine import FakeEngine

from engine.sites import Address
from tui.state.block import EVERYTHING, Block, Stats, window
from tui.state.cursor import Cursor, carry, goto, sites_like, start
from tui.state.layout import Panes, panes
from tui.state.numbers import cell, count, exact, rounded, short, size
from tui.state.trace import Step, Trace
from tui.state.tree import place_of, rows_of
from tui.state.views import Plane, View, views_of


def traced(prompt: str = "The server crashed because the disk was full", run: int = 1, **options: int) -> Trace:
    engine = FakeEngine(**options)  # type: ignore[arg-type]
    summary, _ = engine.answer("open", {"model": "modern", "prompt": prompt}, lambda *p: None, lambda: False)
    return Trace.read(summary, run)


def at(trace: Trace, site: str, **more: int) -> Cursor:
    return replace(start(trace), step=trace.by_site[site].index, **more)


def step_with(axes: str, shape: tuple[int, ...], dtype: str = "float32") -> Step:
    return Step(0, "made.up", None, "input", "up", tuple(axes.split()), shape, dtype=dtype)


@pytest.mark.parametrize(
    ("axes", "shape", "dtype", "kinds"),
    [
        ("batch head query key", (1, 8, 9, 9), "float32", ["attention query key", "bars key "]),
        ("batch pos d_model", (1, 9, 32), "float32", ["matrix pos d_model", "bars d_model "]),
        ("batch pos head d_head", (1, 9, 8, 4), "float32", ["matrix pos d_head", "bars d_head ", "matrix head d_head"]),
        (
            "batch kv_pos kv_head d_head",
            (1, 9, 2, 4),
            "float32",
            ["matrix kv_pos d_head", "bars d_head ", "matrix kv_head d_head"],
        ),
        (
            "batch pos head d_model",
            (1, 9, 8, 32),
            "float32",
            ["matrix pos d_model", "bars d_model ", "matrix head d_model"],
        ),
        ("batch pos scale", (1, 9, 1), "float32", ["bars pos "]),
        ("batch pos d_vocab", (1, 9, 500), "float32", ["ranked d_vocab ", "bars d_vocab ", "matrix pos d_vocab"]),
        ("batch pos", (2, 9), "int64", ["tokens pos "]),
        ("batch kv_pos", (2, 9), "int64", ["tokens kv_pos "]),
        ("batch pos", (1, 9), "float32", ["bars pos "]),
        ("batch d_model", (1, 32), "float32", ["bars d_model "]),
        ("d_model", (32,), "float32", ["bars d_model "]),
        ("pos d_rot", (9, 4), "float32", ["matrix pos d_rot", "bars d_rot "]),
        ("batch expert d_mlp", (1, 4, 16), "float32", ["matrix expert d_mlp", "bars d_mlp "]),
        ("batch pos expert", (1, 9, 4), "float32", ["matrix pos expert", "bars expert "]),
        ("batch head pos", (1, 8, 9), "float32", ["matrix head pos", "bars pos "]),
        ("batch", (2,), "float32", ["bars  "]),
        ("", (), "float32", ["bars  "]),
        ("batch pos d_model", (1, 1, 32), "float32", ["matrix pos d_model", "bars d_model "]),
    ],
)
def test_a_view_follows_from_the_axes(axes: str, shape: tuple[int, ...], dtype: str, kinds: list[str]) -> None:
    windows = [view for view in views_of(step_with(axes, shape, dtype)) if not view.look]
    assert [f"{view.kind} {view.rows} {view.cols}" for view in windows] == kinds


def test_a_plane_asks_for_its_window_with_every_axis() -> None:
    trace = traced()
    cursor = at(trace, "blocks.1.attn.pattern", head=3, pos=5)
    plane = Plane.of(trace, cursor, View("attention", "query", "key"))
    assert plane.size == (9, 9)
    assert plane.address((0, 4), (2, 6)) == "blocks.1.attn.pattern[b=0,h=3,q=0:4,k=2:6]@0"
    assert Address.parse(plane.address((0, 1), (0, 1))).site == "blocks.1.attn.pattern"
    assert plane.cell(cursor) == (5, 8)
    assert plane.label("query", 2) == "␣server"
    row = Plane.of(trace, cursor, View("bars", "key"))
    assert row.address((0, 9), (0, 1)) == "blocks.1.attn.pattern[b=0,h=3,q=5,k=0:9]@0"


def test_all_planes_of_all_steps_are_addresses() -> None:
    trace = traced()
    for step in trace.steps:
        for view in views_of(step):
            plane = Plane.of(trace, replace(start(trace), step=step.index), view)
            rows, cols = plane.size
            address = Address.parse(plane.address((0, rows), (0, cols)))
            assert address.resolve(step.axes, step.shape)


def test_a_plane_whose_rows_come_later_is_transposed() -> None:
    trace = traced()
    step = step_with("head pos", (8, 9))
    made = Trace(model="x", steps=(step,), config=trace.config)
    assert Plane.of(made, Cursor(), View("matrix", "pos", "head")).transposed
    assert not Plane.of(made, Cursor(), View("matrix", "head", "pos")).transposed


def test_head_token_and_key_are_kept_across_steps() -> None:
    trace = traced()
    cursor = at(trace, "blocks.0.attn.q").put(trace, "head", 3).put(trace, "pos", 4).put(trace, "d_head", 6)
    cursor = replace(cursor, step=trace.by_site["blocks.0.attn.pattern"].index).put(trace, "key", 2)
    assert (cursor.index(trace, "head"), cursor.index(trace, "query"), cursor.index(trace, "key")) == (3, 4, 2)
    cursor = replace(cursor, step=trace.by_site["blocks.0.attn.k"].index)
    assert cursor.index(trace, "kv_head") == 1  # heads 2 and 3 share it
    cursor = replace(cursor, step=trace.by_site["blocks.1.attn.z"].index)
    assert [cursor.index(trace, axis) for axis in ("pos", "head", "d_head")] == [4, 3, 6]
    assert str(cursor.address(trace)) == "blocks.1.attn.z[b=0,p=4,h=3,d=6]@0"


def test_moving_the_kv_head_moves_to_its_query_heads() -> None:
    trace = traced()
    cursor = at(trace, "blocks.0.attn.k", head=1).move(trace, "kv_head", 1)
    assert cursor.head == 3


def test_a_dim_that_is_too_large_is_clamped_and_not_forgotten() -> None:
    trace = traced()
    cursor = at(trace, "blocks.0.mlp.post").put(trace, "d_mlp", 60)
    small = replace(cursor, step=trace.by_site["blocks.0.attn.q"].index)
    assert small.index(trace, "d_head") == 7
    assert small.dim == 60
    assert small.move(trace, "d_head", -1).dim == 6


def test_layers_keep_the_kind_of_step() -> None:
    trace = traced(layers=3)
    cursor = at(trace, "blocks.0.attn.z")
    for layer in (1, 2, 2):
        cursor = cursor.layer_by(trace, 1)
        assert trace.steps[cursor.step].site == f"blocks.{layer}.attn.z"
    assert trace.steps[at(trace, "embed").layer_by(trace, 1).step].block == 0
    assert trace.steps[at(trace, "logits").layer_by(trace, -1).step].block == 2
    assert at(trace, "logits").layer_by(trace, 1) == at(trace, "logits")
    assert at(trace, "embed").layer_by(trace, -1) == at(trace, "embed")


def test_steps_stop_at_the_ends() -> None:
    trace = traced()
    assert start(trace).step_by(trace, -5).step == 0
    assert start(trace).step_by(trace, 10**9).step == len(trace.steps) - 1


def test_an_address_moves_the_cursor() -> None:
    trace = traced()
    cursor = goto(trace, start(trace), Address.parse("blocks.1.attn.pattern[h=2,q=4,k=-6]"))
    assert str(cursor.address(trace)) == "blocks.1.attn.pattern[b=0,h=2,q=4,k=3]@0"
    with pytest.raises(KeyError):
        goto(trace, cursor, Address.parse("blocks.9.attn.pattern"))
    with pytest.raises(Exception, match="outside"):
        goto(trace, cursor, Address.parse("blocks.1.attn.pattern[h=99]"))


def test_another_trace_keeps_the_place() -> None:
    old, new = traced(), traced("another prompt", run=2)
    cursor = carry(old, at(old, "blocks.1.attn.z", head=2), new)
    assert (new.steps[cursor.step].site, cursor.head, cursor.pos) == ("blocks.1.attn.z", 2, 2)
    assert carry(None, None, new).step == 0
    same = carry(old, at(old, "blocks.1.attn.z", pos=3), traced(run=3))
    assert same.pos == 3


def test_finding_sites() -> None:
    trace = traced()
    assert {step.site for step in sites_like(trace, ["PATTERN"])} == {"blocks.0.attn.pattern", "blocks.1.attn.pattern"}
    assert [step.site for step in sites_like(trace, ["block", "1", "pattern"])] == ["blocks.1.attn.pattern"]


def test_the_tree_opens_the_block_of_the_cursor() -> None:
    trace = traced()
    closed, opened = rows_of(trace, None), rows_of(trace, 1)
    assert [row.text for row in closed if row.heading] == ["block 0", "block 1"]
    assert sum(row.inside for row in opened) == sum(step.block == 1 for step in trace.steps)
    for step in trace.steps:
        row = rows_of(trace, step.block)[place_of(trace, step.index)]
        assert (row.step, row.heading) == (step.index, False)


def test_a_summary_with_things_missing_is_read() -> None:
    trace = Trace.read({})
    assert trace.steps == ()
    assert start(trace) == Cursor()
    assert trace.label(0, 3) == "3"
    assert (
        Trace.read({"steps": [{"site": "embed", "axes": ["pos"], "shape": [2], "part": "input", "label": "embed"}]})
        .steps[0]
        .block
        is None
    )


def test_windows_are_whole_or_have_margins() -> None:
    assert window((9, 9), (0, 3), (0, 2)) == ((0, 9), (0, 9))
    assert EVERYTHING < 4096 * 4096
    assert window((4096, 4096), (100, 140), (1000, 1100)) == ((60, 180), (900, 1200))
    assert window((4096, 4096), (0, 40), (4000, 4096)) == ((0, 80), (3904, 4096))


def test_a_block_gives_lines_and_says_what_is_not_here() -> None:
    block = Block(("k",), 10, 5, 2, 3, array("f", [1, 2, 3, 4, 5, 6]))
    assert block.line(10, 4, 9) == [None, 1, 2, 3, None]
    assert block.line(11, 6, 8) == [5, 6]
    assert block.line(9, 5, 7) == [None, None]
    assert block.line(10, 20, 22) == [None, None]
    assert block.value(11, 7) == 6
    assert block.has((10, 12), (5, 8))
    assert not block.has((9, 12), (5, 8))


def test_the_scale_ignores_outliers_and_says_so() -> None:
    usual = Stats(low=-3, high=3, std=1)
    assert (usual.limit, usual.clipped) == (3, False)
    wild = Stats(low=-90, high=20, std=2)
    assert (wild.limit, wild.clipped) == (8, True)
    assert Stats(low=0, high=1, mean=0.1, std=0.1).limit == 1  # weights are never clipped
    assert Stats.read({"min": None, "max": float("nan"), "nonfinite": 3}).nonfinite == 3


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (0.63, 7, "0.63"),
        (1234567.0, 7, "1.235e6"),
        (-0.000012345, 7, "-1.2e-5"),
        (0.123456789, 5, ".1235"),
        (math.inf, 7, "∞"),
        (math.nan, 7, "NaN"),
        (0, 7, "0"),
    ],
)
def test_short_numbers_fit(value: float, width: int, text: str) -> None:
    assert short(value, width) == text
    assert all(len(short(value, room)) <= room for room in range(1, 12))


def test_numbers_as_text() -> None:
    assert (exact(0.1 + 0.2), exact(-math.inf), count(65536), size(123456)) == ("0.3", "-∞", "65,536", "120.6 KiB")
    assert [cell(v, 2) for v in (0.634, -0.2, 1.0, -0.001)] == [".63", "-.20", "1.00", ".00"]
    numbers = (7, 9_999, 12_345, 999_999, 5_835_893, 123_456_789, 99_900_000_000, 10**15)
    assert [rounded(number) for number in numbers] == [
        "7", "9,999", "12,000", "1 million", "5.8 million", "120 million", "100 billion", "1000 trillion"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("width", "tree", "why", "shown"),
    [
        (160, None, None, Panes(True, True, True)),
        (100, False, False, Panes(False, True, False)),
        (99, None, None, Panes(True, True, False)),
        (80, None, True, Panes(False, True, True)),
        (79, None, None, Panes(False, True, False)),
        (60, True, None, Panes(True, True, False)),
        (60, None, True, Panes(False, False, True)),
    ],
)
def test_panes_for_a_width(width: int, tree: bool | None, why: bool | None, shown: Panes) -> None:
    assert panes(width, tree, why) == shown

"""Thumbnails of heads, and their entropy."""

from math import isnan, log2, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_looks_lens import IDS, in_passes
from tiny import ARCHITECTURES, EXPERTS, GEMMA, MODERN, TRANSLATOR, tiny

from engine import trace
from engine.analysis import heads
from engine.analysis.heads import entropies, extremes, largest, tiles
from engine.analysis.looks import look
from engine.errors import AddressError

LARGE = (100, 100)


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, equal_nan=True, check_dtype=False)


def visible(plane):
    """A plane as a tile shows it: what is masked is not there."""
    return plane.masked_fill(plane == -torch.inf, nan)


@pytest.mark.parametrize("traits", ARCHITECTURES.values(), ids=ARCHITECTURES)
@pytest.mark.parametrize("stage", ["scores", "masked", "pattern"])
def test_a_tile_that_is_large_enough_is_the_plane_itself(traits, stage):
    t = trace(tiny(**traits), IDS)
    site = f"blocks.1.attn.{stage}"
    whole = t[site][0]
    mean, most, *every = tiles(t, [site], LARGE)
    for head, tile in enumerate(every):
        same(tile.values, visible(whole[head]))
        assert (tile.head, tile.reduce, tile.title) == (head, "", f"head {head}")
    same(mean.values, visible(whole.mean(0)))
    same(most.values, visible(whole.amax(0)))
    assert (mean.title, most.title) == ("mean", "max")


numbers = st.sampled_from([-3.0, -0.5, 0.0, 0.25, 0.5, 2.0, torch.inf, nan, None])


@given(
    rows=st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n), min_size=1, max_size=6)
    ),
    bins=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_a_bin_shows_the_largest_magnitude_in_it(rows, bins):
    plane = torch.tensor([[-torch.inf if x is None else x for x in row] for row in rows])
    small = largest(*extremes(plane[None], plane[None] == -torch.inf, bins))[0]
    if not (plane == -torch.inf).any():
        same(largest(*extremes(plane[None], None, bins))[0], small)
    assert small.shape == (-(-len(rows) // bins[0]), -(-len(rows[0]) // bins[1]))
    for y, line in enumerate(small.tolist()):
        for x, value in enumerate(line):
            cells = [
                cell
                for row in rows[y * bins[0] : (y + 1) * bins[0]]
                for cell in row[x * bins[1] : (x + 1) * bins[1]]
                if cell is not None
            ]
            if not cells or any(map(isnan, cells)):
                assert isnan(value)
            else:
                assert value in cells
                assert abs(value) == max(map(abs, cells))


def test_tiles_are_never_larger_than_asked_for():
    t = trace(tiny(**MODERN), IDS)
    for size in [(1, 1), (3, 4), (4, 7), (9, 10), (10, 11)]:
        told, values = look(t, "heads", "blocks.0.attn.pattern", size=size)
        assert told["shape"] == list(values.shape)
        assert (values.shape[1] <= size[0], values.shape[2] <= size[1]) == (True, True)


@pytest.mark.parametrize("cells", [1, 7, 25, 1000])
@pytest.mark.parametrize("traits", [MODERN, EXPERTS], ids=["modern", "sinks"])
def test_a_few_rows_of_a_few_heads_at_a_time_make_the_same_tiles(monkeypatch, cells, traits):
    t = trace(tiny(**traits), IDS)
    for size in [(4, 4), (1, 3), (10, 10)]:
        whole = tiles(t, ["blocks.1.attn.pattern"], size)
        with monkeypatch.context() as less:
            less.setattr(heads, "CELLS_AT_ONCE", cells)
            parts = tiles(t, ["blocks.1.attn.pattern"], size)
        for one, other in zip(parts, whole, strict=True):
            same(one.values, other.values)
            assert one.entropy == (None if other.entropy is None else pytest.approx(other.entropy))


def test_no_more_is_derived_at_once_than_a_part(monkeypatch):
    t = trace(tiny(**MODERN), IDS)
    asked, part = [], type(t).part

    def noting(self, name, at, window):
        found = part(self, name, at, window)
        asked.append(found.numel())
        return found

    monkeypatch.setattr(type(t), "part", noting)
    monkeypatch.setattr(heads, "CELLS_AT_ONCE", 30)
    for size in [(10, 10), (1, 1)]:
        tiles(t, ["blocks.0.attn.pattern", "blocks.1.attn.pattern"], size)
    assert max(asked) <= len(IDS) * 6, "more than all keys of one head"


# entropy


def bits(row):
    return -sum(p * log2(p) for p in row if p > 0)


@pytest.mark.parametrize("traits", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_entropy_is_the_mean_over_the_queries_in_bits(traits):
    t = trace(tiny(**traits), IDS)
    for layer in range(2):
        pattern = t[f"blocks.{layer}.attn.pattern"][0]
        for tile in tiles(t, [f"blocks.{layer}.attn.pattern"], LARGE)[2:]:
            rows = pattern[tile.head].tolist()
            if traits.get("attn_sinks"):
                rows = [[*row, max(0.0, 1 - sum(row))] for row in rows]
            assert tile.entropy == pytest.approx(sum(map(bits, rows)) / len(rows), abs=1e-6)
    assert all(tile.entropy is None for tile in tiles(t, ["blocks.0.attn.scores"], LARGE))


def test_known_entropies():
    rows = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    assert entropies(rows).tolist() == pytest.approx([0, 1, 2], abs=1e-7)
    assert entropies(rows / 2, sink=True).tolist() == pytest.approx([1, 1.5, 2], abs=1e-7)


def test_padding_does_not_count():
    model = tiny(**MODERN)
    both, alone = trace(model, [IDS, IDS[:4]]), trace(model, IDS[:4])
    padded = tiles(both, ["blocks.1.attn.pattern"], LARGE, row=1)
    for one, other in zip(padded, tiles(alone, ["blocks.1.attn.pattern"], LARGE), strict=True):
        assert one.entropy == (None if other.entropy is None else pytest.approx(other.entropy))


# passes and layers


@given(cuts=st.sets(st.integers(1, 9), max_size=3).map(sorted), keep=st.sampled_from(["all", "residual"]))
def test_any_split_has_the_same_tiles(cuts, keep):
    model = tiny(**MODERN)
    whole, t = trace(model, IDS), in_passes(model, IDS, cuts, keep)
    for one, other in zip(
        tiles(t, ["blocks.1.attn.pattern"], (4, 4)), tiles(whole, ["blocks.1.attn.pattern"], (4, 4)), strict=True
    ):
        same(one.values, other.values)
        assert one.entropy == (None if other.entropy is None else pytest.approx(other.entropy))


def test_all_layers_stand_below_each_other():
    t = trace(tiny(**MODERN), IDS)
    told, values = look(t, "layers", "blocks.1.attn.pattern", size=LARGE)
    assert told["columns"] == 4
    assert [(tile["site"], tile["head"]) for tile in told["tiles"]] == [
        (f"blocks.{layer}.attn.pattern", head) for layer in range(2) for head in range(4)
    ]
    assert told["tiles"][5]["title"] == "layer 1 head 1"
    same(values, torch.cat([t[f"blocks.{layer}.attn.pattern"][0] for layer in range(2)]))


def test_keys_that_a_window_has_let_go_of_are_empty_beside_a_layer_that_has_them():
    t = in_passes(tiny(**GEMMA), IDS, [8])
    near, far = t.site("blocks.0.attn.pattern", 1), t.site("blocks.1.attn.pattern", 1)  # [1 head 2 4], [1 head 2 10]
    _, values = look(t, "layers", "blocks.0.attn.pattern@1", size=LARGE)
    assert values.shape == (8, 2, 10)
    assert values[:4, :, :6].isnan().all()
    same(values[:4, :, 6:], near[0])
    same(values[4:], far[0])


def test_a_decoders_look_at_its_source_and_the_encoders_own_have_tiles_too():
    t = trace(tiny(**TRANSLATOR), IDS, target=[1, 2, 3])
    for site in ("blocks.1.cross_attn.pattern", "encoder.blocks.1.attn.pattern", "position_bias"):
        _, values = look(t, "heads", site, size=LARGE)
        same(values[2:], t[site][0])
    told, _ = look(t, "layers", "encoder.blocks.0.attn.pattern")
    assert {tile["site"] for tile in told["tiles"]} == {f"encoder.blocks.{i}.attn.pattern" for i in range(2)}


def test_what_has_no_heads_is_refused():
    with pytest.raises(AddressError, match="no heads to look at"):
        look(trace(tiny(**MODERN), IDS), "heads", "blocks.0.mlp.post")

"""The KV cache in pages: beside one that takes and frees them token by token."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import ENCODER, MODERN, random_ids, tiny_config

from engine import extend, trace
from engine.analysis.pages import Pages, pages, plan_pages
from engine.config import LayerKind
from engine.errors import PromptError

MIXED = MODERN | {
    "rotary": None, "positions": "none", "kinds": (LayerKind(name="near", window=5), LayerKind(name="far")),
    "layer_kinds": ("near", "far"),
}  # fmt: skip
ROW = 2 * 2 * 6 * 4  # keys and values, kv heads, d_head, bytes


def simulated(length: int, size: int, window: int | None) -> tuple[int, int]:
    """Pages and rows held after so many tokens, each of which takes a page where it needs one and frees what it can."""
    taken, rows = set(), set()
    for pos in range(length):
        taken.add(pos // size)
        rows.add(pos)
        seen_by_next = range(0 if window is None else pos + 2 - window, pos + 1)
        rows &= set(seen_by_next)
        taken &= {row // size for row in rows}
    return len(taken), len(rows)


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    size=st.integers(1, 20),
    window=st.sampled_from([1, 2, 5, 16, 17]),
)
def test_pages_are_those_of_an_allocator_that_goes_token_by_token(lengths, size, window):
    kinds = (LayerKind(name="near", window=window), LayerKind(name="far"))
    config = tiny_config(**MIXED | {"kinds": kinds, "n_layers": 3})
    found = plan_pages(config, lengths, 4, size)
    for layer, of in zip(found.layers, (window, None, window), strict=True):
        held = [simulated(length, size, of) for length in lengths]
        taken, rows = (sum(column) for column in zip(*held, strict=True))
        assert (layer.pages, layer.used, layer.waste_bytes) == (taken, rows, (taken * size - rows) * ROW)
    assert found.waste == sum(layer.waste_bytes for layer in found.layers)
    assert found.waste + ROW * sum(layer.used for layer in found.layers) == found.bytes


@pytest.mark.parametrize("size", [1, 2, 3, 16])
@pytest.mark.parametrize("first", [5, 40, 100])
def test_the_expected_waste_is_the_mean_over_lengths(size, first):
    config = tiny_config(**MIXED)
    each = [plan_pages(config, [first + i], 4, size) for i in range(size)]
    for one in each:
        assert one.expected == pytest.approx(sum(page.waste for page in each) / size)
    several = plan_pages(config, range(first, first + size), 4, size)
    assert several.waste == sum(one.waste for one in each) == pytest.approx(several.expected)


def test_a_trace_in_pages_of_sixteen(tiny):
    model = tiny(**MIXED)
    t = extend(model, trace(model, random_ids(model.config, 17)), [3, 1])
    found = pages(t)
    row = ROW * t.dtype.itemsize // 4
    # 19 positions lie in two pages; of the window's last 4, positions 15 to 18, one lies in the first page.
    assert [(layer.pages, layer.used) for layer in found.layers] == [(2, 4), (2, 19)]
    assert found.waste == (28 + 13) * row
    assert found.share == (28 + 13) / 64
    assert found.text == (
        "4 pages of 16 positions take 12.0 KiB, of which 7.7 KiB (64.1%) hold nothing; 4.2 KiB would be usual: half a "
        "page per layer, a whole one where its window is full, as for a random length"
    )
    assert pages(t, 1).waste == 0
    assert "usual" not in pages(t, 1).text


def test_pages_as_json(tiny):
    model = tiny(**MODERN)
    found = pages(trace(model, random_ids(model.config, 5)), 4).to_json()
    row = 2 * 2 * 6 * 8
    assert found["rows"] == [{"layer": i, "pages": 2, "used": 5, "waste_bytes": 3 * row} for i in range(2)]
    assert (found["size"], found["waste"], found["share"]) == (4, 6 * row, 3 / 8)
    assert json.loads(json.dumps(found)) == found


def test_the_usual_waste_is_said_by_the_layer():
    three = plan_pages(tiny_config(**MODERN), [5, 9, 40], 4)
    assert three.text.endswith(" would be usual: half a page per layer and text, as for a random length")
    assert three.expected == 3 * 2 * three.row * 15 / 2


def test_nothing_held_wastes_nothing():
    empty = plan_pages(tiny_config(**MODERN), [0], 4)
    assert (empty.pages, empty.waste, empty.share, empty.expected) == (0, 0, 0.0, 0.0)
    assert isinstance(empty, Pages)


@pytest.mark.parametrize("size", [0, -1, True, 2.0, "16", None, 2**21])
def test_sizes_that_no_page_has(tiny, size):
    model = tiny(**MODERN)
    with pytest.raises(PromptError, match=r"^a page has 1…1,048,576 positions, but size is [^\n]+$"):
        pages(trace(model, [1, 2]), size)


def test_what_has_no_pages(tiny):
    with pytest.raises(PromptError, match="looks both ways"):
        pages(trace(tiny(**ENCODER), [1, 2]))
    with pytest.raises(PromptError, match="a batch of 2; trace each prompt alone"):
        pages(trace(tiny(**MODERN), [[1, 2], [3, 4]]))
    with pytest.raises(PromptError, match="tokens must be a whole number"):
        plan_pages(tiny_config(**MODERN), [-1], 4)

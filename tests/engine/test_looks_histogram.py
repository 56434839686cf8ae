"""Histograms: counts and quantiles beside numpy's, in parts and whole."""

from math import inf, nan

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_looks_lens import IDS, in_passes
from tiny import GEMMA, MODERN, tiny

from engine import trace, windows
from engine.analysis.histogram import histogram
from engine.analysis.looks import look
from engine.errors import Cancelled

floats = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, nan, inf, -inf])


@given(rows=st.lists(st.lists(floats, max_size=8), max_size=5), bins=st.integers(1, 9))
def test_it_is_numpys(rows, bins):
    found = histogram(lambda: [torch.tensor(row) for row in rows], bins)
    values = np.array([x for row in rows for x in row], dtype=np.float32)
    finite = values[np.isfinite(values)].astype(np.float64)
    assert found.told.nan == np.isnan(values).sum()
    assert (found.told.above, found.told.below) == ((values == inf).sum(), (values == -inf).sum())
    if not len(finite):
        assert (found.edges, found.counts, found.quantiles) == ((), (), ())
        return
    assert found.quantiles == pytest.approx(np.quantile(finite, [0.01, 0.5, 0.99]).tolist(), rel=1e-9, abs=1e-45)
    assert len(found.edges) == bins + 1
    assert found.edges == tuple(sorted(found.edges))
    assert (found.edges[0] <= finite.min(), found.edges[-1] >= finite.max()) == (True, True)
    places = np.searchsorted(found.edges[1:-1], finite, side="right")
    assert list(found.counts) == np.bincount(places, minlength=bins).tolist()


@pytest.mark.parametrize("spread", [1e-6, 1.0, 1e30])
def test_many_numbers_have_exact_quantiles(spread):
    values = torch.randn(50_000) * spread
    found = histogram(lambda: values.split(7_000))
    assert found.quantiles == pytest.approx(np.quantile(values.double().numpy(), [0.01, 0.5, 0.99]).tolist(), rel=1e-12)
    counts, _ = np.histogram(values.double().numpy(), np.array(found.edges))
    assert list(found.counts) == counts.tolist()


def test_it_can_be_cancelled_between_parts(monkeypatch):
    monkeypatch.setattr(windows, "CELLS_AT_ONCE", 30)  # three rows
    t, told = trace(tiny(**MODERN), IDS), []

    def watch(done, of, what):
        told.append((done, of))
        if len(told) == 6:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        look(t, "histogram", "blocks.1.attn.pattern[b=0,h=1]", watch=watch)
    assert told == [(done, 2000) for done in (0, 250, 500, 750, 1000, 1250)]


@pytest.mark.parametrize("cells", [3, 50, 10**6])
def test_a_look_is_of_the_whole_plane_however_small_its_parts(monkeypatch, cells):
    monkeypatch.setattr(windows, "CELLS_AT_ONCE", cells)
    t = in_passes(tiny(**MODERN), IDS, [6])
    told, values = look(t, "histogram", "blocks.1.attn.masked[b=0,h=2,q=3:5]", bins=7)
    plane = t["blocks.1.attn.masked[b=0,h=2]"].double().numpy()
    seen = plane[np.isfinite(plane)]
    assert values is None
    assert sum(told["counts"]) == len(seen) == 55
    assert (told["masked"], told["below"], told["above"], told["nan"]) == (45, 0, 0, 0)
    assert [told["q01"], told["q50"], told["q99"]] == pytest.approx(np.quantile(seen, [0.01, 0.5, 0.99]).tolist())
    assert told["stats"]["count"] == 55


HOW_IT_IS_MASKED = {
    "causal": (MODERN, [IDS], []),
    "of one pass": (MODERN, [IDS], [6]),
    "with a window": (GEMMA, [IDS], [6]),
    "padded": (MODERN, [IDS, IDS[:4]], []),
}


@pytest.mark.parametrize(("traits", "ids", "cuts"), HOW_IT_IS_MASKED.values(), ids=HOW_IT_IS_MASKED)
@pytest.mark.parametrize("at", ["", "@0", "@1"])
@pytest.mark.parametrize("place", ["[b=0]", "[b=0,h=1]", "[b=0,h=1,q=2]", "[b=0,k=1]", ""])
def test_masked_weights_are_those_whose_scores_are_masked(traits, ids, cuts, at, place):
    if at == "@1" and not cuts:
        return
    model = tiny(**traits)
    t = in_passes(model, ids[0], cuts) if cuts else trace(model, ids)
    weights, scores = t[f"blocks.0.attn.pattern{place}{at}"], t[f"blocks.0.attn.masked{place}{at}"]
    hidden = scores == -inf
    told, _ = look(t, "histogram", f"blocks.0.attn.pattern{place}{at}")
    stats = windows.statistics(windows.find(t, f"blocks.0.attn.pattern{place}{at}"))
    assert (told["masked"], stats["masked"]) == (int(hidden.sum()), int(hidden.sum()))
    assert sum(told["counts"]) == stats["count"] == int((~hidden).sum())
    assert stats["mean"] == pytest.approx(float(weights[~hidden].double().mean()))


def test_a_weight_too_small_for_its_dtype_is_no_masked_one():
    t = trace(tiny(**MODERN), IDS)
    weights = t["blocks.0.attn.pattern"].clone()
    weights[0, 1, 3, 0] = 0.0
    weights[0, 1, 3, 9] = nan
    t.passes[0].kept["blocks.0.attn.pattern"] = weights
    told, _ = look(t, "histogram", "blocks.0.attn.pattern[b=0,h=1]")
    assert (told["masked"], told["nan"], sum(told["counts"])) == (44, 1, 55)


@pytest.mark.parametrize(("over", "masked"), [({"head": "mean"}, 45), ({"key": "max"}, 0), ({"query": "mean"}, 0)])
def test_an_axis_taken_together_keeps_what_is_masked_for_all_of_it(over, masked):
    t = trace(tiny(**MODERN), IDS)
    place = "blocks.0.attn.pattern[b=0]" if "head" in over else "blocks.0.attn.pattern[b=0,h=1]"
    stats = windows.statistics(windows.find(t, place, over))
    assert (stats["masked"], stats["nonfinite"]) == (masked, 0)


def test_a_difference_of_weights_masks_what_both_mask():
    t = in_passes(tiny(**GEMMA), IDS, [])
    near, far = (f"blocks.{layer}.attn.pattern[b=0,h=1]" for layer in (0, 1))
    hidden = [t[place.replace("pattern", "masked")] == -inf for place in (near, far)]
    stats = windows.statistics(windows.find(t, near, None, windows.Plane.find(t, far)))
    assert stats["masked"] == int((hidden[0] & hidden[1]).sum())
    assert (stats["nonfinite"], stats["count"]) == (0, int((~(hidden[0] & hidden[1])).sum()))


def test_ids_and_single_numbers_can_be_counted():
    t = trace(tiny(**MODERN), IDS)
    told, _ = look(t, "histogram", "tokens[b=0]", bins=4)
    assert sum(told["counts"]) == len(IDS)
    told, _ = look(t, "histogram", "blocks.0.resid_pre[b=0,p=1,d=2]", bins=4)
    assert told["counts"] == [0, 0, 1, 0]
    assert told["q50"] == pytest.approx(float(t["blocks.0.resid_pre[b=0,p=1,d=2]"]))

"""The lens: the end of the program on every point of the residual stream."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import ARCHITECTURES, BERT, CLASSIC, GPT2, MODERN, SENTENCE, TRANSLATOR, random_ids, tiny
from torch.nn import functional as F

from engine import Address, Model, extend, lens, open_trace, trace
from engine.analysis import lens as lenses
from engine.analysis.lens import lens_logits
from engine.analysis.looks import look
from engine.analysis.places import rows_of
from engine.analysis.residual import streams
from engine.errors import AddressError, Cancelled, NotKeptError

WITH_LENS = {name: traits for name, traits in ARCHITECTURES.items() if name != "bert"}
IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


def in_passes(model, ids, cuts, keep="all"):
    """A prompt in several passes; the cuts are where each but the first begins."""
    bounds = [0, *cuts, len(ids)]
    t = trace(model, ids[: bounds[1]], keep=keep)
    for start, stop in pairwise(bounds[1:]):
        t = extend(model, t, ids[start:stop], keep=keep)
    return t


@pytest.mark.parametrize("traits", WITH_LENS.values(), ids=WITH_LENS)
def test_at_the_last_point_it_is_the_logits_bit_for_bit(traits):
    model = tiny(**traits)
    ids = random_ids(model.config, 9)
    t, last = trace(model, ids, keep=["blocks.*"]), streams(model.program)[0].points[-1]
    rows = rows_of(t, Address(last))
    assert not t.kept("logits", 0), "nothing would be computed"
    assert torch.equal(lens_logits(t, last, rows), trace(model, ids)["logits"][0])


def test_the_norm_is_taken_anew_at_each_point():
    model = tiny(**GPT2)
    t, w = trace(model, IDS), model.weights
    for point in lens(t).sites:
        x = t[point][0]
        normed = F.layer_norm(x, x.shape[-1:], w["ln_final.weight"], w["ln_final.bias"], model.config.norm_eps)
        rows = rows_of(t, Address(point))
        torch.testing.assert_close(lens_logits(t, point, rows), normed @ w["embed.weight"].T)
        once = (x - x.mean(-1, keepdim=True)) / t["ln_final.scale"][0]  # the last point's scale, at all of them
        cached = (once * w["ln_final.weight"] + w["ln_final.bias"]) @ w["embed.weight"].T
        assert torch.allclose(cached, normed @ w["embed.weight"].T) == (point == "blocks.1.resid_post")


def test_in_a_post_norm_model_the_norm_is_the_one_that_follows_the_point():
    model = tiny(**CLASSIC)
    t, w = trace(model, IDS), model.weights
    for point, norm in [("blocks.0.resid_mid", "ln1"), ("blocks.0.resid_post", "ln2"), ("blocks.0.resid_pre", "")]:
        x = t[point][0]
        if norm:
            weight, bias = w[f"blocks.0.{norm}.weight"], w[f"blocks.0.{norm}.bias"]
            x = F.layer_norm(x, x.shape[-1:], weight, bias, model.config.norm_eps)
        rows = rows_of(t, Address(point))
        torch.testing.assert_close(lens_logits(t, point, rows), x @ w["embed.weight"].T)


@given(
    name=st.sampled_from(sorted(name for name in WITH_LENS if name != "encoder")),
    cuts=st.sets(st.integers(1, 9), max_size=3).map(sorted),
    window=st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted),
    keep=st.sampled_from(["all", "residual"]),
)
def test_any_window_of_any_split_is_that_part_of_one_pass(name, cuts, window, keep):
    model = tiny(**WITH_LENS[name])
    whole, t, (start, stop) = lens(trace(model, IDS)), in_passes(model, IDS, cuts, keep), window
    part = lens(t, rows_of(t, Address.parse(f"blocks.0.resid_pre[p={start}:{stop}]")))
    assert torch.equal(part.ids, whole.ids[start:stop])
    torch.testing.assert_close(part.probs, whole.probs[start:stop])


@given(cuts=st.sets(st.integers(1, 9), min_size=1, max_size=3).map(sorted), data=st.data())
def test_a_pass_has_its_own_positions(cuts, data):
    model = tiny(**MODERN)
    t = in_passes(model, IDS, cuts)
    at = data.draw(st.integers(0, len(t.passes) - 1))
    whole, own = lens(t), lens(t, rows_of(t, Address("blocks.1.resid_mid", at=at)))
    p = t.passes[at]
    assert torch.equal(own.ids, whole.ids[p.start : p.stop])


def test_each_row_of_a_batch_has_its_own():
    model = tiny(**GPT2)
    both = trace(model, [IDS, IDS[3:]])
    for row, ids in enumerate([IDS, IDS[3:]]):
        told = lens(both, rows_of(both, Address.parse(f"blocks.0.resid_pre[b={row}]")))
        assert torch.equal(told.ids[-len(ids) :], lens(trace(model, ids)).ids)


def test_a_block_of_positions_at_a_time_is_the_same(monkeypatch):
    t = trace(tiny(**MODERN), IDS)
    whole, told = lens(t), []
    monkeypatch.setattr(lenses, "CELLS_AT_ONCE", 3 * 37)
    parts = lens(t, watch=lambda done, of, what: told.append((done, of, what)))
    assert torch.equal(parts.ids, whole.ids)
    assert [done for done, _, _ in told] == list(range(4 * 5)), "four blocks at each of five points"
    assert {of for _, of, _ in told} == {20}


def test_positions_of_many_passes_are_one_product():
    t, told = in_passes(tiny(**MODERN), IDS, range(1, 10)), []
    lens(t, watch=lambda done, of, what: told.append((done, of)))
    assert told == [(i, 5) for i in range(5)], "once at each point"


def test_it_can_be_cancelled_between_blocks(monkeypatch):
    monkeypatch.setattr(lenses, "CELLS_AT_ONCE", 1)
    calls = []

    def stop(done, of, what):
        calls.append(done)
        if done == 3:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        look(trace(tiny(**MODERN), IDS), "lens", "blocks.0.resid_pre", watch=stop)
    assert calls == [0, 1, 2, 3]


def test_a_row_of_nan_has_no_top_token():
    model = tiny(**GPT2)
    weights = {name: weight.clone() for name, weight in model.weights.items()}
    weights["pos_embed.weight"][4] = torch.nan
    told, values = look(trace(Model.from_weights(model.config, weights), IDS), "lens", "blocks.0.resid_pre")
    assert values[:, 0].isnan().tolist() == [pos == 4 for pos in range(10)], "before attention has spread it"
    for texts, probs in zip(told["texts"], values.tolist(), strict=True):
        assert [text == "" for text in texts] == [prob != prob for prob in probs]
    assert told["stats"]["nonfinite"] == int(values.isnan().sum())


@pytest.mark.parametrize(
    ("traits", "why"),
    [(SENTENCE, "output head"), (BERT, "head.pre")],
)
def test_it_is_refused_where_the_head_does_not_fit_the_stream(traits, why):
    t = trace(tiny(**traits), IDS)
    with pytest.raises(AddressError, match=why) as error:
        look(t, "lens", "blocks.0.resid_pre")
    assert "\n" not in str(error.value)


def test_it_is_not_about_an_encoder_beside_a_decoder():
    t = trace(tiny(**TRANSLATOR), IDS, target=[1, 2])
    with pytest.raises(AddressError, match=r"encoder\.blocks\.0\.resid_pre"):
        look(t, "lens", "encoder.blocks.0.resid_pre")
    told, _ = look(t, "lens", "blocks.0.resid_pre")
    assert "blocks.0.resid_mid_cross" in told["cols"]["sites"]


def test_without_weights_it_says_what_to_do(tmp_path):
    file = tmp_path / "a.trace.safetensors"
    trace(tiny(**MODERN), IDS).save(file)
    with pytest.raises(NotKeptError, match="open it with its model"):
        look(open_trace(file), "lens", "blocks.0.resid_pre")

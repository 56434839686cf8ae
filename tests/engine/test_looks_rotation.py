"""Rotations at one token and head."""

from math import cos, sin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_looks_lens import IDS, in_passes
from tiny import GEMMA, INTERLEAVED, LONGER, MODERN, MULTIPLIED, tiny

from engine import Address, open_trace, trace
from engine.analysis.looks import look
from engine.analysis.rotation import rotation
from engine.config import LayerKind, Rotary
from engine.errors import AddressError


def at(t, address):
    return rotation(t, Address.parse(address))


@given(
    traits=st.sampled_from([MODERN, INTERLEAVED, MULTIPLIED, GEMMA, LONGER]),
    layer=st.integers(0, 1),
    pos=st.integers(0, 9),
    cuts=st.sets(st.integers(1, 9), max_size=2).map(sorted),
    which=st.sampled_from(["rot_q[h=3,", "rot_k[g=0,"]),
)
def test_every_pair_is_turned_by_its_angle(traits, layer, pos, cuts, which):
    t = in_passes(tiny(**traits), IDS, cuts)
    found = at(t, f"blocks.{layer}.attn.{which}p={pos}]")
    factor = t.config.kind(layer).rotary.attention_factor
    assert found.position == pos
    assert len(found.pairs) == found.rotated // 2
    for pair in found.pairs:
        (x, y), c, s = pair.before, factor * cos(pair.angle), factor * sin(pair.angle)
        assert pair.angle == pytest.approx(pos * pair.inv_freq)
        assert (pair.cos, pair.sin) == pytest.approx((c, s), abs=1e-6)
        assert pair.after == pytest.approx((x * c - y * s, y * c + x * s), abs=1e-6)


def test_the_conventions_are_named_and_their_pairs_are_other_dimensions():
    halves = at(trace(tiny(**MODERN), IDS), "blocks.0.attn.rot_q[p=3,h=0,d=4]")
    assert halves.convention == "halves: dim i with i + d/2 (GPT-NeoX, Llama)"
    assert [pair.dims for pair in halves.pairs] == [(0, 3), (1, 4), (2, 5)]
    assert halves.pair == 1
    neighbours = at(trace(tiny(**INTERLEAVED), IDS), "blocks.0.attn.rot_q[p=3,h=0,d=4]")
    assert neighbours.convention == "neighbours: dims 2i, 2i+1 (GPT-J)"
    assert [pair.dims for pair in neighbours.pairs] == [(0, 1), (2, 3), (4, 5)]
    assert neighbours.pair == 2


def test_dimensions_that_do_not_turn_belong_to_no_pair():
    t = trace(tiny(**MULTIPLIED), IDS)
    found = at(t, "blocks.0.attn.rot_q[p=3,h=0,d=5]")
    assert (found.rotated, found.of, found.pair) == (4, 6, None)
    assert {d for pair in found.pairs for d in pair.dims} == {0, 1, 2, 3}
    before, after = t["blocks.0.attn.q[b=0,p=3,h=0]"], t["blocks.0.attn.rot_q[b=0,p=3,h=0]"]
    assert before[4:].tolist() == after[4:].tolist()


def test_each_layer_has_the_angles_of_its_own_kind():  # E7
    kinds = (
        LayerKind(name="near", window=3, rotary=Rotary(theta=1e4)),
        LayerKind(name="far", rotary=Rotary(theta=1e6, scaling="linear", factor=8.0)),
    )
    t = trace(tiny(**GEMMA | {"kinds": kinds}), IDS)
    near, far = (at(t, f"blocks.{layer}.attn.rot_q[p=7,h=0,d=0]") for layer in (0, 1))
    assert [pair.angle for pair in near.pairs] == pytest.approx([7 * 1e4 ** (-2 * i / 6) for i in range(3)])
    assert [pair.angle for pair in far.pairs] == pytest.approx([7 / 8 * 1e6 ** (-2 * i / 6) for i in range(3)])
    assert (near.theta, near.scaling, far.theta, far.scaling) == (1e4, "none", 1e6, "linear")


def test_llama3s_scaling_is_that_of_the_published_numbers():  # E6
    rotary = Rotary(theta=5e5, scaling="llama3", factor=32.0, original_n_ctx=8192)
    model = tiny(positions="rotary", rotary=rotary, d_head=64, d_model=64, n_layers=1)
    turns = [pair.inv_freq for pair in at(trace(model, [1, 2]), "blocks.0.attn.rot_q[p=1,h=0,d=0]").pairs]
    plain = [5e5 ** (-2 * i / 64) for i in range(32)]
    assert turns[0] == 1
    assert (turns[14], turns[15], turns[16], turns[17], turns[31]) == pytest.approx(
        (3.211446106e-3, 1.290548011e-3, 4.295567051e-4, 9.708286e-5, 9.418306e-8), rel=1e-4
    )
    assert turns[18:] == pytest.approx([turn / 32 for turn in plain[18:]], rel=1e-5)


def test_a_scaling_that_grows_is_that_of_the_pass_that_the_token_ran_in():
    t = in_passes(tiny(**LONGER), IDS, [8])  # original_n_ctx is 8
    early = at(t, "blocks.0.attn.rot_q[p=7,h=0]"), at(t, "blocks.0.attn.rot_q[p=7,h=0]@0")
    assert early[0] == early[1]
    late = at(t, "blocks.0.attn.rot_q[p=9,h=0]"), at(t, "blocks.0.attn.rot_q[p=1,h=0]@1")
    assert late[0] == late[1]
    assert early[0].pairs[2].inv_freq == pytest.approx(1e4 ** (-2 / 3))
    assert late[0].pairs[2].inv_freq < early[0].pairs[2].inv_freq


def test_padded_rows_have_their_own_positions():
    both = trace(tiny(**MODERN), [IDS, IDS[:4]])
    assert at(both, "blocks.0.attn.rot_q[b=1,p=9,h=0]").position == 3
    assert at(both, "blocks.0.attn.rot_q[b=0,p=9,h=0]").position == 9


def test_a_look_needs_no_weights(tmp_path):
    t, file = trace(tiny(**MODERN), IDS), tmp_path / "a.trace.safetensors"
    t.save(file)
    address = "blocks.1.attn.rot_q[b=0,p=4,h=2,d=1]"
    assert look(open_trace(file), "rotation", address) == look(t, "rotation", address)
    told, values = look(t, "rotation", address)
    assert (told["kind"], told["pair"], told["rotated"], told["of"], values) == ("rotation", 1, 6, 6, None)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("blocks.0.attn.q[p=1,h=0]", "rotary queries or keys"),
        ("blocks.0.attn.rot_q[p=1]", "name one head"),
        ("blocks.0.attn.rot_k[p=1]", "name one kv head"),
        ("blocks.0.attn.rot_q[h=1]", "name one pos"),
    ],
)
def test_what_is_no_rotation_is_refused(address, why):
    with pytest.raises(AddressError, match=why):
        look(trace(tiny(**MODERN), IDS), "rotation", address)

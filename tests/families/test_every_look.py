"""Looks beside transformers: the lens and rotations as its own modules make them, and every look in every family."""

import json

import pytest
import torch
from against import FLOAT64, gap, random_reference, run_reference, saved
from test_sites import folder, recorded  # noqa: F401, the folder is a fixture
from transformers import Gemma2Config, GPT2Config, GPTJConfig, LlamaConfig
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from engine import Address, load_model, trace
from engine.analysis.lens import lens, lens_logits, no_lens
from engine.analysis.looks import PLAIN, depth, look, looks_in
from engine.analysis.places import rows_of
from engine.analysis.residual import streams
from engine.analysis.rotation import rotation
from engine.jsontext import for_anyone

IDS = [3, 14, 15, 9, 26, 5, 35]
SIZES = {"vocab_size": 40, "hidden_size": 24, "intermediate_size": 26, "num_hidden_layers": 3, "num_attention_heads": 4}
GPT2 = GPT2Config(vocab_size=40, n_embd=24, n_layer=3, n_head=4, n_positions=32, bos_token_id=1, eos_token_id=2)
LLAMA = LlamaConfig(**SIZES, num_key_value_heads=2, head_dim=6)
GEMMA2 = Gemma2Config(**SIZES, num_key_value_heads=2, head_dim=6, final_logit_softcapping=2.0, sliding_window=4)


def final_norm(reference):
    return reference.transformer.ln_f if hasattr(reference, "transformer") else reference.model.norm


# the lens


@pytest.mark.parametrize("config", [GPT2, LLAMA, GEMMA2], ids=["gpt2", "llama", "gemma2"])
@torch.no_grad()
def test_the_lens_is_transformers_own_norm_and_head_on_each_hidden_state(config):
    reference = random_reference(config)
    out, norm, cap = run_reference(reference, IDS), final_norm(reference), getattr(config, "final_logit_softcapping", 0)
    with saved(reference, torch.float64) as path:
        t = trace(load_model(path, device="cpu", dtype="float64"), IDS, keep=["blocks.*.resid_*"])
    states = [norm(state) for state in out.hidden_states[:-1]] + [
        out.hidden_states[-1]
    ]  # the last has its norm already
    points = [f"blocks.{layer}.resid_pre" for layer in range(3)] + ["blocks.2.resid_post"]
    rows = rows_of(t, Address(points[0]))
    for point, state in zip(points, states, strict=True):
        theirs = reference.lm_head(state)[0]
        theirs = cap * torch.tanh(theirs / cap) if cap else theirs
        assert gap(lens_logits(t, point, rows), theirs) <= FLOAT64, point
    assert gap(lens_logits(t, points[-1], rows), out.logits[0]) <= FLOAT64
    twice = reference.lm_head(norm(out.hidden_states[-1]))[0]
    assert gap(lens_logits(t, points[-1], rows), twice) > 0.01, "the final norm was applied twice"


@torch.no_grad()
def test_the_lens_names_the_token_and_the_probability_that_transformers_would():
    reference = random_reference(GPT2)
    states = run_reference(reference, IDS).hidden_states
    with saved(reference, torch.float64) as path:
        found = lens(trace(load_model(path, device="cpu", dtype="float64"), IDS))
    theirs = reference.lm_head(reference.transformer.ln_f(states[1]))[0].softmax(-1)
    column = found.sites.index("blocks.0.resid_post")
    assert found.ids[:, column].tolist() == theirs.argmax(-1).tolist()
    assert gap(found.probs[:, column], theirs.amax(-1)) <= FLOAT64


# rotations


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "llama3"])
@torch.no_grad()
def test_pairs_of_halves_turn_as_in_transformers(scaled):
    more = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    rope = {"rope_theta": 1e4} | ({"rope_type": "llama3", **more} if scaled else {"rope_type": "default"})
    config = LlamaConfig(**SIZES | {"num_hidden_layers": 1}, head_dim=16, rope_parameters=rope)
    reference = random_reference(config)
    with saved(reference, torch.float64) as path:
        t = trace(load_model(path, device="cpu", dtype="float64"), IDS)
    q = t["blocks.0.attn.q"].transpose(1, 2)
    cos, sin = reference.model.rotary_emb(q, torch.arange(len(IDS))[None])
    turned, _ = modeling_llama.apply_rotary_pos_emb(q, q, cos, sin)
    found = rotation(t, Address.parse("blocks.0.attn.rot_q[p=5,h=2,d=11]"))
    assert found.pair == 3
    assert found.pairs[3].dims == (3, 11)
    assert found.convention.startswith("halves")
    assert (found.scaling, found.rotated, found.of, found.position) == ("llama3" if scaled else "none", 16, 16, 5)
    for pair, inv_freq in zip(found.pairs, reference.model.rotary_emb.inv_freq.tolist(), strict=True):
        one, other = pair.dims
        assert pair.inv_freq == pytest.approx(inv_freq, rel=1e-6)
        assert pair.angle == pytest.approx(5 * inv_freq, rel=1e-6)
        assert (pair.cos, pair.sin) == pytest.approx((float(cos[0, 5, one]), float(sin[0, 5, one])), abs=1e-6)
        assert pair.before == (float(q[0, 2, 5, one]), float(q[0, 2, 5, other]))
        assert pair.after == pytest.approx((float(turned[0, 2, 5, one]), float(turned[0, 2, 5, other])), abs=1e-5)


@torch.no_grad()
def test_pairs_of_neighbours_turn_as_in_transformers_and_the_rest_of_the_head_does_not():
    config = GPTJConfig(vocab_size=40, n_embd=24, n_layer=1, n_head=2, n_positions=32, rotary_dim=8)
    reference = random_reference(config)
    with saved(reference, torch.float64) as path:
        t = trace(load_model(path, device="cpu", dtype="float64"), IDS)
    k, table = t["blocks.0.attn.k"], modeling_gptj.create_sinusoidal_positions(32, 8)
    sin, cos = table[None, : len(IDS)].double().chunk(2, dim=-1)
    turned = modeling_gptj.apply_rotary_pos_emb(k[..., :8], sin, cos)
    found = rotation(t, Address.parse("blocks.0.attn.rot_k[p=6,g=1,d=5]"))
    assert (found.pair, found.rotated, found.of) == (2, 8, 12)
    assert found.convention.startswith("neighbours")
    assert [pair.dims for pair in found.pairs] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    for pair in found.pairs:
        one, other = pair.dims
        assert (pair.cos, pair.sin) == pytest.approx((float(cos[0, 6, pair.pair]), float(sin[0, 6, pair.pair])))
        assert pair.after == pytest.approx((float(turned[0, 6, 1, one]), float(turned[0, 6, 1, other])), abs=1e-5)
    assert rotation(t, Address.parse("blocks.0.attn.rot_k[p=6,g=1,d=9]")).pair is None


# every family


def addressed(t, site, name, at):
    """An address of a site that a look takes."""
    axes, index = t.program.site(site).axes, {}
    if name in ("neighbours", "neurons", "rotation"):
        index = {axes[1]: 1} | ({axes[2]: 0} if name == "rotation" else {})
    elif name == "chain":
        index = {axes[1]: 0, axes[2]: 1, axes[3]: 0}
    return Address(site, (("batch", 0), *index.items()), at)


def test_every_look_of_every_family_can_be_had(folder):  # noqa: F811
    model = load_model(folder)
    t = recorded(model, "residual")
    found = looks_in(t)
    assert {"lens", "norms"} >= set(found[depth(t)[0]])
    assert depth(t)[0] in found
    for site, names in found.items():
        chained = ("chain",) if "arcs" in names else ()
        for name in (*names, "histogram", *chained):
            if name in PLAIN:
                continue
            for at in (None, 0):
                told, values = look(t, name, addressed(t, site, name, at), size=(4, 6), k=3, bins=5)
                json.loads(for_anyone(told))
                assert all(told[word] for word in ("title", "formula", "story", "numbers")), (site, name)
                assert values is None or list(values.shape) == told["shape"], (site, name)


def test_every_family_has_its_own_logits_in_the_last_column_or_no_lens(folder):  # noqa: F811
    model = load_model(folder)
    t = recorded(model, ["blocks.*.resid_*"])
    stream = streams(model.program)[0]
    offered = [site for site, names in looks_in(t).items() if "lens" in names]
    if no_lens(model.program):
        assert offered == []
        assert model.program.step("head.pre") is not None
        return
    assert set(offered) == set(stream.sites)
    rows = rows_of(t, Address(stream.points[0], (("batch", 0),)))
    for part in rows.parts:
        assert not t.kept("logits", part.at), "nothing would be computed"
        assert torch.equal(lens_logits(t, stream.points[-1], rows, [part]), t.site("logits", part.at)[0])
    top = [t.top(1, pos=pos)[0] for pos in range(t.length)]
    found = lens(t)
    assert found.ids[:, -1].tolist() == [candidate.id for candidate in top]
    assert found.probs[:, -1].tolist() == pytest.approx([candidate.prob for candidate in top], rel=1e-5)


def test_what_was_added_along_the_stream_is_told_in_order(folder):  # noqa: F811
    model = load_model(folder)
    for stream in streams(model.program):
        names = [name.rsplit(".", 1)[-1] for name in stream.added]
        assert set(names) <= {"attn_out", "cross_attn_out", "mlp_out"}
        assert len(stream.points) == len({*stream.points})
        assert stream.points[0].endswith("blocks.0.resid_pre")
        assert all(".resid_mid" in point or ".resid_post" in point for point in stream.points[1:])

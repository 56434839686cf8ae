"""Phi-1, 1.5 and 2 beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, run_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config, respell
from transformers import PhiConfig

from engine import load_model, trace

PHI_2 = {
    "_name_or_path": "microsoft/phi-2", "architectures": ["PhiForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 50256, "embd_pdrop": 0.0, "eos_token_id": 50256, "hidden_act": "gelu_new", "hidden_size": 2560,
    "initializer_range": 0.02, "intermediate_size": 10240, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
    "model_type": "phi", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "partial_rotary_factor": 0.4, "qk_layernorm": False, "resid_pdrop": 0.1, "rope_scaling": None,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float16",
    "transformers_version": "4.37.0", "use_cache": True, "vocab_size": 51200,
}  # fmt: skip


@st.composite
def phis(draw: st.DrawFn) -> PhiConfig:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    d_head, share = draw(st.sampled_from([(10, 0.4), (12, 0.5), (14, 1.0)]))
    normed = draw(st.booleans())
    width = d_head if normed else draw(st.sampled_from([d_head, 15, 18]))  # transformers' norms know no other d_head
    return PhiConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * width,
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=d_head,
        max_position_embeddings=N_CTX,
        hidden_act=draw(st.sampled_from(["gelu_new", "gelu", "relu"])),
        layer_norm_eps=draw(st.sampled_from([1e-5, 1e-6])),
        qk_layernorm=normed,
        tie_word_embeddings=draw(st.booleans()),
        rope_parameters=draw(rope_parameters(int(d_head * share))) | {"partial_rotary_factor": share},
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=phis(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_phi(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


def tiny(**more) -> PhiConfig:
    sizes = {"vocab_size": 40, "hidden_size": 40, "intermediate_size": 24, "num_hidden_layers": 2}
    return PhiConfig(**sizes | {"num_attention_heads": 4, "partial_rotary_factor": 0.4} | more)


def test_phi_2_turns_32_of_80_dimensions():  # E14
    config = read_config(PHI_2)
    assert (config.d_head, config.rotary.dims) == (80, 32)


def test_the_tail_of_a_head_is_not_turned():  # E14
    with saved(random_reference(tiny())) as folder:
        t = trace(load_model(folder), list(range(9)))
    for name in "qk":
        before, after = t[f"blocks.1.attn.{name}"], t[f"blocks.1.attn.rot_{name}"]
        assert torch.equal(before[..., 4:], after[..., 4:])
        assert not torch.equal(before[:, 1:, :, :4], after[:, 1:, :, :4])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scores_beyond_float16_are_no_nan(dtype):  # E19
    reference = random_reference(tiny())
    with torch.no_grad():
        for layer in reference.model.layers:
            layer.self_attn.q_proj.bias += 300
            layer.self_attn.k_proj.bias += 300
    ids = ids_for(reference.config, 9)
    with saved(reference) as folder:
        t = trace(load_model(folder, device="cpu", dtype=dtype), ids)
    assert t["blocks.0.attn.scores"].abs().max() > 65504
    assert t.first_nonfinite() is None
    assert not [check.text for check in t.checks() if not check.ok]
    if dtype == "float16":
        assert run_reference(reference.half(), ids).logits.isnan().any()  # where the scores are float16 too


def test_where_float16_ends_the_first_tensor_is_named_and_nothing_is_predicted():  # E19
    reference = random_reference(tiny())
    with torch.no_grad():
        block = reference.model.layers[1]
        for linear, size in ((block.self_attn.dense, 58820), (block.mlp.fc2, 33760)):
            linear.weight.zero_()
            linear.bias.fill_(size)
    with saved(reference) as folder:
        t = trace(load_model(folder, device="cpu", dtype="float16"), list(range(9)))
        u = trace(load_model(folder, device="cpu", dtype="bfloat16"), list(range(9)))
    assert t.first_nonfinite() == ("blocks.1.resid_post", 0, 9 * 40)
    assert t["blocks.1.resid_post"].isinf().all()
    assert t.top(5) == []
    assert u.first_nonfinite() is None


def test_a_file_of_transformers_4_is_the_same():
    def older(raw):
        raw |= raw.pop("rope_parameters")
        del raw["rope_type"]
        raw["rope_scaling"], raw["torch_dtype"] = None, raw.pop("dtype")

    with saved(random_reference(tiny())) as folder:
        before = load_model(folder).config
        respell(folder, lambda name: name.removeprefix("model."), older)
        after = load_model(folder).config
    assert before == after


def test_absent_keys_have_the_familys_defaults():
    needed = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
    ours, theirs = read_config({key: PHI_2[key] for key in ("model_type", *needed)}), PhiConfig()
    assert ours.rotary.dims == 40  # one half
    assert (ours.n_ctx, ours.norm_eps, ours.tied) == (2048, theirs.layer_norm_eps, theirs.tie_word_embeddings)
    assert (ours.kv_heads, ours.qk_norm, ours.activation) == (32, "none", "gelu_tanh")
    assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_act": "mish"}, ["hidden_act", "mish"]),
        ({"qk_layernorm": 1}, ["qk_layernorm 1", "only False or True"]),
        ({"partial_rotary_factor": "0.4"}, ["partial_rotary_factor", "'0.4'"]),
        ({"partial_rotary_factor": 0}, ["partial_rotary_factor 0"]),
        ({"partial_rotary_factor": 0.35, "head_dim": 20}, ["rotary dims 7"]),
        ({"head_dim": -1}, ["head_dim"]),
        ({"rope_scaling": {"type": "ntk"}}, ["'ntk'"]),
        ({"num_key_value_heads": 5}, ["n_heads 32", "n_kv_heads 5"]),
        ({"layer_norm_eps": None, "vocab_size": None}, ["vocab_size"]),
        ({"layer_norm_eps": "small"}, ["norm_eps"]),
        ({"attention_bias": False}, ["attention_bias", "phi"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(PHI_2 | change, *named)

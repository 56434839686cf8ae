"""Phi-3, 3.5 and 4 beside transformers."""

import pytest
import torch
from against import check_family, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config, respell
from transformers import Phi3Config

from engine import load_model, trace
from engine.ops.rotary import inverse_frequencies

PHI_3_MINI_4K = {
    "_name_or_path": "Phi-3-mini-4k-instruct", "architectures": ["Phi3ForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0, "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu",
    "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
    "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 4096,
    "model_type": "phi3", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.40.2", "use_cache": True, "vocab_size": 32064,
}  # fmt: skip
PHI_3_MINI_128K = PHI_3_MINI_4K | {
    "max_position_embeddings": 131072, "sliding_window": 262144,
    "rope_scaling": {"long_factor": [1.0 + i for i in range(48)], "short_factor": [1.0] * 48, "type": "su"},
}  # fmt: skip
PHI_4_MINI = PHI_3_MINI_4K | {
    "bos_token_id": 199999, "eos_token_id": 199999, "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False,
    "max_position_embeddings": 131072, "mlp_bias": False, "num_attention_heads": 24, "num_key_value_heads": 8,
    "pad_token_id": 199999, "partial_rotary_factor": 0.75, "sliding_window": 262144, "tie_word_embeddings": True,
    "rope_scaling": {"long_factor": [1.0 + i for i in range(48)], "short_factor": [1.0] * 48, "type": "longrope"},
    "vocab_size": 200064,
}  # fmt: skip


@st.composite
def phi3s(draw: st.DrawFn, kinds=("default", "longrope")) -> Phi3Config:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    d_head, share = draw(st.sampled_from([(10, 1.0), (12, 0.5), (16, 0.75), (14, 1.0)]))
    rope = draw(rope_parameters(int(d_head * share), list(kinds))) | {"partial_rotary_factor": share}
    original = rope.pop("original_max_position_embeddings", 16)
    return Phi3Config(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * d_head,
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        max_position_embeddings=N_CTX,
        original_max_position_embeddings=original,
        hidden_act=draw(st.sampled_from(["silu", "gelu"])),
        rms_norm_eps=draw(st.sampled_from([1e-6, 1e-5])),
        rope_parameters=rope | ({"original_max_position_embeddings": original} if "short_factor" in rope else {}),
        sliding_window=draw(st.sampled_from([None, 3, 5, 40])),
        tie_word_embeddings=draw(st.booleans()),
        pad_token_id=0,
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=phi3s(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_phi3(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


def tiny(**more) -> Phi3Config:
    sizes = {"vocab_size": 40, "hidden_size": 30, "intermediate_size": 22, "num_hidden_layers": 2, "pad_token_id": 0}
    return Phi3Config(**sizes | {"num_attention_heads": 3, "num_key_value_heads": 1} | more)


def test_parts_of_the_fused_matrices_are_views_of_the_file():
    reference = random_reference(tiny())
    with saved(reference) as folder:
        weights = load_model(folder, device="cpu", dtype="float32").weights
        block, held = reference.model.layers[1], {k.removeprefix("blocks.1."): w for k, w in weights.items()}
        q, k, v = block.self_attn.qkv_proj.weight.split([30, 10, 10])
        gate, up = block.mlp.gate_up_proj.weight.chunk(2)
        for name, theirs in {"attn.q": q, "attn.k": k, "attn.v": v, "mlp.gate": gate, "mlp.up": up}.items():
            assert torch.equal(held[f"{name}.weight"].double(), theirs)
        assert held["attn.q.weight"].data_ptr() + 30 * 30 * 4 == held["attn.k.weight"].data_ptr()
        assert held["mlp.gate.weight"].data_ptr() + 22 * 30 * 4 == held["mlp.up.weight"].data_ptr()


def test_short_and_long_factors_of_the_published_config():
    for raw, dims in ((PHI_3_MINI_128K, 96), (PHI_4_MINI, 96)):
        config = read_config(raw)
        turns = [inverse_frequencies(config.rotary, dims, extent, torch.device("cpu")) for extent in (4096, 4097)]
        plain = 10_000.0 ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
        assert (turns[0] / plain - 1).abs().max() < 1e-6
        assert (turns[1] * (1 + torch.arange(48)) / plain - 1).abs().max() < 1e-6
        assert config.rotary.attention_factor == pytest.approx(1.1902380714)  # √(1 + ln 32 / ln 4096)


def test_the_first_files_call_longrope_su():
    factors = {"short_factor": [1.0, 1.5, 2.0, 3.0, 4.0], "long_factor": [9.0, 8.0, 7.0, 6.0, 5.0]}
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 32} | factors
    config = tiny(rope_parameters=rope, original_max_position_embeddings=32, max_position_embeddings=128)

    def older(raw):
        given = raw.pop("rope_parameters")
        raw["rope_theta"], raw["torch_dtype"] = given["rope_theta"], raw.pop("dtype")
        raw["rope_scaling"] = {"type": "su"} | {key: given[key] for key in ("short_factor", "long_factor")}

    with saved(random_reference(config)) as folder:
        before = load_model(folder).config
        respell(folder, change=older)
        after = load_model(folder).config
    assert before == after
    assert (before.rotary.scaling, before.rotary.original_n_ctx) == ("longrope", 32)


def test_the_first_training_length_beside_the_scaling_wins():  # as in transformers, which has 4096 where it is absent
    given = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    given |= {"original_max_position_embeddings": 1024}
    raw = PHI_3_MINI_128K | {"rope_scaling": given}
    assert read_config(raw | {"original_max_position_embeddings": 2048}).rotary.original_n_ctx == 2048
    assert read_config({k: v for k, v in raw.items() if k[:9] != "original_"}).rotary.original_n_ctx == 4096


ALL = [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("width", "per_row"), [(4, [1, 2, 3, 4, 4, 4, 4, 4]), (0, ALL), (None, ALL)])
def test_a_window_counts_the_token_itself_and_0_is_none(width, per_row):  # E10
    with saved(random_reference(tiny())) as folder:
        respell(folder, change=lambda raw: raw.update(sliding_window=width))
        t = trace(load_model(folder), list(range(1, 9)))
    assert (t["blocks.1.attn.pattern"][0, 0] > 0).sum(-1).tolist() == per_row


def test_published_configs_are_read():
    small, long, mini = map(read_config, (PHI_3_MINI_4K, PHI_3_MINI_128K, PHI_4_MINI))
    assert (small.window, small.rotary.scaling, small.rotary.dims, small.tied) == (2047, "none", None, False)
    assert (long.rotary.scaling, long.rotary.original_n_ctx, long.n_ctx) == ("longrope", 4096, 131072)
    assert (mini.d_head, mini.rotary.dims, mini.kv_heads, mini.tied) == (128, 96, 8, True)


def test_absent_keys_have_the_familys_defaults():
    needed = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
    ours, theirs = read_config({key: PHI_3_MINI_4K[key] for key in ("model_type", *needed)}), Phi3Config()
    assert (ours.n_ctx, ours.norm_eps) == (theirs.max_position_embeddings, theirs.rms_norm_eps)
    assert (ours.tied, ours.window, ours.kv_heads) == (theirs.tie_word_embeddings, None, 32)
    assert (ours.bos_token_id, ours.eos_token_id, ours.pad_token_id) == (1, 32000, 32000)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attention_bias": True}, ["attention_bias True", "only False"]),
        ({"full_attn_mod": 2}, ["full_attn_mod 2"]),
        ({"interpolate_factor": 2}, ["interpolate_factor 2"]),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, ["linear", "longrope"]),
        ({"rope_scaling": {"type": "su"}}, ["short_factor"]),
        ({"rope_scaling": {"type": "su", "short_factor": [1.0], "long_factor": [1.0]}}, ["short_factors", "48"]),
        ({"rope_scaling": {"type": "yarn", "short_factor": [1.0] * 48}}, ["short_factor", "yarn"]),
        ({"sliding_window": -3}, ["sliding_window", "-3"]),
        ({"sliding_window": "wide"}, ["sliding_window", "wide"]),
        ({"partial_rotary_factor": 1.5}, ["partial_rotary_factor 1.5"]),
        ({"rms_norm_eps": "small"}, ["norm_eps"]),
        ({"embd_layer": {}}, ["embd_layer", "phi3"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(PHI_3_MINI_4K | change, *named)

"""Mistral beside transformers."""

import pytest
import torch
from against import check_family, ids_for, patterns, random_reference, run_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config
from transformers import MistralConfig

from engine import load_model, trace


@st.composite
def mistrals(draw: st.DrawFn) -> MistralConfig:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    head_dim = draw(st.sampled_from([4, 6, 10]))
    return MistralConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * draw(st.sampled_from([10, 14, 18])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        hidden_act=draw(st.sampled_from(["silu", "gelu"])),
        max_position_embeddings=N_CTX,
        rope_parameters=draw(rope_parameters(head_dim, ["default", "linear", "yarn"])),
        sliding_window=draw(st.sampled_from([None, 1, 2, 4, 8, 9, 40])),
        tie_word_embeddings=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=mistrals(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_mistral(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


MISTRAL_7B = {
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0", "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
NEMO = {
    "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "model_type": "mistral",
    "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0.dev0", "use_cache": True, "vocab_size": 131072,
}  # fmt: skip


def test_published_configs_are_read():  # L5 for Nemo, whose heads are wider than their share
    first, nemo = read_config(MISTRAL_7B), read_config(NEMO)
    assert (first.d_head, first.window, first.n_ctx) == (128, 4096, 32768)
    assert (nemo.d_head, nemo.window, nemo.rotary.theta) == (128, None, 1e6)


def test_a_window_of_4_shows_4_keys_and_transformers_agrees():  # E10
    config = MistralConfig(
        vocab_size=30, hidden_size=20, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=4,
    )  # fmt: skip
    reference, ids = random_reference(config), ids_for(config, 8)
    with saved(reference) as folder:
        seen = [pattern > 0 for pattern in patterns(trace(load_model(folder, dtype="float64"), ids))]
    for ours, theirs in zip(seen, run_reference(reference, ids).attentions, strict=True):
        assert torch.equal(ours, theirs > 0)
        assert ours[0, 0].sum(-1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4]


@pytest.mark.parametrize("off", [None, 0])
def test_a_window_of_null_or_0_is_none(off):  # E10
    assert read_config(MISTRAL_7B | {"sliding_window": off}).window is None


def test_absent_keys_have_the_familys_defaults():
    needed = (
        "hidden_size",
        "intermediate_size",
        "model_type",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
    )
    config = read_config({key: MISTRAL_7B[key] for key in needed})
    assert (config.window, config.kv_heads, config.n_ctx, config.tied) == (4096, 8, 131_072, False)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sliding_window": -4}, ["sliding_window", "-4"]),
        ({"sliding_window": True}, ["sliding_window", "True"]),
        ({"sliding_window": "4096"}, ["sliding_window", "'4096'"]),
        ({"attention_bias": True}, ["attention_bias True"]),
        ({"layer_types": ["full_attention"] * 32}, ["layer_types"]),
        ({"hidden_act": 3}, ["hidden_act 3"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(MISTRAL_7B | change, *named)

"""Mixtral beside transformers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixtures import assert_experts_in_one_tensor_are_the_same, check_mixture
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config
from transformers import MixtralConfig


@st.composite
def mixtrals(draw: st.DrawFn) -> MixtralConfig:
    kv_heads, group, experts = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    head_dim = draw(st.sampled_from([None, 4, 6]))
    d_head = draw(st.sampled_from([10, 14]))
    return MixtralConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * d_head,
        intermediate_size=draw(st.integers(5, 30)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        hidden_act=draw(st.sampled_from(["silu", "gelu"])),
        max_position_embeddings=N_CTX,
        rope_parameters=draw(rope_parameters(head_dim or d_head, ["default", "linear"], theta=1e6)),
        sliding_window=draw(st.sampled_from([None, 3, 9])),
        num_local_experts=experts,
        num_experts_per_tok=draw(st.integers(1, experts)),
        tie_word_embeddings=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=mixtrals(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_mixtral(config, seed, dtype, start):
    check_mixture(config, seed, dtype, places(start))


def test_experts_in_one_tensor_are_the_same_experts():
    config = MixtralConfig(
        vocab_size=30, hidden_size=20, intermediate_size=7, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=3,
    )  # fmt: skip
    assert_experts_in_one_tensor_are_the_same(config)


MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": False,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": None,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0",
    "use_cache": True, "vocab_size": 32000,
}  # fmt: skip


def test_the_published_config_is_read():
    config = read_config(MIXTRAL)
    assert (config.experts.n, config.experts.per_token, config.experts.d_expert) == (8, 2, 14336)
    assert config.experts.normalised
    assert config.window is None


def test_absent_keys_have_the_familys_defaults():
    needed = (
        "hidden_size",
        "intermediate_size",
        "model_type",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
    )
    config = read_config({key: MIXTRAL[key] for key in needed})
    assert (config.rotary.theta, config.norm_eps, config.kv_heads, config.experts.n) == (1e6, 1e-5, 8, 8)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_experts_per_tok": 9}, ["per_token is 9", "8"]),
        ({"num_local_experts": 0}, ["num_local_experts"]),
        ({"num_local_experts": 2**16}, ["experts"]),
        ({"num_local_experts": "8"}, ["num_local_experts", "'8'"]),
        ({"attention_bias": True}, ["attention_bias"]),
        ({"shared_expert_intermediate_size": 8}, ["shared_expert_intermediate_size"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(MIXTRAL | change, *named)

"""Qwen3-MoE beside transformers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixtures import assert_experts_in_one_tensor_are_the_same, check_mixture
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config
from transformers import Qwen3MoeConfig


@st.composite
def qwen3_moes(draw: st.DrawFn) -> Qwen3MoeConfig:
    kv_heads, group, experts = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    n_layers, head_dim = draw(st.integers(1, 4)), draw(st.sampled_from([4, 6, 10]))
    return Qwen3MoeConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * draw(st.sampled_from([10, 14])),
        intermediate_size=draw(st.integers(8, 40)),
        moe_intermediate_size=draw(st.integers(5, 20)),
        num_hidden_layers=n_layers,
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        hidden_act=draw(st.sampled_from(["silu", "gelu"])),
        max_position_embeddings=N_CTX,
        rope_parameters=draw(rope_parameters(head_dim, ["default", "yarn"], theta=1e6)),
        attention_bias=draw(st.booleans()),
        use_sliding_window=draw(st.booleans()),
        sliding_window=draw(st.sampled_from([3, 9])),
        num_experts=experts,
        num_experts_per_tok=draw(st.integers(1, experts)),
        norm_topk_prob=draw(st.booleans()),
        decoder_sparse_step=draw(st.integers(1, 3)),
        mlp_only_layers=draw(st.lists(st.integers(0, 5), max_size=2)),
        tie_word_embeddings=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=qwen3_moes(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_qwen3_moe(config, seed, dtype, start):
    check_mixture(config, seed, dtype, places(start))


def test_experts_in_one_tensor_are_the_same_experts():
    config = Qwen3MoeConfig(
        vocab_size=30, hidden_size=20, intermediate_size=16, moe_intermediate_size=7, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, num_experts=3, num_experts_per_tok=2, mlp_only_layers=[0],
    )  # fmt: skip
    assert_experts_in_one_tensor_are_the_same(config)


QWEN3_30B = {
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 40960,
    "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
    "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": False, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": None,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True,
    "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip


def test_the_published_config_is_read():
    config = read_config(QWEN3_30B)
    assert (config.experts.n, config.experts.per_token, config.experts.d_expert) == (128, 8, 768)
    assert config.experts.normalised
    assert config.experts.dense_layers == ()
    assert config.d_head == 128


@pytest.mark.parametrize(
    ("step", "listed", "dense"),
    [(1, [], []), (2, [], [0, 2]), (2, [1], [0, 1, 2]), (1, [3, 99], [3]), (9, [], [0, 1, 2, 3])],
)
def test_layers_with_an_ordinary_ffn(step, listed, dense):
    raw = QWEN3_30B | {"num_hidden_layers": 4, "decoder_sparse_step": step, "mlp_only_layers": listed}
    assert list(read_config(raw).experts.dense_layers) == dense


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"decoder_sparse_step": 0}, ["decoder_sparse_step"]),
        ({"mlp_only_layers": "all"}, ["mlp_only_layers"]),
        ({"norm_topk_prob": "yes"}, ["normalised", "'yes'"]),
        ({"num_experts": 64, "num_experts_per_tok": 65}, ["per_token is 65", "64"]),
        ({"shared_expert_intermediate_size": 8}, ["shared_expert_intermediate_size"]),
        ({"use_sliding_window": None, "layer_types": []}, ["layer_types"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(QWEN3_30B | change, *named)

"""Qwen3 beside transformers."""

import pytest
import torch
from against import check_family, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config, respell
from test_qwen2 import windows
from transformers import Qwen3Config

from engine import load_model
from engine.architecture import build_program
from engine.errors import CheckpointError


@st.composite
def qwen3s(draw: st.DrawFn) -> Qwen3Config:
    kv_heads, group, n_layers = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    head_dim = draw(st.sampled_from([4, 6, 10]))
    return Qwen3Config(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * draw(st.sampled_from([10, 14, 18])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=n_layers,
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        hidden_act=draw(st.sampled_from(["silu", "gelu"])),
        max_position_embeddings=N_CTX,
        rms_norm_eps=draw(st.sampled_from([1e-6, 1e-3])),
        rope_parameters=draw(rope_parameters(head_dim, ["default", "yarn"], theta=1e6)),
        attention_bias=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
        **draw(windows(n_layers)),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=qwen3s(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_qwen3(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


QWEN3_4B = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02,
    "intermediate_size": 9728, "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 151936,
}  # fmt: skip


def test_qwen3_4b_has_heads_wider_than_their_share_and_normalises_them():  # L5
    config = read_config(QWEN3_4B)
    program = build_program(config)
    assert (config.d_head, config.kv_heads) == (128, 8)
    assert program.params["blocks.0.attn.q.weight"] == (4096, 2560)
    assert program.params["blocks.0.attn.k.weight"] == (1024, 2560)
    assert program.params["blocks.0.attn.q_norm.weight"] == (128,)
    assert {"blocks.35.attn.q_norm", "blocks.35.attn.k_norm"} <= {step.site.name for step in program.steps}


def test_a_head_of_another_width_than_the_files_is_an_error_with_both_shapes():  # L5
    config = Qwen3Config(
        vocab_size=30, hidden_size=20, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=6,
    )  # fmt: skip
    with saved(random_reference(config)) as folder:
        respell(folder, change=lambda raw: raw.update(head_dim=None))
        with pytest.raises(CheckpointError) as refused:
            load_model(folder)
    said = str(refused.value)
    assert "self_attn.q_proj.weight is [12, 20] in the file, but the config asks for [20, 20]" in said


@pytest.mark.parametrize(("raw", "d_head"), [({}, 128), ({"head_dim": None}, 80), ({"head_dim": 96}, 96)])
def test_a_head_is_as_wide_as_the_config_says_or_128_or_where_that_is_null_its_share(raw, d_head):  # L5
    rest = {key: value for key, value in QWEN3_4B.items() if key != "head_dim"}
    assert read_config(rest | raw).d_head == d_head


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"head_dim": 0}, ["head_dim"]),
        ({"attention_bias": 1}, ["attn_bias"]),
        ({"use_sliding_window": 1}, ["use_sliding_window"]),
        ({"num_experts": 8}, ["num_experts", "qwen3"]),
        ({"qk_layernorm": True}, ["qk_layernorm"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(QWEN3_4B | change, *named)

"""StableLM beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import assert_refused, read_config, respell
from transformers import StableLmConfig

from engine import load_model, trace

PUBLISHED = {  # stablelm-2-12b's
    "architectures": ["StableLmForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 100257,
    "eos_token_id": 100257,
    "hidden_act": "silu",
    "hidden_dropout": 0.0,
    "hidden_size": 5120,
    "initializer_range": 0.02,
    "intermediate_size": 13824,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 4096,
    "model_type": "stablelm",
    "num_attention_heads": 32,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "partial_rotary_factor": 0.25,
    "qk_layernorm": True,
    "rope_scaling": None,
    "rope_theta": 10000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_parallel_residual": True,
    "use_qkv_bias": False,
    "vocab_size": 100352,
}
SCALINGS = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    | {"original_max_position_embeddings": 8},
]


@st.composite
def stablelms(draw: st.DrawFn) -> StableLmConfig:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return StableLmConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * draw(st.sampled_from([16, 24, 32])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        hidden_act=draw(st.sampled_from(["silu", "gelu", "gelu_new"])),
        max_position_embeddings=32,
        layer_norm_eps=draw(st.sampled_from([1e-6, 1e-5])),
        rope_parameters=draw(st.sampled_from(SCALINGS))
        | {
            "rope_theta": draw(st.sampled_from([1e4, 5e5])),
            "partial_rotary_factor": draw(st.sampled_from([0.25, 0.5, 1.0])),
        },
        tie_word_embeddings=draw(st.booleans()),
        use_qkv_bias=draw(st.booleans()),
        qk_layernorm=draw(st.booleans()),
        use_parallel_residual=draw(st.booleans()),
    )


@settings(max_examples=40)
@given(
    config=stablelms(),
    seed=st.integers(0, 2**16),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    start=st.sampled_from([None, 20, 1000]),
)
def test_stablelm(config, seed, dtype, start):
    positions = None if start is None else range(start, start + 9)
    check_family(config, seed=seed, dtype=dtype, positions=positions)


def test_a_quarter_of_a_head_turns_unless_the_config_says_otherwise_and_the_rest_stays_as_it_is():
    raw = {key: value for key, value in PUBLISHED.items() if key != "partial_rotary_factor"}
    assert read_config(raw).rotary.dims == 40
    config = StableLmConfig(
        vocab_size=30, hidden_size=48, intermediate_size=20, num_hidden_layers=1, num_attention_heads=3,
        num_key_value_heads=3,
    )  # fmt: skip
    with saved(random_reference(config)) as folder:
        t = trace(load_model(folder), ids_for(config, 7))
    q, turned = t["blocks.0.attn.q"], t["blocks.0.attn.rot_q"]
    assert torch.equal(q[..., 4:], turned[..., 4:])
    assert not torch.allclose(q[:, 1:, :, :4], turned[:, 1:, :, :4])


def test_the_old_spelling_and_files_without_prefix_load_equal():
    config = StableLmConfig(
        vocab_size=30, hidden_size=48, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0,
        "partial_rotary_factor": 0.5},
    )  # fmt: skip
    ids = ids_for(config, 7)

    def older(raw):
        del raw["rope_parameters"]
        raw |= {"rope_theta": 500.0, "partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}}

    with saved(random_reference(config)) as folder:
        plain = trace(load_model(folder), ids)["logits"]
        respell(folder, lambda name: name.removeprefix("model."), older)
        assert torch.equal(trace(load_model(folder), ids)["logits"], plain)


def test_the_published_config_is_read():
    config = read_config(PUBLISHED)
    assert (config.d_head, config.kv_heads, config.rotary.dims, config.norm) == (160, 8, 40, "layer")
    assert (config.parallel, config.qk_norm, config.tied) == ("one norm", "heads", False)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"head_dim": 64}, ["head_dim", "64", "160"]),
        ({"num_attention_heads": 30}, ["5120", "30"]),
        ({"hidden_act": "xielu"}, ["hidden_act", "xielu"]),
        ({"use_parallel_residual": "yes"}, ["use_parallel_residual"]),
        ({"qk_layernorm": 1}, ["qk_layernorm"]),
        ({"use_qkv_bias": "no"}, ["attn_bias"]),
        ({"rope_scaling": {"type": "ntk", "factor": 2.0}}, ["ntk"]),
        ({"partial_rotary_factor": "0.25"}, ["partial_rotary_factor"]),
        ({"sliding_window": 8}, ["sliding_window"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(PUBLISHED | change, *named)

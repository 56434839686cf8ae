"""OLMo 1 and 2 beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, run_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config
from transformers import Olmo2Config, OlmoConfig

from engine import load_model, trace

CONFIG = {
    "vocab_size": 40, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "hidden_act": "silu", "max_position_embeddings": 64,
}  # fmt: skip
SCALINGS = ["default", "linear", "dynamic", "yarn"]
dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


def shared(draw: st.DrawFn) -> dict:
    kv_heads, group, head = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.sampled_from([10, 14, 18]))
    return {
        "vocab_size": draw(st.integers(20, 50)),
        "hidden_size": kv_heads * group * head,
        "intermediate_size": draw(st.integers(8, 40)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": kv_heads * group,
        "num_key_value_heads": kv_heads,
        "hidden_act": draw(st.sampled_from(["silu", "gelu"])),
        "max_position_embeddings": N_CTX,
        "rope_parameters": draw(rope_parameters(head, SCALINGS)),
        "tie_word_embeddings": draw(st.booleans()),
        "attention_bias": draw(st.booleans()),
        "pad_token_id": 1,
    }


@st.composite
def olmos(draw: st.DrawFn) -> OlmoConfig:
    return OlmoConfig(**shared(draw), clip_qkv=draw(st.sampled_from([None, 0.5, 2.0, 8.0])))


@st.composite
def olmo2s(draw: st.DrawFn) -> Olmo2Config:
    return Olmo2Config(**shared(draw), rms_norm_eps=draw(st.sampled_from([1e-6, 1e-5, 1e-3])))


@settings(max_examples=40)
@given(config=olmos(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_olmo(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


@settings(max_examples=40)
@given(config=olmo2s(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_olmo2(config, seed, dtype, start):
    # a norm after a sub-layer brings its rounding to full size, however small what it gave
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


def test_clipping_is_a_step_of_its_own_and_bounds_q_k_and_v():
    reference = random_reference(OlmoConfig(**CONFIG, clip_qkv=0.5, pad_token_id=1))
    with saved(reference) as folder:
        model = load_model(folder, device="cpu", dtype="float64")
    t = trace(model, ids_for(reference.config, 9))
    for name in "qkv":
        assert t[f"blocks.0.attn.{name}"].abs().max() > 0.5
        assert torch.equal(t[f"blocks.0.attn.{name}_clipped"], t[f"blocks.0.attn.{name}"].clamp(-0.5, 0.5))
    assert not [name for name in model.weights if ".ln" in name or name.startswith("ln")]


def test_a_norm_follows_each_sub_layer_and_what_it_gives_is_added():
    reference, ids = random_reference(Olmo2Config(**CONFIG, pad_token_id=1)), list(range(9))
    with saved(reference) as folder:
        t = trace(load_model(folder, device="cpu", dtype="float64"), ids)
    hidden = run_reference(reference, ids).hidden_states
    torch.testing.assert_close(hidden[0] + t["blocks.0.attn_out"] + t["blocks.0.mlp_out"], hidden[1], rtol=0, atol=1e-5)
    rms = reference.model.layers[0].post_attention_layernorm
    torch.testing.assert_close(rms(t["blocks.0.attn.out"]), t["blocks.0.attn_out"], rtol=0, atol=1e-6)


def test_published_configs_open_in_their_own_spelling():
    olmo = read_config(
        {
            "architectures": ["OlmoForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "clip_qkv": 8.0,
            "eos_token_id": 50279, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
            "intermediate_size": 22016, "max_position_embeddings": 4096, "model_type": "olmo",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 1,
            "rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32",
            "transformers_version": "4.40.0.dev0", "use_cache": True, "vocab_size": 50304,
        }
    )  # fmt: skip
    assert (olmo.qkv_clip, olmo.norm_weight, olmo.tied) == (8.0, False, False)
    olmo2 = read_config(
        {
            "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
            "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
            "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277,
            "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 500000, "tie_word_embeddings": False,
            "torch_dtype": "float32", "transformers_version": "4.47.0", "use_cache": False, "vocab_size": 100352,
        }
    )  # fmt: skip
    assert (olmo2.norm_place, olmo2.qk_norm, olmo2.rotary.theta) == ("output", "all", 500_000)


@pytest.mark.parametrize(
    ("family", "change", "said"),
    [
        ("olmo", {"clip_qkv": 0}, "olmo's clip_qkv must be a number above 0, but is 0"),
        ("olmo", {"clip_qkv": "8"}, "clip_qkv must be a number above 0, but is '8'"),
        ("olmo", {"weight_tying": True}, "has 'weight_tying', which layerstep does not know for olmo"),
        ("olmo", {"rope_scaling": {"type": "new", "factor": 2.0}}, "asks for 'new', which is not supported"),
        ("olmo2", {"clip_qkv": 8.0}, "has 'clip_qkv', which layerstep does not know for olmo2"),
        ("olmo2", {"hidden_act": "mish"}, "hidden_act 'mish' is not supported"),
        ("olmo2", {"num_attention_heads": 0}, "num_attention_heads must be a number between 1"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(family, change, said):
    assert_refused(CONFIG | {"model_type": family} | change, said)

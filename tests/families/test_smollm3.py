"""SmolLM3 beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config
from transformers import SmolLM3Config

from engine import load_model, trace

CONFIG = {
    "model_type": "smollm3", "vocab_size": 40, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 5,
    "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 1,
}  # fmt: skip
SLIDING, FULL = "sliding_attention", "full_attention"


def smollm3(**changes) -> SmolLM3Config:
    return SmolLM3Config(**{key: value for key, value in CONFIG.items() if key != "model_type"} | changes)


@st.composite
def smollm3s(draw: st.DrawFn) -> SmolLM3Config:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    layers = draw(st.integers(1, 4))
    of_each = {"min_size": layers, "max_size": layers}
    head = draw(st.sampled_from([{}, {"head_dim": 6}, {"head_dim": 10}]))
    width = kv_heads * group * draw(st.sampled_from([10, 14, 18]))
    turning = head.get("head_dim", width // (kv_heads * group))
    return smollm3(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=width,
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=layers,
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        **head,
        hidden_act=draw(st.sampled_from(["silu", "gelu_pytorch_tanh"])),
        max_position_embeddings=N_CTX,
        rope_parameters=draw(rope_parameters(turning, ["default", "yarn", "linear"])),
        no_rope_layers=draw(st.none() | st.lists(st.integers(0, 1), **of_each)),
        no_rope_layer_interval=draw(st.integers(1, 4)),
        use_sliding_window=draw(st.booleans()),
        sliding_window=draw(st.integers(1, 12)),
        layer_types=draw(st.none() | st.lists(st.sampled_from([SLIDING, FULL]), **of_each)),
        tie_word_embeddings=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
        mlp_bias=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=smollm3s(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_smollm3(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


def test_every_fourth_layer_has_no_positions():
    with saved(random_reference(smollm3())) as folder:
        t = trace(load_model(folder, device="cpu"), ids_for(smollm3(), 9))
    turning = [t.program.step(f"blocks.{layer}.attn.rot_q") is not None for layer in range(5)]
    assert turning == [True, True, True, False, True]
    assert t.program.step("blocks.3.attn.scores").reads[0] == "blocks.3.attn.q"


def test_a_model_may_have_no_positions_at_all():
    read = read_config(CONFIG | {"no_rope_layers": [0] * 5})
    assert (read.positions, read.rotary) == ("none", None)


def test_a_published_config_opens_in_its_own_spelling():
    read = read_config(
        {
            "architectures": ["SmolLM3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
            "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
            "intermediate_size": 11008, "layer_types": [FULL] * 36, "max_position_embeddings": 65536,
            "max_window_layers": 28, "mlp_bias": False, "model_type": "smollm3", "no_rope_layer_interval": 4,
            "no_rope_layers": [1, 1, 1, 0] * 9, "num_attention_heads": 16, "num_hidden_layers": 36,
            "num_key_value_heads": 4, "pad_token_id": 128004, "pretraining_tp": 2, "rms_norm_eps": 1e-06,
            "rope_scaling": None, "rope_theta": 5000000.0, "sliding_window": None, "torch_dtype": "bfloat16",
            "transformers_version": "4.54.0.dev0", "use_cache": False, "use_sliding_window": False,
            "vocab_size": 128256,
        }
    )  # fmt: skip
    assert [layer for layer in range(36) if read.kind(layer).rotary is None] == list(range(3, 36, 4))
    assert read.tied
    assert read.kind(0).rotary.theta == 5e6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"no_rope_layers": [1, 0]}, "smollm3's no_rope_layers must be 0 or 1 for each of 5 layers"),
        ({"no_rope_layers": [1, 1, 1, 2, 1]}, "no_rope_layers must be 0 or 1"),
        ({"no_rope_layers": [1, 1, 1, [], 1]}, "no_rope_layers must be 0 or 1"),
        ({"no_rope_layers": "none"}, "no_rope_layers must be 0 or 1"),
        ({"no_rope_layer_interval": 0}, "no_rope_layer_interval must be a number between 1"),
        ({"layer_types": ["chunked_attention"] * 5}, "chunked_attention"),
        ({"use_sliding_window": "yes"}, "use_sliding_window 'yes' is not supported"),
        ({"attn_temperature_tuning": True}, "which layerstep does not know for smollm3"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change, said):
    assert_refused(CONFIG | change, said)

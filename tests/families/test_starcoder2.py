"""StarCoder2 beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, run_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config
from transformers import Starcoder2Config

from engine import load_model, trace

CONFIG = {
    "model_type": "starcoder2", "vocab_size": 40, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


@st.composite
def starcoders(draw: st.DrawFn) -> Starcoder2Config:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    head = draw(st.sampled_from([{}, {"head_dim": 6}, {"head_dim": 10}]))
    width = kv_heads * group * draw(st.sampled_from([10, 14, 18]))
    return Starcoder2Config(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=width,
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        **head,
        hidden_act=draw(st.sampled_from(["gelu_pytorch_tanh", "gelu", "silu"])),
        max_position_embeddings=N_CTX,
        norm_epsilon=draw(st.sampled_from([1e-5, 1e-3])),
        rope_parameters=draw(
            rope_parameters(head.get("head_dim", width // (kv_heads * group)), ["default", "linear", "dynamic"])
        ),
        sliding_window=draw(st.none() | st.integers(1, 12)),
        use_bias=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=starcoders(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_starcoder2(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


def test_every_layer_sees_as_many_keys_as_the_window_is_wide():  # E10
    config = Starcoder2Config(**{key: value for key, value in CONFIG.items() if key != "model_type"}, sliding_window=4)
    reference, ids = random_reference(config), ids_for(config, 8)
    with saved(reference) as folder:
        t = trace(load_model(folder, device="cpu"), ids)
    for layer, theirs in enumerate(run_reference(reference, ids).attentions):
        assert (t[f"blocks.{layer}.attn.pattern"] > 0)[0, 0].sum(-1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4]
        assert torch.equal(t[f"blocks.{layer}.attn.pattern"] > 0, theirs > 0)
    assert read_config(CONFIG | {"sliding_window": 0}).window is None


def test_a_published_config_opens_in_its_own_spelling():
    read = read_config(
        {
            "activation_function": "gelu", "architectures": ["Starcoder2ForCausalLM"], "attention_dropout": 0.1,
            "attention_softmax_in_fp32": True, "bos_token_id": 0, "embedding_dropout": 0.1, "eos_token_id": 0,
            "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3072, "initializer_range": 0.018042,
            "intermediate_size": 12288, "layer_norm_epsilon": 1e-05, "max_position_embeddings": 16384,
            "mlp_type": "default", "model_type": "starcoder2", "norm_epsilon": 1e-05, "norm_type": "layer_norm",
            "num_attention_heads": 24, "num_hidden_layers": 30, "num_key_value_heads": 2, "residual_dropout": 0.1,
            "rope_theta": 999999.4420358813, "scale_attention_softmax_in_fp32": True, "scale_attn_weights": True,
            "sliding_window": 4096, "torch_dtype": "bfloat16", "transformers_version": "4.39.0.dev0",
            "use_bias": True, "use_cache": True, "vocab_size": 49152,
        }
    )  # fmt: skip
    assert (read.window, read.tied, read.activation, read.attn_bias) == (4096, True, "gelu_tanh", True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mlp_type": "gated"}, "starcoder2's mlp_type 'gated' is not supported"),
        ({"norm_type": "rms_norm"}, "norm_type 'rms_norm' is not supported"),
        ({"use_bias": 1}, "attn_bias must be"),
        ({"sliding_window": -4}, "sliding_window must be a number between 1"),
        ({"norm_epsilon": "small"}, "norm_eps must be"),
        ({"multi_query": True}, "has 'multi_query', which layerstep does not know for starcoder2"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change, said):
    assert_refused(CONFIG | change, said)

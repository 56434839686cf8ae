"""Cohere and Cohere 2 beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import assert_refused, read_config, respell
from transformers import Cohere2Config, CohereConfig

from engine import load_model, trace

PUBLISHED = {  # c4ai-command-r-v01's
    "architectures": ["CohereForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 5,
    "eos_token_id": 255001,
    "hidden_act": "silu",
    "hidden_size": 8192,
    "initializer_range": 0.02,
    "intermediate_size": 22528,
    "layer_norm_eps": 1e-05,
    "logit_scale": 0.0625,
    "max_position_embeddings": 8192,
    "model_max_length": 131072,
    "model_type": "cohere",
    "num_attention_heads": 64,
    "num_hidden_layers": 40,
    "num_key_value_heads": 64,
    "pad_token_id": 0,
    "rope_theta": 8000000.0,
    "torch_dtype": "float16",
    "transformers_version": "4.38.2",
    "use_cache": True,
    "use_qk_norm": False,
    "vocab_size": 256000,
}
PUBLISHED2 = {  # c4ai-command-r7b-12-2024's
    "architectures": ["Cohere2ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 5,
    "cache_implementation": "hybrid",
    "eos_token_id": 255001,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "layer_norm_eps": 1e-05,
    "layer_switch": 4,
    "logit_scale": 0.25,
    "max_position_embeddings": 8192,
    "model_type": "cohere2",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "order_of_interleaved_layers": "local_attn_first",
    "pad_token_id": 0,
    "position_embedding_type": "rope_gptj",
    "rope_scaling": None,
    "rope_theta": 50000,
    "rotary_pct": 1.0,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_embedding_sharing": True,
    "use_gated_activation": True,
    "use_parallel_block": True,
    "use_parallel_embedding": True,
    "vocab_size": 256000,
}
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float64])
SCALINGS = [{"rope_type": "default"}, {"rope_type": "linear", "factor": 3.0}, {"rope_type": "dynamic", "factor": 2.0}]


def sizes(draw: st.DrawFn) -> dict[str, object]:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return {
        "vocab_size": draw(st.integers(20, 50)),
        "hidden_size": kv_heads * group * draw(st.sampled_from([10, 14, 18])),
        "intermediate_size": draw(st.integers(8, 40)),
        "num_attention_heads": kv_heads * group,
        "num_key_value_heads": kv_heads,
        "hidden_act": draw(st.sampled_from(["silu", "gelu"])),
        "max_position_embeddings": 32,
        "layer_norm_eps": draw(st.sampled_from([1e-6, 1e-5])),
        "logit_scale": draw(st.sampled_from([0.0625, 1.0, 0.3])),
        "rope_parameters": draw(st.sampled_from(SCALINGS)) | {"rope_theta": draw(st.sampled_from([1e4, 8e6]))},
        "tie_word_embeddings": draw(st.booleans()),
        "attention_bias": draw(st.booleans()),
        "bos_token_id": 5,
        "eos_token_id": 6,
    }


@st.composite
def coheres(draw: st.DrawFn) -> CohereConfig:
    layers, normed = draw(st.integers(1, 3)), draw(st.booleans())
    head = draw(st.sampled_from([4, 6, 10]))
    return CohereConfig(**sizes(draw), num_hidden_layers=layers, use_qk_norm=normed, head_dim=head)


@st.composite
def cohere2s(draw: st.DrawFn) -> Cohere2Config:
    layers = draw(st.integers(1, 4))
    if draw(st.booleans()):
        kind = st.sampled_from(["sliding_attention", "full_attention"])
        own = {"layer_types": draw(st.lists(kind, min_size=layers, max_size=layers))}
    else:
        own = {"sliding_window_pattern": draw(st.integers(1, 3))}
    return Cohere2Config(**sizes(draw), num_hidden_layers=layers, sliding_window=draw(st.integers(2, 6)), **own)


@settings(max_examples=40)
@given(config=coheres(), seed=st.integers(0, 2**16), dtype=DTYPES, start=st.sampled_from([None, 20, 1000]))
def test_cohere(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=None if start is None else range(start, start + 9))


@settings(max_examples=40)
@given(config=cohere2s(), seed=st.integers(0, 2**16), dtype=DTYPES, start=st.sampled_from([None, 20, 1000]))
def test_cohere2(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=None if start is None else range(start, start + 9))


def test_every_fourth_layer_sees_all_and_knows_no_positions():
    config = read_config(PUBLISHED2)
    assert config.layer_kinds == ("sliding", "sliding", "sliding", "full") * 8
    assert config.kind(0).window == 4096
    assert config.kind(0).rotary is not None
    assert config.kind(3).window is None
    assert config.kind(3).rotary is None


def test_a_window_of_four_holds_four_keys_the_query_s_own_among_them():  # E10
    config = Cohere2Config(
        vocab_size=30, hidden_size=42, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, sliding_window=4, sliding_window_pattern=2, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with saved(random_reference(config)) as folder:
        t = trace(load_model(folder), ids_for(config, 8))
    counts = [(t[f"blocks.{layer}.attn.pattern"][0, 0] > 0).sum(-1).tolist() for layer in (0, 1)]
    assert counts == [[1, 2, 3, 4, 4, 4, 4, 4], [1, 2, 3, 4, 5, 6, 7, 8]]


def test_a_pattern_says_the_same_as_layer_types_and_the_prefix_may_be_missing():
    config = Cohere2Config(
        vocab_size=30, hidden_size=42, intermediate_size=20, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, sliding_window=3, sliding_window_pattern=2, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    ids = ids_for(config, 9)

    def older(raw):
        del raw["layer_types"]
        raw["rope_theta"] = raw.pop("rope_parameters")["rope_theta"]
        raw["sliding_window_pattern"] = 2

    with saved(random_reference(config)) as folder:
        plain = trace(load_model(folder), ids)["logits"]
        respell(folder, lambda name: name.removeprefix("model."), older)
        assert torch.equal(trace(load_model(folder), ids)["logits"], plain)


def test_the_published_configs_are_read():
    config = read_config(PUBLISHED)
    assert (config.d_head, config.logit_scale, config.rotary.style) == (128, 0.0625, "interleaved")
    assert (config.parallel, config.tied, config.norm_bias) == ("one norm", True, False)
    assert read_config(PUBLISHED2).logit_scale == 0.25


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"logit_scale": 0}, ["logit_scale"]),
        ({"use_qk_norm": "yes"}, ["use_qk_norm"]),
        ({"layer_norm_eps": "1e-5"}, ["norm_eps"]),
        ({"hidden_act": "swiglu"}, ["hidden_act", "swiglu"]),
        ({"rope_scaling": {"type": "ntk"}}, ["ntk"]),
        ({"sliding_window": 8}, ["sliding_window"]),
    ],
)
def test_what_cohere_does_not_support_is_refused_by_name(change, named):
    assert_refused(PUBLISHED | change, *named)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"head_dim": 64}, ["head_dim", "64", "128"]),
        ({"use_qk_norm": True}, ["use_qk_norm"]),
        ({"use_parallel_block": False}, ["use_parallel_block"]),
        ({"position_embedding_type": "alibi"}, ["position_embedding_type", "alibi"]),
        ({"rotary_pct": 0.5}, ["rotary_pct", "0.5"]),
        ({"layer_switch": 3}, ["layer_switch", "3"]),
        ({"order_of_interleaved_layers": "global_attn_first"}, ["order_of_interleaved_layers"]),
        ({"sliding_window": None}, ["sliding_window", "null"]),
        ({"sliding_window": 0}, ["window"]),
        ({"sliding_window_pattern": 0}, ["sliding_window_pattern"]),
        ({"layer_types": ["chunked_attention"] * 32}, ["chunked_attention"]),
        ({"layer_types": ["full_attention"]}, ["layer_types", "32"]),
        ({"num_hidden_layers": 2**31}, ["num_hidden_layers"]),
    ],
)
def test_what_cohere2_does_not_support_is_refused_by_name(change, named):
    assert_refused(PUBLISHED2 | change, *named)

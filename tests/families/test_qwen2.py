"""Qwen2 beside transformers."""

import pytest
import torch
from against import check_family, ids_for, patterns, random_reference, run_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config
from transformers import Qwen2Config

from engine import load_model, trace

FULL, SLIDING = "full_attention", "sliding_attention"


@st.composite
def windows(draw: st.DrawFn, n_layers: int) -> dict:
    """No window, a window from some layer on, or a list that says which layers have one."""
    how = draw(st.sampled_from(["none", "from", "listed"]))
    switches = {"use_sliding_window": how != "none", "sliding_window": draw(st.sampled_from([1, 3, 4, 9, 40]))}
    if how == "listed":
        kinds = st.lists(st.sampled_from([FULL, SLIDING]), min_size=n_layers, max_size=n_layers)
        switches |= {"layer_types": draw(kinds)}
    return switches | {"max_window_layers": draw(st.integers(0, n_layers))}


@st.composite
def qwen2s(draw: st.DrawFn) -> Qwen2Config:
    kv_heads, group, n_layers = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    d_head = draw(st.sampled_from([10, 14]))
    return Qwen2Config(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * d_head,
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=n_layers,
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        hidden_act=draw(st.sampled_from(["silu", "gelu"])),
        max_position_embeddings=N_CTX,
        rope_parameters=draw(rope_parameters(d_head, ["default", "dynamic", "yarn"], theta=1e6)),
        tie_word_embeddings=draw(st.booleans()),
        **draw(windows(n_layers)),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=qwen2s(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_qwen2(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


def tiny(**more):
    sizes = {"vocab_size": 30, "hidden_size": 20, "intermediate_size": 16, "num_attention_heads": 2}
    return Qwen2Config(**sizes | {"num_hidden_layers": 4, "num_key_value_heads": 1} | more)


@pytest.mark.parametrize(
    ("used", "first", "widths"),
    [(False, 28, "ffff"), (True, 2, "ffss"), (True, 4, "ffff"), (True, 0, "ssss")],
)
def test_windows_are_in_the_layers_that_transformers_has_them_in(used, first, widths):  # E10
    config = tiny(use_sliding_window=used, sliding_window=4, max_window_layers=first)
    reference, ids = random_reference(config), ids_for(config, 8)
    with saved(reference) as folder:
        seen = [pattern > 0 for pattern in patterns(trace(load_model(folder, dtype="float64"), ids))]
    rows = {"f": [1, 2, 3, 4, 5, 6, 7, 8], "s": [1, 2, 3, 4, 4, 4, 4, 4]}
    assert [ours[0, 0].sum(-1).tolist() for ours in seen] == [rows[kind] for kind in widths]
    for ours, theirs in zip(seen, run_reference(reference, ids).attentions, strict=True):
        assert torch.equal(ours, theirs > 0)


def test_a_list_of_layer_types_wins():  # E10
    raw = tiny(use_sliding_window=True, sliding_window=4, max_window_layers=2).to_dict()
    config = read_config(raw | {"layer_types": [SLIDING, FULL, FULL, SLIDING]})
    assert [config.kind(layer).window for layer in range(4)] == [4, None, None, 4]


QWEN_25 = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
    "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
    "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1", "use_cache": True, "use_mrope": False, "use_sliding_window": False,
    "vocab_size": 151936,
}  # fmt: skip


def test_the_published_config_is_read_with_and_without_its_long_context():
    config = read_config(QWEN_25)
    assert (config.d_head, config.kv_heads, config.attn_bias, config.attn_out_bias) == (64, 2, True, False)
    assert config.window is None
    assert not config.kinds
    yarn = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
    rotary = read_config(QWEN_25 | {"rope_scaling": yarn}).rotary
    assert (rotary.scaling, rotary.factor, rotary.original_n_ctx) == ("yarn", 4.0, 32768)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"use_sliding_window": "yes"}, ["use_sliding_window", "'yes'"]),
        ({"use_mrope": True}, ["use_mrope True"]),
        ({"max_window_layers": -1}, ["max_window_layers", "-1"]),
        ({"layer_types": [FULL] * 23}, ["layer_types", "24"]),
        ({"layer_types": [FULL] * 23 + ["linear_attention"]}, ["linear_attention", "full_attention"]),
        ({"layer_types": [FULL] * 23 + [SLIDING]}, [SLIDING, "no window"]),
        ({"layer_types": FULL}, ["layer_types"]),
        ({"num_hidden_layers": 2**30}, ["num_hidden_layers"]),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, ["mrope"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(QWEN_25 | change, *named)

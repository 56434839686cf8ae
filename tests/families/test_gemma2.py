"""Gemma 2 beside transformers."""

import pytest
import torch
from against import check_family, random_reference, run_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import assert_refused, read_config
from transformers import Gemma2Config

from engine import load_model, trace
from engine.errors import LayerstepError
from engine.ops.attention import SoftCap
from engine.ops.base import PassInfo

CONFIG = {
    "model_type": "gemma2", "vocab_size": 40, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 6,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 4,
}  # fmt: skip


def gemma2(**changes) -> Gemma2Config:
    return Gemma2Config(**{key: value for key, value in CONFIG.items() if key != "model_type"} | changes)


@st.composite
def gemma2s(draw: st.DrawFn) -> Gemma2Config:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    scaling = draw(st.sampled_from([{"rope_type": "default"}, {"rope_type": "linear", "factor": 4.0}]))
    layers = draw(st.integers(1, 3))
    either = st.sampled_from(["sliding_attention", "full_attention"])
    return gemma2(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * draw(st.sampled_from([10, 14, 18])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=layers,
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=draw(st.sampled_from([4, 6, 10])),
        hidden_activation=draw(st.sampled_from(["gelu_pytorch_tanh", "gelu", "silu"])),
        max_position_embeddings=64,
        rope_parameters={"rope_theta": draw(st.sampled_from([1e4, 5e5])), **scaling},
        tie_word_embeddings=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
        query_pre_attn_scalar=draw(st.sampled_from([10, 24, 256])),
        sliding_window=draw(st.integers(1, 12)),
        layer_types=draw(st.none() | st.lists(either, min_size=layers, max_size=layers)),
        attn_logit_softcapping=draw(st.sampled_from([None, 0.5, 50.0])),
        final_logit_softcapping=draw(st.sampled_from([None, 1.0, 30.0])),
    )


@settings(max_examples=40)
@given(config=gemma2s(), seed=st.integers(0, 2**16), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_gemma2(config, seed, dtype):
    check_family(config, seed=seed, dtype=dtype)


# E5: the soft caps


@pytest.mark.parametrize(
    ("cap", "expected"),
    [(50, [0, 23.10586, 38.07971, 48.20138, 50.0]), (30, [0, 20.46785, 27.93329, 29.92374, 30.0])],
)
def test_capped_scores(cap, expected):
    capped = SoftCap(float(cap)).run(PassInfo(torch.float64), torch.tensor([0, 25, 50, 100, 500], dtype=torch.float64))
    torch.testing.assert_close(capped, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-5)


def capped_model(**changes):
    return random_reference(
        gemma2(num_hidden_layers=2, attn_logit_softcapping=0.5, final_logit_softcapping=1.0, **changes), gain=8
    )


def test_the_cap_comes_before_the_mask_and_nothing_leaks_through_it():
    reference, ids = capped_model(), list(range(9))
    with saved(reference) as folder:
        t = trace(load_model(folder, device="cpu", dtype="float64"), ids)
    raw, capped, masked = (t[f"blocks.1.attn.{name}"] for name in ("scaled", "capped", "masked"))
    assert raw.abs().max() > 0.5 >= capped.abs().max()
    hidden = torch.ones(9, 9).triu(1).bool()
    assert (masked[0, :, hidden] == -torch.inf).all()  # capped after the mask it were −50, and e⁻⁵⁰ is 1.93e-22
    assert torch.equal(masked[0, :, ~hidden], capped[0, :, ~hidden])
    assert (t["blocks.1.attn.pattern"][0, :, hidden] == 0).all()


def test_without_the_cap_the_logits_are_others_and_no_fused_kernel_drops_it():
    reference, ids = capped_model(), list(range(9))
    with saved(reference) as folder:
        model = load_model(folder, device="cpu", dtype="float64")
        t = trace(model, ids)
        with pytest.raises(LayerstepError, match="a soft cap"):
            trace(model, ids, kernel="flash")
    with saved(capped_model(), torch.float64) as folder:
        config = (folder / "config.json").read_text()
        (folder / "config.json").write_text(
            config.replace('"attn_logit_softcapping": 0.5', '"attn_logit_softcapping": null')
        )
        uncapped = trace(load_model(folder, device="cpu"), ids)
    assert uncapped.program.step("blocks.0.attn.capped") is None
    assert (uncapped["logits"] - t["logits"]).abs().max() > 0.1


@pytest.mark.parametrize("key", ["attn_logit_softcapping", "final_logit_softcapping"])
@pytest.mark.parametrize("cap", [0, 0.0, -1, float("nan"), float("inf"), "50", True])
def test_a_cap_that_is_no_number_above_0_is_refused(key, cap):
    with pytest.raises(LayerstepError, match=f"gemma2's {key} must be a number above 0"):
        read_config(CONFIG | {key: cap})


def test_caps_that_are_absent_have_the_familys_defaults_and_null_is_off():
    read = read_config(CONFIG)
    assert (read.attn_softcap, read.logit_softcap) == (50.0, 30.0)
    read = read_config(CONFIG | {"attn_logit_softcapping": None, "final_logit_softcapping": None})
    assert (read.attn_softcap, read.logit_softcap) == (None, None)


def test_windows_alternate_and_transformers_shows_them_in_the_same_layers():  # E10
    read = read_config(CONFIG)
    assert [read.kind(layer).window for layer in range(6)] == [4, None] * 3
    reference, ids = random_reference(gemma2()), list(range(9))
    with saved(reference) as folder:
        t = trace(load_model(folder, device="cpu"), ids)
    for layer, theirs in enumerate(run_reference(reference, ids).attentions):
        assert torch.equal(t[f"blocks.{layer}.attn.pattern"] > 0, theirs > 0)
        assert (theirs > 0)[0, 0].sum(-1).tolist() == [min(i + 1, 9 if layer % 2 else 4) for i in range(9)]


@pytest.mark.parametrize("off", [None, 0])
def test_a_window_of_null_or_0_is_none(off):  # E10
    assert read_config(CONFIG | {"sliding_window": off}).kind(0).window is None


def test_a_published_config_opens_in_its_own_spelling():
    read = read_config(
        {
            "architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
            "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
            "final_logit_softcapping": 30.0, "head_dim": 128, "hidden_act": "gelu_pytorch_tanh",
            "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 4608, "initializer_range": 0.02,
            "intermediate_size": 36864, "max_position_embeddings": 8192, "model_type": "gemma2",
            "num_attention_heads": 32, "num_hidden_layers": 46, "num_key_value_heads": 16, "pad_token_id": 0,
            "query_pre_attn_scalar": 144, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
            "sliding_window_size": 4096, "torch_dtype": "float32", "transformers_version": "4.42.0.dev0",
            "use_cache": True, "vocab_size": 256000, "_attn_implementation": "eager",
        }
    )  # fmt: skip
    assert (read.attn_scale, read.d_head) == (144**-0.5, 128)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention True is not supported"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar must be a number above 0"),
        ({"layer_types": ["sliding_attention"] * 5 + ["linear_attention"]}, "layer_types has 'linear_attention'"),
        ({"layer_types": ["full_attention"]}, "must name a kind for each of 6 layers"),
        ({"sliding_window": -1}, "sliding_window must be a number between 1 and 2^31"),
        ({"hidden_activation": "mish"}, "hidden_activation 'mish' is not supported"),
        ({"qk_norm": True}, "has 'qk_norm', which layerstep does not know for gemma2"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change, said):
    assert_refused(CONFIG | change, said)

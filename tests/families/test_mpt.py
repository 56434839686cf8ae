"""MPT beside transformers, with the switches that transformers leaves out put in as MosaicML's code has them."""

from math import sqrt
from types import SimpleNamespace

import pytest
import torch
from against import check_family, ids_for, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import assert_refused, read_config, respell
from torch import nn
from transformers import AutoModelForCausalLM, MptConfig
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from engine import load_model, trace
from engine.checkpoints.families.mpt import slopes

PUBLISHED = {  # mpt-7b's
    "architectures": ["MPTForCausalLM"],
    "attn_config": {
        "alibi": True,
        "alibi_bias_max": 8,
        "attn_impl": "torch",
        "attn_pdrop": 0,
        "attn_type": "multihead_attention",
        "attn_uses_sequence_id": False,
        "clip_qkv": None,
        "prefix_lm": False,
        "qk_ln": False,
        "softmax_scale": None,
    },
    "auto_map": {"AutoConfig": "configuration_mpt.MPTConfig"},
    "d_model": 4096,
    "emb_pdrop": 0,
    "embedding_fraction": 1.0,
    "expansion_ratio": 4,
    "init_config": {"name": "kaiming_normal_", "init_std": 0.02},
    "init_device": "cpu",
    "learned_pos_emb": True,
    "logit_scale": None,
    "max_seq_len": 2048,
    "model_type": "mpt",
    "n_heads": 32,
    "n_layers": 32,
    "no_bias": True,
    "norm_type": "low_precision_layernorm",
    "resid_pdrop": 0,
    "tokenizer_name": "EleutherAI/gpt-neox-20b",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.28.1",
    "use_cache": False,
    "verbose": 0,
    "vocab_size": 50432,
}


@st.composite
def mpts(draw: st.DrawFn, *, alibi: bool = True) -> MptConfig:
    heads = draw(st.integers(1, 7))
    attention = {
        "alibi": alibi,
        "clip_qkv": draw(st.sampled_from([None, 0.7])),
        "softmax_scale": draw(st.sampled_from([None, 0.3])),
    }
    return MptConfig(
        vocab_size=draw(st.integers(20, 50)),
        d_model=heads * draw(st.sampled_from([5, 8, 10])) * (1 if heads > 1 else 2),
        n_layers=draw(st.integers(1, 3)),
        n_heads=heads,
        max_seq_len=16,
        layer_norm_epsilon=draw(st.sampled_from([1e-6, 1e-5])),
        tie_word_embeddings=draw(st.booleans()),
        attn_config=attention,
    )


DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float64])


@settings(max_examples=30)
@given(config=mpts(), seed=st.integers(0, 2**16), dtype=DTYPES)
def test_mpt(config, seed, dtype):
    check_family(config, seed=seed, dtype=dtype)  # FLOAT64: slopes and softmax are float32 there


def mosaic(config: MptConfig, attn_implementation: str) -> nn.Module:
    """transformers' model, and what MosaicML's does beyond it."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attn_implementation)
    body, attention = model.transformer, config.attn_config

    def bias(heads, length, device=None):
        built = build_mpt_alibi_tensor(heads, length, attention.alibi_bias_max, device)
        return built if attention.alibi else torch.zeros_like(built)

    body.build_mpt_alibi_tensor = bias
    if not attention.alibi and config.learned_pos_emb:
        wpe = body.wpe = nn.Embedding(config.max_seq_len, config.d_model)
        body.wte.register_forward_hook(lambda module, given, out: out + wpe.weight[: out.shape[1]].to(out.dtype))
    if config.logit_scale is not None:
        scale = 1 / sqrt(config.d_model) if config.logit_scale == "inv_sqrt_d_model" else config.logit_scale
        model.lm_head.register_forward_hook(lambda module, given, out: out * scale)
    for block in body.blocks:
        block.ffn.up_proj = nn.Linear(config.d_model, config.expansion_ratio * config.d_model, bias=False)
        block.ffn.down_proj = nn.Linear(config.expansion_ratio * config.d_model, config.d_model, bias=False)
    if not config.no_bias:
        for module in body.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm):
                module.bias = nn.Parameter(torch.zeros(module.weight.shape[0]))
    return model


@st.composite
def mosaics(draw: st.DrawFn) -> MptConfig:
    config = draw(mpts(alibi=draw(st.booleans())))
    config.attn_config.alibi_bias_max = draw(st.sampled_from([8, 16]))
    config.learned_pos_emb = draw(st.booleans())
    config.expansion_ratio = draw(st.sampled_from([2, 3]))
    config.no_bias = draw(st.booleans())
    config.logit_scale = draw(st.sampled_from([None, 0.25, "inv_sqrt_d_model"]))
    return config


@settings(max_examples=30)
@given(config=mosaics(), seed=st.integers(0, 2**16), dtype=DTYPES)
def test_mpt_with_switches_that_transformers_passes_over(config, seed, dtype):
    check_family(config, seed=seed, dtype=dtype, auto=SimpleNamespace(from_config=mosaic))


@pytest.mark.parametrize("most", [8, 16])
@pytest.mark.parametrize("heads", [1, 2, 3, 6, 7, 8, 12, 40, 64])
def test_slopes_are_those_of_transformers_for_any_number_of_heads(heads, most):
    theirs = -build_mpt_alibi_tensor(heads, 2, most)[:, 0, 0]  # one position back
    assert slopes(heads, most) == pytest.approx(theirs.tolist(), rel=2e-6)


def test_the_prefix_may_be_missing_and_positions_without_alibi_may_too():
    config = MptConfig(vocab_size=30, d_model=24, n_layers=2, n_heads=3, max_seq_len=16)
    ids = ids_for(config, 7)
    with saved(random_reference(config)) as folder:
        plain = trace(load_model(folder), ids)["logits"]
        respell(folder, lambda name: name.removeprefix("transformer."))
        assert torch.equal(trace(load_model(folder), ids)["logits"], plain)
        respell(folder, change=lambda raw: raw["attn_config"].update(alibi=False) or raw.update(learned_pos_emb=False))
        assert load_model(folder).program.step("position_bias") is None


def test_the_published_config_is_read():
    config = read_config(PUBLISHED)
    assert (config.d_model, config.n_layers, config.n_heads, config.d_mlp, config.n_ctx) == (4096, 32, 32, 16384, 2048)
    assert config.alibi_slopes[:2] == (2**-0.25, 2**-0.5)
    assert (config.norm_bias, config.qkv_clip, config.logit_scale) == (False, None, 1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"norm_type": "rmsnorm"}, ["norm_type", "rmsnorm"]),
        ({"n_heads": 30}, ["4096", "30"]),
        ({"n_heads": 2**31, "d_model": 2**31}, ["n_heads"]),
        ({"expansion_ratio": "4"}, ["expansion_ratio"]),
        ({"expansion_ratio": 1e-9}, ["d_mlp"]),
        ({"logit_scale": "sqrt"}, ["logit_scale", "sqrt"]),
        ({"logit_scale": 0.0}, ["logit_scale"]),
        ({"no_bias": "no"}, ["no_bias"]),
        ({"attn_config": "alibi"}, ["attn_config"]),
        ({"ffn_config": {"ffn_type": "mptglu"}}, ["ffn_type", "mptglu"]),
        ({"rotary": True}, ["rotary"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(PUBLISHED | change, *named)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attn_type": "multiquery_attention"}, ["attn_type", "multiquery_attention"]),
        ({"kv_n_heads": 4}, ["kv_n_heads", "4"]),
        ({"qk_ln": True}, ["qk_ln"]),
        ({"prefix_lm": True}, ["prefix_lm"]),
        ({"attn_uses_sequence_id": True}, ["attn_uses_sequence_id"]),
        ({"rope": True}, ["rope"]),
        ({"sliding_window_size": 128}, ["sliding_window_size", "128"]),
        ({"softmax_scale": "0.1"}, ["attn_scale"]),
        ({"clip_qkv": -1.0}, ["qkv_clip"]),
        ({"alibi_bias_max": 0}, ["alibi_bias_max"]),
        ({"alibi": None, "window": 3}, ["window", "attn_config"]),
    ],
)
def test_what_attention_does_not_support_is_refused_by_name(change, named):
    assert_refused(PUBLISHED | {"attn_config": PUBLISHED["attn_config"] | change}, *named)

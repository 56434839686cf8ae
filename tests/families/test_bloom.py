"""BLOOM beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import assert_refused, read_config, respell
from transformers import BloomConfig

from engine import load_model, trace
from engine.checkpoints.families.bloom import slopes

PUBLISHED = {  # bloom-560m's
    "apply_residual_connection_post_layernorm": False,
    "architectures": ["BloomModel"],
    "attention_dropout": 0.0,
    "attention_softmax_in_fp32": True,
    "bias_dropout_fusion": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_dropout": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "masked_softmax_fusion": True,
    "model_type": "bloom",
    "n_embed": 1024,
    "n_inner": None,
    "n_layer": 24,
    "num_attention_heads": 16,
    "offset_alibi": 100,
    "pad_token_id": 3,
    "pretraining_tp": 1,
    "seq_length": 2048,
    "skip_bias_add": True,
    "skip_bias_add_qkv": False,
    "slow_but_exact": False,
    "transformers_version": "4.20.0",
    "unk_token_id": 0,
    "use_cache": True,
    "vocab_size": 250880,
}


@st.composite
def blooms(draw: st.DrawFn) -> BloomConfig:
    heads = draw(st.integers(1, 7))
    return BloomConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=heads * draw(st.sampled_from([5, 8, 10])) * (1 if heads > 1 else 2),
        n_layer=draw(st.integers(1, 3)),
        n_head=heads,
        layer_norm_epsilon=draw(st.sampled_from([1e-6, 1e-5])),
        tie_word_embeddings=draw(st.booleans()),
        pretraining_tp=draw(st.sampled_from([1, 2])),
    )


@settings(max_examples=40)
@given(
    config=blooms(), seed=st.integers(0, 2**16), dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64])
)
def test_bloom(config, seed, dtype):
    check_family(config, seed=seed, dtype=dtype)  # FLOAT64: slopes and softmax are float32 there


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 14, 32, 112])
def test_slopes_are_those_of_transformers_for_any_number_of_heads(heads):
    from transformers.models.bloom.modeling_bloom import _get_alibi_slopes

    assert slopes(heads) == pytest.approx(_get_alibi_slopes(heads, torch.device("cpu")).tolist(), rel=2e-6)


def test_scores_differ_from_transformers_by_one_number_in_each_row_which_softmax_does_not_see():
    config = BloomConfig(vocab_size=30, hidden_size=24, n_layer=1, n_head=3)
    with saved(random_reference(config)) as folder:
        t = trace(load_model(folder, dtype="float64"), ids_for(config, 7))
    bias = t["position_bias"]
    absolute = torch.tensor(slopes(3))[:, None, None] * torch.arange(7)  # slope · key, as there
    assert (bias - absolute).var(-1).max() < 1e-12
    assert torch.equal(bias.diagonal(dim1=-2, dim2=-1), torch.zeros(1, 3, 7))


def test_the_prefix_may_be_missing_and_sizes_have_older_names():
    config = BloomConfig(vocab_size=30, hidden_size=24, n_layer=2, n_head=3)
    ids = ids_for(config, 7)

    def older(raw):
        raw["n_embed"] = raw.pop("hidden_size")
        raw["num_attention_heads"] = raw.pop("n_head")
        raw["num_hidden_layers"] = raw.pop("n_layer")

    with saved(random_reference(config)) as folder:
        plain = trace(load_model(folder), ids)["logits"]
        respell(folder, lambda name: name.removeprefix("transformer."), older)
        assert torch.equal(trace(load_model(folder), ids)["logits"], plain)


def test_the_published_config_is_read():
    config = read_config(PUBLISHED)
    assert (config.d_model, config.n_layers, config.n_heads, config.d_mlp) == (1024, 24, 16, 4096)
    assert (config.tied, config.embed_norm, config.positions) == (True, True, "alibi")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"apply_residual_connection_post_layernorm": True}, ["apply_residual_connection_post_layernorm", "True"]),
        ({"slow_but_exact": True, "pretraining_tp": 4}, ["slow_but_exact"]),
        ({"n_inner": 1000}, ["n_inner", "1000", "4096"]),
        ({"num_attention_heads": 15}, ["1024", "15"]),
        ({"num_attention_heads": 2**31, "n_embed": 2**31}, ["n_head"]),
        ({"n_embed": "1024"}, ["n_embed", "1024"]),
        ({"n_layer": None}, ["n_layer"]),
        ({"layer_norm_epsilon": "1e-5"}, ["norm_eps"]),
        ({"rotary": True}, ["rotary"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(PUBLISHED | change, *named)

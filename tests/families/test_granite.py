"""Granite, dense and mixed, beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import assert_refused, read_config, respell
from transformers import GraniteConfig, GraniteMoeConfig

from engine import load_model, trace

PUBLISHED = {  # granite-3.3-8b-instruct's
    "architectures": ["GraniteForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attention_multiplier": 0.0078125,
    "bos_token_id": 0,
    "embedding_multiplier": 12.0,
    "eos_token_id": 0,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 12800,
    "logits_scaling": 16.0,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "granite",
    "num_attention_heads": 32,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "pad_token_id": 0,
    "residual_multiplier": 0.22,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.49.0",
    "use_cache": True,
    "vocab_size": 49159,
}
SCALINGS = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
]
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float64])


@st.composite
def granites(draw: st.DrawFn, *, mixed: bool = False) -> GraniteConfig:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    if mixed:
        n = draw(st.integers(2, 5))
        own = {"num_local_experts": n, "num_experts_per_tok": draw(st.integers(1, n))}
    else:
        own = {"mlp_bias": draw(st.booleans())}
    config = (GraniteMoeConfig if mixed else GraniteConfig)(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * draw(st.sampled_from([10, 14, 18])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=draw(st.sampled_from([4, 6, 10])),
        hidden_act=draw(st.sampled_from(["silu", "gelu"])),
        max_position_embeddings=32,
        rms_norm_eps=draw(st.sampled_from([1e-6, 1e-5])),
        rope_parameters=draw(st.sampled_from(SCALINGS)) | {"rope_theta": draw(st.sampled_from([1e4, 1e7]))},
        tie_word_embeddings=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
        embedding_multiplier=draw(st.sampled_from([1.0, 12.0, 0.3])),
        logits_scaling=draw(st.sampled_from([1.0, 16.0, 0.3])),
        residual_multiplier=draw(st.sampled_from([1.0, 0.22])),
        attention_multiplier=draw(st.sampled_from([0.25, 0.0883])),
        **own,
    )
    config._experts_implementation = "eager"  # the fused one has no float64
    return config


@settings(max_examples=40)
@given(config=granites(), seed=st.integers(0, 2**16), dtype=DTYPES, start=st.sampled_from([None, 30, 1000]))
def test_granite(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=None if start is None else range(start, start + 9))


@settings(max_examples=40)
@given(config=granites(mixed=True), seed=st.integers(0, 2**16), dtype=DTYPES)
def test_granitemoe(config, seed, dtype):
    check_family(config, seed=seed, dtype=dtype)


@pytest.mark.parametrize("multiplier", [12.0, 0.3, 37.7])
def test_the_embedding_multiplier_is_not_rounded_to_the_models_dtype(multiplier):
    config = GraniteConfig(
        vocab_size=30, hidden_size=42, intermediate_size=20, num_hidden_layers=1, num_attention_heads=3,
        embedding_multiplier=multiplier,
    )  # fmt: skip
    ids, reference = ids_for(config, 9), random_reference(config).bfloat16()
    theirs = reference(torch.tensor([ids]), output_hidden_states=True).hidden_states[0]
    with saved(reference, torch.bfloat16) as folder:
        assert torch.equal(trace(load_model(folder), ids)["embed_scaled"], theirs)


def test_experts_in_memorys_spelling_load_equal():
    config = GraniteMoeConfig(
        vocab_size=30, hidden_size=42, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3,
        attention_multiplier=0.25,
    )  # fmt: skip
    from engine.checkpoints.families.granitemoe import canonical

    names = ("experts.gate_up_proj", "experts.down_proj", "router.weight")
    files = ("input_linear.weight", "output_linear.weight", "router.layer.weight")
    back = {f".block_sparse_moe.{there}": f".block_sparse_moe.{here}" for there, here in zip(files, names, strict=True)}

    def newer(name):
        return next((name.replace(old, new) for old, new in back.items() if name.endswith(old)), canonical(name))

    ids = ids_for(config, 7)
    with saved(random_reference(config)) as folder:
        plain = trace(load_model(folder), ids)["logits"]
        respell(folder, newer)
        assert torch.equal(trace(load_model(folder), ids)["logits"], plain)


def test_the_published_config_is_read():
    config = read_config(PUBLISHED)
    assert (config.embed_scale, config.residual_scale, config.logit_scale) == (12.0, 0.22, 1 / 16)
    assert (config.attn_scale, config.tied, config.kv_heads) == (0.0078125, True, 8)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"logits_scaling": 0}, ["logits_scaling", "0"]),
        ({"logits_scaling": "16"}, ["logits_scaling", "16"]),
        ({"attention_multiplier": -1.0}, ["attn_scale"]),
        ({"embedding_multiplier": "12"}, ["embed_scale"]),
        ({"hidden_act": "swiglu"}, ["hidden_act", "swiglu"]),
        ({"attention_bias": "no"}, ["attn_bias"]),
        ({"rope_scaling": {"type": "ntk"}}, ["ntk"]),
        ({"num_local_experts": 8}, ["num_local_experts"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(PUBLISHED | change, *named)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_local_experts": 0}, ["num_local_experts"]),
        ({"num_experts_per_tok": 9}, ["per_token"]),
        ({"mlp_bias": True}, ["mlp_bias"]),
        ({"shared_intermediate_size": 8}, ["shared_intermediate_size"]),
    ],
)
def test_what_granitemoe_does_not_support_is_refused_by_name(change, named):
    dense = {key: value for key, value in PUBLISHED.items() if key != "mlp_bias"}
    assert_refused(dense | {"model_type": "granitemoe"} | change, *named)

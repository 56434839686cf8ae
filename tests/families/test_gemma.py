"""Gemma 1 beside transformers."""

import pytest
import torch
from against import check_family, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import assert_refused, read_config
from torch.nn import functional as F
from transformers import GemmaConfig

from engine import load_model, trace
from engine.ops.base import PassInfo
from engine.ops.embedding import ScaleEmbedding
from engine.ops.mlp import FUNCTIONS

CONFIG = {
    "model_type": "gemma", "vocab_size": 40, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1,
}  # fmt: skip


@st.composite
def gemmas(draw: st.DrawFn) -> GemmaConfig:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    scaling = draw(st.sampled_from([{"rope_type": "default"}, {"rope_type": "linear", "factor": 4.0}]))
    return GemmaConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * draw(st.sampled_from([10, 14, 18])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=draw(st.sampled_from([4, 6, 10])),
        hidden_act=draw(st.sampled_from(["gelu", "gelu_pytorch_tanh"])),
        max_position_embeddings=64,
        rms_norm_eps=draw(st.sampled_from([1e-6, 1e-3])),
        rope_parameters={"rope_theta": draw(st.sampled_from([1e4, 5e5])), **scaling},
        tie_word_embeddings=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
    )


@settings(max_examples=40)
@given(config=gemmas(), seed=st.integers(0, 2**16), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_gemma(config, seed, dtype):
    check_family(config, seed=seed, dtype=dtype)


# E12: the normaliser is rounded to the model's dtype; where d_model is a square nobody would see it


@pytest.mark.parametrize(
    ("d_model", "rounded"),
    [(640, 25.25), (768, 27.75), (1152, 34.0), (2304, 48.0), (2560, 50.5), (3072, 55.5), (3584, 59.75), (3840, 62.0)],
)
def test_the_normaliser_is_rounded_to_bfloat16(d_model, rounded):
    read = read_config(CONFIG | {"hidden_size": d_model})
    scale = ScaleEmbedding(read.embed_scale, d_model, read.embed_scale_rounded)
    assert scale.run(PassInfo(torch.bfloat16), torch.ones(1, 1, 1, dtype=torch.bfloat16)).item() == rounded


def test_the_normaliser_is_rounded_to_float16_and_float32_as_well():
    read = read_config(CONFIG | {"hidden_size": 3072})
    scale = ScaleEmbedding(read.embed_scale, 3072, read.embed_scale_rounded)
    for dtype, rounded in ((torch.float16, 55.4375), (torch.float32, torch.tensor(3072**0.5).item())):
        assert scale.run(PassInfo(dtype), torch.ones(1, 1, 1, dtype=dtype)).item() == rounded


def test_gelu_in_a_published_config_means_its_tanh_form():  # E12
    read = read_config(CONFIG | {"hidden_act": "gelu"})
    x = torch.tensor([-3, -1, 0.5, 1, 3], dtype=torch.float64)
    expected = torch.tensor([-0.003637, -0.158808, 0.345714, 0.841192, 2.996363], dtype=torch.float64)
    torch.testing.assert_close(FUNCTIONS[read.activation](x), expected, rtol=0, atol=6e-7)
    assert not torch.allclose(F.gelu(x), expected, rtol=0, atol=1e-5)


def test_lookup_and_scale_are_apart_and_the_norm_weight_is_one_more():
    reference = random_reference(GemmaConfig(**{k: v for k, v in CONFIG.items() if k != "model_type"}, head_dim=6))
    with saved(reference, torch.bfloat16) as folder:
        t = trace(load_model(folder, device="cpu"), [3, 5, 8])
    embed = reference.model.embed_tokens.weight[torch.tensor([3, 5, 8])].bfloat16()
    assert torch.equal(t["embed"][0], embed)
    assert torch.equal(t["embed_scaled"][0], embed * torch.tensor(24**0.5).bfloat16())
    norm = reference.model.layers[0].input_layernorm.bfloat16()
    assert torch.equal(t["blocks.0.ln1.normalized"], norm(t["blocks.0.resid_pre"]))


def test_a_published_config_opens_in_its_own_spelling():
    read = read_config(
        {
            "architectures": ["GemmaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
            "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu",
            "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2048, "initializer_range": 0.02,
            "intermediate_size": 16384, "max_position_embeddings": 8192, "model_type": "gemma",
            "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0,
            "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
            "transformers_version": "4.38.0.dev0", "use_cache": True, "vocab_size": 256000,
        }
    )  # fmt: skip
    assert (read.d_head, read.kv_heads, read.tied, read.eos_token_id) == (256, 1, True, 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_act": "relu"}, "gemma's hidden_act 'relu' is not supported"),
        ({"hidden_activation": "gelu_new"}, "hidden_activation 'gelu_new' is not supported"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention True is not supported"),
        ({"attn_logit_softcapping": 50.0}, "which layerstep does not know for gemma"),
        ({"hidden_size": "24"}, "hidden_size must be a number between 1 and 2^31, but is '24'"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be a number between 1 and 4096"),
        ({"head_dim": -4}, "head_dim must be"),
        ({"attention_bias": "no"}, "attn_bias must be"),
        ({"rope_parameters": {"rope_type": "new"}}, "asks for 'new', which is not supported"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change, said):
    assert_refused(CONFIG | change, said)

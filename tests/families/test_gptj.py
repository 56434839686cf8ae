"""GPT-J beside transformers."""

import pytest
import torch
from against import check_family, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places
from safetensors.torch import load_file, save_file
from spellings import assert_refused, read_config, respell
from transformers import GPTJConfig

from engine import load_model, trace

GPT_J_6B = {
    "activation_function": "gelu_new", "architectures": ["GPTJForCausalLM"], "attn_pdrop": 0.0, "bos_token_id": 50256,
    "embd_pdrop": 0.0, "eos_token_id": 50256, "gradient_checkpointing": False, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_inner": None, "n_layer": 28,
    "n_positions": 2048, "resid_pdrop": 0.0, "rotary": True, "rotary_dim": 64, "scale_attn_weights": True,
    "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50, "temperature": 1.0}},
    "tie_word_embeddings": False, "tokenizer_class": "GPT2Tokenizer", "transformers_version": "4.18.0.dev0",
    "use_cache": True, "vocab_size": 50400,
}  # fmt: skip


@st.composite
def gptjs(draw: st.DrawFn) -> GPTJConfig:
    heads, d_head = draw(st.integers(1, 4)), draw(st.sampled_from([10, 12, 14]))
    return GPTJConfig(
        vocab_size=draw(st.integers(20, 50)),
        n_embd=heads * d_head,
        n_inner=draw(st.sampled_from([None, 14, 30])),
        n_layer=draw(st.integers(1, 3)),
        n_head=heads,
        n_positions=N_CTX,
        rotary_dim=draw(st.sampled_from([2, 4, 6, d_head])),
        activation_function=draw(st.sampled_from(["gelu_new", "gelu", "relu", "silu"])),
        layer_norm_epsilon=draw(st.sampled_from([1e-5, 1e-6])),
        tie_word_embeddings=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=gptjs(), seed=st.integers(0, 2**16), dtype=dtypes, start=st.sampled_from([None, None, 12, N_CTX - 9]))
def test_gptj(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


def tiny(**more) -> GPTJConfig:
    sizes = {"vocab_size": 40, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64}
    return GPTJConfig(**sizes | {"rotary_dim": 4} | more)


def test_neighbouring_dimensions_turn_together_and_the_rest_does_not():
    with saved(random_reference(tiny())) as folder:
        t = trace(load_model(folder, dtype="float64"), list(range(9)))
    q, turned = t["blocks.0.attn.q"], t["blocks.0.attn.rot_q"]
    angle = torch.arange(9.0)[:, None, None] * 10_000.0 ** (-torch.arange(0, 4, 2) / 4)  # [pos 1 pair]
    pairs = torch.view_as_complex(q[..., :4].unflatten(-1, (2, 2)).contiguous())  # [batch pos head pair]
    expected = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle).double(), angle.double())).flatten(-2)
    assert (turned[..., :4] - expected).abs().max() < 1e-6
    assert torch.equal(turned[..., 4:], q[..., 4:])


def test_buffers_of_older_files_are_passed_over_by_name_and_the_prefix_may_be_missing():
    with saved(random_reference(tiny())) as folder:
        before, file = load_model(folder), folder / "model.safetensors"
        buffers = {"bias": torch.ones(1, 1, 64, 64).bool(), "masked_bias": torch.tensor(-1e9)}
        save_file(load_file(file) | {f"transformer.h.1.attn.{name}": tensor for name, tensor in buffers.items()}, file)
        respell(folder, lambda name: name.removeprefix("transformer."))
        after = load_model(folder)
    assert after.report.ignored == {"transformer.h.*.attn.bias": 1, "transformer.h.*.attn.masked_bias": 1}
    assert all(torch.equal(before.weights[name], after.weights[name]) for name in before.weights)


def test_a_published_config_is_read():
    config = read_config(GPT_J_6B)
    assert (config.d_head, config.d_mlp, config.rotary.dims, config.rotary.style) == (256, 16384, 64, "interleaved")
    assert (config.parallel, config.attn_bias, config.mlp_bias, config.unembed_bias) == ("one norm", False, True, True)


def test_absent_keys_have_the_familys_defaults():
    needed = ("model_type", "n_embd", "n_head", "n_layer", "vocab_size")
    ours, theirs = read_config({key: GPT_J_6B[key] for key in needed}), GPTJConfig()
    assert (ours.rotary.dims, ours.n_ctx, ours.norm_eps) == (theirs.rotary_dim, theirs.n_positions, 1e-5)
    assert (ours.tied, ours.activation, ours.eos_token_id) == (theirs.tie_word_embeddings, "gelu_tanh", 50256)
    assert read_config(GPT_J_6B | {"rotary_dim": None}).rotary.dims is None  # then whole heads turn


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rotary": False}, ["rotary False", "only True"]),
        ({"scale_attn_weights": False}, ["scale_attn_weights False"]),
        ({"n_embd": 4095}, ["n_embd 4095", "n_head 16"]),
        ({"rotary_dim": 63}, ["rotary dims 63"]),
        ({"rotary_dim": 0}, ["rotary dims 0"]),
        ({"rotary_dim": 512}, ["rotary dims 512"]),
        ({"rotary_dim": "64"}, ["rotary", "64"]),
        ({"n_inner": 0}, ["n_inner", "0"]),
        ({"activation_function": "mish"}, ["activation_function", "mish"]),
        ({"rope_scaling": {"type": "linear"}}, ["rope_scaling", "gptj"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(GPT_J_6B | change, *named)

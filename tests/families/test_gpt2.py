"""GPT-2 beside transformers."""

import pytest
import torch
from against import (
    EXACT,
    FLOAT32,
    assert_equal_outputs,
    check_family,
    gap,
    ids_for,
    random_reference,
    run_reference,
    saved,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from spellings import assert_refused, read_config
from transformers import AutoModel, GPT2Config

from engine import load_model, trace
from engine.errors import CheckpointError

ACTIVATIONS = ["gelu_new", "gelu", "relu", "silu", "quick_gelu", "gelu_pytorch_tanh"]


@st.composite
def gpt2s(draw: st.DrawFn) -> GPT2Config:
    heads = draw(st.integers(1, 4))
    return GPT2Config(
        vocab_size=draw(st.integers(20, 50)),
        n_positions=draw(st.integers(9, 20)),
        n_embd=heads * draw(st.sampled_from([5, 7, 10, 12])) * (2 if heads == 1 else 1),
        n_layer=draw(st.integers(1, 3)),
        n_head=heads,
        n_inner=draw(st.sampled_from([None, 7, 33])),
        activation_function=draw(st.sampled_from(ACTIVATIONS)),
        layer_norm_epsilon=draw(st.sampled_from([1e-5, 1e-3])),
        scale_attn_weights=draw(st.booleans()),
        scale_attn_by_inverse_layer_idx=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
    )


@settings(max_examples=40)
@given(
    config=gpt2s(), seed=st.integers(0, 2**16), dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16])
)
def test_gpt2(config, seed, dtype):
    check_family(config, seed=seed, dtype=dtype, tolerance=EXACT)


def test_positions_may_be_given():
    check_family(tiny(n_positions=64), tolerance=EXACT, positions=list(range(55, 64)))


def tiny(**more):
    return GPT2Config(**{"vocab_size": 30, "n_positions": 12, "n_embd": 20, "n_layer": 2, "n_head": 2} | more)


def respelled(folder, prefix, buffers):
    """The folder's tensors with or without ``transformer.``, and with or without the masks that older files hold."""
    file = folder / "model.safetensors"
    held = {name.removeprefix("transformer."): tensor.clone() for name, tensor in load_file(file).items()}
    if buffers:
        for layer in range(2):
            held[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 12, 12, dtype=torch.uint8).tril()
            held[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    named = {name if name.startswith("lm_head") else prefix + name: tensor for name, tensor in held.items()}
    save_file(named, file, {"format": "pt"})


@pytest.mark.parametrize("n_inner", [None, 33])
@pytest.mark.parametrize("buffers", [False, True], ids=["no masks", "masks"])
@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_every_spelling_of_a_file_is_the_same(prefix, buffers, n_inner):  # L6
    reference, ids = random_reference(tiny(n_inner=n_inner)), ids_for(tiny(), 7)
    with saved(reference) as folder:
        respelled(folder, prefix, buffers)
        model = load_model(folder, dtype="float64")
        assert gap(trace(model, ids)["logits"], run_reference(reference, ids).logits) <= EXACT
    assert model.config.d_mlp == (n_inner or 80)
    assert model.report.ignored == ({"h.*.attn.bias": 2, "h.*.attn.masked_bias": 2} if buffers else {})


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_an_invented_tensor_is_named(prefix):  # L6
    invented = f"{prefix}h.0.attn.c_attn.weight2"
    with saved(random_reference(tiny())) as folder:
        respelled(folder, prefix, buffers=True)
        held = load_file(folder / "model.safetensors")
        save_file(held | {invented: torch.zeros(3)}, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(CheckpointError, match=f"tensor '{invented}' is in the file"):
            load_model(folder)


def test_the_weights_are_views_of_the_files_matrices():  # L6: c_attn is [in, out]
    with saved(random_reference(tiny())) as folder:
        held, weights = load_file(folder / "model.safetensors"), load_model(folder).weights
        fused = held["transformer.h.1.attn.c_attn.weight"]  # [d_model 3·d_model]
        for i, part in enumerate("qkv"):
            weight = weights[f"blocks.1.attn.{part}.weight"]
            assert torch.equal(weight, fused[:, 20 * i : 20 * (i + 1)].T)
            assert weight.stride() == (1, 60)
        assert torch.equal(weights["blocks.1.mlp.up.weight"], held["transformer.h.1.mlp.c_fc.weight"].T)


def test_scores_in_float32_are_what_they_are_here_anyway():
    """``reorder_and_upcast_attn``; transformers cannot do it in float64."""
    config = tiny(reorder_and_upcast_attn=True, scale_attn_by_inverse_layer_idx=True)
    reference, ids = random_reference(config).float(), ids_for(config, 9)
    with saved(reference) as folder:
        assert_equal_outputs(trace(load_model(folder), ids), run_reference(reference, ids), FLOAT32)


def test_a_bare_model_that_transformers_saved_opens():
    reference, ids = random_reference(tiny(), AutoModel), ids_for(tiny(), 7)
    with saved(reference) as folder:
        t = trace(load_model(folder, dtype="float64"), ids)
    assert gap(t["ln_final.normalized"], reference(torch.tensor([ids])).last_hidden_state.detach()) <= EXACT


GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": 50257,
}  # fmt: skip


def test_the_published_config_is_read():
    config = read_config(GPT2)
    assert (config.d_head, config.d_mlp, config.n_ctx, config.tied) == (64, 3072, 1024, True)
    assert config.activation == "gelu_tanh"
    assert config.attn_scale is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"activation_function": "mish"}, ["activation_function", "mish"]),
        ({"activation_function": ["gelu"]}, ["activation_function", "gelu"]),
        ({"add_cross_attention": True}, ["add_cross_attention"]),
        ({"n_head": 5}, ["n_embd 768", "n_head 5"]),
        ({"n_embd": "768"}, ["n_embd", "'768'"]),
        ({"n_inner": 0}, ["n_inner"]),
        ({"scale_attn_weights": 1}, ["scale_attn_weights"]),
        ({"scale_attn_by_inverse_layer_idx": "no"}, ["attn_scale_by_layer"]),
        ({"layer_norm_epsilon": None, "layer_norm_eps": 1e-6}, ["layer_norm_eps"]),
        ({"n_layer": 2**31}, ["n_layer", "4096"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(GPT2 | change, *named)

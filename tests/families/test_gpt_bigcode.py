"""StarCoder and SantaCoder (GPTBigCode) beside transformers."""

import pytest
import torch
from against import check_family, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places
from safetensors.torch import load_file, save_file
from spellings import assert_refused, read_config, respell
from transformers import GPTBigCodeConfig

from engine import load_model

STARCODER = {
    "_name_or_path": "./large-model", "activation_function": "gelu", "architectures": ["GPTBigCodeForCausalLM"],
    "attention_softmax_in_fp32": True, "attn_pdrop": 0.1, "bos_token_id": 0, "embd_pdrop": 0.1, "eos_token_id": 0,
    "inference_runner": 0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "max_batch_size": None,
    "max_sequence_length": None, "model_type": "gpt_bigcode", "multi_query": True, "n_embd": 6144, "n_head": 48,
    "n_inner": 24576, "n_layer": 40, "n_positions": 8192, "pad_key_length": True, "pre_allocate_kv_cache": False,
    "resid_pdrop": 0.1, "scale_attention_softmax_in_fp32": True, "scale_attn_weights": True,
    "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True, "torch_dtype": "float32", "transformers_version": "4.28.1",
    "use_cache": True, "validate_runner_input": True, "vocab_size": 49152,
}  # fmt: skip


@st.composite
def bigcodes(draw: st.DrawFn) -> GPTBigCodeConfig:
    heads, d_head = draw(st.integers(1, 4)), draw(st.sampled_from([10, 11, 14]))
    return GPTBigCodeConfig(
        vocab_size=draw(st.integers(20, 50)),
        n_embd=heads * d_head,
        n_inner=draw(st.sampled_from([None, 14, 30])),
        n_layer=draw(st.integers(1, 3)),
        n_head=heads,
        n_positions=N_CTX,
        multi_query=draw(st.booleans()),
        scale_attn_weights=draw(st.booleans()),
        activation_function=draw(st.sampled_from(["gelu_pytorch_tanh", "gelu", "relu"])),
        layer_norm_epsilon=draw(st.sampled_from([1e-5, 1e-6])),
        tie_word_embeddings=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=bigcodes(), seed=st.integers(0, 2**16), dtype=dtypes, start=st.sampled_from([None, None, 12, N_CTX - 9]))
def test_gpt_bigcode(config, seed, dtype, start):
    gain = 1.5 if config.scale_attn_weights else 0.8  # scores of one size, which is what bfloat16's tolerance is for
    check_family(config, seed=seed, dtype=dtype, positions=places(start), gain=gain)


def tiny(**more) -> GPTBigCodeConfig:
    return GPTBigCodeConfig(**{"vocab_size": 40, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64} | more)


def test_files_of_the_bare_model_and_buffers_of_older_ones_open_alike():
    with saved(random_reference(tiny())) as folder:
        before, file = load_model(folder), folder / "model.safetensors"
        save_file(load_file(file) | {"transformer.bias": torch.ones(64, 64).tril().bool()}, file)
        respell(folder, lambda name: name.removeprefix("transformer."))
        after = load_model(folder)
    assert after.report.ignored == {"transformer.bias": 1}
    assert all(torch.equal(before.weights[name], after.weights[name]) for name in before.weights)


def test_a_published_config_is_read():
    config = read_config(STARCODER)
    assert (config.d_head, config.kv_heads, config.d_mlp, config.n_ctx) == (128, 1, 24576, 8192)
    assert (config.activation, config.attn_scale, config.tied) == ("gelu", None, True)


def test_absent_keys_have_the_familys_defaults():
    needed = ("model_type", "n_embd", "n_head", "n_layer", "vocab_size")
    ours, theirs = read_config({key: STARCODER[key] for key in needed}), GPTBigCodeConfig()
    assert (ours.n_ctx, ours.norm_eps, ours.tied) == (theirs.n_positions, 1e-5, theirs.tie_word_embeddings)
    assert (ours.kv_heads, ours.activation, ours.d_mlp, ours.eos_token_id) == (1, "gelu_tanh", 4 * 6144, 50256)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_embd": 6145}, ["n_embd 6145", "n_head 48"]),
        ({"multi_query": 1}, ["multi_query 1"]),
        ({"num_key_value_heads": 8}, ["num_key_value_heads 8", "only 1"]),
        ({"add_cross_attention": True}, ["add_cross_attention True"]),
        ({"scale_attn_weights": "yes"}, ["scale_attn_weights 'yes'"]),
        ({"activation_function": "mish"}, ["activation_function", "mish"]),
        ({"n_inner": -1}, ["n_inner", "-1"]),
        ({"rotary_dim": 64}, ["rotary_dim", "gpt_bigcode"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(STARCODER | change, *named)

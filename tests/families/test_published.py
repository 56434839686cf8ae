"""Published config.json files: keys left out, older spellings, and keys beside those that a family has."""

import json

import pytest
import torch
from against import FLOAT64, gap, ids_for, random_reference, saved
from spellings import assert_refused, read_config
from transformers import AutoModelForSeq2SeqLM, MT5Config
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from engine import load_model, trace
from engine.checkpoints.families import FAMILIES
from engine.checkpoints.fields import NEUTRAL

SIZES = frozenset(
    """vocab_size hidden_size n_embd n_head n_layer num_hidden_layers num_attention_heads intermediate_size n_inner
    num_key_value_heads d_model d_ff d_kv num_layers num_heads n_layers n_heads dim hidden_dim ffn_dim encoder_layers
    decoder_layers encoder_attention_heads decoder_attention_heads encoder_ffn_dim decoder_ffn_dim decoder_vocab_size
    max_position_embeddings word_embed_proj_dim is_encoder_decoder head_dim attn_config model_type""".split()  # noqa: SIM905
)
"""What every file has, and what another default follows from."""
IDS = {"bos_token_id", "eos_token_id", "pad_token_id"}  # an encoder's are its tokenizer's to say
KINDS = sorted(set(FAMILIES) - {"layerstep", "gemma3"})  # our own, and one that is a config within another


def default_of(kind: str) -> dict:
    raw = json.loads(CONFIG_MAPPING[kind]().to_json_string(use_diff=False))
    return {key: value for key, value in raw.items() if key != "architectures"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_absent_key_has_transformers_default(kind):
    raw = default_of(kind)
    whole = read_config(raw).to_json()
    for key in sorted(set(raw) - SIZES):
        less = read_config({name: value for name, value in raw.items() if name != key}).to_json()
        assert {k: v for k, v in less.items() if k not in IDS} == {k: v for k, v in whole.items() if k not in IDS}, key


@pytest.mark.parametrize("kind", KINDS)
def test_what_every_file_may_have_besides(kind):
    raw = default_of(kind)
    besides = NEUTRAL | {
        "transformers.js_config": {"dtype": "q4"}, "unsloth_fixed": True, "_attn_implementation_autoset": True,
    }  # fmt: skip
    assert read_config({**besides, **raw}) == read_config(raw)


@pytest.mark.parametrize("kind", ["gemma", "phi", "bloom", "mpt", "falcon", "gpt2"])
def test_a_decoder_that_reads_an_encoder_is_refused(kind):
    assert_refused(default_of(kind) | {"add_cross_attention": True}, "add_cross_attention")


OPUS_MT = {  # opus-mt-en-de's
    "_num_labels": 3, "activation_dropout": 0.0, "activation_function": "swish", "add_bias_logits": False,
    "add_final_layer_norm": False, "architectures": ["MarianMTModel"], "attention_dropout": 0.0,
    "bad_words_ids": [[58100]], "bos_token_id": 0, "classif_dropout": 0.0, "d_model": 512,
    "decoder_attention_heads": 8, "decoder_ffn_dim": 2048, "decoder_layerdrop": 0.0, "decoder_layers": 6,
    "decoder_start_token_id": 58100, "dropout": 0.1, "encoder_attention_heads": 8, "encoder_ffn_dim": 2048,
    "encoder_layerdrop": 0.0, "encoder_layers": 6, "eos_token_id": 0, "extra_pos_embeddings": 58101, "init_std": 0.02,
    "is_encoder_decoder": True, "max_length": 512, "max_position_embeddings": 512, "model_type": "marian",
    "normalize_before": False, "normalize_embedding": False, "num_beams": 6, "num_hidden_layers": 6,
    "pad_token_id": 58100, "scale_embedding": True, "static_position_embeddings": True, "vocab_size": 58101,
}  # fmt: skip


def test_opus_mt():
    config = read_config(OPUS_MT)
    assert (config.encoder_layers, config.n_layers, config.n_ctx, config.norm_place) == (6, 6, 512, "post")
    assert config.embed_scale == 512**0.5
    assert read_config(OPUS_MT | {"extra_pos_embeddings": 53685}) == config


def test_qwen3_coder():
    raw = default_of("qwen3_moe")
    besides = {"use_qk_norm": True, "shared_expert_intermediate_size": 0, "qkv_bias": False}
    assert read_config(raw | besides) == read_config(raw)
    assert_refused(raw | {"shared_expert_intermediate_size": 512}, "shared_expert_intermediate_size")


def test_mt5_does_not_scale_before_its_head():
    config = MT5Config(
        vocab_size=30, d_model=16, d_kv=5, d_ff=12, num_layers=1, num_decoder_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    reference = random_reference(config, AutoModelForSeq2SeqLM, gain=0.7)
    source, target = ids_for(config, 6), [0, *ids_for(config, 3, 1)]
    with saved(reference) as folder, torch.no_grad():
        t = trace(load_model(folder, device="cpu", dtype="float64"), source, target=target[1:])
        theirs = reference(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target])).logits
    assert t.config.activation == "gelu_tanh"
    assert t.config.gated
    assert gap(t["logits"], theirs) <= FLOAT64


# ---------------------------------------------------------------------------- rules of files without layer_types


def without_types(kind: str, **changes) -> dict:
    raw = default_of(kind) | changes
    return {key: value for key, value in raw.items() if key not in ("layer_types", "no_rope_layers")}


def windows(raw: dict) -> list[int | None]:
    config = read_config(raw)
    return [config.kind(layer).window for layer in range(config.n_layers)]


@pytest.mark.parametrize(("first", "expected"), [(0, [7] * 4), (2, [None, None, 7, 7]), (4, [None] * 4)])
def test_qwen2_has_its_window_from_a_layer_on(first, expected):
    raw = without_types(
        "qwen2", num_hidden_layers=4, use_sliding_window=True, sliding_window=7, max_window_layers=first
    )
    assert windows(raw) == expected


def test_smollm3_leaves_every_fourth_layer_without_positions():
    config = read_config(without_types("smollm3", num_hidden_layers=8))
    turns = [config.kind(layer).rotary is not None for layer in range(8)]
    assert turns == [True, True, True, False] * 2


def test_gpt_oss_begins_with_a_window():
    assert windows(without_types("gpt_oss", num_hidden_layers=4, sliding_window=7)) == [7, None, 7, None]


def test_yarn_without_betas_has_the_paper_s():
    raw = default_of("qwen2")
    raw.pop("rope_parameters")
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    rotary = read_config(raw | {"rope_theta": 1e6, "rope_scaling": scaling}).rotary
    assert (rotary.beta_fast, rotary.beta_slow, rotary.truncate) == (32, 1, True)


def test_olmo2_is_rounded_after_its_norm_s_weight():
    assert read_config(default_of("olmo2")).norm_casts_last
    assert not read_config(default_of("llama")).norm_casts_last

"""GGUF architectures as the config.json that each was converted from: one short function for each.

So that the family's own file stays the one place that knows what a config means. Where a function names a number, it
stands in no GGUF file: llama.cpp has it in its code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.checkpoints.gguf.described import Described
from engine.checkpoints.gguf.rotary import rope

Json = dict[str, Any]
RMS, LAYER = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"


def _sizes(d: Described) -> Json:
    """What every architecture has, under the names that most configs use."""
    heads = d.size("attention.head_count")
    return {
        "vocab_size": d.rows("token_embd.weight"),
        "hidden_size": d.size("embedding_length"),
        "intermediate_size": d.size("feed_forward_length"),
        "num_hidden_layers": d.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": d.size("attention.head_count_kv", heads),
        "max_position_embeddings": d.size("context_length"),
        "tie_word_embeddings": not d.has("output.weight"),
        **d.token_ids(),
    }


def _d_head(d: Described) -> int:
    """The width of a head, which keys and values share."""
    width = d.size("attention.key_length", max(1, d.size("embedding_length") // d.size("attention.head_count")))
    d.only("attention.value_length", width)
    return width


def _decoder(d: Described, *, any_width: bool = False) -> Json:
    """A decoder whose heads turn whole; ``any_width``: its config says how wide they are."""
    width = _d_head(d)
    if not any_width and width * d.size("attention.head_count") != d.size("embedding_length"):
        raise d.refusal(f"attention.key_length {width} is not embedding_length / attention.head_count")
    d.only("rope.dimension_count", width)
    return _sizes(d) | rope(d, width) | ({"head_dim": width} if any_width else {})


def _partly_turned(d: Described) -> tuple[Json, float]:
    """A decoder of whose heads only a part turns, and which."""
    width = _d_head(d)
    dims = d.size("rope.dimension_count", width)
    return _sizes(d) | rope(d, dims), dims / width


def _llama(d: Described) -> Json:
    config = _decoder(d, any_width=True) | {"rms_norm_eps": d.number(RMS)}
    window = d.get("attention.sliding_window")
    if experts := d.get("expert_count", 0):
        d.only("expert_feed_forward_length", config["intermediate_size"])
        chosen = {"num_local_experts": experts, "num_experts_per_tok": d.size("expert_used_count")}
        return config | chosen | {"model_type": "mixtral", "sliding_window": window}
    d.only("expert_used_count", 0)
    if window is not None:
        return config | {"model_type": "mistral", "sliding_window": window or None}
    biased = {"attention_bias": d.has("blk.0.attn_q.bias"), "mlp_bias": d.has("blk.0.ffn_up.bias")}
    return config | biased | {"model_type": "llama"}


def _smollm3(d: Described) -> Json:
    config = _decoder(d) | {"rms_norm_eps": d.number(RMS), "attention_bias": False, "mlp_bias": False}
    turned = [int((layer + 1) % 4 != 0) for layer in range(config["num_hidden_layers"])]
    return config | {"model_type": "smollm3", "no_rope_layers": turned, "use_sliding_window": False}


def _granite(d: Described) -> Json:
    return _decoder(d) | {
        "model_type": "granite",
        "rms_norm_eps": d.number(RMS),
        "attention_bias": d.has("blk.0.attn_q.bias"),
        "mlp_bias": d.has("blk.0.ffn_up.bias"),
        "attention_multiplier": d.number("attention.scale"),
        "embedding_multiplier": d.number("embedding_scale", 1.0),
        "residual_multiplier": d.number("residual_scale", 1.0),
        "logits_scaling": d.number("logit_scale", 1.0),
    }


def _qwen2(d: Described) -> Json:
    d.get("use_parallel_residual")  # the first files say so, and it is not so
    return _decoder(d) | {"model_type": "qwen2", "rms_norm_eps": d.number(RMS), "use_sliding_window": False}


def _qwen3(d: Described) -> Json:
    config = _decoder(d, any_width=True) | {"rms_norm_eps": d.number(RMS), "attention_bias": False}
    return config | {"model_type": "qwen3", "use_sliding_window": False}


def _qwen3moe(d: Described) -> Json:
    d.only("expert_weights_scale", 1.0)
    d.only("expert_gating_func", 1)
    return _qwen3(d) | {
        "model_type": "qwen3_moe",
        "num_experts": d.size("expert_count"),
        "num_experts_per_tok": d.size("expert_used_count"),
        "moe_intermediate_size": d.size("expert_feed_forward_length"),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _gemma(d: Described) -> Json:
    config = _decoder(d, any_width=True) | {"rms_norm_eps": d.number(RMS), "attention_bias": False}
    return config | {"model_type": "gemma", "hidden_activation": "gelu_pytorch_tanh"}


def _gemma_scale(d: Described, large: int) -> int:
    """The number whose square root divides scores: a head's width, but in the largest model of each generation."""
    width, per_head = _d_head(d), d.size("embedding_length") // d.size("attention.head_count")
    return per_head if d.size("block_count") == large else width


def _gemma2(d: Described) -> Json:
    layers = range(d.size("block_count"))
    return _gemma(d) | {
        "model_type": "gemma2",
        "query_pre_attn_scalar": _gemma_scale(d, 46),
        "attn_logit_softcapping": d.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": d.number("final_logit_softcapping", 30.0),
        "sliding_window": d.size("attention.sliding_window", 4096),
        "layer_types": ["full_attention" if layer % 2 else "sliding_attention" for layer in layers],
    }


def _gemma3(d: Described) -> Json:
    config, window = _gemma(d), d.get("attention.sliding_window")
    every = d.size("attention.sliding_window_pattern", 6) if window else 1
    layers = range(config["num_hidden_layers"])
    whole = {"rope_theta": config.pop("rope_theta"), **(config.pop("rope_scaling") or {"rope_type": "default"})}
    local = {"rope_type": "default", "rope_theta": float(d.number("rope.freq_base_swa", 10_000.0))}
    return config | {
        "model_type": "gemma3_text",
        "query_pre_attn_scalar": _gemma_scale(d, 62),
        "final_logit_softcapping": d.get("final_logit_softcapping"),
        "sliding_window": window or config["max_position_embeddings"],
        "layer_types": ["full_attention" if (layer + 1) % every == 0 else "sliding_attention" for layer in layers],
        "rope_parameters": {"full_attention": whole, "sliding_attention": local},
    }


def _gemma_embedding(d: Described) -> Json:
    d.only("attention.causal", False)
    for dense in ("dense_2", "dense_3"):  # whose sizes their tensors have
        d.get(f"{dense}_feat_in"), d.get(f"{dense}_feat_out")
    return _gemma3(d) | {"architectures": ["Gemma3TextModel"], "use_bidirectional_attention": True}


def _gpt2(d: Described) -> Json:
    sizes = _sizes(d)
    d.only("attention.head_count_kv", sizes["num_attention_heads"])
    return {
        "model_type": "gpt2",
        "vocab_size": sizes["vocab_size"],
        "n_embd": sizes["hidden_size"],
        "n_layer": sizes["num_hidden_layers"],
        "n_head": sizes["num_attention_heads"],
        "n_inner": sizes["intermediate_size"],
        "n_positions": d.rows("position_embd.weight"),
        "layer_norm_epsilon": d.number(LAYER),
        "activation_function": "gelu_new",
        "tie_word_embeddings": sizes["tie_word_embeddings"],
        **d.token_ids(),
    }


def _gptneox(d: Described) -> Json:
    config, part = _partly_turned(d)
    d.only("attention.head_count_kv", config.pop("num_key_value_heads"))
    return config | {
        "model_type": "gpt_neox",
        "rotary_pct": part,
        "layer_norm_eps": d.number(LAYER),
        "use_parallel_residual": d.get("use_parallel_residual", True),
        "hidden_act": "gelu",
        "attention_bias": True,
    }


def _phi2(d: Described) -> Json:
    config, part = _partly_turned(d)
    return config | {
        "model_type": "phi",
        "partial_rotary_factor": part,
        "layer_norm_eps": d.number(LAYER),
        "hidden_act": "gelu_new",
        "qk_layernorm": False,
    }


def _phi3(d: Described) -> Json:
    config, part = _partly_turned(d)
    original = d.get("rope.scaling.original_context_length", config["max_position_embeddings"])
    return config | {
        "model_type": "phi3",
        "partial_rotary_factor": part,
        "rms_norm_eps": d.number(RMS),
        "sliding_window": d.get("attention.sliding_window") or None,
        "original_max_position_embeddings": original,
    }


def _stablelm(d: Described) -> Json:
    config, part = _partly_turned(d)
    return config | {
        "model_type": "stablelm",
        "partial_rotary_factor": part,
        "layer_norm_eps": d.number(LAYER),
        "use_parallel_residual": d.get("use_parallel_residual", not d.has("blk.0.ffn_norm.weight")),
        "use_qkv_bias": d.has("blk.0.attn_q.bias"),
        "qk_layernorm": d.has("blk.0.attn_q_norm.weight"),
        "hidden_act": "silu",
    }


def _falcon(d: Described) -> Json:
    sizes, width = _sizes(d), _d_head(d)
    d.only("rope.dimension_count", width)
    newer = d.has("blk.0.attn_norm_2.weight") or sizes["num_key_value_heads"] > 1
    return {
        "model_type": "falcon",
        "vocab_size": sizes["vocab_size"],
        "hidden_size": sizes["hidden_size"],
        "ffn_hidden_size": sizes["intermediate_size"],
        "num_hidden_layers": sizes["num_hidden_layers"],
        "num_attention_heads": sizes["num_attention_heads"],
        "num_kv_heads": sizes["num_key_value_heads"],
        "max_position_embeddings": sizes["max_position_embeddings"],
        "new_decoder_architecture": newer,
        "num_ln_in_parallel_attn": 2 if d.has("blk.0.attn_norm_2.weight") else 1,
        "multi_query": sizes["num_key_value_heads"] == 1,
        "parallel_attn": True,
        "alibi": False,
        "bias": False,
        "layer_norm_epsilon": d.number(LAYER),
        "activation": "gelu",
        "tie_word_embeddings": sizes["tie_word_embeddings"],
        **rope(d, width),
        **d.token_ids(),
    }


def _bloom(d: Described) -> Json:
    sizes = _sizes(d)
    return {
        "model_type": "bloom",
        "vocab_size": sizes["vocab_size"],
        "hidden_size": sizes["hidden_size"],
        "n_layer": sizes["num_hidden_layers"],
        "n_head": sizes["num_attention_heads"],
        "layer_norm_epsilon": d.number(LAYER),
        "tie_word_embeddings": sizes["tie_word_embeddings"],
        **d.token_ids(),
    }


def _mpt(d: Described) -> Json:
    sizes, alibi = _sizes(d), float(d.number("attention.max_alibi_bias", 0.0))
    return {
        "model_type": "mpt",
        "vocab_size": sizes["vocab_size"],
        "d_model": sizes["hidden_size"],
        "n_layers": sizes["num_hidden_layers"],
        "n_heads": sizes["num_attention_heads"],
        "expansion_ratio": sizes["intermediate_size"] // sizes["hidden_size"],
        "max_seq_len": sizes["max_position_embeddings"],
        "attn_config": {"alibi": alibi > 0, "alibi_bias_max": int(alibi), "clip_qkv": d.get("attention.clamp_kqv")},
        "layer_norm_epsilon": d.number(LAYER),
        "no_bias": True,
        "tie_word_embeddings": sizes["tie_word_embeddings"],
        **d.token_ids(),
    }


def _starcoder2(d: Described) -> Json:
    return _decoder(d) | {
        "model_type": "starcoder2",
        "norm_epsilon": d.number(LAYER),
        "norm_type": "layer_norm",
        "use_bias": d.has("blk.0.attn_q.bias"),
        "hidden_act": "gelu_pytorch_tanh",
        "sliding_window": d.get("attention.sliding_window") or None,
    }


def _olmo(d: Described) -> Json:
    d.only(LAYER, 1e-5)
    return _decoder(d) | {"model_type": "olmo", "clip_qkv": d.get("attention.clamp_kqv"), "attention_bias": False}


def _olmo2(d: Described) -> Json:
    return _decoder(d) | {"model_type": "olmo2", "rms_norm_eps": d.number(RMS), "attention_bias": False}


def _command_r(d: Described) -> Json:
    return _decoder(d) | {
        "model_type": "cohere",
        "layer_norm_eps": d.number(LAYER),
        "logit_scale": d.number("logit_scale"),
        "use_qk_norm": d.has("blk.0.attn_q_norm.weight"),
        "attention_bias": False,
    }


def _cohere2(d: Described) -> Json:
    return _decoder(d) | {
        "model_type": "cohere2",
        "layer_norm_eps": d.number(LAYER),
        "logit_scale": d.number("logit_scale"),
        "sliding_window": d.size("attention.sliding_window"),
        "sliding_window_pattern": d.size("attention.sliding_window_pattern", 4),
        "attention_bias": False,
    }


def _granitemoe(d: Described) -> Json:
    config = _granite(d)
    del config["mlp_bias"]
    d.only("expert_shared_feed_forward_length", 0)
    experts = {"num_local_experts": d.size("expert_count"), "num_experts_per_tok": d.size("expert_used_count")}
    return config | experts | {"model_type": "granitemoe"}


def _encoder(d: Described) -> Json:
    """What encoders have."""
    d.only("attention.causal", False)
    sizes = _sizes(d)
    d.only("attention.head_count_kv", sizes.pop("num_key_value_heads"))
    return sizes


def _bert(d: Described) -> Json:
    """BERT, DistilBERT or RoBERTa, whose positions' first rows the converter cuts off."""
    return _encoder(d) | {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "max_position_embeddings": d.rows("position_embd.weight"),
        "type_vocab_size": d.rows("token_types.weight") if d.has("token_types.weight") else 0,
        "layer_norm_eps": d.number(LAYER),
        "hidden_act": "gelu",
        "tie_word_embeddings": True,
    }


def _modernbert(d: Described) -> Json:
    d.only("rope.scaling.type", "none")
    d.only("rope.dimension_count", _d_head(d))
    return _encoder(d) | {
        "model_type": "modernbert",
        "architectures": ["ModernBertModel"],
        "global_rope_theta": d.number("rope.freq_base", 160_000.0),
        "local_rope_theta": d.number("rope.freq_base_swa", 10_000.0),
        "local_attention": d.size("attention.sliding_window"),
        "global_attn_every_n_layers": d.size("attention.sliding_window_pattern", 3),
        "norm_eps": d.number(LAYER),
        "hidden_activation": d.get("hidden_act", "gelu"),
        "tie_word_embeddings": True,
    }


def _gpt_oss(d: Described) -> Json:
    config = _decoder(d, any_width=True)
    if config["rope_scaling"] and config["rope_scaling"]["rope_type"] == "yarn":
        config["rope_scaling"]["truncate"] = False
    layers = range(config["num_hidden_layers"])
    return config | {
        "model_type": "gpt_oss",
        "rms_norm_eps": d.number(RMS),
        "attention_bias": True,
        "intermediate_size": d.size("expert_feed_forward_length"),
        "num_local_experts": d.size("expert_count"),
        "num_experts_per_tok": d.size("expert_used_count"),
        "sliding_window": d.size("attention.sliding_window"),
        "layer_types": ["full_attention" if layer % 2 else "sliding_attention" for layer in layers],
    }


ARCHITECTURES: dict[str, Callable[[Described], Json]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3moe": _qwen3moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma-embedding": _gemma_embedding,
    "gpt2": _gpt2,
    "gptneox": _gptneox,
    "phi2": _phi2,
    "phi3": _phi3,
    "stablelm": _stablelm,
    "falcon": _falcon,
    "bloom": _bloom,
    "mpt": _mpt,
    "starcoder2": _starcoder2,
    "olmo": _olmo,
    "olmo2": _olmo2,
    "granite": _granite,
    "granitemoe": _granitemoe,
    "command-r": _command_r,
    "cohere2": _cohere2,
    "smollm3": _smollm3,
    "gpt-oss": _gpt_oss,
    "bert": _bert,
    "modern-bert": _modernbert,
}
"""``general.architecture`` -> what reads its metadata as a config.json."""

INTERLEAVED = frozenset({"llama", "granite", "granitemoe", "smollm3", "olmo"})
"""Architectures whose converter reorders the rows of queries and keys, so that the two dimensions of a turning pair are
neighbours; the config's family has them half a head apart."""

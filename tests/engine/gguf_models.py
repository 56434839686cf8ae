"""A tiny model of each GGUF architecture: transformers' config, and the metadata that llama.cpp's converter writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

SIZES = {"vocab_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "bos_token_id": 1, "eos_token_id": 2}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip


def sizes(config: Any, **more: Any) -> dict[str, Any]:
    """The keys that every architecture has."""
    d_head = getattr(config, "head_dim", None)
    theta = (getattr(config, "rope_parameters", None) or {}).get("rope_theta")
    keys = {
        "context_length": getattr(config, "max_position_embeddings", None),
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": getattr(config, "num_key_value_heads", None),
        "attention.key_length": d_head,
        "attention.value_length": d_head,
        "rope.freq_base": float(theta) if theta else None,
        "attention.layer_norm_rms_epsilon": getattr(config, "rms_norm_eps", None),
        "tokenizer.ggml.bos_token_id": config.bos_token_id,
        "tokenizer.ggml.eos_token_id": config.eos_token_id,
        **more,
    }
    return {key: value for key, value in keys.items() if value is not None}


def layer_eps(config: Any) -> dict[str, Any]:
    names = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")
    return {"attention.layer_norm_epsilon": next(getattr(config, name) for name in names if hasattr(config, name))}


def turned(config: Any) -> int:
    """Dimensions of a head that turn."""
    return int(config.rope_parameters["partial_rotary_factor"] * config.hidden_size) // config.num_attention_heads


def rope_freqs(d_head: int) -> torch.Tensor:
    """What the converter makes of Llama 3's scaling."""
    freqs = 1.0 / (5e5 ** (torch.arange(0, d_head, 2, dtype=torch.float32) / d_head))
    wavelength = 2 * torch.pi / freqs
    smooth = (8192 / wavelength - 1) / 3
    between = 1 / ((1 - smooth) / 8 + smooth)
    return torch.where(wavelength < 8192 / 4, 1.0, torch.where(wavelength > 8192, 8.0, between)).float()


def experts(config: Any) -> dict[str, Any]:
    n = getattr(config, "num_local_experts", None) or config.num_experts
    return {"expert_count": n, "expert_used_count": config.num_experts_per_tok}


Made = tuple[str, Any, dict[str, Any], dict[str, torch.Tensor]]


def llama(**changes: Any) -> Made:
    config = hf.LlamaConfig(**SIZES | {
        "hidden_size": 32, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 12,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
    } | changes)  # fmt: skip
    return "llama", config, sizes(config, **{"rope.dimension_count": config.head_dim, "vocab_size": 40}), {}


def llama3() -> Made:
    arch, config, keys, _ = llama(head_dim=24, rope_parameters=LLAMA3, tie_word_embeddings=True)
    return arch, config, keys, {"rope_freqs.weight": rope_freqs(24)}


def linear() -> Made:
    arch, config, keys, _ = llama(rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0})
    return arch, config, keys | {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, {}


def yarn() -> Made:
    scaling = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
    arch, config, keys, _ = llama(rope_parameters=scaling)
    more = {"type": "yarn", "factor": 4.0, "original_context_length": 16}
    return arch, config, keys | {f"rope.scaling.{key}": value for key, value in more.items()}, {}


def mixtral() -> Made:
    config = hf.MixtralConfig(
        **SIZES, hidden_size=32, intermediate_size=24, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
        num_local_experts=4, num_experts_per_tok=2, rms_norm_eps=1e-5, sliding_window=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip
    return "llama", config, sizes(config, **experts(config), **{"rope.dimension_count": 8, "vocab_size": 40}), {}


def qwen2(**changes: Any) -> Made:
    config = hf.Qwen2Config(**SIZES | {
        "hidden_size": 32, "intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "tie_word_embeddings": True,
    } | changes)  # fmt: skip
    return "qwen2", config, sizes(config), {}


def qwen3() -> Made:
    config = hf.Qwen3Config(
        **SIZES, hidden_size=32, intermediate_size=48, num_key_value_heads=2, head_dim=10, max_position_embeddings=64,
        rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip
    return "qwen3", config, sizes(config), {}


def qwen3moe() -> Made:
    config = hf.Qwen3MoeConfig(
        **SIZES, hidden_size=32, intermediate_size=48, moe_intermediate_size=20, num_key_value_heads=2, head_dim=10,
        max_position_embeddings=64, rms_norm_eps=1e-6, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip
    return "qwen3moe", config, sizes(config, **experts(config), expert_feed_forward_length=20), {}


def gemma() -> Made:
    config = hf.GemmaConfig(
        **SIZES, hidden_size=32, intermediate_size=48, num_key_value_heads=1, head_dim=12, max_position_embeddings=64,
        rms_norm_eps=1e-6, pad_token_id=0, hidden_activation="gelu_pytorch_tanh",
    )  # fmt: skip
    keys = sizes(config, **{"tokenizer.ggml.padding_token_id": 0})
    del keys["rope.freq_base"]  # the converter leaves it to llama.cpp
    return "gemma", config, keys, {}


def gemma2() -> Made:
    config = hf.Gemma2Config(
        **SIZES, hidden_size=32, intermediate_size=48, num_key_value_heads=2, head_dim=12, max_position_embeddings=64,
        rms_norm_eps=1e-6, query_pre_attn_scalar=12, sliding_window=5, attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0, pad_token_id=0,
    )  # fmt: skip
    more = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention.sliding_window": 5}
    keys = sizes(config, **more, **{"tokenizer.ggml.padding_token_id": 0})
    del keys["rope.freq_base"]
    return "gemma2", config, keys, {}


def gemma3() -> Made:
    whole = {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}
    config = hf.Gemma3TextConfig(
        **SIZES | {"num_hidden_layers": 7}, hidden_size=32, intermediate_size=48, num_key_value_heads=2, head_dim=12,
        max_position_embeddings=64, rms_norm_eps=1e-6, query_pre_attn_scalar=12, sliding_window=5, pad_token_id=0,
        rope_parameters={"full_attention": whole, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
    )  # fmt: skip
    more = {"rope.freq_base": 1e6, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
            "attention.sliding_window": 5, "tokenizer.ggml.padding_token_id": 0, "rope.freq_base_swa": 1e4}  # fmt: skip
    return "gemma3", config, sizes(config, **more), {}


def gemma_embedding() -> Made:
    """The one with layers after its pooling, of which transformers' config and model say nothing."""
    _, causal, keys, _ = gemma3()
    config = hf.Gemma3TextConfig(**causal.to_dict() | {"use_bidirectional_attention": True, "sliding_window": 12})
    more = {"attention.sliding_window": 12, "attention.causal": False, "pooling_type": 1,
            "dense_2_feat_in": 32, "dense_2_feat_out": 40, "dense_3_feat_in": 40, "dense_3_feat_out": 32}  # fmt: skip
    dense = {"dense_2.weight": torch.randn(40, 32), "dense_3.weight": torch.randn(32, 40)}
    return "gemma-embedding", config, keys | more, dense


def gpt2() -> Made:
    config = hf.GPT2Config(
        vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=16, bos_token_id=1, eos_token_id=2
    )
    return "gpt2", config, sizes(config, **layer_eps(config)), {}


def gptneox(parallel: bool = True) -> Made:
    config = hf.GPTNeoXConfig(
        **SIZES, hidden_size=32, intermediate_size=48, max_position_embeddings=64, layer_norm_eps=1e-5,
        use_parallel_residual=parallel, rotary_pct=0.5, tie_word_embeddings=False,
    )  # fmt: skip
    more = {"use_parallel_residual": parallel, "rope.dimension_count": 4, **layer_eps(config)}
    return "gptneox", config, sizes(config, **more), {}


def gptneox_sequential() -> Made:
    return gptneox(parallel=False)


def phi2() -> Made:
    config = hf.PhiConfig(
        **SIZES, hidden_size=32, intermediate_size=128, max_position_embeddings=64, layer_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    )  # fmt: skip
    return "phi2", config, sizes(config, **layer_eps(config), **{"rope.dimension_count": turned(config)}), {}


def phi3() -> Made:
    short, long = [1.0, 1.1, 1.25, 1.5], [1.5, 2.0, 4.0, 8.0]
    config = hf.Phi3Config(
        **SIZES, hidden_size=32, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=64,
        original_max_position_embeddings=16, rms_norm_eps=1e-5, sliding_window=7, pad_token_id=0,
        rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, "short_factor": short, "long_factor": long,
                         "original_max_position_embeddings": 16},
    )  # fmt: skip
    more = {"rope.dimension_count": 8, "rope.scaling.original_context_length": 16, "attention.sliding_window": 7,
            "rope.scaling.attn_factor": (1 + 2 / 4) ** 0.5, "tokenizer.ggml.padding_token_id": 0}  # fmt: skip
    factors = {"rope_factors_short.weight": torch.tensor(short), "rope_factors_long.weight": torch.tensor(long)}
    return "phi3", config, sizes(config, **more), factors


def stablelm(**changes: Any) -> Made:
    config = hf.StableLmConfig(**SIZES | {
        "hidden_size": 32, "intermediate_size": 48, "num_key_value_heads": 4, "max_position_embeddings": 64,
        "layer_norm_eps": 1e-5, "use_qkv_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
    } | changes)  # fmt: skip
    more = {"rope.dimension_count": turned(config), "use_parallel_residual": config.use_parallel_residual}
    return "stablelm", config, sizes(config, **more, **layer_eps(config)), {}


def stablelm_parallel() -> Made:
    return stablelm(use_parallel_residual=True, qk_layernorm=True, use_qkv_bias=False)


def falcon(**changes: Any) -> Made:
    config = hf.FalconConfig(**SIZES | {
        "hidden_size": 32, "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False,
        "alibi": False, "max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    } | changes)  # fmt: skip
    heads = config.num_kv_heads if config.new_decoder_architecture else 1
    more = {"attention.head_count_kv": heads, **layer_eps(config)}
    keys = sizes(config, **more)
    return "falcon", config, {k: v for k, v in keys.items() if "_length" not in k or "attention" not in k}, {}


def falcon_new() -> Made:
    return falcon(new_decoder_architecture=True, num_kv_heads=2)


def bloom() -> Made:
    config = hf.BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
    return "bloom", config, sizes(config, context_length=64, **layer_eps(config)), {}


def starcoder2() -> Made:
    config = hf.Starcoder2Config(
        **SIZES, hidden_size=32, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=64,
        norm_epsilon=1e-5, use_bias=True, rope_parameters={"rope_type": "default", "rope_theta": 1e5},
    )  # fmt: skip
    return "starcoder2", config, sizes(config, **layer_eps(config)), {}


def olmo() -> Made:
    config = hf.OlmoConfig(
        **SIZES, hidden_size=32, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=64, clip_qkv=2.0,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4}, pad_token_id=0,
    )  # fmt: skip
    more = {"attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": 2.0, "tokenizer.ggml.padding_token_id": 0}
    return "olmo", config, sizes(config, **more), {}


def olmo2() -> Made:
    config = hf.Olmo2Config(
        **SIZES, hidden_size=32, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=0, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 5e5},
    )  # fmt: skip
    return "olmo2", config, sizes(config, **{"tokenizer.ggml.padding_token_id": 0}), {}


def granite() -> Made:
    config = hf.GraniteConfig(
        **SIZES, hidden_size=32, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=64,
        rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 1e4}, attention_multiplier=0.25,
        embedding_multiplier=12.0, residual_multiplier=0.5, logits_scaling=8.0, tie_word_embeddings=True,
    )  # fmt: skip
    more = {"attention.scale": 0.25, "embedding_scale": 12.0, "residual_scale": 0.5, "logit_scale": 8.0}
    return "granite", config, sizes(config, **more, **{"rope.dimension_count": 8, "vocab_size": 40}), {}


def command_r() -> Made:
    config = hf.CohereConfig(
        **SIZES, hidden_size=32, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=64,
        logit_scale=0.0625, rope_parameters={"rope_type": "default", "rope_theta": 1e4}, pad_token_id=0,
    )  # fmt: skip
    more = {"logit_scale": 0.0625, "rope.scaling.type": "none", "tokenizer.ggml.padding_token_id": 0}
    return "command-r", config, sizes(config, **more, **layer_eps(config)), {}


def smollm3() -> Made:
    config = hf.SmolLM3Config(
        **SIZES | {"num_hidden_layers": 5}, hidden_size=32, intermediate_size=48, num_key_value_heads=2,
        max_position_embeddings=64, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 2e6},
        pad_token_id=0, tie_word_embeddings=True,
    )  # fmt: skip
    return "smollm3", config, sizes(config, **{"rope.dimension_count": 8, "tokenizer.ggml.padding_token_id": 0}), {}


def granitemoe() -> Made:
    config = hf.GraniteMoeConfig(
        **SIZES, hidden_size=32, intermediate_size=20, num_key_value_heads=2, max_position_embeddings=64,
        rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 1e4}, attention_multiplier=0.25,
        embedding_multiplier=12.0, residual_multiplier=0.5, logits_scaling=8.0, num_local_experts=4,
        num_experts_per_tok=2,
    )  # fmt: skip
    more = {
        "attention.scale": 0.25,
        "embedding_scale": 12.0,
        "residual_scale": 0.5,
        "logit_scale": 8.0,
        "vocab_size": 40,
    }
    return "granitemoe", config, sizes(config, **more, **experts(config), **{"rope.dimension_count": 8}), {}


def cohere2() -> Made:
    config = hf.Cohere2Config(
        **SIZES | {"num_hidden_layers": 5}, hidden_size=32, intermediate_size=48, num_key_value_heads=2,
        max_position_embeddings=64, logit_scale=0.0625, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        pad_token_id=0, sliding_window=5,
    )  # fmt: skip
    more = {"logit_scale": 0.0625, "rope.scaling.type": "none", "rope.dimension_count": 8,
            "attention.sliding_window": 5, "vocab_size": 40, "tokenizer.ggml.padding_token_id": 0}  # fmt: skip
    return "cohere2", config, sizes(config, **more, **layer_eps(config)), {}


def mpt() -> Made:
    config = hf.MptConfig(
        vocab_size=40, d_model=32, n_layers=2, n_heads=4, max_seq_len=64, bos_token_id=1, eos_token_id=2,
        attn_config={"alibi": True, "alibi_bias_max": 8, "clip_qkv": 6.0},
    )  # fmt: skip
    more = {"context_length": 64, "attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 6.0}
    return "mpt", config, sizes(config, **more, **{"attention.layer_norm_epsilon": 1e-5}), {}


def gpt_oss() -> Made:
    scaling = {"rope_type": "yarn", "rope_theta": 15e4, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
               "truncate": False, "original_max_position_embeddings": 4096}  # fmt: skip
    config = hf.GptOssConfig(
        **SIZES, hidden_size=32, intermediate_size=20, num_key_value_heads=2, head_dim=16, sliding_window=5,
        max_position_embeddings=131072, num_local_experts=4, num_experts_per_tok=2, rms_norm_eps=1e-5,
        rope_parameters=scaling,
    )  # fmt: skip
    more = {"attention.sliding_window": 5, "expert_feed_forward_length": 20, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096,
            "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0}  # fmt: skip
    return "gpt-oss", config, sizes(config, **more, **experts(config)), {}


def bert() -> Made:
    config = hf.BertConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=16, layer_norm_eps=1e-12, pad_token_id=0,
    )  # fmt: skip
    more = {"attention.causal": False, "pooling_type": 1, "tokenizer.ggml.padding_token_id": 0}
    return "bert", config, sizes(config, **more, **layer_eps(config)), {}


def modernbert() -> Made:
    config = hf.ModernBertConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, local_attention=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
        sep_token_id=2,
    )  # fmt: skip
    more = {"attention.causal": False, "attention.sliding_window": 8, "attention.sliding_window_pattern": 3,
            "rope.scaling.type": "none", "rope.freq_base": 16e4, "rope.freq_base_swa": 1e4, "vocab_size": 40,
            "tokenizer.ggml.padding_token_id": 0, "attention.layer_norm_epsilon": 1e-5}  # fmt: skip
    return "modern-bert", config, sizes(config, **more), {}


MODELS: dict[str, Callable[[], Made]] = {
    made.__name__: made
    for made in (
        llama, llama3, linear, yarn, mixtral, qwen2, qwen3, qwen3moe, gemma, gemma2, gemma3,
        gemma_embedding, gpt2, gptneox,
        gptneox_sequential, phi2, phi3, stablelm, stablelm_parallel, falcon, falcon_new, bloom, starcoder2, olmo, olmo2,
        granite, command_r, smollm3, granitemoe, cohere2, mpt, gpt_oss, bert, modernbert,
    )
}  # fmt: skip

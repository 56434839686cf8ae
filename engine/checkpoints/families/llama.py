"""Llama (1, 2) as Hugging Face stores it: pre-norm RMSNorm, half-rotated RoPE, GQA, SwiGLU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config import ModelConfig
from engine.errors import CheckpointError

IGNORED_TENSORS = ("model.layers.*.self_attn.rotary_emb.inv_freq",)

NO_EFFECT = frozenset(
    [
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "dtype",
        "initializer_range",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    ]
)
"""Keys that do not change the forward pass; none of them is read."""

USED = frozenset(
    [
        "attention_bias",
        "bos_token_id",
        "eos_token_id",
        "head_dim",
        "hidden_act",
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
        "mlp_bias",
        "model_type",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "pad_token_id",
        "pretraining_tp",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "tie_word_embeddings",
        "vocab_size",
    ]
)
"""Keys that are read: here, and ``model_type`` where the family is found."""

NAMES = {
    "embed.weight": "model.embed_tokens.weight",
    "ln_final.weight": "model.norm.weight",
    "unembed.weight": "lm_head.weight",
}
IN_BLOCK = {
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.out": "self_attn.o_proj",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}


def config(raw: Mapping[str, Any], name: str) -> ModelConfig:
    """ModelConfig of a ``LlamaForCausalLM`` config.json. A key that it does not know is refused by name."""
    if unknown := sorted(set(raw) - NO_EFFECT - USED):
        raise CheckpointError(
            f"{name}: config.json has {unknown[0][:80]!r}, which layerstep does not know for llama; refused"
        )

    def need(key: str) -> Any:
        if key not in raw:
            raise CheckpointError(f"{name}: config.json lacks {key!r}")
        return raw[key]

    if raw.get("pretraining_tp", 1) != 1:
        raise CheckpointError(f"{name}: only pretraining_tp 1 is supported, but it is {raw['pretraining_tp']!r}"[:300])
    if (act := raw.get("hidden_act", "silu")) != "silu":
        raise CheckpointError(f"{name}: llama's hidden_act must be 'silu', but is {act!r}"[:300])
    heads, d_model = need("num_attention_heads"), need("hidden_size")
    head_dim = raw.get("head_dim")
    if head_dim is None:
        if not isinstance(heads, int) or not isinstance(d_model, int) or heads < 1:
            raise CheckpointError(
                f"{name}: num_attention_heads and hidden_size must be numbers, but are {heads!r} and {d_model!r}"[:300]
            )
        head_dim = d_model // heads
    eos = raw.get("eos_token_id")
    return ModelConfig.from_json(
        {
            "name": name,
            "d_vocab": need("vocab_size"),
            "d_model": d_model,
            "n_layers": need("num_hidden_layers"),
            "n_heads": heads,
            "n_kv_heads": raw.get("num_key_value_heads"),
            "d_head": head_dim,
            "d_mlp": need("intermediate_size"),
            "n_ctx": raw.get("max_position_embeddings", 2048),
            "positions": "rotary",
            "rotary_theta": _theta(raw, name),
            "norm": "rms",
            "norm_eps": raw.get("rms_norm_eps", 1e-6),
            "attn_bias": raw.get("attention_bias", False),
            "attn_out_bias": raw.get("attention_bias", False),
            "activation": "silu",
            "gated": True,
            "mlp_bias": raw.get("mlp_bias", False),
            "tied": raw.get("tie_word_embeddings", False),
            "bos_token_id": raw.get("bos_token_id"),
            "eos_token_id": eos[0] if isinstance(eos, list) and eos else eos,
            "pad_token_id": raw.get("pad_token_id"),
        }
    )


def _theta(raw: Mapping[str, Any], name: str) -> Any:
    """The rotary base, in either spelling; a scaled rotary embedding is refused."""
    theta = raw.get("rope_theta", 10_000.0)
    for key in ("rope_parameters", "rope_scaling"):
        scaling = raw.get(key)
        if scaling is None:
            continue
        if not isinstance(scaling, Mapping):
            raise CheckpointError(f"{name}: {key} must be an object, but is {scaling!r}"[:200])
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        if kind != "default":
            raise CheckpointError(f"{name}: rope_type {kind!r} is not supported yet, only 'default'"[:200])
        if unknown := sorted(set(scaling) - {"rope_type", "type", "rope_theta"}):
            raise CheckpointError(f"{name}: {key} has {unknown[0][:80]!r}, which layerstep does not know; refused")
        theta = scaling.get("rope_theta", theta)
    return theta


def tensor_name(param: str) -> str:
    """The file's name of one of the program's weights."""
    if param in NAMES:
        return NAMES[param]
    _, layer, rest = param.split(".", 2)
    stem, kind = rest.rsplit(".", 1)
    return f"model.layers.{layer}.{IN_BLOCK[stem]}.{kind}"

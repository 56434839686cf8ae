"""Llama (1, 2, 3) as Hugging Face stores it: pre-norm RMSNorm, half-rotated RoPE, GQA, SwiGLU."""

from __future__ import annotations

from typing import Any

from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation, d_head, kv_heads, rotary
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "model.embed_tokens.weight",
    "ln_final.weight": "model.norm.weight",
    "unembed.weight": "lm_head.weight",
}
BLOCK = "model.layers.{}"
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
IGNORED = ("model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")
"""Tables that older files hold and that follow from the config."""


def canonical(name: str) -> str:
    """Files of the bare model lack the prefix."""
    return name if name.startswith(("model.", "lm_head.")) else f"model.{name}"


def stack(
    c: Fields,
    *,
    n_ctx: int,
    kv: int | None = None,
    head: int | None = None,
    theta: float = 10_000.0,
    eps: float = 1e-6,
    share: float | None = None,
    original: int | None = None,
) -> dict[str, Any]:
    """ModelConfig's fields of Llama and of the families that vary it; the numbers are the family's defaults."""
    c.only("is_encoder_decoder", False)
    c.only("add_cross_attention", False)
    c.ignore("is_decoder")
    longest, head = c.size("max_position_embeddings", default=n_ctx), d_head(c, head)
    return {
        "name": c.where,
        "d_vocab": c.size("vocab_size"),
        "d_model": c.size("hidden_size"),
        "n_layers": c.size("num_hidden_layers", most=4096),
        "n_heads": c.size("num_attention_heads"),
        "n_kv_heads": kv_heads(c, kv),
        "d_head": head,
        "d_mlp": c.size("intermediate_size"),
        "n_ctx": longest,
        "positions": "rotary",
        "rotary": rotary(c, head, theta=theta, share=share, n_ctx=longest, original=original),
        "norm": "rms",
        "norm_eps": c.get("rms_norm_eps", eps),
        "activation": activation(c, "hidden_act", "silu"),
        "gated": True,
        "tied": c.get("tie_word_embeddings", False),
    }


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``LlamaForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("pretraining_tp", 1)
    c.only("rope_interleaved", False)  # SmolLM's, like the next
    c.ignore("is_llama_config", "max_sequence_length")
    biased = c.get("attention_bias", False)
    read = ModelConfig.from_json(
        stack(c, n_ctx=2048)
        | {"attn_bias": biased, "attn_out_bias": biased, "mlp_bias": c.get("mlp_bias", False)}
        | c.token_ids(bos=1, eos=2)
    )
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK), canonical, IGNORED)

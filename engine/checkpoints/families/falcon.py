"""Falcon as Hugging Face stores it: 7B (one key-value head, parallel), 40B and 180B (groups, two norms), 11B (groups,
one norm) and the RefinedWeb models (ALiBi, one after the other)."""

from __future__ import annotations

from math import sqrt
from typing import Any

from engine.checkpoints.families.bloom import slopes
from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.fused import QKV, fused_qkv
from engine.checkpoints.traits import activation, rotary
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "transformer.word_embeddings.weight",
    "ln_final.weight": "transformer.ln_f.weight",
    "ln_final.bias": "transformer.ln_f.bias",
    "unembed.weight": "lm_head.weight",
}
IN_BLOCK = {
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "attn.out": "self_attention.dense",
    "mlp.up": "mlp.dense_h_to_4h",
    "mlp.down": "mlp.dense_4h_to_h",
}
TWO_NORMS = {"ln1": "ln_attn", "ln2": "ln_mlp"}
_plain = by_table(OUTSIDE, "transformer.h.{}", IN_BLOCK)


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``FalconForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("apply_residual_connection_post_layernorm", False)
    c.ignore("ff_factor")  # transformers reads only ffn_hidden_size
    width, heads = c.size("hidden_size"), c.size("num_attention_heads", most=4096)
    if width % heads:
        raise c.refusal(f"hidden_size {width} is no multiple of num_attention_heads {heads}")
    biased = c.get("bias", False)
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": c.size("vocab_size"),
            "d_model": width,
            "n_layers": c.size("num_hidden_layers"),
            "n_heads": heads,
            "d_head": width // heads,
            "d_mlp": c.size("ffn_hidden_size", default=4 * width),
            "n_ctx": c.size("max_position_embeddings", default=2048),
            "norm_eps": c.get("layer_norm_epsilon", 1e-5),
            "attn_bias": biased,
            "attn_out_bias": biased,
            "activation": activation(c, "activation", "gelu"),
            "mlp_bias": biased,
            "tied": c.get("tie_word_embeddings", True),
            **_layout(c, heads),
            **_positions(c, heads, width // heads),
            **c.token_ids(bos=11, eos=11),
        }
    )
    c.done()
    return read


def _layout(c: Fields, heads: int) -> dict[str, Any]:
    """Key-value heads and norms, of the first architecture or of the new one."""
    new, multi_query = c.only("new_decoder_architecture", False, True), c.only("multi_query", True, False)
    parallel = c.only("parallel_attn", True, False)
    norms = c.only("num_ln_in_parallel_attn", *((2, 1) if new else (1,)))
    if new and not parallel:
        raise c.refusal("new_decoder_architecture has parallel attention only, but parallel_attn is false")
    kv_heads = c.size("num_kv_heads", default=heads)
    if not new:
        kv_heads = 1 if multi_query else heads
    return {"n_kv_heads": kv_heads, "parallel": ("no", "one norm", "two norms")[norms if parallel else 0]}


def _positions(c: Fields, heads: int, d_head: int) -> dict[str, Any]:
    """Rotary positions, or ALiBi that is rounded and added before the scores are scaled."""
    turning = rotary(c, d_head, n_ctx=c.size("max_position_embeddings", default=2048))
    if not c.only("alibi", False, True):
        return {"positions": "rotary", "rotary": turning}
    scaled = {"alibi_scale": 1 / sqrt(d_head), "alibi_rounded": True}
    return {"positions": "alibi", "alibi_slopes": slopes(heads), **scaled}


def source(param: str, config: ModelConfig) -> Source:
    """q, k and v in one tensor, by groups of heads that share a key; all else by name."""
    found = in_block(param)
    if found is not None:
        layer, stem, kind = found
        block = f"transformer.h.{layer}"
        if stem in QKV:
            return fused_qkv(f"{block}.self_attention.query_key_value.{kind}", stem, config, groups=config.kv_heads)
        if stem in TWO_NORMS and config.parallel == "two norms":
            return Source(f"{block}.{TWO_NORMS[stem]}.{kind}")
    return _plain(param, config)


def canonical(name: str) -> str:
    """Files of the bare model lack the prefix."""
    return name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"


FAMILY = Family(config, source, canonical, ignored=("transformer.h.*.self_attention.*rotary*.inv_freq",))

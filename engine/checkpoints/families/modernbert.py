"""ModernBERT: a pre-norm encoder with rotary positions, GeGLU and, in most layers, windows. (Warner et al. 2024)"""

from __future__ import annotations

from engine.checkpoints.families.bert import UNUSED, even_heads, predicts, refuse_other_stacks
from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.fused import QKV, fused_gate_up, fused_qkv
from engine.checkpoints.traits import activation, layer_kinds, layer_types, rotary
from engine.config import LayerKind, ModelConfig

OUTSIDE = {
    "embed.weight": "embeddings.tok_embeddings.weight",
    "embed_ln.weight": "embeddings.norm.weight",
    "embed_ln.bias": "embeddings.norm.bias",
    "ln_final.weight": "final_norm.weight",
    "ln_final.bias": "final_norm.bias",
    "head.weight": "head.dense.weight",
    "head.bias": "head.dense.bias",
    "head_ln.weight": "head.norm.weight",
    "head_ln.bias": "head.norm.bias",
    "unembed.weight": "decoder.weight",
    "unembed.bias": "decoder.bias",
}
IN_BLOCK = {"ln1": "attn_norm", "attn.out": "attn.Wo", "ln2": "mlp_norm", "mlp.down": "mlp.Wo"}


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``ModernBertForMaskedLM``, or of the stack alone.

    ``local_attention`` is the whole width of a window, so a key is seen half of it to either side.
    """
    refuse_other_stacks(c)
    c.ignore(
        *UNUSED, "classifier_pooling", "deterministic_flash_attn", "embedding_dropout",
        "initializer_cutoff_factor", "layer_norm_eps", "mlp_dropout", "position_embedding_type",
        "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction",
    )  # fmt: skip
    d_model, n_layers, heads = c.size("hidden_size"), c.size("num_hidden_layers"), c.size("num_attention_heads")
    d_head = even_heads(c, d_model, heads)
    every = _size(c, "global_attn_every_n_layers", 3)
    types = layer_types(c, n_layers, ["sliding_attention" if i % every else "full_attention" for i in range(n_layers)])
    theta = c.get("global_rope_theta", 160_000.0)
    local_theta = c.get("local_rope_theta", theta if "local_rope_theta" in c.raw else 10_000.0)
    turn = {
        name: rotary(c, d_head, theta=base, layer_type=name)
        for name, base in (("full_attention", theta), ("sliding_attention", local_theta))
    }
    kinds = {
        "full_attention": LayerKind(name="full", rotary=turn["full_attention"]),
        "sliding_attention": LayerKind(
            name="sliding", window=_size(c, "local_attention", 128) // 2 + 1, rotary=turn["sliding_attention"]
        ),
    }
    head = predicts(c, "ModernBertForMaskedLM")
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": c.size("vocab_size"),
            "d_model": d_model,
            "n_layers": n_layers,
            "n_heads": heads,
            "d_head": d_head,
            "d_mlp": c.size("intermediate_size"),
            "n_ctx": c.get("max_position_embeddings", 8192),
            "positions": "rotary",
            **layer_kinds(c, types, kinds),
            "embed_norm": True,
            "norm_eps": c.get("norm_eps", 1e-5),
            "norm_bias": c.get("norm_bias", False),
            "first_norm": False,
            "causal": False,
            "attn_bias": c.get("attention_bias", False),
            "attn_out_bias": c.get("attention_bias", False),
            "activation": activation(c, "hidden_activation", "gelu"),
            "gated": True,
            "mlp_bias": c.get("mlp_bias", False),
            "head": head,
            "head_activation": activation(c, "classifier_activation", "gelu"),
            "head_bias": c.get("classifier_bias", False),
            "tied": c.get("tie_word_embeddings", True),
            "unembed_bias": c.get("decoder_bias", True) and head != "none",
            **c.token_ids(),
        }
    )
    c.done()
    return read


def _size(c: Fields, key: str, default: int) -> int:
    return default if c.get(key) is None else c.size(key)


_named = by_table(OUTSIDE, "layers.{}", IN_BLOCK)


def source(param: str, config: ModelConfig) -> Source:
    """By the table, or some rows of a fused matrix."""
    if (found := in_block(param)) is not None:
        layer, stem, kind = found
        if stem in QKV:
            return fused_qkv(f"layers.{layer}.attn.Wqkv.{kind}", stem, config)
        if stem in ("mlp.gate", "mlp.up"):
            return fused_gate_up(f"layers.{layer}.mlp.Wi.{kind}", stem, config)
    return _named(param, config)


FAMILY = Family(
    config,
    source,
    canonical=lambda name: name.removeprefix("model."),
    ignored=("head.dense.*", "head.norm.*", "decoder.*", "classifier.*"),
)

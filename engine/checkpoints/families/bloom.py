"""BLOOM: ALiBi, a LayerNorm after the embedding, and queries, keys and values of a head side by side in one matrix."""

from __future__ import annotations

from math import log2

from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.fused import QKV, fused_qkv
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "word_embeddings.weight",
    "embed_ln.weight": "word_embeddings_layernorm.weight",
    "embed_ln.bias": "word_embeddings_layernorm.bias",
    "ln_final.weight": "ln_f.weight",
    "ln_final.bias": "ln_f.bias",
    "unembed.weight": "lm_head.weight",
}
IN_BLOCK = {
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "attn.q": "self_attention.query_key_value",
    "attn.k": "self_attention.query_key_value",
    "attn.v": "self_attention.query_key_value",
    "attn.out": "self_attention.dense",
    "mlp.up": "mlp.dense_h_to_4h",
    "mlp.down": "mlp.dense_4h_to_h",
}


def slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's slopes, 2^(−8i/n); beyond a power of two, every other one of twice as many. (Press et al. 2021)"""
    n = 2 ** int(log2(heads))
    first = [2 ** (-8 * i / n) for i in range(1, n + 1)]
    between = [2 ** (-8 * i / (2 * n)) for i in range(1, 2 * n, 2)]
    return tuple(first + between[: heads - n])


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``BloomForCausalLM`` config.json. Its GELU's √(2/π) has 8 digits; ours has all."""
    width, heads = c.size("n_embed", "hidden_size"), c.size("n_head", "num_attention_heads", most=4096)
    if width % heads:
        raise c.refusal(f"hidden_size {width} is no multiple of its {heads} heads")
    c.only("apply_residual_connection_post_layernorm", False)
    c.only("n_inner", 4 * width)
    if c.only("slow_but_exact", False, True) and c.get("pretraining_tp", 1) != 1:
        raise c.refusal("slow_but_exact leaves out biases with pretraining_tp above 1, and is not supported")
    c.ignore(
        "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "offset_alibi", "pretraining_pp",
        "pretraining_tp", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id",
    )  # fmt: skip
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": c.size("vocab_size"),
            "d_model": width,
            "n_layers": c.size("n_layer", "num_hidden_layers", most=4096),
            "n_heads": heads,
            "d_head": width // heads,
            "d_mlp": 4 * width,
            "n_ctx": c.get("seq_length", 2048),
            "positions": "alibi",
            "alibi_slopes": slopes(heads),
            "embed_norm": True,
            "norm_eps": c.get("layer_norm_epsilon", 1e-5),
            "attn_bias": True,
            "attn_out_bias": True,
            "activation": "gelu_tanh",
            "mlp_bias": True,
            "tied": c.get("tie_word_embeddings", True),
            **c.token_ids(bos=1, eos=2),
        }
    )
    c.done()
    return read


NAMED = by_table(OUTSIDE, "h.{}", IN_BLOCK)


def source(param: str, config: ModelConfig) -> Source:
    """The tensor of a weight, and for q, k and v every head's third of it."""
    where, found = NAMED(param, config), in_block(param)
    if found is None or found[1] not in QKV:
        return where
    return fused_qkv(where.name, found[1], config, groups=config.n_heads)


FAMILY = Family(config, source, canonical=lambda name: name.removeprefix("transformer."))

"""MPT: ALiBi or learned positions, no biases as a rule, queries, keys and values in one matrix.

transformers reads only what MosaicML's own models use of the config. Where it passes over a key (``alibi_bias_max``,
``alibi`` false, ``logit_scale``, ``no_bias`` false, ``expansion_ratio``), MosaicML's code decides, as the weights were
trained with it.
"""

from __future__ import annotations

from math import ceil, log2, sqrt

from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.fused import QKV, fused_qkv
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "wte.weight",
    "pos_embed.weight": "wpe.weight",
    "ln_final.weight": "norm_f.weight",
    "ln_final.bias": "norm_f.bias",
    "unembed.weight": "lm_head.weight",
}
IN_BLOCK = {
    "ln1": "norm_1",
    "ln2": "norm_2",
    "attn.q": "attn.Wqkv",
    "attn.k": "attn.Wqkv",
    "attn.v": "attn.Wqkv",
    "attn.out": "attn.out_proj",
    "mlp.up": "ffn.up_proj",
    "mlp.down": "ffn.down_proj",
}


def slopes(heads: int, bias_max: float = 8) -> tuple[float, ...]:
    """ALiBi's slopes, 2^(−m·i/n); beyond a power of two those of the next one, every other first. (MosaicML)"""
    n = 2 ** ceil(log2(heads))
    all_of = [2 ** (-bias_max * i / n) for i in range(1, n + 1)]
    return tuple(all_of if n == heads else (all_of[1::2] + all_of[::2])[:heads])


def config(c: Fields) -> ModelConfig:
    """ModelConfig of an ``MptForCausalLM`` config.json."""
    width, heads = c.size("d_model", "hidden_size"), c.size("n_heads", "num_attention_heads", most=4096)
    if width % heads:
        raise c.refusal(f"d_model {width} is no multiple of n_heads {heads}")
    c.only("norm_type", "low_precision_layernorm", "layernorm")
    c.only("norm_eps", 1e-5)
    c.only("fc_type", "torch")
    if c.get("ffn_config") is not None:
        ffn = c.part("ffn_config")
        ffn.only("ffn_type", "mptmlp")
        ffn.ignore("fc_type")
        ffn.done()
    c.ignore(
        "emb_pdrop", "embedding_fraction", "init_config", "init_device", "tokenizer_name", "use_pad_tok_in_ffn",
        "verbose",
    )  # fmt: skip
    biased = not c.only("no_bias", True, False)
    attention = _attention(c, heads)
    learned = c.only("learned_pos_emb", True, False) and attention.get("positions") != "alibi"
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": c.size("vocab_size"),
            "d_model": width,
            "n_layers": c.size("n_layers", "num_hidden_layers"),
            "n_heads": heads,
            "d_head": width // heads,
            "d_mlp": int(c.positive("expansion_ratio", 4) * width),
            "n_ctx": c.get("max_seq_len", 2048),
            "positions": "learned" if learned else "none",
            "norm_eps": c.get("layer_norm_epsilon", 1e-5),
            "norm_bias": biased,
            "attn_bias": biased,
            "attn_out_bias": biased,
            "activation": "gelu",
            "mlp_bias": biased,
            "tied": c.get("tie_word_embeddings", True),
            "logit_scale": _logit_scale(c, width),
            **attention,
            **c.token_ids(),
        }
    )
    c.done()
    return read


def _attention(c: Fields, heads: int) -> dict[str, object]:
    """What ``attn_config`` says; a key in it that is not known is refused like any other."""
    if c.get("attn_config") is None:
        return {"positions": "alibi", "alibi_slopes": slopes(heads)}
    a = c.part("attn_config")
    a.family = f"{c.family} attn_config"
    a.only("attn_type", "multihead_attention")
    a.only("kv_n_heads", heads)
    for key in ("attn_uses_sequence_id", "prefix_lm", "qk_gn", "qk_ln", "rope"):
        a.only(key, False)
    a.only("sliding_window_size", -1)
    a.ignore("attn_impl", "rope_dail_config", "rope_hf_config", "rope_impl", "rope_theta")
    a.ignore(  # transformers writes every config's own keys into this part too
        "add_cross_attention", "cross_attention_hidden_size", "is_decoder", "is_encoder_decoder", "pruned_heads",
        "tie_encoder_decoder", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
    )  # fmt: skip
    read: dict[str, object] = {"attn_scale": a.get("softmax_scale"), "qkv_clip": a.get("clip_qkv") or None}
    bias_max = a.positive("alibi_bias_max", 8)
    if a.only("alibi", True, False):
        read |= {"positions": "alibi", "alibi_slopes": slopes(heads, bias_max)}
    a.done()
    return read


def _logit_scale(c: Fields, width: int) -> object:
    given = c.get("logit_scale", 1.0)
    return 1 / sqrt(width) if given == "inv_sqrt_d_model" else given


NAMED = by_table(OUTSIDE, "blocks.{}", IN_BLOCK)


def source(param: str, config: ModelConfig) -> Source:
    """The tensor of a weight, and for q, k and v their third of its rows."""
    where, found = NAMED(param, config), in_block(param)
    return where if found is None or found[1] not in QKV else fused_qkv(where.name, found[1], config)


FAMILY = Family(config, source, canonical=lambda name: name.removeprefix("transformer."))

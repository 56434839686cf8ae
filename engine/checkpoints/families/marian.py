"""Marian, the translators of OPUS-MT: the 2017 paper's encoder and decoder. (Junczys-Dowmunt et al. 2018)"""

from __future__ import annotations

from math import sqrt

from engine.checkpoints.family import Family, Source, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation
from engine.config import ModelConfig
from engine.sites import ENCODER

IN_BLOCK = {
    **{f"attn.{x}": f"self_attn.{x}_proj" for x in ("q", "k", "v", "out")},
    **{f"cross_attn.{x}": f"encoder_attn.{x}_proj" for x in ("q", "k", "v", "out")},
    "ln1": "self_attn_layer_norm",
    "ln_cross": "encoder_attn_layer_norm",
    "ln2": "final_layer_norm",
    "mlp.up": "fc1",
    "mlp.down": "fc2",
}


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``MarianMTModel`` config.json."""
    c.only("is_encoder_decoder", True)
    c.only("share_encoder_decoder_embeddings", True)
    c.only("static_position_embeddings", True)
    c.only("add_bias_logits", False)
    for key in ("is_decoder", "normalize_before", "normalize_embedding", "add_final_layer_norm"):
        c.only(key, False)
    vocabulary, d_model = c.size("vocab_size"), c.size("d_model")
    c.only("decoder_vocab_size", vocabulary)
    heads, d_mlp = c.size("encoder_attention_heads"), c.size("encoder_ffn_dim")
    c.only("decoder_attention_heads", heads)
    c.only("decoder_ffn_dim", d_mlp)
    c.ignore(
        "_num_labels", "activation_dropout", "classif_dropout", "decoder_layerdrop", "encoder_layerdrop",
        "extra_pos_embeddings", "init_std", "num_hidden_layers",
    )  # fmt: skip
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": vocabulary,
            "d_model": d_model,
            "encoder_layers": c.size("encoder_layers"),
            "n_layers": c.size("decoder_layers"),
            "n_heads": heads,
            "d_head": d_model // heads,
            "d_mlp": d_mlp,
            "n_ctx": c.get("max_position_embeddings", 1024),
            "positions": "sinusoidal",
            "sinusoid_style": "halves",
            "embed_scale": sqrt(d_model) if c.get("scale_embedding", False) else 1.0,
            "embed_scale_rounded": False,
            "norm_place": "post",
            "activation": activation(c, "activation_function", "gelu"),
            "attn_bias": True,
            "attn_out_bias": True,
            "mlp_bias": True,
            "tied": c.get("tie_word_embeddings", True),
            "unembed_bias": True,
            "decoder_start_token_id": c.get("decoder_start_token_id", 58100),
            **c.token_ids(eos=0, pad=58100),
        }
    )
    c.done()
    return read


def source(param: str, config: ModelConfig) -> Source:
    """A weight's name; the logits' bias is stored as a row."""
    stack = "encoder" if param.startswith(ENCODER) else "decoder"
    if param == "unembed.bias":
        return Source("final_logits_bias", lambda bias: bias[0], (1, config.d_vocab))
    if param in ("embed.weight", "unembed.weight"):
        return Source("model.shared.weight" if param == "embed.weight" else "lm_head.weight")
    found = in_block(param.removeprefix(ENCODER))
    assert found is not None, param
    layer, stem, kind = found
    return Source(f"model.{stack}.layers.{layer}.{IN_BLOCK[stem]}.{kind}")


FAMILY = Family(
    config,
    source,
    ignored=(
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
        "model.encoder.embed_positions.weight",
        "model.decoder.embed_positions.weight",
    ),
)

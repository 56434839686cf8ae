"""T5 (1.0, 1.1, Flan) and mT5: encoder and decoder with a relative position bias and RMSNorm. (Raffel et al. 2019)"""

from __future__ import annotations

from engine.checkpoints.family import Family, Source, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import ACTIVATIONS
from engine.config import ModelConfig
from engine.sites import ENCODER

OUTSIDE = {
    "embed.weight": "shared.weight",
    "unembed.weight": "lm_head.weight",
    "relative_bias.weight": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "ln_final.weight": "decoder.final_layer_norm.weight",
}
SELF = {"ln1": "0.layer_norm"} | {f"attn.{x}": f"0.SelfAttention.{x[0]}" for x in ("q", "k", "v", "out")}
CROSS = {"ln_cross": "1.layer_norm"} | {f"cross_attn.{x}": f"1.EncDecAttention.{x[0]}" for x in ("q", "k", "v", "out")}


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``T5ForConditionalGeneration`` config.json."""
    multilingual = c.family == "mt5"
    gate, _, name = str(c.get("feed_forward_proj", "gated-gelu" if multilingual else "relu")).rpartition("-")
    name = "gelu_new" if (gate, name) == ("gated", "gelu") else name
    if gate not in ("", "gated") or name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise c.refusal(f"feed_forward_proj must be NAME or gated-NAME with one of {known}, but is {gate}-{name}")
    c.only("is_encoder_decoder", True)
    c.only("is_decoder", False)
    c.ignore("dropout_rate", "initializer_factor", "is_gated_act", "dense_act_fn", "output_past")
    d_model, n_layers = c.size("d_model"), c.size("num_layers")
    # T5 1.0 scales the stream before the tied head; 1.1, told by this flag alone, and mT5 do not.
    scales = c.get("scale_decoder_outputs", c.get("tie_word_embeddings", True)) and not multilingual
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": c.size("vocab_size"),
            "d_model": d_model,
            "encoder_layers": n_layers,
            "n_layers": c.get("num_decoder_layers", n_layers),
            "n_heads": c.size("num_heads"),
            "d_head": c.size("d_kv"),
            "d_mlp": c.size("d_ff"),
            "n_ctx": c.get("n_positions", 512),
            "positions": "relative",
            "relative_buckets": c.get("relative_attention_num_buckets", 32),
            "relative_distance": c.get("relative_attention_max_distance", 128),
            "attn_scale": 1.0,
            "norm": "rms",
            "norm_eps": c.get("layer_norm_epsilon", 1e-6),
            "activation": ACTIVATIONS[name],
            "gated": gate == "gated",
            "logit_scale": d_model**-0.5 if scales else 1.0,
            "tied": True,
            "decoder_start_token_id": c.get("decoder_start_token_id", c.get("pad_token_id", 0)),
            **c.token_ids(eos=1, pad=0),
        }
    )
    c.done()
    return read


def source(param: str, config: ModelConfig) -> Source:
    """A weight's name; the FFN is the last of a block's layers, and its gate comes first of two."""
    stack = "encoder" if param.startswith(ENCODER) else "decoder"
    own = param.removeprefix(ENCODER)
    if own in OUTSIDE:
        return Source(OUTSIDE[own].replace("decoder", stack, 1))
    found = in_block(own)
    assert found is not None, param
    layer, stem, kind = found
    last = 1 if stack == "encoder" else 2
    up = "wi_1" if config.gated else "wi"
    names = SELF | CROSS | {"ln2": f"{last}.layer_norm"}
    names |= {f"mlp.{x}": f"{last}.DenseReluDense.{y}" for x, y in (("gate", "wi_0"), ("up", up), ("down", "wo"))}
    return Source(f"{stack}.block.{layer}.layer.{names[stem]}.{kind}")


FAMILY = Family(
    config,
    source,
    ignored=(
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    ),
)

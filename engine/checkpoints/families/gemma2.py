"""Gemma 2 as Hugging Face stores it: Gemma, with soft caps, every second layer a sliding window, and four norms."""

from __future__ import annotations

from engine.checkpoints.families.gemma import shared
from engine.checkpoints.families.llama import BLOCK, OUTSIDE, canonical
from engine.checkpoints.families.llama import IN_BLOCK as LLAMA
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation, layer_kinds, layer_types, rotary, window
from engine.config import LayerKind, ModelConfig

IN_BLOCK = LLAMA | {
    "ln1_post": "post_attention_layernorm",
    "ln2": "pre_feedforward_layernorm",
    "ln2_post": "post_feedforward_layernorm",
}


def cap(c: Fields, key: str, default: float | None) -> float | None:
    """A soft cap; null in the file turns it off. Raises CheckpointError where it is no number above 0."""
    if c.get(key, default if key not in c.raw else None) is None:
        return None
    return c.positive(key, default or 0.0)


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``Gemma2ForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("use_bidirectional_attention", False)
    c.ignore("hidden_act", "sliding_window_size")  # said again in published files, and not read by transformers
    fields = shared(c)
    turning = rotary(c, fields["d_head"])
    kinds = {
        "sliding_attention": LayerKind(name="sliding", window=window(c, 4096), rotary=turning),
        "full_attention": LayerKind(name="full", rotary=turning),
    }
    usual = ["full_attention" if layer % 2 else "sliding_attention" for layer in range(fields["n_layers"])]
    read = ModelConfig.from_json(
        fields
        | layer_kinds(c, layer_types(c, fields["n_layers"], usual), kinds)
        | {
            "norm_place": "sandwich",
            "attn_scale": c.positive("query_pre_attn_scalar", 256) ** -0.5,
            "attn_softcap": cap(c, "attn_logit_softcapping", 50.0),
            "logit_softcap": cap(c, "final_logit_softcapping", 30.0),
            "activation": activation(c, "hidden_activation", "gelu_pytorch_tanh"),
        }
    )
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK), canonical)

"""Granite: Llama with four multipliers, for the embedding, the scores, what a sub-layer adds, and the logits."""

from __future__ import annotations

from typing import Any

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, canonical, stack
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.config import ModelConfig


def multiplied(c: Fields) -> dict[str, Any]:
    """ModelConfig's fields, but for the FFN's biases and experts."""
    biased = c.get("attention_bias", False)
    return (
        stack(c, n_ctx=2048)
        | {
            "embed_scale": c.get("embedding_multiplier", 1.0),
            "embed_scale_rounded": False,  # a plain number there, no tensor
            "attn_bias": biased,
            "attn_out_bias": biased,
            "attn_scale": c.get("attention_multiplier", 1.0),
            "residual_scale": c.get("residual_multiplier", 1.0),
            "logit_scale": 1 / c.positive("logits_scaling", 1.0),
        }
        | c.token_ids(bos=1, eos=2)
    )


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``GraniteForCausalLM`` config.json. A key that it does not know is refused by name."""
    read = ModelConfig.from_json(multiplied(c) | {"mlp_bias": c.get("mlp_bias", False)})
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK), canonical, IGNORED)

"""OLMo 1 as Hugging Face stores it: Llama with a LayerNorm that learns nothing, and bounded q, k and v."""

from __future__ import annotations

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, canonical, stack
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.config import ModelConfig


def config(c: Fields) -> ModelConfig:
    """ModelConfig of an ``OlmoForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("pretraining_tp", 1)
    biased = c.get("attention_bias", False)
    read = ModelConfig.from_json(
        stack(c, n_ctx=2048)
        | {
            "norm": "layer",
            "norm_eps": 1e-5,
            "norm_weight": False,
            "attn_bias": biased,
            "attn_out_bias": biased,
            "qkv_clip": None if c.get("clip_qkv") is None else c.positive("clip_qkv", 8.0),
        }
        | c.token_ids(eos=50279, pad=1)
    )
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK), canonical, IGNORED)

"""Qwen3 as Hugging Face stores it: Llama with normalised queries and keys, and heads of a width of their own."""

from __future__ import annotations

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, canonical, stack
from engine.checkpoints.families.qwen2 import windowed
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.config import ModelConfig

NORMED = IN_BLOCK | {"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm"}


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``Qwen3ForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("mlp_bias", False)
    biased = c.get("attention_bias", False)
    read = ModelConfig.from_json(
        windowed(c, stack(c, n_ctx=32_768, kv=32, head=128))
        | {"attn_bias": biased, "attn_out_bias": biased, "qk_norm": "head"}
        | c.token_ids()
    )
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, NORMED), canonical, IGNORED)

"""Mistral as Hugging Face stores it: Llama, and in some releases a window in every layer. (Jiang et al. 2023)"""

from __future__ import annotations

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, canonical, stack
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import window
from engine.config import ModelConfig


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``MistralForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("attention_bias", False)
    c.only("mlp_bias", False)
    read = ModelConfig.from_json(
        stack(c, n_ctx=131_072, kv=8) | {"window": window(c, 4096)} | c.token_ids(bos=1, eos=2)
    )
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK), canonical, IGNORED)

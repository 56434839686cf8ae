"""Qwen2 and Qwen2.5 as Hugging Face stores them: Llama with biased queries, keys and values. (Yang et al. 2024)"""

from __future__ import annotations

from typing import Any

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, canonical, stack
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields, short
from engine.checkpoints.traits import layer_kinds, layer_types, window
from engine.config import LayerKind, ModelConfig


def windowed(c: Fields, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a stack in which some layers may have a window: from ``max_window_layers`` on, or as listed."""
    turning, n_layers = fields["rotary"], fields["n_layers"]
    width, first = window(c, 4096), c.get("max_window_layers", 28)
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        raise c.refusal(f"max_window_layers must be a number of layers, but is {short(first)}")
    width = width if c.only("use_sliding_window", False, True) else None
    first = n_layers if width is None else first
    usual = ["full_attention" if layer < first else "sliding_attention" for layer in range(n_layers)]
    names = layer_types(c, n_layers, usual)
    if width is None and "sliding_attention" in names:
        raise c.refusal("layer_types names sliding_attention, but use_sliding_window and sliding_window give no window")
    kinds = {
        "full_attention": LayerKind(name="full", rotary=turning),
        "sliding_attention": LayerKind(name="sliding", rotary=turning, window=width),
    }
    return {key: value for key, value in fields.items() if key != "rotary"} | layer_kinds(c, names, kinds)


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``Qwen2ForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("use_mrope", False)
    c.only("mlp_bias", False)
    c.only("attention_bias", True)
    read = ModelConfig.from_json(windowed(c, stack(c, n_ctx=32_768, kv=32)) | {"attn_bias": True} | c.token_ids())
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK), canonical, IGNORED)

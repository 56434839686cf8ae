"""Cohere (Command R): attention and FFN side by side after one LayerNorm without bias, interleaved rotary pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, canonical, stack
from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.config import ModelConfig

NAMED = by_table(OUTSIDE, BLOCK, IN_BLOCK)


def side_by_side(c: Fields, theta: float) -> dict[str, Any]:
    """ModelConfig's fields, but for the norms of queries and keys."""
    fields, biased = stack(c, n_ctx=8192, theta=theta), c.get("attention_bias", False)
    return (
        fields
        | {
            "rotary": replace(fields["rotary"], style="interleaved"),
            "norm": "layer",
            "norm_eps": c.get("layer_norm_eps", 1e-5),
            "norm_bias": False,
            "parallel": "one norm",
            "attn_bias": biased,
            "attn_out_bias": biased,
            "tied": c.get("tie_word_embeddings", True),
            "logit_scale": c.get("logit_scale", 0.0625),
        }
        | c.token_ids(bos=5, eos=255_001, pad=0)
    )


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``CohereForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.ignore("model_max_length")
    normed = c.only("use_qk_norm", False, True)
    read = ModelConfig.from_json(side_by_side(c, 500_000.0) | {"qk_norm": "heads" if normed else "none"})
    c.done()
    return read


def source(param: str, config: ModelConfig) -> Source:
    """The tensor of a weight; of a head's norm, its row of all heads'."""
    found = in_block(param)
    if found is None or not found[1].startswith(("attn.q_norm.", "attn.k_norm.")):
        return NAMED(param, config)
    layer, stem, kind = found
    role, head = stem.removeprefix("attn.").split(".")
    heads = config.n_heads if role == "q_norm" else config.kv_heads

    def row(every: Tensor) -> Tensor:
        return every[int(head)]

    return Source(f"{BLOCK.format(layer)}.self_attn.{role}.{kind}", row, (heads, config.d_head))


FAMILY = Family(config, source, canonical, IGNORED)

"""Gemma 1 as Hugging Face stores it: scaled embedding, RMSNorm by 1 + w, heads of a width of their own, GeGLU."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from types import MappingProxyType
from typing import Any

from engine.checkpoints.families.llama import BLOCK, IN_BLOCK, OUTSIDE, canonical
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import rotary
from engine.config import ModelConfig

NO_DEFAULTS: Mapping[str, int] = MappingProxyType({})


def shared(c: Fields, sizes: Mapping[str, int] = NO_DEFAULTS) -> dict[str, Any]:
    """What all generations have in common. ``sizes`` are the family's where its files leave them out."""

    def size(key: str, most: int = 2**31) -> int:
        return c.size(key, default=sizes.get(key), most=most)

    c.ignore("cache_implementation")
    d_model, biased = size("hidden_size"), c.get("attention_bias", False)
    return {
        "name": c.where,
        "d_vocab": size("vocab_size"),
        "d_model": d_model,
        "n_layers": size("num_hidden_layers", most=4096),
        "n_heads": size("num_attention_heads"),
        "n_kv_heads": size("num_key_value_heads"),
        "d_head": c.size("head_dim", default=256),
        "d_mlp": size("intermediate_size"),
        "n_ctx": c.size("max_position_embeddings", default=sizes.get("max_position_embeddings", 8192)),
        "positions": "rotary",
        "embed_scale": sqrt(d_model),
        "norm": "rms",
        "norm_eps": c.get("rms_norm_eps", 1e-6),
        "norm_plus_one": True,
        "norm_casts_last": True,
        "attn_bias": biased,
        "attn_out_bias": biased,
        "gated": True,
        "tied": c.get("tie_word_embeddings", True),
        **c.token_ids(bos=2, eos=1, pad=0),
    }


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``GemmaForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("use_bidirectional_attention", False)
    for key in ("hidden_act", "hidden_activation"):  # the first files say "gelu" and mean its tanh form
        c.only(key, "gelu_pytorch_tanh", "gelu")
    fields = shared(c)
    read = ModelConfig.from_json(fields | {"rotary": rotary(c, fields["d_head"]), "activation": "gelu_tanh"})
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK), canonical)

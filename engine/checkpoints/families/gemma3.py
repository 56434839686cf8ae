"""Gemma 3, its multimodal folders' text model, and EmbeddingGemma, as Hugging Face stores them.

Gemma 2 without caps, with q/k norm, and with rotary positions of two kinds: five layers of six see a window and turn
with θ = 1e4, the sixth sees everything and turns with θ = 1e6 and the scaling. EmbeddingGemma looks both ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine.checkpoints.families.gemma import shared
from engine.checkpoints.families.gemma2 import IN_BLOCK as GEMMA2
from engine.checkpoints.families.gemma2 import cap
from engine.checkpoints.families.llama import BLOCK, OUTSIDE
from engine.checkpoints.families.llama import canonical as prefixed
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation, layer_kinds, layer_types, rotary, window
from engine.config import LayerKind, ModelConfig, Rotary

IN_BLOCK = GEMMA2 | {"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm"}
SIZES = {
    "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131_072,
}  # fmt: skip
"""Published multimodal configs name only what differs from these."""
SEES = ("vision_tower.", "multi_modal_projector.")
"""What the multimodal model has beside its text model."""


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a config.json of the text model, or of the multimodal one, whose text model is read."""
    if c.family != "gemma3":
        return _text(c, c.architecture == "Gemma3TextModel", tied=True, ids={})
    c.ignore(
        "vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index",
        "boi_token_id", "eoi_token_id", "image_token_id",
    )  # fmt: skip
    ids = {key: value for key, value in c.token_ids().items() if value is not None}
    read = _text(c.part("text_config"), False, tied=c.get("tie_word_embeddings", True), ids=ids)
    c.done()
    return read


def _text(c: Fields, headless: bool, tied: Any, ids: dict[str, Any]) -> ModelConfig:
    """The text model. ``tied`` and ``ids`` are what is said outside of it."""
    c.only("attn_logit_softcapping", None)  # transformers does not apply it
    c.ignore("_sliding_window_pattern")
    fields = shared(c, SIZES)
    d_head, n_ctx = fields["d_head"], fields["n_ctx"]
    both_ways, size = c.only("use_bidirectional_attention", False, True), window(c, 4096)
    if both_ways and size is not None:
        size = size // 2 + 1  # of which half lies on each side
    kinds = {
        "sliding_attention": LayerKind(name="sliding", window=size, rotary=_local(c, d_head, n_ctx)),
        "full_attention": LayerKind(
            name="full", rotary=rotary(c, d_head, theta=1e6, layer_type="full_attention", n_ctx=n_ctx)
        ),
    }
    every = c.size("sliding_window_pattern", default=6)
    usual = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(fields["n_layers"])]
    read = ModelConfig.from_json(
        fields
        | layer_kinds(c, layer_types(c, fields["n_layers"], usual), kinds)
        | {
            "norm_place": "sandwich",
            "causal": not both_ways,
            "qk_norm": "head",
            "attn_scale": c.positive("query_pre_attn_scalar", 256) ** -0.5,
            "logit_softcap": cap(c, "final_logit_softcapping", None),
            "activation": activation(c, "hidden_activation", "gelu_pytorch_tanh"),
            "head": "none" if headless else "unembed",
            "tied": c.get("tie_word_embeddings", tied),
        }
        | ids
    )
    c.done()
    return read


def _local(c: Fields, d_head: int, n_ctx: int) -> Rotary:
    """The rotary embedding of layers with a window, which the older key ``rope_scaling`` says nothing of."""
    given = c.get("rope_parameters", {})
    if not isinstance(given, Mapping) or (given and not {"sliding_attention", "full_attention"} & set(given)):
        raise c.refusal("rope_parameters must hold an object for sliding_attention and one for full_attention")
    local = {
        "rope_theta": c.get("rope_local_base_freq", 1e4),
        "rope_parameters": given.get("sliding_attention"),
        "rope_scaling": None,
    }
    return rotary(Fields({**c.raw, **local}, c.where), d_head, n_ctx=n_ctx)


def canonical(name: str) -> str:
    """The text model's names; in multimodal files it stands in a part of its own, spelled in two ways."""
    name = re.sub(r"^(language_model\.model|model\.language_model)\.", "model.", name)
    name = re.sub(r"^language_model\.lm_head\.", "lm_head.", name)
    seen = name.removeprefix("model.")
    return seen if seen.startswith(SEES) else prefixed(name)


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK), canonical, tuple(f"{part}*" for part in SEES))

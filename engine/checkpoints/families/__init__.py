"""One short file per family; this table says which ``model_type`` each reads."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from engine.checkpoints.family import Family
from engine.errors import CheckpointError
from engine.text import display

FAMILIES: dict[str, str] = {
    "layerstep": "native",
    "gpt2": "gpt2",
    "llama": "llama",
    "mistral": "mistral",
    "mixtral": "mixtral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3_moe",
    "gpt_neox": "gpt_neox",
    "phi": "phi",
    "phi3": "phi3",
    "gptj": "gptj",
    "opt": "opt",
    "falcon": "falcon",
    "gpt_bigcode": "gpt_bigcode",
    "bert": "bert",
    "camembert": "roberta",
    "distilbert": "distilbert",
    "modernbert": "modernbert",
    "roberta": "roberta",
    "xlm-roberta": "roberta",
    "bloom": "bloom",
    "cohere": "cohere",
    "cohere2": "cohere2",
    "granite": "granite",
    "granitemoe": "granitemoe",
    "mpt": "mpt",
    "stablelm": "stablelm",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt_oss",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "smollm3": "smollm3",
    "starcoder2": "starcoder2",
    "t5": "t5",
    "mt5": "t5",
    "marian": "marian",
}
"""``model_type`` -> the module here whose ``FAMILY`` reads it; only that one is imported."""


def family_of(raw: Mapping[str, Any], where: str) -> Family:
    """The family named by ``model_type``. Raises CheckpointError, with those that are known, where it is none."""
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        if kind is None:
            what = 'config.json has no model_type, so its family is unknown; add it, e.g. "model_type": "bert"'
        else:
            what = f"model_type {display(str(kind))[:80]!r} is not supported"
        raise CheckpointError(f"{where}: {what}; supported are {known}")
    family: Family = import_module(f"{__name__}.{FAMILIES[kind]}").FAMILY
    return family

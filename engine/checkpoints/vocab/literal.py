"""A tokenizer that reads the names of control tokens as ordinary text."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers

_UNSPELLABLE = "\ufdd0"
"""A code point that Unicode promises never to make a character."""


def is_switch_enough(inner: tokenizers.Tokenizer) -> bool:
    """Whether `encode_special_tokens` makes a control token's name text.

    It only keeps the name from being cut out beforehand. A Unigram model, and BPE that takes whole words as they are,
    would still find it in their vocabulary.
    """
    return type(inner.model).__name__ != "Unigram" and not getattr(inner.model, "ignore_merges", False)


def without(inner: tokenizers.Tokenizer, names: Collection[str]) -> tokenizers.Tokenizer:
    """The same tokenizer, giving the same ids, to which these names mean nothing."""
    import tokenizers

    whole = json.loads(inner.to_str())
    whole["added_tokens"] = [token for token in whole["added_tokens"] if token["content"] not in names]
    model = whole["model"]
    rename = {name: _UNSPELLABLE + name for name in names}
    if isinstance(model["vocab"], dict):
        model["vocab"] = {rename.get(piece, piece): id for piece, id in model["vocab"].items()}
    else:
        model["vocab"] = [[rename.get(piece, piece), score] for piece, score in model["vocab"]]
    if model.get("unk_token") in rename:
        model["unk_token"] = rename[model["unk_token"]]
    return tokenizers.Tokenizer.from_str(json.dumps(whole))

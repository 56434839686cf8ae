"""BERT's WordPiece from `vocab.txt`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints.vocab.files import MAX_VOCABULARY_BYTES, read_text, refuse_many

if TYPE_CHECKING:
    import tokenizers


def build(file: Path, config: Mapping[str, Any], unk: str) -> tokenizers.Tokenizer:
    """A tokenizer as transformers' BertTokenizer makes it of these settings, without what is put around a text."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    text = read_text(file, MAX_VOCABULARY_BYTES).removesuffix("\n")
    refuse_many(text.count("\n"), "lines", file)
    lines = text.split("\n")
    vocab = {line.rstrip(): id for id, line in enumerate(lines)}
    inner = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unk))
    strip_accents = config.get("strip_accents")
    inner.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True) is not False,
        strip_accents=strip_accents if isinstance(strip_accents, bool) else None,
        lowercase=config.get("do_lower_case", True) is not False,
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(prefix="##")
    return inner

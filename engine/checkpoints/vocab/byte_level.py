"""Byte-level BPE from GPT-2's `vocab.json` and `merges.txt`, or from tiktoken's file of ranked byte strings."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.checkpoints.vocab.files import MAX_PIECES, MAX_VOCABULARY_BYTES, read_object, read_text, refuse_many
from engine.errors import TokenizerError
from engine.pieces import CHAR_OF_BYTE
from engine.text import display

if TYPE_CHECKING:
    import tokenizers

MAX_RANKS: Final = 2**19
"""The largest of tiktoken's vocabularies has 200,000."""
MAX_SPLITS: Final = 2**26
"""Ways to cut tokens in two that are tried when looking for merges."""

_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN: Final = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""How Qwen cuts a text into words: cl100k's pattern with digits one by one."""
LLAMA3: Final = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
"""How Llama 3 cuts a text into words: cl100k's pattern."""


def read_vocab(folder: Path) -> dict[str, int]:
    """The ids of `vocab.json`. Raises TokenizerError where it is damaged."""
    vocab = read_object(folder / "vocab.json", MAX_VOCABULARY_BYTES)
    ids = set(vocab.values()) if all(type(id) is int and 0 <= id < 2**31 for id in vocab.values()) else set()
    if not vocab or len(ids) != len(vocab):
        raise TokenizerError(f"{display(str(folder / 'vocab.json'))} does not give every token an id of its own")
    return vocab


def from_vocab_and_merges(folder: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary and the merges, best first. Raises TokenizerError where they are damaged."""
    vocab = read_vocab(folder)
    merges = []
    text = read_text(folder / "merges.txt", MAX_VOCABULARY_BYTES)
    refuse_many(text.count("\n"), "lines", folder / "merges.txt", 2 * MAX_PIECES)
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line or line.startswith("#version"):
            continue
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise TokenizerError(f"{display(str(folder / 'merges.txt'))} line {number:,} is not two pieces")
        merges.append((left, right))
    return vocab, merges


def is_ranked(data: bytes) -> bool:
    """Whether a file begins as tiktoken's do: a byte string in base64, and its rank."""
    token, _, rank = data[:4096].partition(b"\n")[0].strip().partition(b" ")
    try:
        return bool(base64.b64decode(token, validate=True)) and rank.isdigit()
    except binascii.Error:
        return False


def from_ranks(data: bytes, where: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary and merges of tiktoken's ranks: any two byte strings that make a third, best rank first."""
    refuse_many(data.count(b"\n"), "lines", where, MAX_RANKS)
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        token, _, rank = line.strip().partition(b" ")
        try:
            piece = base64.b64decode(token, validate=True)
        except binascii.Error:
            piece = b""
        if not piece or piece in ranks or not (rank.isdigit() and len(rank) < 10):
            raise TokenizerError(f"{display(where)} line {number:,} is not a byte string in base64 and its rank")
        ranks[piece] = int(rank)
    if len(set(ranks.values())) != len(ranks):
        raise TokenizerError(f"{display(where)} gives one rank to two byte strings")
    if sum(len(piece) ** 2 for piece in ranks) > MAX_SPLITS:
        raise TokenizerError(f"{display(where)}: the byte strings are too long to look for their merges")
    found = sorted(
        (rank, ranks[piece[:cut]], ranks[piece[cut:]], piece, cut)
        for piece, rank in ranks.items()
        for cut in range(1, len(piece))
        if piece[:cut] in ranks and piece[cut:] in ranks
    )
    letters = {piece: "".join(map(CHAR_OF_BYTE.__getitem__, piece)) for piece in ranks}
    return (
        {letters[piece]: rank for piece, rank in ranks.items()},
        [(letters[piece[:cut]], letters[piece[cut:]]) for _, _, _, piece, cut in found],
    )


def build(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    pattern: str = "",
    nfc: bool = False,
    prefix_space: bool = False,
    whole_first: bool = False,
) -> tokenizers.Tokenizer:
    """A byte-level tokenizer.

    ``pattern`` cuts a text into words, by default GPT-2's own; ``whole_first`` takes a word that is a token as it is,
    as tiktoken does, without asking whether merges lead there.
    """
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    inner = tokenizers.Tokenizer(models.BPE(dict(vocab), list(merges), ignore_merges=whole_first))
    if nfc:
        inner.normalizer = normalizers.NFC()
    letters: Any = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=not pattern)
    if pattern:
        words = pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
        letters = pre_tokenizers.Sequence([words, letters])
    inner.pre_tokenizer = letters
    inner.decoder = decoders.ByteLevel()
    return inner

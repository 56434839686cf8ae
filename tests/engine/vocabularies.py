"""Small tokenizers of every format, written as the files that stand in real model folders."""

import base64
import io
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = [
    "The server crashed because the disk was full.",
    "Once upon a time there was a little dog who said hello to the world.",
    "Dear Sam, I hope that the weather is well, and that the cat has two homes.",
    "dog bites man and man bites dog; i ⭢ j, 地球 and a thumb 👍 are here, 123 naïve cafés ½ ﬁ Å",
] * 5
WORDS = [
    "the", " ", "  ", "dog", "\n", "\n\n", "\t", "server", " hello", "crash", "'s", "'S", "x", "Z", "123", "é", "地",
    "👍", "a\u0301", "½", "ﬁ", "Ünï", "▁", "<s>", "</s>", "<unk>", "<pad>", "<0x0A>", "<|x|>", "<|eos|>", "[SEP]",
    "[MASK]", "<extra_id_0>", "<sep>",
]  # fmt: skip
"""What random texts are made of: every kind of blank, letters outside the vocabularies, names of special tokens."""


def special(content: str, **flags: bool) -> dict[str, Any]:
    """A row of added_tokens_decoder."""
    plain = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": content, **plain, "special": True, **flags}


def write(folder: Path, **files: object) -> Path:
    """JSON files by their names without ending."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def byte_level() -> Tokenizer:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        special_tokens=["<|bos|>", "<|eos|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXTS, trainer)
    return inner


def vocab_and_merges(folder: Path) -> Path:
    """GPT-2's two files; 380 tokens, the first three special."""
    model = json.loads(byte_level().to_str())["model"]
    assert len(model["vocab"]) == 380
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8")
    merges = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]
    (folder / "merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")
    return folder


def word_pieces(folder: Path) -> Path:
    """BERT's vocab.txt."""
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    inner.train_from_iterator(
        [*TEXTS, *map(str.lower, TEXTS)],
        trainers.WordPieceTrainer(vocab_size=220, special_tokens=names, show_progress=False),
    )
    vocab = inner.get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.__getitem__)) + "\n", encoding="utf-8")
    return folder


def sentencepiece_model(**options: Any) -> bytes:
    """A SentencePiece model, trained by SentencePiece."""
    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=out, minloglevel=9, hard_vocab_limit=False, **options
    )
    return out.getvalue()


def ranks() -> dict[bytes, int]:
    """tiktoken's ranks, of the same vocabulary as `byte_level` without its special tokens."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    alphabet = {char: byte for byte, char in bytes_to_unicode().items()}
    vocab = sorted(byte_level().get_vocab().items(), key=lambda item: item[1])[3:]
    pieces = [bytes(alphabet[char] for char in piece) for piece, _ in vocab]
    return {piece: rank for rank, piece in enumerate(sorted(pieces, key=lambda piece: len(piece) > 1))}


def rank_file() -> bytes:
    return b"".join(base64.b64encode(piece) + f" {rank}\n".encode() for piece, rank in ranks().items())

"""SentencePiece's `tokenizer.model`: its protobuf message read field by field, and built into a `tokenizers.Tokenizer`.

The field numbers are those of sentencepiece_model.proto. The building follows SentencePiece's own normalizer
(normalizer.cc) and models (unigram_model.cc, bpe_model.cc) as far as the library's parts can say them.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from engine.checkpoints.vocab.files import MAX_PIECES
from engine.errors import TokenizerError
from engine.text import display

if TYPE_CHECKING:
    import tokenizers

MAX_SPLITS: Final = 2**26
"""Ways to cut pieces in two that are tried when looking for merges; Gemma's 256,000 pieces have two million."""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_MODELS: Final = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_SPACE: Final = "▁"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the vocabulary; its id is its place."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclass(frozen=True, slots=True)
class SentencePiece:
    """What a SentencePiece model says of cutting a text."""

    pieces: Sequence[Piece]
    model: str = "unigram"
    byte_fallback: bool = False
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    charsmap: bytes = b""
    """The compiled table of a Unicode normalization; empty for none."""
    dummy_prefix: bool = True
    """Whether a space is put before the text."""
    squeezes: bool = True
    """Whether spaces at the ends go, and several become one."""

    @property
    def unk_id(self) -> int:
        return next(id for id, piece in enumerate(self.pieces) if piece.kind == UNKNOWN)

    def named(self) -> dict[str, str]:
        """The special tokens by their names in a tokenizer_config.json."""
        ids = {"bos": self.bos_id, "eos": self.eos_id, "pad": self.pad_id, "unk": self.unk_id}
        return {f"{role}_token": self.pieces[id].text for role, id in ids.items() if 0 <= id < len(self.pieces)}


# --- reading ----------------------------------------------------------------------------------------------


def parse(data: bytes) -> SentencePiece:
    """Read a ModelProto. Raises TokenizerError where it is damaged, or asks for what is not supported."""
    pieces: list[Piece] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for number, value in _fields(data):
        if number == 1:
            if len(pieces) >= MAX_PIECES:
                raise _damaged(f"more than {MAX_PIECES:,} pieces")
            pieces.append(_piece(_bytes(value)))
        elif number in (2, 3):
            (trainer if number == 2 else normalizer).update(_fields(_bytes(value)))
    kind = _MODELS.get(_int(trainer.get(3, 1)), "unknown")
    _check(pieces, kind, trainer, normalizer)
    return SentencePiece(
        pieces,
        kind,
        byte_fallback=bool(_int(trainer.get(35, 0))),
        bos_id=_int(trainer.get(41, 1)),
        eos_id=_int(trainer.get(42, 2)),
        pad_id=_int(trainer.get(43, -1)),
        charsmap=bytes(_bytes(normalizer.get(2, b""))),
        dummy_prefix=bool(_int(normalizer.get(3, 1))),
        squeezes=bool(_int(normalizer.get(4, 1))),
    )


def _check(pieces: Sequence[Piece], kind: str, trainer: Mapping[int, Any], normalizer: Mapping[int, Any]) -> None:
    texts = {piece.text for piece in pieces}
    if not pieces or len(texts) != len(pieces):
        raise _damaged("it has no pieces" if not pieces else "a piece is there twice")
    if sum(piece.kind == UNKNOWN for piece in pieces) != 1:
        raise _damaged("it has not exactly one piece for unknown text")
    if kind not in ("unigram", "bpe"):
        raise TokenizerError(f"a SentencePiece model of type {kind} is not supported, only unigram and bpe")
    if any(piece.kind == UNUSED for piece in pieces):
        raise TokenizerError("a SentencePiece model with unused pieces is not supported")
    if _int(trainer.get(24, 0)):
        raise TokenizerError("a SentencePiece model with treat_whitespace_as_suffix is not supported")
    if not _int(normalizer.get(5, 1)):
        raise TokenizerError("a SentencePiece model without escape_whitespaces is not supported")
    if _int(trainer.get(35, 0)) and not texts >= {f"<0x{byte:02X}>" for byte in range(256)}:
        raise _damaged("it falls back to bytes, but lacks a piece for one")


def _piece(data: memoryview) -> Piece:
    fields = dict(_fields(data))
    try:
        text = bytes(_bytes(fields.get(1, b""))).decode("utf-8")
    except UnicodeDecodeError:
        raise _damaged("a piece is no text") from None
    score, kind = fields.get(2, 0.0), _int(fields.get(3, NORMAL))
    if not text or not isinstance(score, float) or not math.isfinite(score) or not NORMAL <= kind <= BYTE:
        raise _damaged(f"piece {display(text)[:40]!r} has a wrong score or type")
    return Piece(text, score, kind)


def _fields(data: bytes | memoryview) -> Iterator[tuple[int, int | float | memoryview]]:
    """The fields of a protobuf message: their numbers and values. Nothing is copied, every length is checked."""
    view, at = memoryview(data), 0
    while at < len(view):
        key, at = _varint(view, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(view, at)
            yield number, value - 2**64 if value >= 2**63 else value
            continue
        size = {1: 8, 5: 4}.get(wire, -1)
        if wire == 2:
            size, at = _varint(view, at)
        if size < 0 or size > len(view) - at:
            raise _damaged(f"a field at byte {at:,} is cut or of an unknown kind")
        part, at = view[at : at + size], at + size
        yield number, struct.unpack("<f", part)[0] if wire == 5 else part


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            break
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise _damaged(f"a number at byte {at:,} is cut or too long")


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise _damaged("a number is something else")
    return value


def _bytes(value: object) -> memoryview:
    if isinstance(value, bytes):
        return memoryview(value)
    if not isinstance(value, memoryview):
        raise _damaged("a text is something else")
    return value


def _damaged(why: str) -> TokenizerError:
    return TokenizerError(f"the SentencePiece model is damaged: {why}")


# --- building ---------------------------------------------------------------------------------------------


def build(model: SentencePiece, extra: Sequence[str] = (), every_chunk: bool = True) -> tokenizers.Tokenizer:
    """A tokenizer that cuts as SentencePiece does.

    ``extra`` are pieces after the model's own. ``every_chunk`` puts the space before the text between special tokens
    too, and not only before the first (transformers calls it legacy). Control tokens are made special; the pieces that
    users defined are cut out first, as SentencePiece does it.
    """
    import tokenizers

    user_defined = [piece.text for piece in model.pieces if piece.kind == USER_DEFINED]
    # They are cut out once the space is put before the text, or where there is none by the library's own means.
    cut_first = user_defined if model.dummy_prefix else []
    core = _unigram(model, extra) if model.model == "unigram" else _bpe(model, extra, bool(cut_first))
    inner = tokenizers.Tokenizer(core)
    inner.normalizer = _normalizer(model)
    if cuts := _cuts(model, cut_first, every_chunk):
        inner.pre_tokenizer = cuts
    inner.decoder = _decoder(model)
    if not cut_first:
        inner.add_tokens([tokenizers.AddedToken(text, normalized=True) for text in user_defined])
    special = [piece.text for piece in model.pieces if piece.kind in (CONTROL, UNKNOWN)] + list(extra)
    inner.add_special_tokens([tokenizers.AddedToken(text, normalized=False, special=True) for text in special])
    return inner


def _normalizer(model: SentencePiece) -> Any:
    from tokenizers import Regex, normalizers

    steps: list[Any] = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    if model.squeezes:  # spaces only: other blanks are letters to SentencePiece
        steps.append(normalizers.Replace(Regex(r"\A +| +\z"), ""))
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])


def _cuts(model: SentencePiece, cut_first: Sequence[str], every_chunk: bool) -> Any:
    from tokenizers import Regex, pre_tokenizers

    cuts: list[Any] = []
    if model.dummy_prefix:
        # The first puts a plain space before the text, which then has none of its own; the second writes it as ▁.
        # One Metaspace alone would put none before a text that begins with a space.
        scheme = "always" if every_chunk else "first"
        cuts.append(pre_tokenizers.Metaspace(" ", prepend_scheme=scheme, split=False))
        cuts.append(pre_tokenizers.Metaspace(_SPACE, prepend_scheme="never", split=False))
    if cut_first:
        either = "|".join(map(re.escape, sorted(cut_first, key=len, reverse=True)))
        cuts.append(pre_tokenizers.Split(Regex(either), behavior="isolated"))
    return pre_tokenizers.Sequence(cuts) if cuts else None


def _decoder(model: SentencePiece) -> Any:
    from tokenizers import decoders

    steps: list[Any] = [decoders.Replace(_SPACE, " ")]
    if model.byte_fallback:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Fuse())
    if model.dummy_prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)


def renumbered(model: SentencePiece, ids: Mapping[str, int]) -> tuple[SentencePiece, list[int]]:
    """The model's pieces under the ids of a `vocab.json`, as Marian has it; the ids at the end that mean unknown.

    Pieces that only the ids know are never found in a text. Pieces that only the model knows are still cut out, and are
    then unknown. Raises TokenizerError where the ids have gaps.
    """
    if sorted(ids.values()) != list(range(len(ids))) or not {"<unk>", "</s>"} <= set(ids):
        raise TokenizerError("vocab.json must number its pieces from 0 without a gap, with <unk> and </s> among them")
    own = {piece.text: piece for piece in model.pieces if piece.kind in (NORMAL, USER_DEFINED)}
    control = {"</s>": CONTROL, "<pad>": CONTROL, "<unk>": UNKNOWN}
    pieces = [
        own.get(text) or Piece(text, kind=CONTROL if _is_language(text) else control.get(text, UNUSED))
        for text in sorted(ids, key=ids.__getitem__)
    ]
    more = [piece for text, piece in own.items() if text not in ids]
    return replace(model, pieces=[*pieces, *more]), list(range(len(ids), len(ids) + len(more)))


def _is_language(text: str) -> bool:
    return text.startswith(">>") and text.endswith("<<")


def _unigram(model: SentencePiece, extra: Sequence[str]) -> Any:
    from tokenizers.models import Unigram

    lowest = min((p.score for p in model.pieces if p.kind == NORMAL), default=0.0)
    # Text that spells `</s>` or `<0x0A>` is text to SentencePiece; the library would find the piece.
    unreachable = lowest - 1000.0
    pieces = [(p.text, p.score if p.kind in (NORMAL, USER_DEFINED) else unreachable) for p in model.pieces]
    pieces += [(text, unreachable) for text in extra]
    return Unigram(pieces, unk_id=model.unk_id, byte_fallback=model.byte_fallback)


def _bpe(model: SentencePiece, extra: Sequence[str], whole: bool) -> Any:
    from tokenizers.models import BPE

    vocab = {text: id for id, text in enumerate([*(p.text for p in model.pieces), *extra])}
    merges = merges_of(model.pieces)
    unk = model.pieces[model.unk_id].text
    # `whole`: a piece that users defined was cut out before, and no merges lead to it.
    return BPE(vocab, merges, unk_token=unk, fuse_unk=True, byte_fallback=model.byte_fallback, ignore_merges=whole)


def merges_of(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """The merges of a SentencePiece BPE model: any two pieces that make a third, best score first."""
    normal = {piece.text: (-piece.score, id) for id, piece in enumerate(pieces) if piece.kind == NORMAL}
    if sum(len(text) ** 2 for text in normal) > MAX_SPLITS:
        raise TokenizerError("the tokenizer's pieces are too long to look for their merges")
    ranked = [
        (*rank, text[:cut], text[cut:])
        for text, rank in normal.items()
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
    return [(left, right) for _, _, left, right in sorted(ranked)]

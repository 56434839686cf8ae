"""From the pieces of a tokenizer's vocabulary to the bytes that they stand for.

Byte-level BPE has a letter for every byte (`Ġfull`), SentencePiece a `▁` for a space and `<0xE2>` for a byte
outside its alphabet, WordPiece `##` before a piece that continues a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import tokenizers


def _byte_of_char() -> dict[str, int]:
    """GPT-2's table, from the letter that stands for a byte in a byte-level vocabulary back to the byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF_CHAR: Final = _byte_of_char()
CHAR_OF_BYTE: Final = {byte: char for char, byte in _BYTE_OF_CHAR.items()}
"""The letter that stands for a byte in a byte-level vocabulary."""
_BYTE_PIECE = re.compile("<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a vocabulary writes bytes, read from the tokenizer's decoder."""

    byte_level: bool = False
    byte_fallback: bool = False
    space: str = ""
    """The letter that stands for a space: SentencePiece's `▁`."""
    strips_first: bool = False
    """The space that the tokenizer put before the first word is taken away again."""
    prefix: str = ""
    """WordPiece's `##`, before a piece that continues a word."""
    joins: bool = True
    """Whether the text is simply the pieces' bytes one after another."""
    unknown: str | None = None
    """The piece for text that the vocabulary cannot say."""

    def data(self, piece: str) -> bytes:
        """The bytes that a piece of the vocabulary stands for."""
        if self.byte_level:
            try:
                return bytes(_BYTE_OF_CHAR[char] for char in piece)
            except KeyError:
                return piece.encode()
        if self.is_byte(piece):
            return bytes.fromhex(piece[3:5])
        if self.space:
            piece = piece.replace(self.space, " ")
        if self.prefix and piece != self.prefix:
            piece = piece.removeprefix(self.prefix)
        return piece.encode()

    def is_byte(self, piece: str) -> bool:
        """Whether a piece is `<0x0A>` or its like, in a vocabulary that has such pieces."""
        return self.byte_fallback and len(piece) == 6 and _BYTE_PIECE.fullmatch(piece) is not None


def scheme_of(inner: tokenizers.Tokenizer) -> Scheme:
    """Read the scheme from the decoder, or where there is none from the pre-tokenizer; the rest from the model."""
    return replace(_scheme_of(inner), unknown=_unknown(inner.model))


def _unknown(model: Any) -> str | None:
    if type(model).__name__ != "Unigram":
        return getattr(model, "unk_token", None)
    try:  # Unigram does not tell its own, so ask it for a code point that is no character
        tokens = model.tokenize("\ufdd0")
    except Exception:
        return None
    piece: str | None = model.id_to_token(tokens[0].id) if len(tokens) == 1 else None
    return piece


def _scheme_of(inner: tokenizers.Tokenizer) -> Scheme:
    decoder, splitter = _state(inner.decoder), _state(inner.pre_tokenizer)
    if not decoder:
        byte_level = any(part["type"] == "ByteLevel" for part in splitter)
        return Scheme(byte_level=byte_level, joins=byte_level)
    scheme = Scheme()
    for part in decoder:
        scheme = replace(scheme, **_trait(part))
    return scheme


def _state(part: Any) -> list[dict[str, Any]]:
    """A component's own description: the steps it consists of."""
    if part is None:
        return []
    # Components pickle as their JSON. It spares parsing a vocabulary of many megabytes a second time.
    state = json.loads(part.__getstate__())
    steps = state.get("decoders") or state.get("pretokenizers")
    return steps if steps is not None else [state]


def _trait(part: Mapping[str, Any]) -> dict[str, Any]:
    match part:
        case {"type": "ByteLevel"}:
            return {"byte_level": True}
        case {"type": "ByteFallback"}:
            return {"byte_fallback": True}
        case {"type": "Fuse"}:
            return {}
        case {"type": "Metaspace", "replacement": str(letter), **rest}:
            return {"space": letter, "strips_first": rest.get("prepend_scheme", "always") != "never"}
        case {"type": "Replace", "pattern": {"String": str(letter)}, "content": " "}:
            return {"space": letter}
        case {"type": "Strip", "content": " ", "start": 1, "stop": 0}:
            return {"strips_first": True}
        case {"type": "WordPiece", "prefix": str(prefix)}:
            return {"prefix": prefix, "joins": False}
    return {"joins": False}

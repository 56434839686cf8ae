"""The model's own tokenizer, giving tokens as an id and bytes.

It wraps a `tokenizer.json` through Hugging Face's `tokenizers`, so the ids are exactly the model's. Decoding
single ids, as libraries offer it, loses spaces and breaks characters: here a token's bytes come from its
piece in the vocabulary (`engine.pieces`), and all that is shown comes from the bytes.

`tokenizers` is imported when a tokenizer is loaded, not before, because start-up time matters.
"""

from __future__ import annotations

import codecs
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from engine.checkpoints.folder import inside
from engine.errors import CheckpointError, PromptError, TokenizerError
from engine.pieces import scheme_of
from engine.text import CONTINUATION, Origin, Token, grouped, label_of, label_of_text, refuse_long_prompt

if TYPE_CHECKING:
    import tokenizers

T = TypeVar("T")
Settings = Mapping[str, Mapping[str, Any]]
"""The JSON files beside a tokenizer, by name."""

MAX_TOKENIZER_BYTES: Final = 256 * 2**20
"""The largest `tokenizer.json` that is read; the largest in use are around 35 MB."""
_MAX_SETTINGS_BYTES: Final = 16 * 2**20

_NAMES_IN: Final = ("tokenizer_config.json", "special_tokens_map.json")
_IDS_IN: Final = ("config.json", "generation_config.json")


class Tokenizer:
    """A model's tokenizer: text to tokens, ids to text, and a label for every id."""

    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    eos_ids: frozenset[int]
    """Every id that ends a text, since chat models have several."""

    def __init__(self, inner: tokenizers.Tokenizer, settings: Settings | None = None):
        # A file may ask for padding or for cutting long texts, or drop merges at random as in training.
        # Here every token is shown, and the same text always gives the same tokens.
        inner.no_padding()
        inner.no_truncation()
        if getattr(inner.model, "dropout", None):
            inner.model.dropout = None
        self._inner = inner
        self._lock = threading.Lock()
        self._scheme = scheme_of(inner)
        self._added: dict[int, tokenizers.AddedToken] = inner.get_added_tokens_decoder()
        self._tokens: dict[int, Token] = {}
        settings = settings or {}
        self.bos_id, self.eos_id, self.pad_id = (_control_id(inner, settings, name) for name in ("bos", "eos", "pad"))
        self.eos_ids = _eos_ids(settings) | ({self.eos_id} if self.eos_id is not None else set())

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Load from a model folder or from a `tokenizer.json`, with the settings that lie beside it.

        Raises TokenizerError, or CheckpointError where one of the files is a link that leads out of the folder.
        """

        def load() -> Tokenizer:
            file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
            data = _read(file, MAX_TOKENIZER_BYTES)
            settings = {name: _read_settings(file.parent / name) for name in (*_NAMES_IN, *_IDS_IN)}
            return cls.from_json(data, settings, where=str(file))

        return _guarded(load, f"{path} cannot be read")

    @classmethod
    def from_json(cls, data: bytes, settings: Settings | None = None, where: str = "tokenizer.json") -> Tokenizer:
        """Build from the bytes of a `tokenizer.json` and the parsed JSON files beside it, by file name."""
        import tokenizers

        def build() -> Tokenizer:
            return cls(tokenizers.Tokenizer.from_buffer(data), settings)

        return _guarded(build, f"{where} is no tokenizer that can be read")

    @property
    def vocab_size(self) -> int:
        """The number of ids that the tokenizer knows; a model's `d_vocab` is often padded beyond it."""
        return self._inner.get_vocab_size(with_added_tokens=True)

    # --- one id ---

    def token(self, id: int) -> Token:
        """The token of an id, apart from any text. An id beyond the vocabulary has no bytes."""
        if (token := self._tokens.get(id)) is not None:
            return token
        piece = self._piece(id)
        if piece is None:
            return Token(id, b"", label_of(b"", id), 0, 0)
        token = self._tokens[id] = self._known(id, piece)
        return token

    def label(self, id: int) -> str:
        """The label of an id, as in `token`."""
        return self.token(id).label

    def _piece(self, id: int) -> str | None:
        return self._inner.id_to_token(id) if 0 <= id < 2**32 else None

    def _known(self, id: int, piece: str) -> Token:
        added = self._added.get(id)
        if (added and added.special) or piece == getattr(self._inner.model, "unk_token", None):
            return Token(id, piece.encode(), label_of_text(piece) or label_of(b"", id), 0, 0, special=True)
        # Added tokens stand in a byte-level vocabulary as plain text.
        data = piece.encode() if added and self._scheme.byte_level else self._scheme.data(piece)
        continues = self._scheme.prefix and piece.startswith(self._scheme.prefix)
        return Token(id, data, label_of_text(piece) if continues else label_of(data, id), 0, 0)

    # --- text to tokens ---

    def ids(self, text: str, literal: bool = False, add_special: bool = True) -> list[int]:
        """The ids alone, as `encode` gives them: for counting a long text before showing it."""
        return self._encoding(text, literal, add_special).ids

    def encode(self, text: str, literal: bool = False, add_special: bool = True) -> list[Token]:
        """The tokens of `text`, with the BOS and such that the model's tokenizer adds unless told not to.

        A special token's name typed in the text becomes that token, as in the model's own tokenizer, and is
        marked "special in text"; with `literal` it becomes ordinary pieces. An empty text gives what the
        tokenizer adds, often one BOS, or nothing.
        """
        encoding = self._encoding(text, literal, add_special)
        added = list(map(bool, encoding.special_tokens_mask))
        known = list(map(self.token, encoding.ids))
        spans = self._byte_spans(known, added, text, encoding) if self._scheme.joins else None
        if spans is None:
            spans = _offset_spans(added, encoding.offsets)
        return grouped(map(self._placed, known, added, spans, repeat(text)))

    def _encoding(self, text: str, literal: bool, add_special: bool) -> tokenizers.Encoding:
        refuse_long_prompt(text)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PromptError(
                f"the prompt holds half a character (U+{ord(text[error.start]):04X} at {error.start:,}); "
                "engine.text.clean_prompt repairs it"
            ) from None
        with self._lock:  # the switch belongs to the tokenizer, not to the call
            self._inner.encode_special_tokens = literal
            return _guarded(
                lambda: self._inner.encode(text, add_special_tokens=add_special),
                "the tokenizer failed on this text",
            )

    def _placed(self, token: Token, added: bool, span: tuple[int, int], text: str) -> Token:
        """The token at its place in the text."""
        if added:
            return replace(token, start=span[0], end=span[1], special=True, origin="tokenizer")
        data, label, origin = token.bytes, token.label, token.origin
        if token.special:
            typed = text[slice(*span)].strip().casefold() == data.decode().strip().casefold()
            origin = "special in text" if typed else "text"
        elif self._scheme.byte_fallback and self._piece(token.id) == text[slice(*span)]:
            data = text[slice(*span)].encode()  # the same but where the text itself says `<0x0A>`
            label = label_of(data, token.id)
        return Token(token.id, data, label, *span, None, token.special, origin)

    def _byte_spans(
        self, known: Sequence[Token], added: Sequence[bool], text: str, encoding: tokenizers.Encoding
    ) -> list[tuple[int, int]] | None:
        """Spans by counting bytes, or None where the tokenizer changed the text before cutting it.

        The library's own offsets leave out the space that a piece begins with, where the file asks for that,
        and count the space that the tokenizer put first as if it were in the text.
        """
        typed = any(token.special and not new for token, new in zip(known, added, strict=True))
        offsets = encoding.offsets if typed else []
        pieces = [
            b"" if new else self._typed(token.id, offsets[index], text) if token.special else token.bytes
            for index, (token, new) in enumerate(zip(known, added, strict=True))
        ]
        whole, given = b"".join(pieces), text.encode()
        if whole not in (given, b" " + given):
            return None
        spans, at = [], len(given) - len(whole)
        for piece in pieces:
            start = at - (piece[:1] in CONTINUATION if piece else 0)
            at += len(piece.translate(None, CONTINUATION))
            spans.append((max(start, 0), max(at, 0)))
        return spans

    def _typed(self, id: int, span: tuple[int, int], text: str) -> bytes:
        """The text that a special token took, with the spaces around it where it swallows them."""
        start, end = span
        added = self._added.get(id)
        while added and added.lstrip and text[start - 1 : start].isspace():
            start -= 1
        while added and added.rstrip and text[end : end + 1].isspace():
            end += 1
        return text[start:end].encode()

    # --- ids to text ---

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of a whole sequence, without special tokens unless asked for.

        Bytes that are no text become U+FFFD; ids beyond the vocabulary give nothing.
        """
        if not self._scheme.joins:
            known = [id for id in ids if self._piece(id) is not None]
            return _guarded(
                lambda: self._inner.decode(known, skip_special_tokens=not special),
                "the tokenizer failed on these ids",
            )
        stream = self.stream(special=special)
        return "".join(map(stream.push, ids)) + stream.finish()

    def stream(self, after: Iterable[int] = (), special: bool = False) -> TextStream:
        """A decoder for ids that come one by one, continuing the text of the ids in `after`."""
        return TextStream(self, after, special)

    def extend(self, tokens: Sequence[Token], ids: Iterable[int], origin: Origin = "text") -> list[Token]:
        """`tokens` followed by the tokens of `ids`, as a model generates them; characters stay grouped.

        The new spans count on from the last token's end, through the text that `stream` gives.
        """
        stream = self.stream(after=(token.id for token in tokens))
        at = tokens[-1].end - stream.waiting if tokens else 0
        new = []
        for id in ids:
            start, at = at, at + len(stream.push(id))
            new.append(replace(self.token(id), start=start, end=at + stream.waiting, origin=origin))
        return grouped([*tokens, *new])


class TextStream:
    """An incremental decoder that never shows half a character.

    `push` returns the text that is certain by now. All that it and `finish` returned, joined, is what
    `Tokenizer.decode` gives for all the ids, and so it is at every step at which `waiting` is false.
    """

    def __init__(self, tokenizer: Tokenizer, after: Iterable[int] = (), special: bool = False):
        self._tokenizer = tokenizer
        self._special = special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = True
        self._ids: list[int] = []
        self._text = ""
        self._held = False
        for id in after:
            self.push(id)

    @property
    def waiting(self) -> bool:
        """Whether a character has begun and not ended."""
        return self._held or bool(self._decoder.getstate()[0])

    def push(self, id: int) -> str:
        """The text that this id adds or completes; empty while a character is incomplete."""
        if not self._tokenizer._scheme.joins:
            self._ids.append(id)
            return self._decoded_anew(final=False)
        token = self._tokenizer.token(id)
        data = b"" if token.special and not self._special else token.bytes
        if self._at_start and data:
            self._at_start = False
            if self._tokenizer._scheme.strips_first:
                data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left when no more ids come: a character that was never completed, as U+FFFD."""
        rest = self._decoded_anew(final=True) if self._ids else ""
        return rest + self._decoder.decode(b"", final=True)

    def _decoded_anew(self, final: bool) -> str:
        # Such decoders (WordPiece's and rarer ones) look at a token's neighbours, so bytes alone do not tell.
        text = self._tokenizer.decode(self._ids, special=self._special)
        certain = text.startswith(self._text) and not text.endswith("\ufffd")
        self._held = not (certain or final)
        if self._held:
            return ""
        new = text[len(self._text) :]
        self._text = text
        return new


# --- help -------------------------------------------------------------------------------------------------


def _offset_spans(added: Sequence[bool], offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The library's offsets, with added tokens between their neighbours instead of at 0."""
    spans, at = [], 0
    for new, span in zip(added, offsets, strict=True):
        spans.append((at, at) if new else span)
        at = spans[-1][1]
    return spans


def _control_id(inner: tokenizers.Tokenizer, settings: Settings, name: str) -> int | None:
    """The id of the token that plays a role: by its name in the tokenizer's settings, else by the model's."""
    for file in _NAMES_IN:
        if f"{name}_token" in settings.get(file, {}):
            value = settings[file][f"{name}_token"]
            piece = value.get("content") if isinstance(value, dict) else value
            return inner.token_to_id(piece) if isinstance(piece, str) else None
    for file in _IDS_IN:
        for id in _listed(settings.get(file, {}).get(f"{name}_token_id")):
            return id
    return None


def _eos_ids(settings: Settings) -> frozenset[int]:
    return frozenset(id for file in _IDS_IN for id in _listed(settings.get(file, {}).get("eos_token_id")))


def _listed(value: object) -> Iterator[int]:
    for id in value if isinstance(value, list) else [value]:
        if type(id) is int and id >= 0:
            yield id


def _read(file: Path, limit: int) -> bytes:
    """The bytes of a file from outside: an ordinary file, not an endless one, and really in its folder.

    A snapshot in Hugging Face's cache is links to ``../../blobs`` and so is refused, like its weights: which folders
    around a model's own are to be trusted is not decided here, file by file.
    """
    if not file.is_file():
        raise TokenizerError(f"there is no tokenizer at {file}; give a folder with a tokenizer.json")
    file = inside(file.parent, file.name)
    if (size := file.stat().st_size) > limit:
        raise TokenizerError(f"{file} has {size:,} bytes, the limit is {limit:,}; is it the right file?")
    return file.read_bytes()


def _read_settings(file: Path) -> dict[str, Any]:
    if not os.path.lexists(file):
        return {}
    data = _read(file, _MAX_SETTINGS_BYTES)
    settings = _guarded(lambda: json.loads(data), f"{file} is not JSON")
    if not isinstance(settings, dict):
        raise TokenizerError(f"{file} is not a JSON object")
    return settings


def _guarded(call: Callable[[], T], what: str) -> T:
    """Call into the library, turning every way in which it fails into one line."""
    try:
        return call()
    except (TokenizerError, CheckpointError):
        raise
    except Exception as error:
        raise TokenizerError(f"{what}: {_reason(error)}") from None
    except BaseException as error:
        # A panic in the library's Rust code is no Exception, and its class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{what}: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(text.split())[:300] or type(error).__name__

"""The model's own tokenizer, giving tokens as an id and bytes.

It wraps what a model folder holds (`engine.checkpoints.vocab`) as Hugging Face's `tokenizers` runs it, so the ids are
exactly the model's. Decoding single ids, as libraries offer it, loses spaces and breaks characters: here a token's
bytes come from its piece in the vocabulary (`engine.pieces`), and all that is shown comes from the bytes.

`tokenizers` is imported when a tokenizer is loaded, not before, because start-up time matters.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from engine.chat import Chat, Messages, render
from engine.checkpoints.vocab import folder as vocab_folder
from engine.checkpoints.vocab.added import named_tokens
from engine.checkpoints.vocab.bounds import growth_of, refuse_grown
from engine.checkpoints.vocab.files import IDS_IN, Settings, guarded, read_settings
from engine.checkpoints.vocab.folder import Found
from engine.checkpoints.vocab.literal import is_switch_enough, without
from engine.errors import PromptError, TokenizerError
from engine.pieces import scheme_of
from engine.text import CONTINUATION, Origin, Token, display, grouped, label_of, label_of_text, refuse_long_prompt

if TYPE_CHECKING:
    import tokenizers


class Tokenizer:
    """A model's tokenizer: text to tokens, ids to text, and a label for every id."""

    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    eos_ids: frozenset[int]
    """Every id that ends a text, since chat models have several."""
    target: Tokenizer
    """What reads the text that the decoder of an encoder-decoder writes; mostly this one itself."""

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        settings: Settings | None = None,
        named: Mapping[str, str | None] | None = None,
        templates: Mapping[str, str] | None = None,
        unknown: Sequence[int] = (),
        target: Tokenizer | None = None,
    ):
        # A file may ask for padding or for cutting long texts, or drop merges at random as in training.
        # Here every token is shown, and the same text always gives the same tokens.
        inner.no_padding()
        inner.no_truncation()
        if getattr(inner.model, "dropout", None):
            inner.model.dropout = None
        settings = settings or {}
        self._growth = growth_of(inner)
        self._inner = inner
        self._lock = threading.Lock()
        self._scheme = scheme_of(inner)
        self._added: dict[int, tokenizers.AddedToken] = inner.get_added_tokens_decoder()
        self._tokens: dict[int, Token] = {}
        self._literal: dict[frozenset[str], tokenizers.Tokenizer] = {}
        self._named = named_tokens(settings) if named is None else named
        self._templates = templates or {}
        unk = inner.token_to_id(self._scheme.unknown or "")
        self._unknown: dict[int, int] = {} if unk is None else dict.fromkeys(unknown, unk)
        self.target = target or self
        self.bos_id, self.eos_id, self.pad_id = (self._control_id(settings, role) for role in ("bos", "eos", "pad"))
        self.eos_ids = _eos_ids(settings) | ({self.eos_id} if self.eos_id is not None else set())

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Load from a model folder or from a `tokenizer.json`, with the settings that lie beside it.

        Raises TokenizerError, or CheckpointError where one of the files is a link that leads out of the folder.
        """

        def load() -> Tokenizer:
            where = Path(path)
            if where.is_file():
                return cls._of(vocab_folder.from_file(where, read_settings(where.parent)))
            tokenizer = cls.find(where) if where.is_dir() else None
            if tokenizer is None:
                raise TokenizerError(f"there is no tokenizer at {display(str(path))}; {vocab_folder.KNOWN}")
            return tokenizer

        return guarded(load, f"{display(str(path))} cannot be read")

    @classmethod
    def find(cls, folder: Path) -> Tokenizer | None:
        """The tokenizer of a model folder, None where it holds none. Raises as `load`."""
        found = guarded(lambda: vocab_folder.find(folder), f"{display(str(folder))} cannot be read")
        return None if found is None else cls._of(found)

    @classmethod
    def from_json(cls, data: bytes, settings: Settings | None = None, where: str = "tokenizer.json") -> Tokenizer:
        """Build from the bytes of a `tokenizer.json` and the parsed JSON files beside it, by file name."""
        return cls._of(vocab_folder.from_json(data, settings or {}, where))

    @classmethod
    def _of(cls, found: Found) -> Tokenizer:
        target = cls._of(found.target) if found.target else None
        return cls(found.inner, found.settings, found.named, found.templates, found.unknown, target)

    def _control_id(self, settings: Settings, role: str) -> int | None:
        """The id of the token that plays a role: by its name where a file says one, else by the model's settings."""
        if f"{role}_token" in self._named:
            piece = self._named[f"{role}_token"]
            return self._inner.token_to_id(piece) if piece else None
        for file in IDS_IN:
            for id in _listed(settings.get(file, {}).get(f"{role}_token_id")):
                return id
        return None

    @property
    def vocab_size(self) -> int:
        """The number of ids that the tokenizer knows; a model's `d_vocab` is often padded beyond it."""
        return self._inner.get_vocab_size(with_added_tokens=True) - len(self._unknown)

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
        return self._inner.id_to_token(id) if 0 <= id < 2**32 and id not in self._unknown else None

    def _known(self, id: int, piece: str) -> Token:
        added = self._added.get(id)
        if (added and added.special) or piece == self._scheme.unknown:
            return Token(id, piece.encode(), label_of_text(piece) or label_of(b"", id), 0, 0, special=True)
        # Added tokens stand in a byte-level vocabulary as plain text.
        data = piece.encode() if added and self._scheme.byte_level else self._scheme.data(piece)
        continues = self._scheme.prefix and piece.startswith(self._scheme.prefix)
        return Token(id, data, label_of_text(piece) if continues else label_of(data, id), 0, 0)

    # --- text to tokens ---

    def ids(self, text: str, literal: bool = False, add_special: bool = True) -> list[int]:
        """The ids alone, as `encode` gives them: for counting a long text before showing it."""
        return self._ids(self._encoding(text, literal, add_special))

    def encode(self, text: str, literal: bool = False, add_special: bool = True) -> list[Token]:
        """The tokens of `text`, with the BOS and such that the model's tokenizer adds unless told not to.

        A special token's name typed in the text becomes that token, as in the model's own tokenizer, and is
        marked "special in text"; with `literal` it becomes ordinary pieces. An empty text gives what the
        tokenizer adds, often one BOS, or nothing.
        """
        return self._read(text, literal, add_special)

    def _read(self, text: str, literal: bool, add_special: bool, names: frozenset[str] = frozenset()) -> list[Token]:
        encoding = self._encoding(text, literal, add_special, names)
        added = list(map(bool, encoding.special_tokens_mask))
        known = list(map(self.token, self._ids(encoding)))
        spans = self._byte_spans(known, added, text, encoding) if self._scheme.joins else None
        if spans is None:
            spans = _offset_spans(added, encoding.offsets)
        return grouped(map(self._placed, known, added, spans, repeat(text)))

    def _ids(self, encoding: tokenizers.Encoding) -> list[int]:
        ids: list[int] = encoding.ids
        return [self._unknown.get(id, id) for id in ids] if self._unknown else ids

    def _encoding(
        self, text: str, literal: bool, add_special: bool, names: frozenset[str] = frozenset()
    ) -> tokenizers.Encoding:
        """What the library makes of a text; where literal, these names of added tokens are text too."""
        refuse_long_prompt(text)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PromptError(
                f"the prompt holds half a character (U+{ord(text[error.start]):04X} at {error.start:,}); "
                "engine.text.clean_prompt repairs it"
            ) from None
        guarded(lambda: refuse_grown(self._inner, self._growth, text), "the tokenizer failed on this text")
        with self._lock:  # the switch belongs to the tokenizer, not to the call
            inner = self._literally(names) if literal else self._inner
            inner.encode_special_tokens = literal
            encoding = guarded(
                lambda: inner.encode(text, add_special_tokens=add_special), "the tokenizer failed on this text"
            )
        if literal:
            self._refuse_control(encoding, names)
        return encoding

    def _literally(self, names: frozenset[str]) -> tokenizers.Tokenizer:
        """The tokenizer that reads the names of special tokens, and these, as text."""
        if not names and is_switch_enough(self._inner):
            return self._inner
        if names not in self._literal:
            special = {token.content for token in self._added.values() if token.special}
            self._literal[names] = guarded(
                lambda: without(self._inner, special | names), "this tokenizer cannot read special tokens as text"
            )
        return self._literal[names]

    def _refuse_control(self, encoding: tokenizers.Encoding, names: frozenset[str]) -> None:
        """Hold to the promise of literal: no control token comes from a text. Raises PromptError."""
        for id in {id for id, new in zip(encoding.ids, encoding.special_tokens_mask, strict=True) if not new}:
            added = self._added.get(id)
            if added and (added.special or added.content in names) and added.content != self._scheme.unknown:
                raise PromptError(
                    f"this tokenizer has no way to read {display(added.content)[:80]!r} as text; "
                    "take it out of the prompt, or leave out literal"
                )

    def _placed(self, token: Token, added: bool, span: tuple[int, int], text: str) -> Token:
        """The token at its place in the text."""
        if added:
            return replace(token, start=span[0], end=span[1], special=True, origin="tokenizer")
        data, label, origin = token.bytes, token.label, token.origin
        if token.special:
            typed = text[slice(*span)].strip().casefold() == data.decode().strip().casefold()
            origin = "special in text" if typed else "text"
        elif len(data) == 1 and self._scheme.is_byte(piece := text[slice(*span)]) and piece == self._piece(token.id):
            data = piece.encode()  # the text itself says `<0x0A>`
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

    # --- chats ---

    @property
    def has_template(self) -> bool:
        """Whether the model's folder says how a chat is written."""
        return bool(self._templates)

    def render(self, messages: str | Messages, add_generation_prompt: bool = True) -> Chat:
        """Messages as the text that the model's chat template makes of them; a text is one message of the user.

        Raises PromptError where the template refuses the messages, TokenizerError where it fails or there is none.
        """
        chat = render(self._templates, messages, self._named, add_generation_prompt)
        bos = self._piece(self.bos_id) if self.bos_id is not None and self.bos_id in self.ids("") else None
        if bos is None or bos in chat.text:
            return chat
        notice = f"the chat template writes no {display(bos)}, which this tokenizer puts before a plain text"
        return replace(chat, notices=(*chat.notices, notice))

    def chat(
        self, messages: str | Messages | Chat, literal: bool = False, add_generation_prompt: bool = True
    ) -> list[Token]:
        """The tokens of a chat, the origin of each being the template or the text of a message.

        Nothing is added around them, since the template writes the BOS itself. With `literal`, names of control tokens
        in a message become ordinary pieces, so that no message can end itself or speak for another role.
        """
        chat = messages if isinstance(messages, Chat) else self.render(messages, add_generation_prompt)
        if literal and chat.typed is None:
            raise PromptError("the chat template changes the messages, so literal cannot keep control tokens out")
        names = self._control_names()
        as_text = lru_cache(lambda covered: self._as_text(covered, names))
        tokens: list[Token] = []
        for token in self._read(chat.text, literal=False, add_special=False):
            covered = chat.text[token.start : token.end]
            core = covered.strip() or covered  # a token may swallow the blanks around its name
            start = token.start + covered.find(core)
            typed = chat.is_typed(start, start + len(core))
            special = token.special and self._piece(token.id) != self._scheme.unknown
            if literal and typed and (special or (token.id in self._added and self._piece(token.id) in names)):
                tokens += (replace(t, start=t.start + token.start, end=t.end + token.start) for t in as_text(covered))
                continue
            origin: Origin = "template or text" if chat.typed is None else "text" if typed else "template"
            origin = "special in text" if special and typed else origin
            tokens.append(token if token.origin == origin else replace(token, origin=origin))
        return grouped(tokens)

    def _control_names(self) -> frozenset[str]:
        """Added tokens that are not special, and yet control tokens to the chat template, which writes them."""
        written = self._templates.get("default", "")
        added = (token.content for token in self._added.values() if not token.special)
        return frozenset(content for content in added if content in written and not content.isspace())

    def _as_text(self, text: str, names: frozenset[str]) -> list[Token]:
        """The ordinary tokens of a control token's name within a chat."""
        # After a line break: a tokenizer may put a space before the beginning of a text.
        lead = [token.id for token in self._read("\n", True, False, names)]
        tokens = self._read("\n" + text, True, False, names)
        if lead and [token.id for token in tokens[: len(lead)]] == lead:
            return [replace(token, start=token.start - 1, end=token.end - 1) for token in tokens[len(lead) :]]
        return self._read(text, True, False, names)

    # --- ids to text ---

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of a whole sequence, without special tokens unless asked for.

        Bytes that are no text become U+FFFD; ids beyond the vocabulary give nothing.
        """
        if not self._scheme.joins:
            known = [id for id in ids if self._piece(id) is not None]
            return guarded(
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


def _eos_ids(settings: Settings) -> frozenset[int]:
    return frozenset(id for file in IDS_IN for id in _listed(settings.get(file, {}).get("eos_token_id")))


def _listed(value: object) -> Iterator[int]:
    for id in value if isinstance(value, list) else [value]:
        if type(id) is int and id >= 0:
            yield id

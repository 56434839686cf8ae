"""What a tokenizer's steps may make of a text: some lines of a file can ask for more than any memory holds."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Final

from engine.checkpoints.vocab.files import MAX_ADDED, refuse_many
from engine.errors import PromptError, TokenizerError

if TYPE_CHECKING:
    import tokenizers

Step = Mapping[str, Any]
"""One of the library's components, as its JSON."""

MAX_GROWTH: Final = 4096
"""Characters that may come of one; by this count ALBERT's steps, of all models' the worst, come to 1,296."""
MAX_MADE: Final = 2**23
"""Characters that may come of a text; four times as many as a prompt may have."""
MAX_STEPS: Final = 256
MAX_CHARS: Final = 16
"""Of what is put before a text, or of a mark of a word's beginning or end; all in use have one to four."""
MAX_AROUND: Final = 64
"""Tokens put around a text."""
MAX_WORD: Final = 1000
"""Letters of a word that WordPiece looks for in its vocabulary piece by piece; all in use have 100 or 200."""

_UNICODE: Final = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 2, "BertNormalizer": 4, "ByteLevel": 4}
"""The most characters that these make of one, by Unicode's tables; a character is at most four bytes."""
_NORMALIZED: Final = (re.compile(rb'"normalized"\s*:\s*true'), re.compile(rb"\\u00[4-7]"))
"""An added token that is normalized, or a letter spelled so that the word is not found; one by one, which is faster."""


def refuse_bombs(data: bytes) -> None:
    """Refuse the bytes of a `tokenizer.json` that take too long or too much memory to load. Raises TokenizerError.

    Loading runs the file's steps on those of its added tokens that are normalized. Where there are none of these, and
    not many of the others, the steps can wait for `growth_of`, which need not read the vocabulary for it.
    """
    if any(told.search(data) for told in _NORMALIZED) or data.count(b'"content"') > MAX_ADDED:
        whole = json.loads(data)
        if isinstance(whole, Mapping):  # else the library says so
            added = whole.get("added_tokens")
            refuse_many(len(added) if isinstance(added, list) else 0, "added tokens", "the tokenizer", MAX_ADDED)
            _check(whole)


def growth_of(inner: tokenizers.Tokenizer) -> int:
    """The most characters that a tokenizer makes of one. Raises TokenizerError where that is too many."""
    names = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    parts = {name: getattr(inner, name) for name in names}
    # Components pickle as their JSON.
    growth = _check({name: part and json.loads(part.__getstate__()) for name, part in parts.items()})
    model: Any = inner.model
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(getattr(model, name, None) or "") > MAX_CHARS:
            raise _refusal(f"has a {name} of more than {MAX_CHARS} characters")
    if getattr(model, "max_input_chars_per_word", 0) > MAX_WORD:
        raise _refusal(f"looks for the pieces of words of more than {MAX_WORD:,} letters")
    return growth


def refuse_grown(inner: tokenizers.Tokenizer, growth: int, text: str) -> None:
    """Refuse a text of which this tokenizer makes too much, part by part since the whole may be beyond memory.

    Raises PromptError.
    """
    size = MAX_MADE // growth
    if len(text) <= size or inner.normalizer is None:
        return
    made = sum(len(inner.normalizer.normalize_str(text[at : at + size])) for at in range(0, len(text), size))
    if made > MAX_MADE:
        raise PromptError(
            f"this tokenizer makes {made:,} characters of the {len(text):,} of the prompt, the limit is {MAX_MADE:,}"
        )


def _check(whole: Mapping[str, Any]) -> int:
    before = [*_steps(whole.get("normalizer")), *_steps(whole.get("pre_tokenizer"))]
    after = list(_steps(whole.get("post_processor")))
    back = list(_steps(whole.get("decoder")))
    if (count := max(len(before) + len(after), len(back))) > MAX_STEPS:
        raise _refusal(f"has {count:,} steps, the limit is {MAX_STEPS}")
    for step in before:
        if step.get("type") == "Prepend" and len(str(step.get("prepend"))) > MAX_CHARS:
            raise _refusal(f"puts more than {MAX_CHARS} characters before a text")
    if (tokens := sum(map(_around, after))) > MAX_AROUND:
        raise _refusal(f"puts {tokens:,} tokens around a text, the limit is {MAX_AROUND}")
    growth = prod(map(_growth, before)) * prod(map(_repeats, after))
    if max(growth, prod(map(_growth, back))) > MAX_GROWTH:
        raise _refusal(f"may make more than {MAX_GROWTH:,} characters of one")
    return growth


def _steps(part: object) -> Iterator[Step]:
    """The steps of a component, also of a sequence of sequences."""
    waiting = [part]
    while waiting:
        step = waiting.pop()
        if not isinstance(step, Mapping):
            continue
        inner = [step.get(key) for key in ("normalizers", "pretokenizers", "processors", "decoders")]
        if listed := next((steps for steps in inner if isinstance(steps, list)), None):
            waiting += listed
        else:
            yield step


def _growth(step: Step) -> int:
    """The most characters that a step makes of one."""
    match step:
        case {"type": "Replace", "pattern": {"String": str(found)}, "content": str(content)} if found:
            return max(1, -(-len(content) // len(found)))
        case {"type": "Replace", "content": str(content)}:
            return 1 + len(content)  # a pattern may match between any two characters
        case {"type": "Precompiled", "precompiled_charsmap": str(table)}:
            return _longest(table)
    return _UNICODE.get(str(step.get("type")), 1)


def _longest(table: str) -> int:
    """The longest text in a table of SentencePiece's: the length of a trie, the trie, texts with a zero after each."""
    try:
        data = base64.b64decode(table)
    except ValueError:
        return 1  # which the library refuses
    texts = data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
    return max(1, max(len(text.decode(errors="replace")) for text in texts))


def _pieces(step: Step) -> list[Mapping[str, Any]]:
    single = step.get("single")
    return [piece for piece in single if isinstance(piece, Mapping)] if isinstance(single, list) else []


def _repeats(step: Step) -> int:
    """How often a step writes the text that it puts tokens around."""
    return max(1, sum("Sequence" in piece for piece in _pieces(step)))


def _around(step: Step) -> int:
    """How many tokens a step puts around a text."""
    special = step.get("special_tokens")
    ids = special if isinstance(special, Mapping) else {}
    total = 0
    for piece in _pieces(step):
        named = piece.get("SpecialToken")
        row = ids.get(named.get("id")) if isinstance(named, Mapping) else None
        total += max(1, len(row["ids"])) if isinstance(row, Mapping) and isinstance(row.get("ids"), list) else 1
    return total


def _refusal(why: str) -> TokenizerError:
    return TokenizerError(f"this tokenizer {why}; it is refused")

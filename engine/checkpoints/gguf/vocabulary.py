"""A GGUF file's vocabulary as the tokenizer files that a Hugging Face folder would hold.

The file has the pieces and, by kind, their merges or scores; how text is cut before is only named
(``tokenizer.ggml.pre``), so the cuts that each name stands for are a table here, taken from the ``tokenizer.json`` of
the models that the names come from. An unknown name is refused: other cuts are other ids.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final

from engine.checkpoints.folder import shown
from engine.checkpoints.gguf.header import Header, read_header
from engine.checkpoints.vocab.byte_level import LLAMA3, MAX_SPLITS, QWEN
from engine.errors import TokenizerError
from engine.text import display

Json = dict[str, Any]

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
"""Types of a token in ``tokenizer.ggml.token_type``; 2 is unknown text, 6 a byte, and 0 was never set."""
_TYPES: Final = frozenset(range(7))
_SPACE: Final = "▁"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _cased(ending: str, digits: str) -> str:
    """o200k's pattern: words begin anew where a capital letter follows a small one."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return rf"{start}{_UPPER}*{_LOWER}+{ending}|{start}{_UPPER}+{_LOWER}*{ending}|{digits}|{_REST}"


def _byte_level(regex: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def _split(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _digits(individual: bool) -> Json:
    return {"type": "Digits", "individual_digits": individual}


_GPT2: tuple[Json, ...] = (_byte_level(True),)
_STARCODER: tuple[Json, ...] = (_digits(True), _byte_level(True))
_LLAMA3 = (_split(LLAMA3), _byte_level(False))
_QWEN2 = (_split(QWEN), _byte_level(False))
_TEKKEN = (_split(_cased("", r"\p{N}")), _byte_level(False))
_GPT4O = (_split(_cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}")), _byte_level(False))
_BLOOM = (_split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), _byte_level(False))
_FALCON = (
    {"type": "Punctuation", "behavior": "Contiguous"},
    _byte_level(True),
    _digits(False),
    _split("[0-9][0-9][0-9]"),
)

_DEEPSEEK_CODER = (
    *map(_split, (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+")),
    _digits(True),
    _byte_level(False),
)

CUTS: dict[str, tuple[Json, ...]] = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "mellum"), _GPT2),
    **dict.fromkeys(("starcoder", "refact", "command-r", "smollm", "codeshell"), _STARCODER),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2", "dbrx", "smaug-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"), _QWEN2),
    **dict.fromkeys(("gpt-4o", "llama4"), _GPT4O),
    "tekken": _TEKKEN,
    "deepseek-coder": _DEEPSEEK_CODER,
    "bloom": _BLOOM,
    "falcon": _FALCON,
}
"""``tokenizer.ggml.pre`` -> the pre-tokenizer's steps."""
_COMPOSES = frozenset({"qwen2", "deepseek-r1-qwen", "megrez", "command-r", "olmo", "mpt"})
"""Those whose models bring text to Unicode's composed form (NFC) before cutting it."""
_WHOLE_WORDS = frozenset({"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2", "tekken"})
"""Those whose models take a word that is a token as it is, and put BOS first unless the file says otherwise."""


def files_of(path: Path) -> tuple[bytes, dict[str, Json]] | None:
    """The bytes of a ``tokenizer.json``, and the parsed files beside it by name; None where a file has no vocabulary.

    Raises TokenizerError where the vocabulary is inconsistent or of a kind that is not known.
    """
    header = read_header(path)
    if header.metadata.get("tokenizer.ggml.model") in (None, "none", "no_vocab"):
        return None
    return _Vocabulary(header).files()


class _Vocabulary:
    def __init__(self, header: Header) -> None:
        self.header = header
        self.kind = header.metadata["tokenizer.ggml.model"]
        self.pre = self._meta("pre", "default")
        self.tokens = header.strings("tokenizer.ggml.tokens") or []
        types = self._meta("token_type")
        self.types: Sequence[int] = [1] * len(self.tokens) if types is None else types
        if not self.tokens or not isinstance(self.types, list | array) or len(self.types) != len(self.tokens):
            raise self._refusal("has no token_type for each of its tokens")
        if strange := set(self.types) - _TYPES:
            raise self._refusal(f"has a token_type {display(str(min(strange)))[:20]}; there are 0 to 6")
        pieces = Counter(token for token, kind in self._typed() if token and kind == _NORMAL)
        for token, count in pieces.most_common(1):
            if count > 1:  # of control tokens and of unused places it does not matter
                raise self._refusal(f"has the token {display(token)[:40]!r} {count} times, so its id is not known")

    def files(self) -> tuple[bytes, dict[str, Json]]:
        spm = self.kind == "llama"
        self.ids = {
            "bos": self._id("bos_token_id", 1 if spm else None),
            "eos": self._id("eos_token_id", 2 if spm else None),
            "unk": self._id("unknown_token_id", 0 if spm else None),
            "pad": self._id("padding_token_id"),
        }
        written = self.header.metadata.get("tokenizer.huggingface.json")
        if isinstance(written, str):
            return written.encode(), self._settings()
        makers = {"llama": self._sentencepiece, "gpt2": self._byte_level_bpe, "bert": self._wordpiece}
        if not isinstance(self.kind, str) or self.kind not in makers:
            raise self._refusal(f"of kind {display(str(self.kind))[:40]!r} is not supported; {', '.join(makers)} are")
        return json.dumps({"version": "1.0", **makers[self.kind]()}).encode(), self._settings()

    # --- the three kinds ---

    def _sentencepiece(self) -> Json:
        """SentencePiece's BPE: the best-scored of the possible merges first, other characters as bytes."""
        spaced = {t: _SPACE * len(t) for t in self.tokens if t and not t.strip(" ")}  # llama.cpp writes spaces as such
        self.tokens = [spaced.get(token, token) for token in self.tokens]
        prefix = self._flag("add_space_prefix", True)
        spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
        first = {"type": "Prepend", "prepend": _SPACE}
        decoders: list[Json] = [
            {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        if prefix:
            decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        unknown = self.ids["unk"]
        return {
            "added_tokens": self._added(skip=spaced.values()),
            "normalizer": {"type": "Sequence", "normalizers": [first, spaces]} if prefix else spaces,
            "pre_tokenizer": None,
            "post_processor": self._frame(add_bos=True),
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {
                "type": "BPE",
                "unk_token": None if unknown is None else self.tokens[unknown],
                "fuse_unk": True,
                "byte_fallback": True,
                "vocab": self._vocab(),
                "merges": self._merges_by_score(),
            },
        }

    def _byte_level_bpe(self) -> Json:
        """GPT-2's BPE over bytes."""
        if self._meta("pre") is None:
            raise self._refusal(
                "does not say how it cuts text (tokenizer.ggml.pre), as files do since April 2024; convert it again"
            )
        if not isinstance(self.pre, str) or self.pre not in CUTS:
            raise self._refusal(
                f"cuts text as {display(str(self.pre))[:40]!r} (tokenizer.ggml.pre), which layerstep does not know; "
                f"known are {', '.join(CUTS)}"
            )
        cuts, whole = list(CUTS[self.pre]), self.pre in _WHOLE_WORDS
        return {
            "added_tokens": self._added(),
            "normalizer": {"type": "NFC"} if self.pre in _COMPOSES else None,
            "pre_tokenizer": cuts[0] if len(cuts) == 1 else {"type": "Sequence", "pretokenizers": cuts},
            "post_processor": self._frame(add_bos=whole),
            "decoder": _byte_level(True),
            "model": {
                "type": "BPE",
                "ignore_merges": whole,
                "vocab": self._vocab(),
                "merges": self._merges_listed(),
            },
        }

    def _wordpiece(self) -> Json:
        """BERT's longest-match pieces; llama.cpp marks where words begin, BERT where they go on."""
        named = [token[:1] == "[" and token[-1:] == "]" and len(token) > 2 for token in self.tokens]  # in older files
        plain = [kind == _CONTROL or name for kind, name in zip(self.types, named, strict=True)]
        self.tokens = [
            token if own else token.removeprefix(_SPACE) if token.startswith(_SPACE) else f"##{token}"
            for token, own in zip(self.tokens, plain, strict=True)
        ]
        cased = any(token != token.lower() for token, own in zip(self.tokens, plain, strict=True) if not own)
        unknown = self.ids["unk"]
        return {
            "added_tokens": self._added(),
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": not cased,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": self._frame(add_bos=True, add_eos=True),
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]" if unknown is None else self.tokens[unknown],
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": self._vocab(),
            },
        }

    # --- their parts ---

    def _vocab(self) -> dict[str, int]:
        """Piece -> id, without the names that stand for no piece at all."""
        typed = enumerate(self._typed())
        return {token: id for id, (token, kind) in typed if kind != _UNUSED or token != f"[PAD{id}]"}

    def _typed(self) -> Iterable[tuple[str, int]]:
        return zip(self.tokens, self.types, strict=True)

    def _added(self, skip: Iterable[str] = ()) -> list[Json]:
        """The tokens that are found in a text before it is cut."""
        skipped = set(skip)
        return [
            {
                "id": id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind != _USER_DEFINED,
            }
            for id, (token, kind) in enumerate(self._typed())
            if token and token not in skipped and (kind in (_CONTROL, _USER_DEFINED) or id == self.ids["unk"])
        ]

    def _merges_listed(self) -> list[list[str]]:
        merges = [merge.split(" ") for merge in self.header.strings("tokenizer.ggml.merges") or []]
        if any(len(pair) != 2 for pair in merges):
            raise self._refusal("has a merge that is no pair")
        return merges

    def _merges_by_score(self) -> list[list[str]]:
        """Every way in which two pieces make a third, best first.

        A piece's score says when it is merged; Gemma's pieces are in that order and their scores are not. (So does
        transformers' conversion.)
        """
        if self.header.metadata.get("tokenizer.ggml.merges") is not None:
            return self._merges_listed()
        scores = self._meta("scores")
        if not isinstance(scores, array) or len(scores) != len(self.tokens):
            raise self._refusal("has no score for each of its tokens")
        if self.header.architecture.startswith("gemma"):
            scores = range(0, -len(self.tokens), -1)
        vocab = self._vocab()
        if not all(isfinite(scores[id]) for id in vocab.values()):
            raise self._refusal("has a score that is no number")
        if sum(len(piece) ** 2 for piece in vocab) > MAX_SPLITS:
            raise self._refusal("has tokens that are too long to look for their merges")
        found: list[tuple[float, int, int, int, int, int]] = []
        for piece, id in vocab.items():
            for at in range(1, len(piece)):
                left, right = vocab.get(piece[:at]), vocab.get(piece[at:])
                if left is not None and right is not None:
                    found.append((-scores[id], -at, at - len(piece), id, left, right))
        return [[self.tokens[left], self.tokens[right]] for *_, left, right in sorted(found)]

    def _frame(self, add_bos: bool, add_eos: bool = False) -> Json | None:
        """What is put before and after a text."""
        bos, eos = self.ids["bos"], self.ids["eos"]
        if self.kind == "bert":
            bos = self._id("cls_token_id", bos)
            eos = self._id("seperator_token_id", self._id("separator_token_id", eos))
        before = [bos] if bos is not None and self._flag("add_bos_token", add_bos) else []
        after = [eos] if eos is not None and self._flag("add_eos_token", add_eos) else []
        if not before and not after:
            return None

        def shape(*parts: tuple[str, int]) -> list[Json]:
            shaped: list[Json] = []
            for name, segment in parts:
                shaped += [{"SpecialToken": {"id": self.tokens[id], "type_id": segment}} for id in before]
                shaped.append({"Sequence": {"id": name, "type_id": segment}})
                shaped += [{"SpecialToken": {"id": self.tokens[id], "type_id": segment}} for id in after]
            return shaped

        return {
            "type": "TemplateProcessing",
            "single": shape(("A", 0)),
            "pair": shape(("A", 0), ("B", 1)),
            "special_tokens": {
                self.tokens[id]: {"id": self.tokens[id], "ids": [id], "tokens": [self.tokens[id]]}
                for id in (*before, *after)
            },
        }

    def _settings(self) -> dict[str, Json]:
        """The files beside it: the control tokens' names, every id that ends a text, the chat template."""
        named = {f"{role}_token": self.tokens[id] for role, id in self.ids.items() if id is not None}
        ends = [self._id(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")]
        settings: Json = dict(named)
        if templates := self._templates():
            settings["chat_template"] = templates
        return {
            "tokenizer_config.json": settings,
            "generation_config.json": {"eos_token_id": [id for id in dict.fromkeys(ends) if id is not None]},
        }

    def _templates(self) -> list[Json]:
        """The chat templates, with their names as in a tokenizer_config.json; the one without a name is the default."""
        prefix = "tokenizer.chat_template"
        return [
            {"name": key.removeprefix(prefix).removeprefix(".") or "default", "template": value}
            for key, value in self.header.metadata.items()
            if (key == prefix or key.startswith(f"{prefix}.")) and isinstance(value, str)
        ]

    def _meta(self, key: str, default: Any = None) -> Any:
        value = self.header.metadata.get(f"tokenizer.ggml.{key}")
        return default if value is None else value

    def _flag(self, key: str, default: bool) -> bool:
        value = self._meta(key, default)
        if not isinstance(value, bool):
            raise self._refusal(f"has {key} {display(str(value))[:40]!r}, which is neither true nor false")
        return value

    def _id(self, key: str, default: int | None = None) -> int | None:
        """A control token's id, which must be one of the tokens'; llama.cpp writes −1 and 2³² − 1 for none."""
        value = self._meta(key, default)
        if value is None or value in (-1, 2**32 - 1):
            return None
        if not isinstance(value, int) or not 0 <= value < len(self.tokens):
            if self._meta(key) is None:  # only llama.cpp's default
                return None
            raise self._refusal(f"has {key} {display(str(value))[:40]}, but {len(self.tokens)} tokens")
        return value

    def _refusal(self, why: str) -> TokenizerError:
        return TokenizerError(f"{shown(self.header.path)}: its tokenizer {why}"[:400])

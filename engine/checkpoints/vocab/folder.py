"""Which tokenizer a model folder holds, and that tokenizer as one of Hugging Face's.

A `tokenizer.json` says everything itself. The older files say only the vocabulary; how a text is normalized and cut,
and what is put around it, is in the code of the tokenizer's class, which tokenizer_config.json or config.json names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.checkpoints.folder import refuse_dense
from engine.checkpoints.vocab import added, byte_level, sentencepiece, word_piece
from engine.checkpoints.vocab.bounds import refuse_bombs
from engine.checkpoints.vocab.files import (
    MAX_TOKENIZER_BYTES,
    MAX_VALUES,
    MAX_VOCABULARY_BYTES,
    Settings,
    guarded,
    read,
    read_settings,
)
from engine.checkpoints.vocab.templates import read_templates, templates_in
from engine.errors import TokenizerError
from engine.text import display

if TYPE_CHECKING:
    import tokenizers

KNOWN: Final = "give a folder with tokenizer.json, tokenizer.model, vocab.json and merges.txt, or vocab.txt"
SENTENCEPIECE: Final = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")

_CLASS_OF: Final = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "gemma3_text"), "Gemma"),
    **dict.fromkeys(("gpt2", "gptj", "gpt_neo", "opt", "phi", "codegen", "starcoder2"), "GPT2"),
    **dict.fromkeys(("gpt_neox", "mpt", "olmo", "olmoe"), "GPTNeoX"),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), "Qwen2"),
    **dict.fromkeys(("bert", "distilbert", "electra"), "Bert"),
    **dict.fromkeys(("t5", "mt5"), "T5"),
    "qwen": "QWen",
    "roberta": "Roberta",
    "mpnet": "MPNet",
    "xlm-roberta": "XLMRoberta",
    "marian": "Marian",
}
"""The tokenizer's class of a model type, without its ending; the others of layerstep's have no class of their own."""
_GENERIC: Final = ("", "TokenizersBackend", "PreTrained", "PythonBackend")
_OWN_CLASS_WINS_NOT: Final = ("mistral", "mixtral", "ministral", "phi3", "stablelm", "granite", "olmo2")
"""Model types of which transformers does not believe the class that their files name."""

_GPT2_NAMES: Final = dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>")
_QWEN2_NAMES: Final = dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>")
_ROBERTA_NAMES: Final = {
    "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>",
    "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>",
}  # fmt: skip
_BERT_NAMES: Final = {
    "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """A tokenizer as built, with the settings beside it and its special tokens by name."""

    inner: tokenizers.Tokenizer
    settings: Settings = field(default_factory=dict)
    named: Mapping[str, str | None] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    """Its chat templates by name."""
    unknown: Sequence[int] = ()
    """Ids that the library gives and the model does not have: pieces that count as unknown text."""
    target: Found | None = None
    """What reads the text that the decoder writes, where that is another tokenizer."""


def find(folder: Path) -> Found | None:
    """The tokenizer of a model folder, or of a GGUF file; None where there is none. Raises TokenizerError."""
    if folder.suffix.lower() == ".gguf" and not folder.is_dir():
        from engine.checkpoints.gguf.vocabulary import files_of

        files = files_of(folder)
        return files and from_json(*files, str(folder))
    settings = read_settings(folder)
    found = _find(folder, settings)
    return found and replace(found, templates=read_templates(folder, settings))


def _find(folder: Path, settings: Settings) -> Found | None:
    if os.path.lexists(folder / "tokenizer.json"):
        return from_file(folder / "tokenizer.json", settings)
    models = [name for name in (*SENTENCEPIECE, "tiktoken.model") if os.path.lexists(folder / name)]
    models += sorted(path.name for path in folder.glob("*.tiktoken"))
    if models:
        return _guarded(folder / models[0], lambda file: _model_file(file, settings))
    if os.path.lexists(folder / "source.spm"):
        return _guarded(folder / "source.spm", lambda file: _marian(file.parent, settings))
    if os.path.lexists(folder / "vocab.json") and os.path.lexists(folder / "merges.txt"):
        return _guarded(folder / "vocab.json", lambda file: _bpe(file.parent, settings))
    if os.path.lexists(folder / "vocab.txt"):
        return _guarded(folder / "vocab.txt", lambda file: _word_piece(file, settings))
    return None


def from_file(file: Path, settings: Settings) -> Found:
    """The tokenizer of a `tokenizer.json`."""
    return from_json(read(file, MAX_TOKENIZER_BYTES), settings, str(file))


def from_json(data: bytes, settings: Settings, where: str) -> Found:
    """The tokenizer of the bytes of a `tokenizer.json`."""
    import tokenizers

    refuse_dense(where, data, MAX_VALUES)

    def build() -> Found:
        refuse_bombs(data)
        inner = tokenizers.Tokenizer.from_buffer(data)
        named = added.named_tokens(settings)
        added.add_tokens(inner, settings, named)
        # What goes around a text is in the file, whatever add_bos_token says.
        return Found(inner, settings, named, templates_in(settings.get("tokenizer_config.json", {})))

    return guarded(build, f"{display(where)} is no tokenizer that can be read")


def _model_file(file: Path, settings: Settings) -> Found:
    """A SentencePiece model or tiktoken's ranks; Meta gave both the name tokenizer.model."""
    data = read(file, MAX_VOCABULARY_BYTES)
    return _tiktoken(data, file, settings) if byte_level.is_ranked(data) else _sentencepiece(data, file, settings)


def _sentencepiece(data: bytes, file: Path, settings: Settings) -> Found:
    kind = _kind(settings)
    if kind not in (*_GENERIC, "Llama", "Gemma", "T5"):
        raise _unknown(kind, file)
    model = sentencepiece.parse(data)
    config = settings["tokenizer_config.json"]
    names: Mapping[str, str] = model.named()
    extra: list[str] = []
    if kind == "T5":
        names = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
        count = config.get("extra_ids", 100)
        if type(count) is not int or not 0 <= count <= 10_000:
            raise TokenizerError(f"extra_ids of tokenizer_config.json is {display(repr(count))[:40]}")
        extra = [f"<extra_id_{number}>" for number in reversed(range(count))]
    legacy = config.get("legacy", kind != "Llama")
    inner = sentencepiece.build(model, extra, every_chunk=bool(legacy))
    found = _complete(inner, settings, names)
    if kind == "T5":
        inner.post_processor = added.around(inner, None, found.named["eos_token"])
    return found


def _marian(folder: Path, settings: Settings) -> Found:
    if settings["tokenizer_config.json"].get("separate_vocabs"):
        raise TokenizerError(f"{display(str(folder))}: a Marian tokenizer with two vocabularies is not supported")
    ids = byte_level.read_vocab(folder)
    names = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    sides = []
    for name in ("source.spm", "target.spm"):
        model, unknown = sentencepiece.renumbered(sentencepiece.parse(read(folder / name, MAX_VOCABULARY_BYTES)), ids)
        side = _complete(sentencepiece.build(model), settings, names)
        side.inner.post_processor = added.around(side.inner, None, side.named["eos_token"])
        sides.append(replace(side, unknown=unknown))
    return replace(sides[0], target=sides[1])


def _tiktoken(data: bytes, file: Path, settings: Settings) -> Found:
    kind, model_type = _kind(settings), settings["config.json"].get("model_type")
    if kind == "QWen" or (kind == "Qwen2" and model_type != "llama"):
        pattern, nfc = byte_level.QWEN, True
    elif model_type == "llama" and kind in (*_GENERIC, "Llama"):
        pattern, nfc = byte_level.LLAMA3, False
    else:
        raise TokenizerError(
            f"{display(str(file))} is a tiktoken file, which does not say how a text is cut into words; that is known "
            f"of Llama 3 and Qwen, but not of {display(str(kind or model_type))[:60]!r}; "
            "save the tokenizer as a tokenizer.json"
        )
    vocab, merges = byte_level.from_ranks(data, str(file))
    inner = byte_level.build(vocab, merges, pattern=pattern, nfc=nfc, whole_first=True)
    if kind == "QWen" and "added_tokens_decoder" not in settings["tokenizer_config.json"]:
        inner.add_special_tokens(
            ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{n}|>" for n in range(205))]
        )
    return _complete(inner, settings, {})


def _bpe(folder: Path, settings: Settings) -> Found:
    kind = _kind(settings)
    names = {"Qwen2": _QWEN2_NAMES, "Roberta": _ROBERTA_NAMES} | dict.fromkeys(
        ("GPT2", "CodeGen", "GPTNeoX"), _GPT2_NAMES
    )
    if kind not in (*_GENERIC, *names):
        raise _unknown(kind, folder / "vocab.json")
    vocab, merges = byte_level.from_vocab_and_merges(folder)
    space = settings["tokenizer_config.json"].get("add_prefix_space") is True
    pattern = byte_level.QWEN if kind == "Qwen2" else ""
    inner = byte_level.build(vocab, merges, pattern=pattern, nfc=kind in ("Qwen2", "GPTNeoX"), prefix_space=space)
    found = _complete(inner, settings, names.get(kind, {}))
    if kind == "Roberta":
        inner.post_processor = added.around(inner, found.named["cls_token"], found.named["sep_token"])
    return found


def _word_piece(file: Path, settings: Settings) -> Found:
    kind = _kind(settings)
    if kind not in (*_GENERIC, "Bert", "DistilBert", "Electra", "MobileBert"):
        raise _unknown(kind, file)
    unk = added.named_tokens(settings, _BERT_NAMES)["unk_token"] or "[UNK]"
    inner = word_piece.build(file, settings["tokenizer_config.json"], unk)
    found = _complete(inner, settings, _BERT_NAMES)
    inner.post_processor = added.around(inner, found.named["cls_token"], found.named["sep_token"])
    return found


def _complete(inner: tokenizers.Tokenizer, settings: Settings, names: Mapping[str, str]) -> Found:
    """With the tokens that the settings add, and what they put around a text where nothing is yet."""
    named = added.named_tokens(settings, names)
    added.add_tokens(inner, settings, named)
    if inner.post_processor is None and (around := added.bos_and_eos(inner, settings, named)):
        inner.post_processor = around
    return Found(inner, settings, named)


def _kind(settings: Settings) -> str:
    """The tokenizer's class without its ending, by transformers' AutoTokenizer: "Llama", "Qwen2", "" for none."""
    config = settings["config.json"]
    declared = settings["tokenizer_config.json"].get("tokenizer_class") or config.get("tokenizer_class")
    model_type = str(config.get("model_type"))
    own = _CLASS_OF.get(model_type, "")
    if model_type in _OWN_CLASS_WINS_NOT or not isinstance(declared, str):
        return own
    return own if model_type == "qwen2" else declared.removesuffix("Fast").removesuffix("Tokenizer")


def _unknown(kind: str, file: Path) -> TokenizerError:
    return TokenizerError(
        f"{display(str(file))}: how a {display(kind)[:60]}Tokenizer reads this file is not known; "
        "save the tokenizer as a tokenizer.json"
    )


def _guarded(file: Path, build: Callable[[Path], Found]) -> Found:
    return guarded(lambda: build(file), f"{display(str(file))} is no tokenizer that can be read")

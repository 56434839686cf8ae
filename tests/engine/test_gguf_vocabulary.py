"""Tokenizers from GGUF metadata: the very ids of the tokenizer that a file was made of."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from folders import refusal
from gguf_files import write
from hypothesis import given
from hypothesis import strategies as st
from test_gguf import llama_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from engine.checkpoints import gguf
from engine.checkpoints.gguf.vocabulary import CUTS
from engine.errors import TokenizerError
from engine.text import display
from engine.tokenizer import Tokenizer

TEXTS = [
    "The server crashed because the disk was full, and nobody knew why it'll take 3 days.",
    "I've told you; he's there. DON'T panic: 12345 67 8.90 naïve café, Straße ΑΒΓ – 東京 서울 🎉",
    "def f(x):\n    return x ** 2  # squares\n\n\tif x:\n\t\tpass\r\n  the  end  ",
    "<|im_start|>user\nHello world<|im_end|> _private __init__ camelCase HTTPServer (a+b)=c*d/e 100%",
] * 3
WORDS = st.sampled_from([
    "the", " the", "  ", "\n", "\n\n", "\t", "it'll", "DON'T", "12345", " 7", ".", "...", "é", "e\u0301", "京",
    "🎉👍🏽", "ﬁ", "ΑΒ", "camelCase", " (x)", "=", "</s>", "<s>", "<|im_start|>", "▁", "Ġ", "<0x0A>", "ß", "_", "!",
    "\r\n", "\x00",
])  # fmt: skip
TEXT = st.one_of(st.lists(WORDS, max_size=12).map("".join), st.text(max_size=20)).filter(
    lambda text: not any("\ud800" <= char <= "\udfff" for char in text)
)
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def pieces(inner: tokenizers.Tokenizer) -> tuple[list[str], list[int]]:
    """Tokens and their types, as the converter writes them."""
    added = inner.get_added_tokens_decoder()
    tokens = [inner.id_to_token(id) for id in range(inner.get_vocab_size())]
    types = [
        CONTROL if id in added and added[id].special else USER_DEFINED if id in added else NORMAL
        for id in range(len(tokens))
    ]
    return tokens, types


def merges_of(inner: tokenizers.Tokenizer) -> list[str]:
    return [" ".join(pair) for pair in json.loads(inner.to_str())["model"]["merges"]]


def read(folder: Path, arch: str = "llama", **metadata: Any) -> Tokenizer:
    """The tokenizer of a file with this metadata and no tensors."""
    keys = {f"tokenizer.ggml.{key}" if "." not in key else key: value for key, value in metadata.items()}
    found = Tokenizer.find(write(folder / "m.gguf", arch, keys, {}))
    assert found is not None
    return found


# ------------------------------------------------------------------------------------------- SentencePiece's BPE


def sentencepiece(prefix: bool = True) -> tokenizers.Tokenizer:
    """A tokenizer like Llama 2's, or without the space before a text like Gemma's."""
    first = [normalizers.Prepend("▁")] if prefix else []
    inner = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    inner.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", "▁")])
    controls = ["<unk>", "<s>", "</s>"]
    special = [*controls, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    inner.train_from_iterator(TEXTS, trainer)
    state = json.loads(inner.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] in controls]
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    joins = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    state["decoder"] = json.loads(joins.__getstate__())
    inner = tokenizers.Tokenizer.from_str(json.dumps(state))
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return inner


def sentencepiece_metadata(inner: tokenizers.Tokenizer) -> dict[str, Any]:
    tokens, types = pieces(inner)
    rank = {}
    for place, pair in enumerate(merges_of(inner)):
        rank.setdefault(pair.replace(" ", ""), place)
    types = [UNKNOWN, *(BYTE if t.startswith("<0x") else kind for t, kind in zip(tokens[1:], types[1:], strict=True))]
    return {
        "model": "llama", "pre": "default", "tokens": tokens, "token_type": types,
        "scores": [-float(rank.get(t, 10_000)) for t in tokens],
        "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0,
    }  # fmt: skip


@pytest.fixture(scope="module", params=[True, False], ids=["with a space before", "without"])
def spm(request, tmp_path_factory):
    inner = sentencepiece(request.param)
    more = {} if request.param else {"add_space_prefix": False}
    return inner, read(tmp_path_factory.mktemp("spm"), **sentencepiece_metadata(inner), **more)


@given(text=TEXT)
def test_sentencepiece_ids_are_those_of_the_source(spm, text):
    inner, ours = spm
    assert ours.ids(text) == inner.encode(text).ids
    assert ours.decode(ours.ids(text)) == inner.decode(inner.encode(text).ids)


def test_sentencepiece_settings(spm):
    _, ours = spm
    assert (ours.bos_id, ours.eos_id, ours.pad_id, ours.eos_ids) == (1, 2, None, {2})
    assert ours.token(1).special
    assert ours.token(3 + 10).bytes == b"\n"


def test_spaces_in_a_row_are_pieces_like_any_other(tmp_path):
    """llama.cpp writes Gemma's pieces of several ▁ as spaces that a user defined."""
    tokens = ["<unk>", "<s>", "</s>", "▁", "  ", "    ", "a", "▁a"]
    types = [UNKNOWN, CONTROL, CONTROL, NORMAL, USER_DEFINED, USER_DEFINED, NORMAL, NORMAL]
    ours = read(
        tmp_path, "gemma2", model="llama", tokens=tokens, scores=[0.0] * 8, token_type=types, add_space_prefix=False
    )
    assert ours.ids("a     a") == [1, 6, 5, 7]
    assert ours.token(5).bytes == b"    "


@pytest.mark.parametrize(
    ("add", "ids"), [({}, [1, 6]), ({"add_bos_token": False}, [6]), ({"add_eos_token": True}, [1, 6, 2])]
)
def test_what_is_put_around_a_text(tmp_path, add, ids):
    tokens, types = ["<unk>", "<s>", "</s>", "▁", "b", "a", "▁a"], [UNKNOWN, CONTROL, CONTROL, *[NORMAL] * 4]
    ours = read(tmp_path, model="llama", tokens=tokens, scores=[0.0] * 7, token_type=types, **add)
    assert ours.ids("a") == ids
    assert ours.ids("a", add_special=False) == [6]


# ------------------------------------------------------------------------------------------------ byte-level BPE

DISTINCT = {
    "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "starcoder": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "falcon": [
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(),
        pre_tokenizers.Split(tokenizers.Regex("[0-9][0-9][0-9]"), "isolated"),
    ],
}
"""How the tokenizer.json of GPT-2, StarCoder and Falcon cut; the patterns of the others are transformers' own."""


def cuts_of(pre: str) -> list[pre_tokenizers.PreTokenizer]:
    if pre in DISTINCT:
        return DISTINCT[pre]
    theirs = pytest.importorskip(
        "transformers.integrations.gguf.gguf_tokenizer_mapping", reason="an older transformers"
    )
    pattern = tokenizers.Regex(theirs.GGUF_PRE_TOKENIZER_SPLITS[pre])
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return [pre_tokenizers.Split(pattern, "isolated"), level]


def byte_level(pre: str) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(models.BPE(ignore_merges=pre in ("llama-bpe", "tekken")))
    inner.normalizer = normalizers.NFC() if pre == "qwen2" else None
    inner.pre_tokenizer = pre_tokenizers.Sequence(cuts_of(pre))
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<|im_start|>", "<|im_end|>"], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(TEXTS, trainer)
    inner.add_tokens([tokenizers.AddedToken("camelCase", normalized=False)])
    return inner


@pytest.fixture(scope="module", params=["gpt-2", "starcoder", "falcon", "llama-bpe", "qwen2", "gpt-4o", "tekken"])
def bpe(request, tmp_path_factory):
    inner = byte_level(request.param)
    tokens, types = pieces(inner)
    ours = read(
        tmp_path_factory.mktemp("bpe"), model="gpt2", pre=request.param, tokens=tokens, token_type=types,
        merges=merges_of(inner), add_bos_token=False, eos_token_id=1, eot_token_id=0,
    )  # fmt: skip
    return inner, ours


@given(text=TEXT)
def test_byte_level_ids_are_those_of_the_source(bpe, text):
    inner, ours = bpe
    assert ours.ids(text) == inner.encode(text).ids


def test_every_id_that_ends_a_text_is_known(bpe):
    _, ours = bpe
    assert (ours.eos_id, ours.eos_ids, ours.bos_id) == (1, {0, 1}, None)


def test_the_patterns_are_transformers_own():
    theirs = pytest.importorskip(
        "transformers.integrations.gguf.gguf_tokenizer_mapping", reason="an older transformers"
    )
    for name in set(CUTS) & set(theirs.GGUF_PRE_TOKENIZER_SPLITS):
        assert CUTS[name][0]["pattern"]["Regex"] == theirs.GGUF_PRE_TOKENIZER_SPLITS[name], name


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2"])
def test_ids_are_those_of_transformers_reading_of_the_file(tmp_path, pre):
    theirs = pytest.importorskip("transformers.integrations.gguf", reason="an older transformers")
    inner = byte_level(pre)
    tokens, types = pieces(inner)
    ours = read(
        tmp_path, model="gpt2", pre=pre, tokens=tokens, token_type=types, merges=merges_of(inner), bos_token_id=0
    )
    architecture, parts, _ = theirs.get_gguf_tokenizer(str(tmp_path / "m.gguf"))
    reference, _ = theirs.convert_gguf_tokenizer(architecture, parts)
    for text in TEXTS:
        assert ours.ids(text, add_special=False) == reference.encode(text, add_special_tokens=False).ids
    assert ours.ids("a")[0] == (
        0 if pre == "llama-bpe" else ours.ids("a", add_special=False)[0]
    )  # Llama 3 begins with BOS


def test_ids_that_stand_for_no_token_are_none(tmp_path):
    """A vocabulary that is filled up to the model's size has names there that no text may spell."""
    inner = byte_level("gpt-2")
    tokens, types = pieces(inner)
    n = len(tokens)
    ours = read(
        tmp_path,
        model="gpt2",
        pre="gpt-2",
        tokens=[*tokens, f"[PAD{n}]"],
        token_type=[*types, UNUSED],
        merges=merges_of(inner),
    )
    assert ours.vocab_size == n
    assert ours.token(n).bytes == b""
    assert ours.ids(f"[PAD{n}]") == inner.encode(f"[PAD{n}]").ids


# ----------------------------------------------------------------------------------------------------- WordPiece


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def bert(request, tmp_path_factory):
    inner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=request.param)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    inner.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    )
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokens, types = pieces(inner)
    marked = [
        token if kind == CONTROL else token[2:] if token.startswith("##") else f"▁{token}"
        for token, kind in zip(tokens, types, strict=True)
    ]
    ids = {"unknown_token_id": 1, "cls_token_id": 2, "seperator_token_id": 3, "padding_token_id": 0, "mask_token_id": 4}
    ours = read(
        tmp_path_factory.mktemp("bert"), "bert", model="bert", pre="bert-bge", tokens=marked, token_type=types, **ids
    )
    return inner, ours


@given(text=TEXT)
def test_word_piece_ids_are_those_of_the_source(bert, text):
    inner, ours = bert
    assert ours.ids(text) == inner.encode(text).ids


# ------------------------------------------------------------------------------------------------- what is refused

GOOD = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab"], "token_type": [1, 1, 1], "merges": ["a b"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "rwkv"}, "its tokenizer of kind 'rwkv' is not supported; llama, gpt2, bert are"),
        ({"model": [1, 2]}, "its tokenizer of kind"),
        ({"pre": [1, 2]}, "cuts text as"),
        ({"model": 3}, "its tokenizer of kind '3' is not supported"),
        ({"pre": "gpt-7"}, "cuts text as 'gpt-7' (tokenizer.ggml.pre), which layerstep does not know; known are gpt-2"),
        ({"pre": "\x1b[31m"}, "cuts text as"),
        ({"pre": []}, "does not say how it cuts text (tokenizer.ggml.pre), as files do since April 2024"),
        ({"token_type": [1, 1]}, "has no token_type for each of its tokens"),
        ({"tokens": "abc"}, "has no token_type for each of its tokens"),
        ({"merges": ["a b c"]}, "has a merge that is no pair"),
        ({"merges": ["a c"]}, "is no tokenizer that can be read"),
        ({"bos_token_id": 3}, "has bos_token_id 3, but 3 tokens"),
        ({"eos_token_id": "x"}, "has eos_token_id x, but 3 tokens"),
        ({"model": "llama", "merges": [], "scores": [0.0]}, "has no score for each of its tokens"),
        ({"model": "llama", "merges": [], "scores": [0.0, float("nan"), 0.0]}, "has a score that is no number"),
        ({"model": "llama", "merges": [], "scores": [0.0, 0.0, float("inf")]}, "has a score that is no number"),
        ({"model": "llama", "merges": [], "scores": [0.0] * 3, "tokens": ["a", "b", "c" * 9000]}, "too long to look"),
        ({"token_type": [1, 99, 1]}, "has a token_type 99; there are 0 to 6"),
        ({"token_type": [-1, 1, 1]}, "has a token_type -1; there are 0 to 6"),
        ({"tokens": ["a", "ab", "ab"]}, "has the token 'ab' 2 times, so its id is not known"),
        ({"add_bos_token": "yes", "bos_token_id": 0}, "has add_bos_token 'yes', which is neither true nor false"),
        ({"model": "llama", "add_space_prefix": 7}, "has add_space_prefix '7', which is neither true nor false"),
    ],
)
def test_vocabularies_that_do_not_hold_are_refused(tmp_path, change, message):
    metadata = {key: value for key, value in (GOOD | change).items() if value != []}
    with pytest.raises(TokenizerError) as caught:
        read(tmp_path, **metadata)
    assert message in str(caught.value)
    assert display(str(caught.value)) == str(caught.value)


def test_places_that_nothing_is_made_for_may_be_alike(tmp_path):
    """Converters fill a vocabulary up to the number of embeddings: with names, or with nothing."""
    tokens = [*GOOD["tokens"], "", "", "<pad>", "<pad>", "<r>", "<r>"]
    types = [NORMAL] * 5 + [UNUSED] * 2 + [CONTROL] * 2
    tokenizer = read(tmp_path, **GOOD | {"tokens": tokens, "token_type": types})
    assert tokenizer.ids("ab") == [2]
    assert all(tokenizer.label(id) for id in range(len(tokens)))


@pytest.mark.parametrize("size", [0, 1, 2**32 - 1])
def test_a_size_of_the_vocabulary_that_is_not_so_is_said(tmp_path, size):
    sound = gguf.find(llama_file(tmp_path))
    told = gguf.find(llama_file(tmp_path, vocab_size=size))
    assert told.notes == (f"ignored llama.vocab_size {size}: there are {sound.config.d_vocab} embeddings",)
    assert gguf.find(llama_file(tmp_path, vocab_size=sound.config.d_vocab)).notes == sound.notes == ()


def test_a_model_whose_tokenizer_is_refused_is_refused(tmp_path):
    assert "which layerstep does not know" in refusal(
        llama_file(
            tmp_path,
            **{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "x", "tokenizer.ggml.tokens": ["a", "b", "c"]},
        )
    )


def test_files_without_a_vocabulary_have_no_tokenizer(tmp_path):
    for metadata in ({}, {"tokenizer.ggml.model": "none"}):
        assert Tokenizer.find(write(tmp_path / "m.gguf", "llama", metadata, {})) is None


def test_a_tokenizer_json_in_the_file_is_the_tokenizer(tmp_path):
    inner = byte_level("gpt-2")
    ours = read(tmp_path, **GOOD | {"pre": "unheard of", "tokenizer.huggingface.json": inner.to_str()})
    assert ours.ids(TEXTS[0]) == inner.encode(TEXTS[0]).ids

"""Tokenizer files as they stand in model folders: the ids are those of transformers, SentencePiece and tiktoken."""

import json
import random
import re
import time
import unicodedata
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import (
    WORDS,
    rank_file,
    ranks,
    sentencepiece_model,
    special,
    vocab_and_merges,
    word_pieces,
    write,
)

from engine.checkpoints.vocab import byte_level, sentencepiece
from engine.errors import CheckpointError, LayerstepError, PromptError, TokenizerError
from engine.tokenizer import Tokenizer

TEXT = st.lists(st.one_of(st.sampled_from(WORDS), st.characters(exclude_categories=["Cs"])), max_size=8).map("".join)


def texts(count: int, seed: int = 0, words: list[str] = WORDS) -> Iterator[str]:
    draw = random.Random(seed)
    yield from ("", " ", "hello", " hello", "Dear Sam, I hope", "i ⭢ j")
    for _ in range(count):
        yield "".join(draw.choices(words, k=draw.randint(1, 7)))


def theirs(folder: Path) -> Any:
    """The model's own tokenizer as transformers opens it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder)


def assert_same_ids(folder: Path, texts: Iterator[str]) -> None:
    ours, reference = Tokenizer.load(folder), theirs(folder)
    for text in texts:
        assert ours.ids(text) == reference(text)["input_ids"], text
    assert (ours.eos_id, ours.pad_id) == (reference.eos_token_id, reference.pad_token_id)


GPT2_SETTINGS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "config": {"model_type": "gpt2"},
        "tokenizer_config": {"bos_token": "<|eos|>", "eos_token": "<|eos|>", "unk_token": "<|eos|>"},
    },
    "gpt2 with all its switches": {
        "config": {"model_type": "gpt2"},
        "tokenizer_config": {
            "tokenizer_class": "GPT2Tokenizer", "bos_token": "<|bos|>", "eos_token": "<|eos|>", "unk_token": "<|bos|>",
            "add_bos_token": True, "add_eos_token": True, "add_prefix_space": True,
        },
    },
    "gpt2 of old, its added tokens in three files": {
        "config": {"model_type": "gpt2"},
        "added_tokens": {"<|x|>": 380, "crash": 381},
        "special_tokens_map": {
            "bos_token": "<|bos|>", "unk_token": "<|bos|>", "eos_token": special("<|eos|>", lstrip=True, rstrip=True),
            "additional_special_tokens": ["<|x|>"],
        },
    },
    "opt": {
        "config": {"model_type": "opt"},
        "tokenizer_config": {
            "tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "pad_token": "<|pad|>", "eos_token": "<|bos|>",
            "unk_token": "<|bos|>", "bos_token": {"__type": "AddedToken", **special("<|bos|>")},
        },
    },
    "qwen2": {
        "config": {"model_type": "qwen2"},
        "tokenizer_config": {
            "tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "unk_token": None, "eos_token": "<|eos|>",
            "pad_token": "<|eos|>", "additional_special_tokens": ["<|x|>"],
            "added_tokens_decoder": {
                "0": special("<|bos|>"), "1": special("<|eos|>"), "380": special("<|x|>"),
                "381": special("<sep>", special=False, lstrip=True),
            },
        },
    },
    "gpt_neox": {
        "config": {"model_type": "gpt_neox"},
        "tokenizer_config": {
            "tokenizer_class": "GPTNeoXTokenizer", "bos_token": "<|bos|>", "eos_token": "<|bos|>",
            "unk_token": "<|bos|>", "pad_token": None,
        },
    },
    "roberta": {
        "config": {"model_type": "roberta"},
        "tokenizer_config": {
            "tokenizer_class": "RobertaTokenizer", "bos_token": "<|bos|>", "cls_token": "<|bos|>",
            "sep_token": "<|eos|>", "eos_token": "<|eos|>", "unk_token": "<|pad|>", "pad_token": "<|pad|>",
            "mask_token": {"__type": "AddedToken", **special("<|pad|>", lstrip=True)},
        },
    },
}  # fmt: skip
BERT_SETTINGS: dict[str, dict[str, Any]] = {
    "bert": {"config": {"model_type": "bert"}},
    "bert cased": {
        "config": {"model_type": "bert"},
        "tokenizer_config": {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
    },
    "distilbert": {
        "config": {"model_type": "distilbert"},
        "tokenizer_config": {"tokenizer_class": "DistilBertTokenizer", "do_lower_case": True},
    },
}


class TestVocabAndMerges:
    @pytest.mark.parametrize("name", GPT2_SETTINGS)
    def test_ids_are_transformers_own(self, tmp_path: Path, name: str) -> None:
        assert_same_ids(write(vocab_and_merges(tmp_path), **GPT2_SETTINGS[name]), texts(300))

    def test_without_settings_it_is_byte_level_bpe_and_nothing_around_it(self, tmp_path: Path) -> None:
        tokenizer = Tokenizer.load(vocab_and_merges(tmp_path))
        assert tokenizer.decode(tokenizer.ids("i ⭢ j\n 👍")) == "i ⭢ j\n 👍"
        assert tokenizer.ids("") == []

    @pytest.mark.parametrize("kind", ["CLIPTokenizer", "WhisperTokenizer", "MyTokenizer"])
    def test_a_class_that_is_not_known_is_refused_by_name(self, tmp_path: Path, kind: str) -> None:
        write(vocab_and_merges(tmp_path), tokenizer_config={"tokenizer_class": kind})
        with pytest.raises(TokenizerError, match=f"{kind}.*not known; save the tokenizer as a tokenizer.json"):
            Tokenizer.load(tmp_path)

    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            ("merges.txt", "a b c\n", "line 1 is not two pieces"),
            ("merges.txt", "#version: 0.2\nQ\n", "line 2 is not two pieces"),
            ("merges.txt", "qq qq\n", "out of vocabulary"),
            ("vocab.json", '{"a": 1, "b": 1}', "an id of its own"),
            ("vocab.json", '{"a": -1}', "an id of its own"),
            ("vocab.json", '{"a": "1"}', "an id of its own"),
            ("vocab.json", "[]", "not a JSON object"),
        ],
    )
    def test_damage_is_one_line(self, tmp_path: Path, name: str, content: str, said: str) -> None:
        (vocab_and_merges(tmp_path) / name).write_text(content)
        with pytest.raises(TokenizerError, match=said) as caught:
            Tokenizer.load(tmp_path)
        assert "\n" not in str(caught.value)

    def test_an_added_token_that_cannot_have_its_id_is_refused(self, tmp_path: Path) -> None:
        write(vocab_and_merges(tmp_path), added_tokens={"<|x|>": 500})
        with pytest.raises(TokenizerError, match=r"'<\|x\|>' is given the id 500, but its place .* is 380"):
            Tokenizer.load(tmp_path)


class TestWordPiece:
    @pytest.mark.parametrize("name", BERT_SETTINGS)
    def test_ids_are_transformers_own(self, tmp_path: Path, name: str) -> None:
        assert_same_ids(write(word_pieces(tmp_path), **BERT_SETTINGS[name]), texts(300))

    def test_a_vocabulary_without_what_goes_around_a_text_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\na\n")
        with pytest.raises(TokenizerError, match=r"lacks '\[SEP\]'"):
            Tokenizer.load(tmp_path)


# --- SentencePiece ----------------------------------------------------------------------------------------

PLAIN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
GEMMA = {"bos_id": 2, "eos_id": 1, "unk_id": 3, "pad_id": 0, "bos_piece": "<bos>", "eos_piece": "<eos>"}
MODELS: dict[str, bytes] = {
    name: sentencepiece_model(**options)
    for name, options in {
        "unigram": {"model_type": "unigram", "vocab_size": 150},
        "unigram, case folded": {
            "model_type": "unigram", "vocab_size": 110, "pad_id": 3, "normalization_rule_name": "nmt_nfkc_cf",
        },
        "t5": {"model_type": "unigram", "vocab_size": 150, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
        "bpe": {"model_type": "bpe", "vocab_size": 200},
        "bpe, user's symbols": {"model_type": "bpe", "vocab_size": 220, "user_defined_symbols": ["<sep>", "dog"]},
        "llama": {"model_type": "bpe", "vocab_size": 450, "byte_fallback": True, "split_digits": True, **PLAIN},
        "gemma": {
            "model_type": "bpe", "vocab_size": 460, "byte_fallback": True, "add_dummy_prefix": False,
            "user_defined_symbols": ["\n", "\n\n", "<|x|>"], **PLAIN, **GEMMA,
        },
        "gemma, runs of spaces": {
            "model_type": "bpe", "vocab_size": 460, "byte_fallback": True, "add_dummy_prefix": False,
            "user_defined_symbols": ["▁▁", "▁▁▁", "\n"], **PLAIN,
        },
    }.items()
}  # fmt: skip


class TestSentencePiece:
    @pytest.mark.parametrize("name", MODELS)
    @given(text=TEXT)
    @settings(max_examples=200)
    def test_literal_ids_are_sentencepieces_own(self, name: str, text: str) -> None:
        """SentencePiece never reads a control token in a text, and so it is the reference for `literal`."""
        ours, reference = self.pair(name)
        text = text.replace("\0", "")
        try:
            ids = ours.ids(text, literal=True, add_special=False)
        except PromptError:  # a name that only the library's table of normal forms leaves whole: refused, not read
            assert not text.isascii()
            return
        if ids != reference.encode(text):
            # The library looks its table of normal forms up by whole glyphs, SentencePiece by the longest match.
            assert reference.normalize(text) != text.replace(" ", "▁"), text
            assert not text.isascii()
        assert all(ours.encode(text, literal=True)[n].label for n in range(len(ours.ids(text, literal=True))))

    _pairs: dict[str, Any] = {}  # noqa: RUF012

    def pair(self, name: str) -> Any:
        import sentencepiece as library

        if name not in self._pairs:
            inner = sentencepiece.build(sentencepiece.parse(MODELS[name]))
            self._pairs[name] = (Tokenizer(inner), library.SentencePieceProcessor(model_proto=MODELS[name]))
        return self._pairs[name]

    @pytest.mark.parametrize("name", MODELS)
    def test_the_vocabulary_is_sentencepieces_own(self, name: str) -> None:
        ours, reference = self.pair(name)
        model = sentencepiece.parse(MODELS[name])
        assert [piece.text for piece in model.pieces] == [reference.id_to_piece(i) for i in range(len(reference))]
        assert [piece.score for piece in model.pieces] == [reference.get_score(i) for i in range(len(reference))]
        assert (model.bos_id, model.eos_id, model.pad_id, model.unk_id) == (
            reference.bos_id(), reference.eos_id(), reference.pad_id(), reference.unk_id(),
        )  # fmt: skip
        assert ours.vocab_size == len(reference)

    @pytest.mark.parametrize("legacy", [True, "absent"])
    @pytest.mark.parametrize("model_type", ["llama", "mistral"])
    def test_llamas_ids_are_transformers_own(self, tmp_path: Path, model_type: str, legacy: object) -> None:
        (tmp_path / "tokenizer.model").write_bytes(MODELS["llama"])
        config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False}
        config |= {} if legacy == "absent" else {"legacy": legacy}
        write(tmp_path, config={"model_type": model_type}, tokenizer_config=config)
        # transformers 5 takes one space away from a text that begins with one, as SentencePiece and transformers 4
        # do not, and with it the difference between "hello" and " hello".
        assert_same_ids(tmp_path, (text for text in texts(400) if not re.search(r"(^|<s>|</s>|<unk>)[ ▁]", text)))
        assert Tokenizer.load(tmp_path).ids(" hello") != Tokenizer.load(tmp_path).ids("hello")

    def test_gemmas_ids_are_transformers_own(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.model").write_bytes(MODELS["gemma"])
        names = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
        config = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "legacy": None, **names}
        write(tmp_path, config={"model_type": "gemma2"}, tokenizer_config=config)
        assert_same_ids(tmp_path, texts(400, words=[*WORDS, "<bos>", "<eos>"]))

    @pytest.mark.parametrize("config", [{}, {"extra_ids": 2}])
    def test_t5s_ids_are_transformers_own(self, tmp_path: Path, config: dict[str, Any]) -> None:
        (tmp_path / "spiece.model").write_bytes(MODELS["t5"])
        write(tmp_path, config={"model_type": "t5"}, tokenizer_config=config)
        assert_same_ids(tmp_path, texts(400))

    def test_marians_ids_are_transformers_own(self, tmp_path: Path) -> None:
        """Two models of pieces, and the ids of all of them in vocab.json."""
        sides = {"source.spm": MODELS["unigram"], "target.spm": MODELS["t5"]}
        pieces = ["</s>", "<unk>"]
        for name, data in sides.items():
            (tmp_path / name).write_bytes(data)
            pieces += [piece.text for piece in sentencepiece.parse(data).pieces if piece.kind == sentencepiece.NORMAL]
        missing = "▁the"
        assert missing in pieces
        listed = [*reversed(pieces[2:]), *pieces[:2], ">>fra<<", "<pad>"]
        vocab = {text: id for id, text in enumerate(dict.fromkeys(text for text in listed if text != missing))}
        (tmp_path / "vocab.json").write_text(json.dumps(vocab))
        write(tmp_path, config={"model_type": "marian"}, tokenizer_config={"source_lang": "en", "target_lang": "fr"})
        ours, reference = Tokenizer.load(tmp_path), theirs(tmp_path)
        unknown = 0
        for text in [*texts(400), ">>fra<< the dog", ">>fra<<"]:
            assert ours.ids(text) == reference(text)["input_ids"], text
            assert ours.target.ids(text) == reference(text_target=text)["input_ids"], text
            unknown += missing in ours._inner.encode(text).tokens
            assert all(token.id < len(vocab) and token.label for token in ours.encode(text))
        assert unknown  # a piece that vocab.json lacks is cut out and then unknown
        assert (ours.eos_id, ours.pad_id, ours.vocab_size) == (vocab["</s>"], vocab["<pad>"], len(vocab))
        assert ours.decode(ours.ids("dog said hello")) == "dog said hello"

    @pytest.mark.parametrize("name", ["unigram", "bpe"])
    def test_a_model_of_no_known_class_is_read_as_its_file_says(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "tokenizer.model").write_bytes(MODELS[name])
        assert_same_ids(write(tmp_path, config={"model_type": "mistral"}), texts(400))

    @pytest.mark.parametrize("kind", ["XLMRobertaTokenizer", "AlbertTokenizer", "MarianTokenizer"])
    def test_a_class_that_moves_ids_is_refused_by_name(self, tmp_path: Path, kind: str) -> None:
        (tmp_path / "sentencepiece.bpe.model").write_bytes(MODELS["unigram"])
        write(tmp_path, tokenizer_config={"tokenizer_class": kind})
        with pytest.raises(TokenizerError, match=f"how a {kind} reads this file is not known"):
            Tokenizer.load(tmp_path)

    @pytest.mark.parametrize("model_type", ["word", "char"])
    def test_other_kinds_of_model_are_refused_by_name(self, model_type: str) -> None:
        data = sentencepiece_model(model_type=model_type, vocab_size=100)
        with pytest.raises(TokenizerError, match=f"of type {model_type} is not supported"):
            sentencepiece.parse(data)

    def test_t2_the_space_before_the_first_word(self) -> None:
        for name in ("llama", "unigram"):
            tokenizer, _ = self.pair(name)
            assert tokenizer.encode("hello")[0].label.startswith("␣")
            for text in ("Dear Sam, I hope", "hello"):
                assert tokenizer.decode(tokenizer.ids(text)) == text
        llama, _ = self.pair("llama")
        for text in (" hello", "  two", "a\n b", ""):
            assert llama.decode(llama.ids(text)) == text
        gemma, _ = self.pair("gemma")
        assert gemma.encode("hello")[0].label.startswith("h")

    @pytest.mark.parametrize("name", ["llama", "gemma"])
    @given(text=TEXT)
    def test_t1_bytes_add_up_and_streaming_never_shows_half_a_character(self, name: str, text: str) -> None:
        tokenizer, _ = self.pair(name)
        tokens = tokenizer.encode(text, literal=True, add_special=False)
        raw = b"".join(token.bytes for token in tokens)
        # A ▁ that somebody typed is a space to SentencePiece.
        assert raw.removeprefix(b" " if name == "llama" else b"") == text.replace("▁", " ").encode()
        assert all(token.label for token in tokens)
        stream, shown = tokenizer.stream(), ""
        for token in tokens:
            new = stream.push(token.id)
            assert "\ufffd" not in new or "\ufffd" in text
            shown += new
        assert shown + stream.finish() == text.replace("▁", " ") == tokenizer.decode(t.id for t in tokens)

    def test_text_that_looks_like_a_byte_is_text(self) -> None:
        for name in ("llama", "gemma"):
            tokenizer, _ = self.pair(name)
            tokens = tokenizer.encode("a<0xE2>", add_special=False)
            assert b"".join(token.bytes for token in tokens).strip() == b"a<0xE2>"
            assert len(tokens) > 4

    @pytest.mark.parametrize("name", MODELS)
    @pytest.mark.parametrize("text", ["^" * 300_000, "a" * 300_000, "-" * 32768, "地" * 14_000, " " * 100_000])
    def test_t7_long_runs(self, name: str, text: str) -> None:
        tokenizer, _ = self.pair(name)
        start = time.perf_counter()
        assert len(tokenizer.ids(text)) <= 4 * len(text) + 1
        assert time.perf_counter() - start < 10

    @given(data=st.data())
    @settings(max_examples=300)
    def test_any_damage_is_one_line(self, data: st.DataObject) -> None:
        raw = bytearray(MODELS[data.draw(st.sampled_from(["llama", "t5"]))])
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(raw) - 1))
            raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        try:
            Tokenizer(sentencepiece.build(sentencepiece.parse(bytes(raw)))).ids("a b")
        except LayerstepError as error:
            assert "\n" not in str(error)  # noqa: PT017
        except Exception as error:
            # The table of normal forms is the library's to read; in a folder its failures are one line too.
            assert type(error) is Exception or isinstance(error, ValueError)  # noqa: PT017

    @pytest.mark.parametrize(
        "data", [b"", b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 40, b"\x0b", b"\x0a\x02\x0a\x00"]
    )
    def test_no_model_at_all(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "tokenizer.model").write_bytes(data)
        with pytest.raises(TokenizerError, match="the SentencePiece model is damaged") as caught:
            Tokenizer.load(tmp_path)
        assert "\n" not in str(caught.value)

    def test_pieces_of_a_monstrous_length_are_refused_before_they_are_cut(self) -> None:
        long = sentencepiece.Piece("x" * 20_000)
        with pytest.raises(TokenizerError, match="too long"):
            sentencepiece.merges_of([long])


# --- tiktoken ---------------------------------------------------------------------------------------------


class TestTiktoken:
    def reference(self, pattern: str, names: dict[str, int]) -> Any:
        import tiktoken

        return tiktoken.Encoding("small", pat_str=pattern, mergeable_ranks=ranks(), special_tokens=names)

    @given(text=TEXT)
    @settings(max_examples=300)
    def test_llama_3s_ids_are_tiktokens_own(self, text: str) -> None:
        assert self.llama().ids(text, literal=True) == self.reference(byte_level.LLAMA3, {}).encode_ordinary(text)

    _llama: list[Tokenizer] = []  # noqa: RUF012

    def llama(self) -> Tokenizer:
        if not self._llama:
            vocab, merges = byte_level.from_ranks(rank_file(), "tokenizer.model")
            inner = byte_level.build(vocab, merges, pattern=byte_level.LLAMA3, whole_first=True)
            self._llama.append(Tokenizer(inner))
        return self._llama[0]

    def test_a_folder_of_llama_3(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.model").write_bytes(rank_file())
        first = len(ranks())
        names = {"<|begin_of_text|>": first, "<|x|>": first + 1}
        write(
            tmp_path,
            config={"model_type": "llama"},
            tokenizer_config={
                "bos_token": "<|begin_of_text|>",
                "add_bos_token": True,
                "added_tokens_decoder": {str(id): special(name) for name, id in names.items()},
            },
        )
        tokenizer, reference = Tokenizer.load(tmp_path), self.reference(byte_level.LLAMA3, names)
        assert tokenizer.bos_id == first
        for text in texts(200):
            assert tokenizer.ids(text) == [first, *reference.encode(text, allowed_special="all")], text

    def test_a_folder_of_qwen_1(self, tmp_path: Path) -> None:
        (tmp_path / "qwen.tiktoken").write_bytes(rank_file())
        write(tmp_path, config={"model_type": "qwen"}, tokenizer_config={"tokenizer_class": "QWenTokenizer"})
        first = len(ranks())
        names = {
            "<|endoftext|>": first,
            "<|im_start|>": first + 1,
            "<|im_end|>": first + 2,
            "<|extra_204|>": first + 207,
        }
        tokenizer, reference = Tokenizer.load(tmp_path), self.reference(byte_level.QWEN, names)
        for text in texts(200, words=[*WORDS, *names]):
            normal = unicodedata.normalize("NFC", text)
            assert tokenizer.ids(text) == reference.encode(normal, allowed_special="all"), text

    def test_words_that_nobody_knows_how_to_cut_are_refused_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.model").write_bytes(rank_file())
        write(tmp_path, config={"model_type": "chatglm"})
        with pytest.raises(TokenizerError, match="known of Llama 3 and Qwen, but not of 'chatglm'"):
            Tokenizer.load(tmp_path)

    @pytest.mark.parametrize("line", [b"!!!! 1", b"YQ== x", b"YQ==", b"YQ== 99999999999", b" 3"])
    def test_damage_names_the_line(self, tmp_path: Path, line: bytes) -> None:
        (tmp_path / "tokenizer.model").write_bytes(b"YQ== 0\n" + line + b"\n")
        write(tmp_path, config={"model_type": "llama"})
        with pytest.raises(TokenizerError, match="line 2 is not a byte string in base64 and its rank"):
            Tokenizer.load(tmp_path)


# --- folders ----------------------------------------------------------------------------------------------


class TestFolders:
    def test_without_any_tokenizer(self, tmp_path: Path) -> None:
        assert Tokenizer.find(write(tmp_path, config={"model_type": "llama"})) is None

    def test_a_tokenizer_json_wins(self, tmp_path: Path) -> None:
        from vocabularies import byte_level as trained

        vocab_and_merges(tmp_path)
        trained().save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer.model").write_bytes(b"damaged")
        assert Tokenizer.load(tmp_path).vocab_size == 380

    @pytest.mark.parametrize(
        "name", ["tokenizer.model", "vocab.txt", "merges.txt", "chat_template.jinja", "tokenizer.json"]
    )
    def test_no_file_leads_out_of_the_folder(self, tmp_path: Path, name: str) -> None:
        outside = tmp_path / "outside"
        outside.write_bytes(b"[UNK]\n[CLS]\n[SEP]\n")
        folder = tmp_path / "model"
        folder.mkdir()
        if name == "merges.txt":
            vocab_and_merges(folder)
        elif name == "chat_template.jinja":
            word_pieces(folder)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(outside)
        with pytest.raises((TokenizerError, CheckpointError), match="leads out of"):
            Tokenizer.load(folder)

    @pytest.mark.parametrize("add", [True, False])
    def test_what_goes_around_a_text_is_the_tokenizer_jsons_business(self, tmp_path: Path, add: bool) -> None:
        """As in transformers 5, which ignores add_bos_token beside a tokenizer.json."""
        from tokenizers import processors
        from vocabularies import byte_level as trained

        inner = trained()
        inner.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
        inner.save(str(tmp_path / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|eos|>"}
        write(tmp_path, tokenizer_config={**config, "add_bos_token": add, "add_eos_token": True})
        assert Tokenizer.load(tmp_path).ids("hi")[0] == 0
        assert_same_ids(tmp_path, texts(50))


def test_literal_never_gives_a_control_token() -> None:
    """A Unigram model finds `</s>` among its pieces, whatever the library's switch says."""
    import tokenizers
    from tokenizers import models

    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((char, -5.0) for char in "</s>ab")]
    inner = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    inner.add_special_tokens(["</s>"])
    tokenizer = Tokenizer(inner)
    assert tokenizer.ids("a</s>b") == [6, 1, 7]
    assert [token.label for token in tokenizer.encode("a</s>b", literal=True)] == ["a", "<", "/", "s", ">", "b"]
    inner.encode_special_tokens = True
    assert 1 in inner.encode("a</s>b").ids  # so the switch alone is not enough


def test_literal_refuses_what_it_cannot_keep_apart() -> None:
    import tokenizers
    from tokenizers import models

    inner = tokenizers.Tokenizer(models.WordLevel({"?": 0, "</s>": 1}, unk_token="?"))
    inner.add_special_tokens(["</s>"])
    with pytest.raises(PromptError, match="no way to read '</s>' as text"):
        Tokenizer(inner).ids("</s>", literal=True)

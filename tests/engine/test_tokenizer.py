"""The wrapper around `tokenizers`, on small tokenizers of every kind in use, trained here.

The reports behind the cases (T1, T2, ...) are those of tools that decoded ids one at a time.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from engine.errors import PromptError, TokenizerError
from engine.text import Token, tokens_from_json, tokens_to_json
from engine.tokenizer import Tokenizer

TEXTS = [
    "The server crashed because the disk was full.",
    "Once upon a time there was a little dog who said hello to the world.",
    "Dear Sam, I hope that the weather is well, and that the cat has two homes.",
    "dog bites man and man bites dog; i ⭢ j, 地球 and a thumb 👍 are here",
] * 3
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level(bos: bool = True) -> tokenizers.Tokenizer:
    """As the samples have it, and GPT-2, Llama 3, Qwen."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<|bos|>", "<|eos|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXTS, trainer)
    if bos:
        inner.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    else:
        inner.post_processor = processors.ByteLevel(trim_offsets=True)
    return inner


def edited(inner: tokenizers.Tokenizer, edit: Callable[[dict[str, Any]], None]) -> tokenizers.Tokenizer:
    whole = json.loads(inner.to_str())
    edit(whole)
    return tokenizers.Tokenizer.from_str(json.dumps(whole))


def llama() -> tokenizers.Tokenizer:
    """SentencePiece BPE as converted for Llama 2: a space put before the text, bytes for rare letters."""
    inner = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    inner.train_from_iterator(TEXTS[:3], trainer)
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])

    def with_bytes(whole: dict[str, Any]) -> None:
        vocab = whole["model"]["vocab"]
        vocab.update({piece: len(vocab) + n for n, piece in enumerate(BYTE_PIECES)})
        whole["model"]["byte_fallback"] = True

    return edited(inner, with_bytes)


def unigram() -> tokenizers.Tokenizer:
    """SentencePiece Unigram behind Metaspace, as T5 and Gemma's relatives have it, with byte fallback."""
    inner = tokenizers.Tokenizer(models.Unigram())
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    inner.train_from_iterator(TEXTS[:3], trainer)
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])

    def with_bytes(whole: dict[str, Any]) -> None:
        whole["model"]["vocab"] += [[piece, -20.0] for piece in BYTE_PIECES]
        whole["model"]["byte_fallback"] = True

    return edited(inner, with_bytes)


def word_piece() -> tokenizers.Tokenizer:
    """As BERT has it."""
    inner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(prefix="##")
    trainer = trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    inner.train_from_iterator(TEXTS[:3], trainer)
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return inner


INNER = {
    "byte_level": byte_level(),
    "gpt2": byte_level(bos=False),
    "llama": llama(),
    "unigram": unigram(),
    "word_piece": word_piece(),
}
ALL = {name: Tokenizer(inner) for name, inner in INNER.items()}
every = pytest.mark.parametrize("name", ALL)
lossless = pytest.mark.parametrize("name", ["byte_level", "gpt2", "llama", "unigram"])
byte_levels = pytest.mark.parametrize("name", ["byte_level", "gpt2"])
PROSE = [
    "The server crashed because the disk was full",
    "Dear Sam, I hope",
    "i ⭢ j",
    "👍 and 👩\u200d👩\u200d👧 and 地",
    "naïve e\u0301 [/] [bold]",
    "a\n b\r\n\tc",
    "a\x00b",
]
TEXT = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" ab👍地é\n")))


def ordinary(tokens: list[Token]) -> list[Token]:
    return [token for token in tokens if not token.special]


class TestIds:
    @every
    @pytest.mark.parametrize("text", [*PROSE, "", " ", "<|eos|> </s> [SEP]"])
    def test_are_the_librarys_own(self, name: str, text: str) -> None:
        assert [token.id for token in ALL[name].encode(text)] == INNER[name].encode(text).ids
        assert ALL[name].ids(text) == INNER[name].encode(text).ids
        bare = INNER[name].encode(text, add_special_tokens=False).ids
        assert ALL[name].ids(text, add_special=False) == bare

    def test_of_an_empty_text(self) -> None:
        assert [token.label for token in ALL["byte_level"].encode("")] == ["<|bos|>"]
        assert ALL["byte_level"].encode("", add_special=False) == []
        assert ALL["gpt2"].encode("") == []

    def test_one_bos_marked_as_added(self) -> None:
        bos, *rest = ALL["byte_level"].encode("<|bos|>hi")
        assert (bos.special, bos.origin, bos.start, bos.end) == (True, "tokenizer", 0, 0)
        assert (rest[0].id, rest[0].origin, rest[0].start, rest[0].end) == (0, "special in text", 0, 7)
        assert {token.origin for token in rest[1:]} == {"text"}

    def test_padding_truncation_and_dropout_of_the_file_do_not_apply(self) -> None:
        inner = byte_level()
        plain = inner.encode("the server crashed").ids
        inner.enable_padding(length=64)
        inner.enable_truncation(2)
        inner.model.dropout = 1.0
        assert Tokenizer(inner).ids("the server crashed") == plain


class TestBytes:
    @byte_levels
    @given(text=TEXT)
    def test_add_up_to_the_text(self, name: str, text: str) -> None:
        assert b"".join(token.bytes for token in ordinary(ALL[name].encode(text))) == text.encode()

    @lossless
    @pytest.mark.parametrize("text", PROSE)
    def test_add_up_with_the_tokenizers_own_space(self, name: str, text: str) -> None:
        raw = b"".join(token.bytes for token in ordinary(ALL[name].encode(text)))
        assert raw.removeprefix(b" ") == text.encode()

    def test_t1_a_split_character_is_a_group_of_bytes(self) -> None:
        tokens = ALL["byte_level"].encode("a \U0001f44f")[1:]
        assert [token.label for token in tokens] == ["a", "␣‹F0·9F›", "‹91›", "‹8F›"]
        assert [token.group for token in tokens] == [None, (1, 3), (2, 3), (3, 3)]
        assert [(token.start, token.end) for token in tokens] == [(0, 1), (1, 3), (2, 3), (2, 3)]

    @pytest.mark.parametrize("name", ["llama", "unigram"])
    def test_t1_byte_fallback(self, name: str) -> None:
        tokens = ALL[name].encode("i ⭢ j", add_special=False)
        parts = [token for token in tokens if token.group]
        assert [token.label for token in parts] == ["‹E2›", "‹AD›", "‹A2›"]
        assert [token.group for token in parts] == [(1, 3), (2, 3), (3, 3)]
        assert {(token.start, token.end) for token in parts} == {(2, 3)}

    def test_t2_the_space_mark_is_kept(self) -> None:
        for name in ("gpt2", "llama"):
            with_space, without = (
                [token.label for token in ALL[name].encode(text, add_special=False)] for text in (" hello", "hello")
            )
            assert with_space != without
            assert with_space[0].startswith("␣")

    @pytest.mark.parametrize("name", ["byte_level", "llama", "unigram"])
    @pytest.mark.parametrize("text", ["<0xE2>", "a <0x0A>b", "<0xe2>"])
    def test_text_that_looks_like_a_byte_is_text(self, name: str, text: str) -> None:
        tokens = ordinary(ALL[name].encode(text))
        assert "".join(token.label for token in tokens).removeprefix("␣") == text.replace(" ", "␣")
        assert b"".join(token.bytes for token in tokens).removeprefix(b" ") == text.encode()

    def test_word_piece(self) -> None:
        tokens = ALL["word_piece"].encode("Crashedo 漢")
        labels = [token.label for token in tokens]
        assert labels[0] == "[CLS]"
        assert labels[-2:] == ["[UNK]", "[SEP]"]
        assert any(label.startswith("##") for label in labels)
        assert b"".join(token.bytes for token in ordinary(tokens)) == b"crashedo"
        assert tokens[-2].origin == "text"
        assert tokens[-2].special

    def test_one_label_per_position(self) -> None:
        for tokenizer in ALL.values():
            for text in PROSE:
                assert all(token.label for token in tokenizer.encode(text))

    def test_every_id_has_a_label(self) -> None:
        for tokenizer in ALL.values():
            for id in (*range(tokenizer.vocab_size), -1, 2050, 2**31, 2**40):
                assert tokenizer.label(id).strip()
                assert tokenizer.label(id).isprintable()
        assert ALL["byte_level"].label(2050) == "‹id 2050›"
        assert ALL["byte_level"].token(2050).bytes == b""
        assert ALL["byte_level"].label(0) == "<|bos|>"


class TestSpans:
    @byte_levels
    @given(text=TEXT)
    def test_cover_the_text(self, name: str, text: str) -> None:
        tokens = ordinary(ALL[name].encode(text))
        at = 0
        for token in tokens:
            assert token.start <= at <= token.end
            covered = text[token.start : token.end].encode()
            assert token.bytes in covered
            at = token.end
        assert at == len(text)

    def test_include_the_leading_space(self) -> None:
        text = "the server crashed"
        covered = [text[token.start : token.end] for token in ALL["gpt2"].encode(text)]
        assert "".join(covered) == text
        assert " server" in covered

    def test_t8_an_added_token_that_swallows_spaces(self) -> None:
        inner = byte_level(bos=False)
        inner.add_special_tokens([AddedToken("<|sep|>", lstrip=True, rstrip=True, special=True)])
        tokens = Tokenizer(inner).encode("hello   <|sep|>   world")
        (sep,) = [token for token in tokens if token.special]
        assert (sep.start, sep.end, sep.label, sep.origin) == (5, 18, "<|sep|>", "special in text")
        assert tokens[-1].end == 23

    def test_fall_back_to_the_librarys_where_the_text_is_normalised(self) -> None:
        inner = byte_level()
        inner.normalizer = normalizers.NFC()
        tokens = ordinary(Tokenizer(inner).encode("e\u0301!"))
        assert b"".join(token.bytes for token in tokens) == "é!".encode()
        assert (tokens[0].start, tokens[-1].end) == (0, 3)


class TestLiteral:
    @byte_levels
    def test_special_text_becomes_pieces(self, name: str) -> None:
        text = "user typed <|eos|> here"
        assert "special in text" in {token.origin for token in ALL[name].encode(text)}
        pieces = ALL[name].encode(text, literal=True, add_special=False)
        assert {token.origin for token in pieces} == {"text"}
        assert not any(token.special for token in pieces)
        assert ALL[name].decode(token.id for token in pieces) == text

    def test_the_switch_does_not_stay(self) -> None:
        tokenizer = ALL["byte_level"]
        before = tokenizer.ids("<|eos|>")
        assert tokenizer.ids("<|eos|>", literal=True) != before
        assert tokenizer.ids("<|eos|>") == before


class TestDecode:
    @byte_levels
    @given(text=TEXT)
    def test_returns_the_text(self, name: str, text: str) -> None:
        tokenizer = ALL[name]
        ids = tokenizer.ids(text)
        assert tokenizer.decode(ids) == text == INNER[name].decode(ids)

    @pytest.mark.parametrize("name", ["llama", "unigram"])
    @pytest.mark.parametrize("text", PROSE)
    def test_returns_the_text_of_sentencepiece(self, name: str, text: str) -> None:
        ids = ALL[name].ids(text)
        assert ALL[name].decode(ids) == text == INNER[name].decode(ids)

    @every
    @given(data=st.data())
    @settings(max_examples=40)
    def test_equals_the_librarys_up_to_broken_characters(self, name: str, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.integers(0, ALL[name].vocab_size + 3), max_size=12))
        for special in (False, True):
            ours = ALL[name].decode(ids, special=special)
            theirs = INNER[name].decode(ids, skip_special_tokens=not special)
            assert ours == theirs or "\ufffd" in theirs

    def test_specials_on_request(self) -> None:
        assert ALL["byte_level"].decode([0, *ALL["gpt2"].ids("hi")], special=True) == "<|bos|>hi"

    def test_ids_beyond_the_vocabulary_give_nothing(self) -> None:
        for tokenizer in ALL.values():
            assert tokenizer.decode([2**40, -1, 5000]) == ""


class TestStream:
    @every
    @given(text=st.one_of(TEXT, st.sampled_from(PROSE)))
    @settings(max_examples=50)
    def test_increments_join_to_the_whole(self, name: str, text: str) -> None:
        tokenizer = ALL[name]
        ids = tokenizer.ids(text)
        stream = tokenizer.stream()
        shown = ""
        for count, id in enumerate(ids, 1):
            new = stream.push(id)
            shown += new
            assert "\ufffd" not in new or "\ufffd" in text
            if not stream.waiting:
                assert shown == tokenizer.decode(ids[:count])
        assert shown + stream.finish() == tokenizer.decode(ids)

    @every
    @given(data=st.data())
    @settings(max_examples=40)
    def test_any_ids(self, name: str, data: st.DataObject) -> None:
        tokenizer = ALL[name]
        ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 3), max_size=12))
        stream = tokenizer.stream(special=True)
        shown = "".join(map(stream.push, ids)) + stream.finish()
        assert shown == tokenizer.decode(ids, special=True)

    def test_a_character_appears_when_it_is_complete(self) -> None:
        tokenizer = ALL["byte_level"]
        stream = tokenizer.stream()
        steps = [(stream.push(id), stream.waiting) for id in tokenizer.ids(" \U0001f44f!")]
        assert steps == [("", False), (" ", True), ("", True), ("\U0001f44f", False), ("!", False)]

    def test_what_is_never_completed_is_said_at_the_end(self) -> None:
        tokenizer = ALL["byte_level"]
        stream = tokenizer.stream()
        assert stream.push(tokenizer.ids("\U0001f44f")[1]) == ""
        assert stream.finish() == "\ufffd"

    @lossless
    def test_t2_continues_a_prompt_with_its_space(self, name: str) -> None:
        tokenizer = ALL[name]
        whole = tokenizer.ids("Dear Sam, I hope")
        for cut in range(len(whole)):
            stream = tokenizer.stream(after=whole[:cut])
            text = tokenizer.decode(whole[:cut]) + "".join(map(stream.push, whole[cut:]))
            assert text == "Dear Sam, I hope"


class TestExtend:
    @lossless
    @pytest.mark.parametrize("text", PROSE)
    def test_a_text_in_two_parts_is_the_whole(self, name: str, text: str) -> None:
        tokenizer = ALL[name]
        whole = tokenizer.encode(text)
        for cut in range(1, len(whole)):
            extended = tokenizer.extend(whole[:cut], [token.id for token in whole[cut:]])
            assert [(t.id, t.group) for t in extended] == [(t.id, t.group) for t in whole]
            assert extended[-1].end == len(text)
            again = tokenizer.extend(extended[:-1], [extended[-1].id])
            assert [(t.start, t.end) for t in again] == [(t.start, t.end) for t in extended]

    def test_from_nothing(self) -> None:
        tokenizer = ALL["byte_level"]
        text = "i ⭢ j 👍!"
        spans = [(token.start, token.end) for token in tokenizer.extend([], tokenizer.ids(text))]
        assert spans == [(token.start, token.end) for token in tokenizer.encode(text)]

    def test_ids_beyond_the_vocabulary(self) -> None:
        (token,) = ALL["byte_level"].extend([], [2050], origin="template")
        assert (token.label, token.origin, token.start, token.end) == ("‹id 2050›", "template", 0, 0)


@every
@pytest.mark.parametrize("text", [*PROSE, "<0xE2>", "<|eos|>x", "漢"])
def test_tokens_open_without_the_tokenizer(name: str, text: str) -> None:
    tokens = ALL[name].encode(text)
    assert tokens_from_json(json.loads(json.dumps(tokens_to_json(tokens)))) == tokens


class TestLoad:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        INNER["byte_level"].save(str(tmp_path / "tokenizer.json"))
        return tmp_path

    def write(self, folder: Path, name: str, content: object) -> None:
        (folder / name).write_text(json.dumps(content))

    def test_folder_or_file(self, folder: Path) -> None:
        for path in (folder, folder / "tokenizer.json", str(folder)):
            tokenizer = Tokenizer.load(path)
            assert tokenizer.encode("i ⭢ j") == ALL["byte_level"].encode("i ⭢ j")
            assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (None, None, None)
            assert tokenizer.eos_ids == frozenset()
            assert tokenizer.vocab_size == INNER["byte_level"].get_vocab_size()

    def test_control_tokens_by_name(self, folder: Path) -> None:
        names = {"bos_token": "<|bos|>", "eos_token": {"content": "<|eos|>"}, "pad_token": None}
        self.write(folder, "tokenizer_config.json", names)
        self.write(folder, "config.json", {"bos_token_id": 7, "eos_token_id": [8, 9], "pad_token_id": 7})
        tokenizer = Tokenizer.load(folder)
        assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (0, 1, None)
        assert tokenizer.eos_ids == {1, 8, 9}

    def test_control_tokens_by_id(self, folder: Path) -> None:
        self.write(folder, "config.json", {"bos_token_id": 0, "eos_token_id": [1, 2], "pad_token_id": None})
        tokenizer = Tokenizer.load(folder)
        assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (0, 1, None)

    @pytest.mark.parametrize("value", [3, [], {"content": 5}, "<|nowhere|>", True])
    def test_odd_settings_name_nothing(self, folder: Path, value: object) -> None:
        self.write(folder, "tokenizer_config.json", {"bos_token": value})
        self.write(folder, "config.json", {"eos_token_id": value if value != 3 else -3})
        assert Tokenizer.load(folder).bos_id is None
        assert Tokenizer.load(folder).eos_id is None

    @pytest.mark.parametrize("content", ["", "{", "[]", "3", "[" * 100_000, "{}x", '"\\ud800'])
    @pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
    def test_damaged_files(self, folder: Path, name: str, content: str) -> None:
        (folder / name).write_text(content)
        with pytest.raises(TokenizerError) as caught:
            Tokenizer.load(folder)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_missing(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "nowhere", tmp_path / ("x" * 5000), "a\0b"):
            with pytest.raises(TokenizerError) as caught:
                Tokenizer.load(path)
            assert "\n" not in str(caught.value)

    def test_only_ordinary_files_of_a_sane_size(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(TokenizerError, match="there is no tokenizer at"):
            Tokenizer.load("/dev/zero")
        monkeypatch.setattr("engine.checkpoints.vocab.folder.MAX_TOKENIZER_BYTES", 100)
        with pytest.raises(TokenizerError, match="the limit is 100"):
            Tokenizer.load(folder)

    @given(data=st.data())
    @settings(max_examples=60, deadline=None)
    def test_any_damage_is_one_line(self, data: st.DataObject) -> None:
        whole = json.loads(INNER["llama"].to_str())
        whole["model"]["vocab"] = dict(list(whole["model"]["vocab"].items())[:20])
        whole["model"]["merges"] = []
        raw = bytearray(json.dumps(whole).encode())
        for _ in range(data.draw(st.integers(1, 3))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(32, 126))
        try:
            Tokenizer.from_json(bytes(raw)).encode("a b")
        except TokenizerError as error:
            assert "\n" not in str(error)  # noqa: PT017


class TestFailures:
    def test_half_a_character_is_refused(self) -> None:
        with pytest.raises(PromptError, match=r"half a character \(U\+D83D at 3\)"):
            ALL["byte_level"].encode("hi \ud83d")

    def test_t7_a_million_letters_without_a_space(self) -> None:
        start = time.perf_counter()
        ids = ALL["byte_level"].ids("a" * 1_000_000)
        assert time.perf_counter() - start < 10
        assert len(ids) <= 1_000_001

    def test_t7_too_long_is_refused_at_once(self) -> None:
        with pytest.raises(PromptError, match="the limit is 2,000,000"):
            ALL["byte_level"].encode("^" * 5_000_000)

    @pytest.mark.parametrize("text", ["-" * 32768, "地" * 14_000, "^" * 20_000])
    def test_t7_long_runs(self, text: str) -> None:
        tokens = ALL["byte_level"].encode(text)
        assert b"".join(token.bytes for token in tokens[1:]) == text.encode()

    def test_t7_a_panic_in_the_library_is_a_clean_error(self) -> None:
        def forget_bos(whole: dict[str, Any]) -> None:
            tokens = whole["post_processor"]["special_tokens"]
            tokens["<|sob|>"] = tokens.pop("<|bos|>")

        inner = edited(byte_level(), forget_bos)
        with pytest.raises(BaseException, match="no entry found for key") as caught:
            inner.encode("x")
        assert not isinstance(caught.value, Exception)
        with pytest.raises(TokenizerError, match="the tokenizer failed on this text: no entry found"):
            Tokenizer(inner).encode("x")

    def test_other_interrupts_pass(self) -> None:
        class Inner:
            def encode(self, *_: object, **__: object) -> None:
                raise KeyboardInterrupt

        tokenizer = Tokenizer(byte_level())
        tokenizer._inner = Inner()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            tokenizer.encode("x")

    def test_a_model_that_cannot_say_a_word(self) -> None:
        tokenizer = Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="?")))
        with pytest.raises(TokenizerError, match="failed on this text"):
            tokenizer.encode("b")


SAMPLES = Path(__file__).parents[2] / "samples" / "models"


@pytest.mark.parametrize("name", ["classic", "modern"])
def test_the_samples_tokenizer(name: str) -> None:
    if not (SAMPLES / name / "tokenizer.json").exists():
        pytest.skip(f"samples/models/{name}/tokenizer.json is not there yet")
    tokenizer = Tokenizer.load(SAMPLES / name)
    bos, *rest = tokenizer.encode("The server crashed because the disk was full")
    assert (bos.label, bos.origin) == ("<|bos|>", "tokenizer")
    assert rest[-1].label == "␣full"
    assert tokenizer.vocab_size <= 2048
    assert [token.id for token in tokenizer.encode("")] == [bos.id]


def test_loading_alone_imports_the_library() -> None:
    code = "import sys, engine.tokenizer; print('tokenizers' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"

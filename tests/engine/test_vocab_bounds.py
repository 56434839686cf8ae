"""Tokenizer files that ask for more memory or time than there is: refused in one line, and before it is spent."""

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers
from vocabularies import byte_level, rank_file, vocab_and_merges, word_pieces, write

from engine.checkpoints.vocab import added, bounds, files
from engine.checkpoints.vocab import byte_level as ours
from engine.errors import CheckpointError, LayerstepError, PromptError, TokenizerError
from engine.text import display
from engine.tokenizer import Tokenizer

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 123\n"


def changed(**parts: object) -> bytes:
    """A sound tokenizer.json with other parts."""
    return json.dumps({**json.loads(byte_level().to_str()), **parts}).encode()


def refusal(data: bytes) -> str:
    began = time.perf_counter()
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.from_json(data).encode("the cat")
    assert time.perf_counter() - began < 2
    assert display(str(caught.value)) == str(caught.value)
    return str(caught.value)


def sequence(kind: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: list(steps)}


def charsmap(*texts: str) -> str:
    """A table of SentencePiece's with an empty trie."""
    return base64.b64encode(b"\0\0\0\0" + b"".join(text.encode() + b"\0" for text in texts)).decode()


TEN: dict[str, Any] = {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 10}
DOUBLE: dict[str, Any] = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
BYTES: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
A: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
B: dict[str, Any] = {"Sequence": {"id": "B", "type_id": 1}}


def around(*pieces: dict[str, Any], **special: Any) -> dict[str, Any]:
    return {"type": "TemplateProcessing", "single": list(pieces), "pair": [A, B], "special_tokens": special}


SPECIAL = {"SpecialToken": {"id": "q", "type_id": 0}}
PREPEND = {"type": "Prepend", "prepend": "a" * 100_000}


class TestGrowth:
    @pytest.mark.parametrize(
        ("parts", "said"),
        [
            ({"normalizer": sequence("normalizers", *[TEN] * 8)}, "more than 4,096 characters of one"),
            ({"normalizer": sequence("normalizers", *[DOUBLE] * 30)}, "more than 4,096 characters of one"),
            ({"normalizer": sequence("normalizers", *[sequence("normalizers", TEN)] * 8)}, "more than 4,096"),
            ({"normalizer": {**TEN, "pattern": {"String": "b"}, "content": "a" * 9999}}, "more than 4,096"),
            ({"normalizer": sequence("normalizers", *[{"type": "NFC"}] * 300)}, "has 301 steps, the limit is 256"),
            ({"normalizer": sequence("normalizers", *[PREPEND] * 5)}, "more than 16 characters before a text"),
            ({"pre_tokenizer": sequence("pretokenizers", *[BYTES] * 26)}, "more than 4,096 characters of one"),
            ({"post_processor": around(*[A] * 100_000)}, "puts 100,000 tokens around a text, the limit is 64"),
            ({"post_processor": around(SPECIAL, A, q={"id": "q", "ids": [0] * 99, "tokens": ["q"] * 99})}, "puts 100"),
            ({"post_processor": sequence("processors", *[around(A, A)] * 20)}, "more than 4,096 characters of one"),
            ({"decoder": sequence("decoders", *[TEN] * 7)}, "more than 4,096 characters of one"),
        ],
    )  # fmt: skip
    def test_steps_that_make_too_much_of_a_text(self, parts: dict[str, Any], said: str) -> None:
        assert said in refusal(changed(**parts))

    def test_they_do_not_run_on_an_added_token_while_the_file_is_read(self) -> None:
        tokens = json.loads(byte_level().to_str())["added_tokens"]
        for key in ("normalized", "normali\\u007aed"):
            steps = sequence("normalizers", *[TEN] * 8)
            data = changed(normalizer=steps, added_tokens=[{**tokens[0], "normalized": True}, *tokens[1:]])
            assert "more than 4,096" in refusal(data.replace(b"normalized", key.encode()))

    def test_a_table_of_normal_forms_is_looked_into(self) -> None:
        step = {"type": "Precompiled", "precompiled_charsmap": charsmap("x", "a" * 5000)}
        with pytest.raises(TokenizerError, match="more than 4,096"):
            bounds._check({"normalizer": step})
        assert bounds._check({"normalizer": {**step, "precompiled_charsmap": charsmap("é" * 18, "y")}}) == 18

    def test_what_albert_and_t5_do_is_far_from_the_bound(self) -> None:
        """ALBERT's steps, as transformers converts them, have the most growth of all."""
        albert = normalizers.Sequence([
            normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
            normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " "),
        ])  # fmt: skip
        cuts = sequence("pretokenizers", json.loads(pre_tokenizers.Metaspace().__getstate__()))
        steps = json.loads(albert.__getstate__())["normalizers"]
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap("x" * 18)})
        whole = {"normalizer": sequence("normalizers", *steps), "pre_tokenizer": cuts}
        assert bounds._check(whole) == 1296

    def test_a_long_text_is_refused_where_its_own_growth_is_too_much(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bounds, "MAX_MADE", 10_000)
        tokenizer = Tokenizer.from_json(changed(normalizer=DOUBLE))
        assert len(tokenizer.ids("b" * 9000)) <= 9000
        with pytest.raises(PromptError, match="makes 18,000 characters of the 9,000 of the prompt"):
            tokenizer.ids("a" * 9000)

    def test_marks_and_words_have_a_length(self) -> None:
        for model, said in (
            (models.WordPiece({"?": 0}, unk_token="?", max_input_chars_per_word=10**6), "of more than 1,000 letters"),
            (models.BPE({"a": 0}, [], continuing_subword_prefix="#" * 99), "continuing_subword_prefix of more than 16"),
            (models.BPE({"a": 0}, [], end_of_word_suffix="#" * 99), "end_of_word_suffix of more than 16"),
        ):
            with pytest.raises(TokenizerError, match=said):
                Tokenizer(tokenizers.Tokenizer(model))


@pytest.mark.parametrize("alone", [True, False])
def test_a_panic_in_the_library_does_not_reach_the_terminal(
    alone: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("threading.active_count", lambda: 1 if alone else 2)
    inner = byte_level()
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), behavior="isolated")
    with pytest.raises(TokenizerError, match="failed on this text: Onig: Regex search error"):
        Tokenizer(inner).encode("a" * 40 + "!")
    # Beside another thread it is left alone, since that one's words would be lost too.
    assert ("panicked" in capfd.readouterr().err) is not alone
    os.write(2, b"still there")
    assert "still there" in capfd.readouterr().err


class TestSizes:
    """Counts are taken before anything is built of them; here the limits are small."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "tokenizer.json").write_text(byte_level().to_str())
        return write(tmp_path, config={"model_type": "llama"})

    def refusal(self, folder: Path) -> str:
        with pytest.raises(LayerstepError) as caught:
            Tokenizer.load(folder)
        assert display(str(caught.value)) == str(caught.value)
        return str(caught.value)

    def test_many_added_tokens(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(folder, added_tokens={f"<{id}>": id for id in range(380, 390)})
        assert Tokenizer.load(folder).vocab_size == 390
        monkeypatch.setattr(added, "MAX_ADDED", 9)
        assert "has 10 added tokens, the limit is 9" in self.refusal(folder)

    def test_many_added_tokens_in_the_file_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bounds, "MAX_ADDED", 2)
        assert "has 3 added tokens, the limit is 2" in refusal(byte_level().to_str().encode())

    def test_many_values(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "MAX_PIECES", 100)
        write(folder, tokenizer_config={"a": [[]] * 200})
        assert "more than 100 are no model's" in self.refusal(folder)
        with pytest.raises(CheckpointError, match="more than 4194304 are no model's"):
            Tokenizer.from_json(changed(x=[0] * 2**22))

    def test_many_ranks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "tokenizer.model").write_bytes(rank_file())
        monkeypatch.setattr(ours, "MAX_RANKS", 300)
        assert "has 377 lines, the limit is 300" in self.refusal(write(tmp_path, config={"model_type": "llama"}))

    @pytest.mark.parametrize("make", [word_pieces, vocab_and_merges])
    def test_many_lines(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
        (name,) = {"vocab.txt", "merges.txt"} & {file.name for file in make(tmp_path).iterdir()}
        (tmp_path / name).write_text("a b\n" * (2**21 + 2))
        assert f"{name} has 2,097,15" in self.refusal(tmp_path)

    @pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
    def test_zeros_are_not_read(self, folder: Path, name: str) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(15 * 2**20)
        assert f"{name} is not a JSON object" in self.refusal(folder)

    def test_a_vocabulary_of_a_monstrous_size(self, tmp_path: Path) -> None:
        with (tmp_path / "vocab.txt").open("wb") as file:
            file.truncate(65 * 2**20)
        assert "vocab.txt has 68,157,440 bytes, the limit is 67,108,864" in self.refusal(tmp_path)


class TestWhatIsNoFile:
    NAMES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

    def folder(self, path: Path, name: str) -> Path:
        (path / "tokenizer.json").write_text(byte_level().to_str())
        (path / name).unlink(missing_ok=True)
        return path

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
    def test_a_pipe_or_a_folder(self, tmp_path: Path, name: str, make: Any) -> None:
        make(self.folder(tmp_path, name) / name)
        with pytest.raises(TokenizerError, match=f"{name} is no ordinary file"):
            Tokenizer.load(tmp_path)

    @pytest.mark.parametrize("name", [*NAMES, "spiece.model", "vocab.txt"])
    def test_a_pointer_of_git_lfs(self, tmp_path: Path, name: str) -> None:
        (self.folder(tmp_path, name) / name).write_bytes(POINTER)
        if name not in self.NAMES:
            (tmp_path / "tokenizer.json").unlink()
        with pytest.raises(CheckpointError, match=f"{name} is a git-lfs pointer and not the file itself"):
            Tokenizer.load(tmp_path)


def test_further_templates_in_the_hubs_cache_are_links_too(tmp_path: Path) -> None:
    repo = tmp_path / "models--a--b"
    folder = repo / "snapshots" / "abc" / "additional_chat_templates"
    folder.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "blobs" / "x").write_text("tools")
    (folder / "tool_use.jinja").symlink_to("../../../blobs/x")
    (folder.parent / "tokenizer.json").write_text(byte_level().to_str())
    assert Tokenizer.load(folder.parent)._templates == {"tool_use": "tools"}
    (tmp_path / "secret").write_text("x")
    (folder / "rag.jinja").symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match=r"rag\.jinja' leads out of"):
        Tokenizer.load(folder.parent)

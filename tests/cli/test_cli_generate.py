"""``layerstep generate``: the text as it comes, what is told of it, and what is saved, also when it is broken off."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest
import torch
from calls import ROOT, Call, shell, write_model
from safetensors.torch import load_file, save_file
from tiny_t5 import SOURCE, write_t5

from engine import Sampling, generate, generating, load_model, open_trace, trace
from engine.cli import generate as command
from engine.cli.streams import Text
from engine.compiled import Compile
from engine.decoding import Decoder
from engine.errors import TraceFileError
from engine.traces import Trace

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def modern():
    return load_model("modern", device="cpu")


def continuation(model, prompt, n, **options):
    """The engine's own."""
    return list(generate(model, prompt, max_new_tokens=n, **options))


def text_of(steps) -> str:
    return "".join(step.text for step in steps)


# --------------------------------------------------------------------------------------------------- what is printed


def test_the_continuation_and_nothing_else_is_on_stdout(call: Call, modern):
    done = call("generate", PROMPT, "-n", 12)
    assert (done.code, done.out) == (0, text_of(continuation(modern, PROMPT, 12)) + "\n")
    assert "12 tokens (" in done.err
    assert done.err.endswith("a second): -n asks for no more\n")


def test_twenty_tokens_unless_told_otherwise(call: Call, modern):
    assert call("generate", PROMPT).out == text_of(continuation(modern, PROMPT, 20)) + "\n"


def test_drawn_tokens_are_those_of_the_engine(call: Call, modern):
    options = ("--temperature", 0.9, "--top-k", 30, "--top-p", 0.95, "--min-p", 0.01, "--repetition-penalty", 1.1)
    sampling = Sampling(0.9, top_k=30, top_p=0.95, min_p=0.01, repetition_penalty=1.1, seed=11)
    done = call("generate", PROMPT, "-n", 15, *options, "--seed", 11)
    assert (done.code, done.out) == (0, text_of(continuation(modern, PROMPT, 15, sampling=sampling)) + "\n")


def test_the_seed_that_was_drawn_is_told_and_draws_the_same(call: Call):
    first = call("generate", PROMPT, "-n", 25, "--temperature", 1.5, "--json").json
    seed = first["sampling"]["seed"]
    assert 0 <= seed < 2**32
    again = call("generate", PROMPT, "-n", 25, "--temperature", 1.5, "--seed", seed)
    assert again.out == first["text"] + "\n"
    assert f"--seed {seed} draws the same" in again.err
    assert "seed" not in call("generate", PROMPT, "-n", 2).err


@pytest.mark.parametrize("option", ["--stop", "--stop-token"])
def test_where_it_stops(call: Call, modern, option):
    steps = continuation(modern, PROMPT, 20)
    at = next(i for i, step in enumerate(steps) if "girl" in step.text)
    told = call("generate", PROMPT, option, "girl" if option == "--stop" else steps[at].token.id, "--json").json
    assert [token["id"] for token in told["tokens"]] == [step.token.id for step in steps[: at + 1]]
    assert told["stopped"] == ("stop string" if option == "--stop" else "end token")
    said = call("generate", PROMPT, option, "girl" if option == "--stop" else steps[at].token.id).err
    assert ("a --stop text came" if option == "--stop" else "the text ended") in said


def test_no_position_is_left(call: Call, tmp_path):
    folder = write_model(tmp_path / "learned", positions="learned", n_ctx=12)
    file = tmp_path / "t.safetensors"
    done = call("generate", "dog bites", "--model", folder, "-n", 100, "--stop-token", 0, "--trace", file)
    assert done.code == 0
    assert "the model has no more positions" in done.err
    assert open_trace(file).length == 12


def test_a_glyph_is_printed_whole(monkeypatch, tmp_path):
    """Every write ends with a whole character, though the tokens of an emoji are its bytes."""
    folder = write_model(tmp_path / "bytes")
    written: list[str] = []
    monkeypatch.setattr("engine.cli.streams._write", written.append)
    model = load_model(folder)
    stream, text = model.tokenizer.stream(), Text()
    for i in [token.id for token in model.tokenizer.encode("é 👍!")]:
        text.say(stream.push(i))
    assert "".join(written) == "é 👍!"
    assert "👍" in written


# -------------------------------------------------------------------------------------------------------- as JSON


def test_json(call: Call, modern):
    done = call("generate", PROMPT, "-n", 6, "--temperature", 0.7, "--seed", 5, "--json")
    steps = continuation(modern, PROMPT, 6, sampling=Sampling(0.7, seed=5))
    told = done.json
    assert (done.code, done.err) == (0, "")
    assert told["text"] == text_of(steps)
    assert [token["id"] for token in told["prompt_tokens"]] == [t.id for t in trace(modern, PROMPT).tokens[0]]
    assert told["sampling"] == {
        "temperature": 0.7, "top_k": None, "top_p": None, "min_p": None, "repetition_penalty": 1.0, "seed": 5,
    }  # fmt: skip
    assert (told["model"], told["stopped"], told["notices"]) == ("modern", "length", [])
    assert told["seconds"] > 0
    for token, step in zip(told["tokens"], steps, strict=True):
        assert (token["id"], token["label"], token["text"]) == (step.token.id, step.token.label, step.text)
        assert token["prob"] == pytest.approx(step.scores.softmax(-1)[step.token.id].item())
        probs = step.logits.softmax(-1)
        assert [row["id"] for row in token["top"]] == probs.topk(5).indices.tolist()
        assert [row["prob"] for row in token["top"]] == pytest.approx(probs.topk(5).values.tolist())
        assert [row["logit"] for row in token["top"]] == step.logits.topk(5).values.tolist()


def test_infinite_logits_are_words(call: Call, tmp_path):
    folder = write_model(tmp_path / "one", unembed_bias=True, tied=False)
    weights = load_file(folder / "model.safetensors")
    bias = torch.full_like(weights["unembed.bias"], -torch.inf)
    bias[7] = 0.0
    save_file({**weights, "unembed.bias": bias}, folder / "model.safetensors")
    done = call("generate", "dog", "--model", folder, "-n", 1, "--json")
    assert (done.code, done.json["tokens"][0]["id"]) == (0, 7)
    assert done.json["tokens"][0]["top"][1]["logit"] == "-Infinity"


def test_a_translator(call: Call, tmp_path):
    """The source's tokens are told apart from what the decoder began with."""
    folder = write_t5(tmp_path / "t5")
    told = call("generate", SOURCE, "--model", folder, "-n", 4, "--json").json
    assert len(told["prompt_tokens"]) == 1  # the start token
    assert len(told["source_tokens"]) > 2


# ------------------------------------------------------------------------------------------------- saved and gone on


def test_the_whole_trace_is_saved(call: Call, modern, tmp_path):
    file = tmp_path / "t.safetensors"
    done = call("generate", PROMPT, "-n", 8, "--trace", file, "--keep", "residual")
    opened = open_trace(file, modern)
    steps = continuation(modern, PROMPT, 8)
    assert done.code == 0
    assert f"saved {file}: {opened.length} tokens in 9 passes, " in done.err
    assert [token.id for token in opened.tokens[0][-8:]] == [step.token.id for step in steps]
    assert [p.length for p in opened.passes] == [5] + 8 * [1]
    assert "blocks.0.attn.q" not in opened.passes[-1].kept
    assert torch.equal(opened["logits"][0, -2], steps[-1].logits)


@pytest.mark.parametrize("keep", ["all", "residual"])
def test_a_saved_trace_goes_on_as_if_it_had_never_stopped(call: Call, modern, tmp_path, keep):
    one, two, three = (tmp_path / f"{i}.safetensors" for i in range(3))
    whole = call("generate", PROMPT, "-n", 20).out
    first = call("generate", PROMPT, "-n", 7, "--trace", one, "--keep", keep).out.removesuffix("\n")
    second = call("generate", one, "--model", "modern", "-n", 6, "--trace", two, "--keep", keep)
    third = call("generate", two, "--model", "modern", "-n", 7, "--trace", three)
    assert first + second.out.removesuffix("\n") + third.out == whole
    assert open_trace(three).length == 25
    assert len(open_trace(three).passes) == 21


def test_a_saved_trace_may_be_replaced_by_what_it_became(call: Call, tmp_path):
    file = tmp_path / "t.safetensors"
    call("generate", PROMPT, "-n", 3, "--trace", file)
    told = call("generate", file, "--model", "modern", "-n", 3, "--trace", file, "--force", "--json").json
    assert (told["file"], told["bytes"]) == (str(file), file.stat().st_size)
    assert open_trace(file).length == 11
    assert len(told["prompt_tokens"]) == 8


# ------------------------------------------------------------------------------------------------------- bad values


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["-n", 0], "'-n' / '--max-new-tokens': 0 is not in the range"),
        (["-n", 2_000_000], "is not in the range"),
        (["--temperature", -1], "--temperature must be a number from 0, but is -1.0"),
        (["--temperature", "nan"], "--temperature must be a number from 0, but is nan"),
        (["--temperature", "warm"], "'warm' is not a valid float"),
        (["--temperature", 1, "--top-k", 0], "--top-k must be a whole number from 1, but is 0"),
        (["--temperature", 1, "--top-p", 1.5], "--top-p must be a number from 0 to 1, but is 1.5"),
        (["--temperature", 1, "--min-p", -0.1], "--min-p must be a number from 0 to 1"),
        (["--top-k", 5], "--top-k is for drawing tokens; give --temperature as well"),
        (["--seed", 5], "--seed is for drawing tokens; give --temperature as well"),
        (["--repetition-penalty", 0], "--repetition-penalty must be a number above 0"),
        (["--temperature", 1, "--seed", -1], "--seed must be a whole number from 0"),
        (["--stop", ""], "must be a text of 1…10,000 characters"),
        (["--stop-token", -1], "is not in the range"),
        (["--compile", "fast"], "'fast' is not one of"),
        (["--force"], "--force is for --trace FILE"),
        (["--ids", "--chat"], "--ids and --chat are for different kinds of PROMPT"),
    ],
    ids=str,
)
def test_a_bad_value_is_a_usage_error(call: Call, options, line):
    done = call("generate", PROMPT, *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: layerstep generate")
    assert line in done.err.splitlines()[-1]


def test_a_file_needs_its_model_and_no_options_of_a_prompt(call: Call, tmp_path):
    file = tmp_path / "t.safetensors"
    call("trace", PROMPT, "-o", file)
    assert "name the model that it was recorded with (--model M)" in call("generate", file).err
    assert call("generate", file).code == 2
    for option in (["--literal"], ["--dtype", "float64"], ["--target", "x"], ["--kernel", "math"]):
        done = call("generate", file, "--model", "modern", *option)
        assert done.code == 2
        assert f"{option[0]} is for a PROMPT" in done.err
    done = call("generate", file, "--model", "classic")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "another architecture" in done.err


def test_where_nothing_can_be_saved_nothing_runs(call: Call, tmp_path, monkeypatch):
    monkeypatch.setattr("engine.cli.generate.load_torch", None)
    there = tmp_path / "there.safetensors"
    there.write_text("somebody's")
    for file, line in (
        (there, "exists already"),
        (tmp_path / "no" / "t", "there is no folder"),
        (tmp_path, "a folder"),
    ):
        done = call("generate", PROMPT, "--trace", file)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert line in done.err
    assert there.read_text() == "somebody's"


def test_a_model_that_predicts_no_next_token(call: Call, tmp_path):
    folder = write_model(tmp_path / "encoder", causal=False)
    done = call("generate", "dog", "--model", folder)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "cannot generate" in done.err


def test_what_cannot_be_compiled_here(call: Call):
    done = call("generate", PROMPT, "--compile", "graphs", "--device", "cpu")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "CUDA graph" in done.err


def test_the_words_and_bounds_are_the_engines():
    assert get_args(Compile) == command.COMPILE
    assert (command.MAX_NEW, command.LONGEST_STOP) == (generating.MAX_NEW, generating.LONGEST_STOP)
    assert {"", *command.WHY} == set(get_args(generating.Stopped))


# ------------------------------------------------------------------------------------------------------- broken off


def fails_at(monkeypatch, step: int, error: BaseException) -> None:
    """Let the pass of this number after the prompt's raise."""
    feed, calls = Decoder.feed, []

    def fake(self, ids, watch=None):
        calls.append(ids)
        if len(calls) == step:
            raise error
        return feed(self, ids, watch)

    monkeypatch.setattr(Decoder, "feed", fake)


@pytest.mark.parametrize(
    ("error", "code", "why", "last"),
    [
        (KeyboardInterrupt(), 130, "it was cancelled", "cancelled"),
        (MemoryError(), 1, "it was broken off", "out of memory; shorten the prompt, or keep less (--keep residual)"),
        (torch.OutOfMemoryError("CUDA"), 1, "it was broken off", "out of memory"),
        (RuntimeError("a kernel"), 1, "it was broken off", "unexpected RuntimeError: a kernel"),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_what_ran_before_is_saved(call: Call, modern, monkeypatch, tmp_path, error, code, why, last, as_json):
    steps = continuation(modern, PROMPT, 20)
    file = tmp_path / "t.safetensors"
    with monkeypatch.context() as patch:
        fails_at(patch, 4, error)
        done = call("generate", PROMPT, "--trace", file, *(["--json"] if as_json else []))
    assert (done.code, done.out) == (code, "" if as_json else text_of(steps[:4]) + "\n")
    opened = open_trace(file, modern)
    said = done.err.splitlines()
    assert said[0].startswith(f"layerstep: saved {file}: 8 tokens that ran before {why}, ")
    assert said[1].startswith(f"layerstep: {last}")
    assert [token.id for token in opened.tokens[0][5:]] == [step.token.id for step in steps[:3]]
    assert torch.equal(opened["logits"][0, -1], steps[3].logits)
    goes_on = call("generate", file, "--model", "modern", "-n", 17).out
    assert text_of(steps[:3]) + goes_on == text_of(steps) + "\n"


def test_nothing_is_saved_where_nothing_was_asked_for_or_done(call: Call, monkeypatch, tmp_path):
    fails_at(monkeypatch, 2, MemoryError())
    done = call("generate", PROMPT)
    assert (done.code, done.err.count("\n")) == (1, 1)
    monkeypatch.setattr("engine.generating.trace", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    done = call("generate", PROMPT, "--trace", tmp_path / "t")
    assert (done.code, done.err) == (130, "layerstep: cancelled\n")
    assert list(tmp_path.iterdir()) == []


def test_logits_that_are_no_numbers(call: Call, tmp_path):
    folder = write_model(tmp_path / "nan", spoil="blocks.1.attn.v.weight")
    done = call("generate", "dog", "--model", folder)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "no token can be chosen" in done.err


def test_what_cannot_be_saved_any_more_is_said(call: Call, monkeypatch, tmp_path):
    fails_at(monkeypatch, 2, MemoryError())
    folder = tmp_path / "folder"
    folder.mkdir()

    def gone(*_, **__):
        folder.rmdir()
        raise MemoryError

    monkeypatch.setattr(Decoder, "feed", gone)
    done = call("generate", PROMPT, "--trace", folder / "t")
    said = done.err.splitlines()
    assert (done.code, len(said)) == (1, 2)
    assert said[0].startswith("layerstep: what was done could not be saved: ")
    assert said[1].startswith("layerstep: out of memory")


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_the_result_is_told_where_its_file_cannot_be_written(call: Call, modern, monkeypatch, tmp_path, as_json):
    def full(*_, **__):
        raise TraceFileError("t cannot be written: the disk is full")

    monkeypatch.setattr(Trace, "save", full)
    options = ("-n", 5, "--temperature", 1, "--seed", 3, "--trace", tmp_path / "t")
    done = call("generate", PROMPT, *options, *(["--json"] if as_json else []))
    text = text_of(continuation(modern, PROMPT, 5, sampling=Sampling(1.0, seed=3)))
    assert (done.code, done.err.splitlines()[-1]) == (1, "layerstep: t cannot be written: the disk is full")
    if as_json:
        assert (done.json["text"], done.json["sampling"]["seed"], "file" in done.json) == (text, 3, False)
    else:
        assert done.out == text + "\n"
        assert "--seed 3 draws the same\n" in done.err
        assert "saved" not in done.err


def test_a_reader_that_has_read_enough(tmp_path):
    file = tmp_path / "t.safetensors"
    done = shell('{ layerstep generate "Once" -n 3000 --trace "$1"; echo "rc $?" >&2; } | head -c 5', file)
    assert "rc 0\n" in done.stderr
    assert open_trace(file).length > 1


# ------------------------------------------------------------------------------------------------------- a terminal


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *args: object) -> None:
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine", *map(str, args)],
            cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.seen = b""

    def read(self, until: bytes | None = None) -> str:
        """What is on it, until there is this, or the end."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (until is None or until not in self.seen):
            try:
                data = os.read(self.ours, 65536)
            except OSError:  # Linux's word for the end
                break
            if not data:
                break
            self.seen += data
        return self.seen.decode()

    def end(self) -> tuple[int, str]:
        """The exit code, and what is left to see: a line of progress is drawn over."""
        lines = self.read().replace("\r\n", "\n").split("\n")
        os.close(self.ours)
        return self.process.wait(60), "\n".join(line.rpartition("\r")[2] for line in lines)


def test_a_terminal_gets_the_text_and_then_the_rest(modern):
    code, seen = Terminal("generate", PROMPT, "-n", 12).end()
    text, said = seen.rsplit("\nlayerstep: ", 1)
    assert (code, text) == (0, text_of(continuation(modern, PROMPT, 12)))
    assert said.startswith("12 tokens (")


def test_ctrl_c_saves_what_was_done(modern, tmp_path):
    file = tmp_path / "t.safetensors"
    terminal = Terminal("generate", PROMPT, "-n", 100_000, "--stop-token", 0, "--trace", file)
    terminal.read(until=b"little girl")
    terminal.process.send_signal(signal.SIGINT)
    code, seen = terminal.end()
    opened = open_trace(file, modern)
    *_, saved, last = seen.splitlines()
    assert (code, last) == (130, "layerstep: cancelled")
    assert saved.startswith(f"layerstep: saved {file}: {opened.length} tokens that ran before it was cancelled")
    assert opened.length > 8
    assert "Traceback" not in seen


def test_ctrl_c_without_a_trace_leaves_the_text(modern):
    terminal = Terminal("generate", PROMPT, "-n", 100_000, "--stop-token", 0)
    terminal.read(until=b"little girl")
    terminal.process.send_signal(signal.SIGINT)
    code, seen = terminal.end()
    assert (code, seen.splitlines()[-1]) == (130, "layerstep: cancelled")


def test_control_characters_are_made_visible_on_a_terminal_only(monkeypatch):
    parts = ["a\x1b[31m", "\x9b", "b\n\tc", "e", "\u0301", "\u202e", "\r"]
    for on_terminal, expected in ((True, "a␛[31m‹U+009B›b\n\tce\u0301‹U+202E›␍\n"), (False, "".join(parts) + "\n")):
        written: list[str] = []
        monkeypatch.setattr("engine.cli.streams._write", written.append)
        text = Text()
        text.on_terminal = on_terminal
        for part in parts:
            text.say(part)
        text.end()
        assert "".join(written) == expected


def test_json_on_a_terminal_is_one_line():
    code, seen = Terminal("generate", PROMPT, "-n", 2, "--json").end()
    assert code == 0
    assert len(json.loads(seen)["tokens"]) == 2


def test_ids_where_there_is_no_tokenizer(call: Call, tmp_path):
    folder = Path(write_model(tmp_path / "bare"))
    (folder / "tokenizer.json").unlink()
    done = call("generate", "5 6 7", "--ids", "--model", folder, "-n", 3)
    assert (done.code, len(done.out.split())) == (0, 3)
    assert call("generate", "5 6 7", "--ids", "--model", folder, "--stop", "x").code == 1

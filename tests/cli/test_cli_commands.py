"""``trace``, ``plan`` and ``models``."""

import os
import re

import pytest
import torch
from calls import Call, write_model
from safetensors.torch import load_file, save_file

from engine import load_model, open_trace, plan_trace, trace
from engine.browse import Session
from engine.errors import CheckpointError

PROMPT = "dog bites man"


def test_trace_saves_what_the_engine_records(call: Call, tiny, tmp_path):
    file = tmp_path / "a.trace.safetensors"
    done = call("trace", PROMPT, "--model", tiny, "-o", file, "--json")
    assert (done.code, done.err) == (0, "")
    saved, recorded = open_trace(file), trace(load_model(tiny), PROMPT)
    assert (saved["logits"] == recorded["logits"]).all()
    assert done.json["file"] == str(file)
    assert done.json["bytes"] == file.stat().st_size
    assert done.json["tokens"] == recorded.length
    assert set(done.json["kept"]) == set(recorded.program.path())


def test_trace_says_where_it_saved(call: Call, tiny, tmp_path):
    done = call("trace", PROMPT, "--model", tiny, "-o", tmp_path / "a", "--keep", "residual", "--kernel", "math")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith(f"layerstep: saved {tmp_path / 'a'}: ")
    assert open_trace(tmp_path / "a").kernels == ("math",)


def test_keep_takes_patterns(call: Call, tiny, tmp_path):
    patterns = ["--keep", "blocks.*.attn.q,logits", "--keep", "embed"]
    kept = call("trace", PROMPT, "--model", tiny, "-o", tmp_path / "a", "--json", *patterns).json["kept"]
    assert kept == ["blocks.0.attn.q", "blocks.1.attn.q", "embed", "logits"]


def test_keep_takes_all_and_patterns_together(call: Call, tiny, tmp_path):
    file, off_path = tmp_path / "a.safetensors", "blocks.1.attn.result"
    assert call("trace", PROMPT, "--model", tiny, "-o", file).code == 0
    done = call("show", file, "--at", off_path)
    advice = re.search(r"record it with \S+ in keep as well \((--keep) (\S+)\)", done.err)
    assert (done.code, bool(advice)) == (1, True)
    assert call("trace", PROMPT, "--model", tiny, "-o", file, "--force", *advice.groups()).code == 0
    assert call("show", file, "--at", off_path).code == call("show", file, "--at", "logits").code == 0


def test_nothing_is_replaced_unless_asked(call: Call, tiny, tmp_path):
    file = tmp_path / "a"
    file.write_text("mine")
    done = call("trace", PROMPT, "--model", tiny, "-o", file)
    assert (done.code, done.out) == (1, "")
    assert "exists already; choose another name, or replace it with force (--force)" in done.err
    assert file.read_text() == "mine"
    assert call("trace", PROMPT, "--model", tiny, "-o", file, "--force").code == 0
    assert open_trace(file).prompt == PROMPT
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("path", ["nowhere/a", "", "a/b", "x" * 300])
def test_places_that_cannot_be_written(call: Call, tiny, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("engine.cli.trace.record", lambda *a, **o: pytest.fail("it ran"))
    (tmp_path / "a").touch()
    done = call("trace", PROMPT, "--model", tiny, "-o", path)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert os.listdir(tmp_path) == ["a"]


def test_a_run_that_does_not_fit_is_refused_with_numbers(call: Call, tiny, tmp_path):
    done = call("trace", PROMPT, "--model", tiny, "-o", tmp_path / "a", "--max-memory", "4K")
    assert (done.code, done.out) == (1, "")
    assert "needs" in done.err
    assert "4.0 KiB" in done.err
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("keep", ["all", "residual"])
def test_plan_is_the_engines(call: Call, tiny, keep):
    done = call("plan", tiny, "--tokens", 12, "--batch", 2, "--keep", keep, "--json")
    assert (done.code, done.err) == (0, "")
    expected = plan_trace(load_model(tiny), 12, batch=2, keep=keep).to_json()
    assert {key: done.json[key] for key in expected} == expected
    assert done.json["dtype"] == "float32"


def test_plan_as_text(call: Call, tiny):
    done = call("plan", tiny, "-n", 64, "--dtype", "float64")
    assert (done.code, done.err) == (0, "")
    for words in ("blocks.*.attn.pattern", "on demand", "peak of the run", "weights", "FLOP", "more than the 32"):
        assert words in done.out


def test_plan_says_that_a_run_would_be_refused(call: Call, tmp_path):
    folder = write_model(tmp_path / "short", positions="learned", n_ctx=8)
    why = call("trace", ", ".join(["5"] * 9), "--ids", "--model", folder, "-o", tmp_path / "a").err
    assert "has 9 tokens, but short has only 8 positions" in why
    done = call("plan", folder, "-n", 9)
    assert done.code == 0
    assert done.out.endswith(f"a run would be refused: {why.removeprefix('layerstep: ')}")
    assert call("plan", folder, "-n", 9, "--json").json["notices"] == [done.out.split("\n")[-2]]
    assert call("plan", folder, "-n", 8, "--json").json["notices"] == []


def test_plan_reads_a_pickle_where_allowed(call: Call, tiny, tmp_path):
    torch.save(load_file(tiny / "model.safetensors"), tmp_path / "pytorch_model.bin")
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((tiny / name).read_bytes())
    refused = call("plan", tmp_path, "-n", 8)
    assert (refused.code, refused.out) == (1, "")
    assert "--allow-pickle" in refused.err
    allowed = call("plan", tmp_path, "-n", 8, "--allow-pickle", "--json")
    assert allowed.code == 0
    assert allowed.json["dtype"] == "float32"
    file, place = tmp_path / "a.safetensors", ["--at", "blocks.0.attn.result"]
    assert call("trace", PROMPT, "--model", tmp_path, "-o", file, "--allow-pickle").code == 0
    assert "--allow-pickle" in call("show", file, "--model", tmp_path, *place).err
    assert call("show", file, "--model", tmp_path, *place, "--allow-pickle").code == 0
    for asked in ({"prompt": PROMPT}, {"file": str(file)}):  # what the app asks of the engine
        request = {"model": str(tmp_path)} | asked
        with pytest.raises(CheckpointError, match="--allow-pickle"):
            Session().open(request, lambda *_: None)
        assert Session().open(request | {"allow_pickle": "yes"}, lambda *_: None)["prompt"] == PROMPT


def test_plan_needs_no_weights(call: Call, tiny, tmp_path):
    (tmp_path / "config.json").write_bytes((tiny / "config.json").read_bytes())
    assert call("plan", tmp_path, "-n", 8, "--dtype", "float32").code == 0
    done = call("plan", tmp_path, "-n", 8)
    assert done.code == 1
    assert "model.safetensors" in done.err
    save_file({}, tmp_path / "model.safetensors")
    done = call("plan", tmp_path, "-n", 8)
    assert (done.code, done.out) == (1, "")
    assert "its files hold no tensors" in done.err


def test_models_lists_the_samples(call: Call, tiny, monkeypatch):
    monkeypatch.setattr("engine.samples.ROOTS", (tiny.parent,))
    done = call("models")
    assert done.code == 0
    assert "GQA 4/2" in done.out
    [entry] = call("models", "--json").json["models"]
    assert entry["folder"] == str(tiny)
    assert entry["bytes"] == (tiny / "model.safetensors").stat().st_size
    monkeypatch.setattr("engine.samples.ROOTS", ())
    assert call("models").out == "no sample models are installed\n"
    assert call("models", "--json").json == {"models": []}


def test_a_long_name_is_one_short_line(call: Call):
    for command in (["plan", "-n", 4], ["show", "dog", "--model"], ["models", "--inspect"]):
        done = call(*command, "x" * 5000)
        assert done.code == 1
        assert done.err.count("\n") == 1
        assert len(done.err) < 250


def test_models_inspects(call: Call, tiny):
    done = call("models", "--inspect", tiny)
    assert (done.code, done.err) == (0, "")
    assert "unembedding is the embedding matrix" in done.out
    data = call("models", "--inspect", tiny, "--json", "--dtype", "bfloat16").json
    assert data["config"]["n_kv_heads"] == 2
    assert data["dtype"] == "bfloat16"
    assert any("cast" in line for line in data["report"])
    assert data["weights"]["embed.weight"] == [300, 20]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "config.json"),
        ({"config.json": "{"}, "not JSON"),
        ({"config.json": '{"model_type": "mamba\\u001b"}'}, "mamba␛"),
        ({"config.json": '{"model_type": "layerstep", "format_version": 99}'}, "format_version"),
    ],
)
@pytest.mark.parametrize("command", [["models", "--inspect"], ["plan", "-n", "4"], ["show", "dog", "--model"]])
def test_damaged_folders_are_one_line(call: Call, tmp_path, command, files, words):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = call(*command, tmp_path)
    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert done.err.count("\n") == 1

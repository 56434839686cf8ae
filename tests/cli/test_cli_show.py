"""``layerstep show``: the numbers are the engine's, and the text lines up."""

import io
import json
import math
import os
import sys

import pytest
import torch
from calls import Call, write_model

from engine import extend, load_model, open_trace, trace
from engine.text import cells

PROMPT = "The server crashed because the disk was full"


@pytest.fixture(scope="module")
def recorded(tiny):
    return trace(load_model(tiny), PROMPT)


def numbers(values):
    """The floats of our JSON."""
    return [numbers(v) for v in values] if isinstance(values, list) else float(values)


@pytest.mark.parametrize(
    "address",
    [
        "blocks.1.attn.pattern",
        "blocks.1.attn.pattern[h=3]@0",
        "blocks.1.attn.hook_pattern[h=2,q=5,k=1]",
        "blocks.0.attn.masked[h=1]",
        "blocks.0.attn.masked[h=1,q=2:4]",
        "blocks.1.resid_post[p=-1]",
        "logits[p=2]",
        "probs",
        "tokens",
        "ln_final.scale",
        "blocks.0.attn.past_k",
    ],
)
def test_json_is_the_tensor(call: Call, tiny, address):
    done = call("show", PROMPT, "--model", tiny, "--at", address, "--json")
    assert (done.code, done.err) == (0, "")
    data, expected = done.json, trace(load_model(tiny), PROMPT)[address]
    got = torch.tensor(numbers(data["values"]), dtype=expected.dtype).reshape(expected.shape)
    assert torch.equal(got, expected)
    assert data["dtype"] == str(expected.dtype).removeprefix("torch.")


def test_json_names_tokens_along_axes(call: Call, tiny, recorded):
    done = call("show", PROMPT, "--model", tiny, "--at", "blocks.0.attn.pattern[h=0,q=2:5]", "--json")
    query, key = done.json["axes"]
    labels = [token.label for token in recorded.tokens[0]]
    assert (query["name"], query["start"], query["labels"]) == ("query", 2, labels[2:5])
    assert (key["name"], key["start"], key["labels"]) == ("key", 0, labels)
    assert done.json["fixed"] == {"batch": 0, "head": 0}


def test_a_cell(call: Call, tiny, recorded):
    value = trace(load_model(tiny), PROMPT)["blocks.0.attn.pattern[h=1,q=4,k=2]"].item()
    done = call("show", PROMPT, "--model", tiny, "--at", "blocks.0.attn.pattern[h=1,q=4,k=2]")
    first, labels, _ = done.out.splitlines()
    name, text = first.split(" = ")
    assert name == "blocks.0.attn.pattern[h=1,q=4,k=2]"
    assert torch.tensor(float(text)) == torch.tensor(value)
    assert recorded.tokens[0][4].label in labels
    assert recorded.tokens[0][2].label in labels


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_a_table_lines_up(call: Call, tiny, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    done = call("show", "dog 漢字 e\u0301 bites", "--model", tiny, "--at", "blocks.0.attn.masked[h=0]")
    table = done.out.split("\n\n")[1].splitlines()
    assert table[0].startswith("query \\ key")
    widths = {cells(line) for line in table if not line.startswith("…")}
    assert max(widths) <= int(width)
    assert len({cells(line) for line in table[2:] if not line.startswith("…")}) == 1  # numbers end in one column
    assert "-inf" in done.out
    assert " masked" in done.out.splitlines()[1]


def test_statistics_are_the_tensors(call: Call, tiny, recorded, monkeypatch):
    monkeypatch.setattr("engine.place.CELLS_AT_ONCE", 7)
    stats = call("show", PROMPT, "--model", tiny, "--at", "blocks.0.attn.masked", "--json").json["stats"]
    x = recorded["blocks.0.attn.masked"].double()
    finite = x[x.isfinite()]
    assert (stats["size"], stats["finite"], stats["-inf"]) == (x.numel(), finite.numel(), 0)
    assert stats["masked"] == x.numel() - finite.numel()
    expected = [finite.min(), finite.max(), finite.mean(), finite.std(correction=0), finite.norm()]
    got = torch.tensor([stats[key] for key in ("min", "max", "mean", "std", "norm")], dtype=torch.float64)
    torch.testing.assert_close(got, torch.stack(expected))


def test_json_of_a_huge_tensor_is_refused_before_it_is_computed(call: Call, tiny, monkeypatch):
    monkeypatch.setattr("engine.cli.show.MOST_VALUES", 50)
    size = len(trace(load_model(tiny), PROMPT)) ** 2
    with monkeypatch.context() as patch:
        patch.setattr("engine.traces.Trace.__getitem__", lambda *a: pytest.fail("it was computed"))
        done = call("show", PROMPT, "--model", tiny, "--at", "blocks.0.attn.masked[h=1]", "--json")
    assert (done.code, done.out) == (1, "")
    assert f"has {size} values" in done.err
    assert call("show", PROMPT, "--model", tiny, "--at", "blocks.0.attn.masked[h=1,q=1:3]", "--json").code == 0
    assert call("show", PROMPT, "--model", tiny, "--at", "blocks.0.attn.masked[h=1]", "--json", "--full").code == 0


@pytest.mark.parametrize("place", ["", "[h=1]", "[h=1,q=2]", "[k=3]"])
def test_masked_weights_are_counted_as_the_masked_scores_are(call: Call, tiny, recorded, place):
    hidden = recorded[f"blocks.0.attn.masked{place}"] == -math.inf
    seen = recorded[f"blocks.0.attn.pattern{place}"][~hidden].double()
    args = ("show", PROMPT, "--model", tiny, "--at", f"blocks.0.attn.pattern{place}")
    stats = call(*args, "--json").json["stats"]
    assert (stats["size"], stats["masked"], stats["finite"]) == (hidden.numel(), int(hidden.sum()), seen.numel())
    assert stats["mean"] == pytest.approx(float(seen.mean()))
    assert f"{int(hidden.sum())} of {hidden.numel()} masked" in call(*args).out


@pytest.mark.parametrize("site", ["scores", "masked"])
def test_hidden_cells_are_masked_and_not_wrong(call: Call, tmp_path, site):
    folder = write_model(tmp_path / "m")
    file = tmp_path / "t.safetensors"
    assert call("trace", "a", "--model", folder, "-o", file).code == 0
    longer = extend(load_model(folder), open_trace(file), [1])
    longer.save(file, force=True)
    done = call("show", file, "--model", folder, "--at", f"blocks.0.attn.{site}")
    assert "4 of 16 masked" in done.out
    assert "NOT FINITE" not in done.out


def test_full_prints_what_is_left_out(call: Call, tiny, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    whole = call("show", PROMPT, "--model", tiny, "--at", "logits", "--full").out
    cut = call("show", PROMPT, "--model", tiny, "--at", "logits").out
    assert len(whole) > 3 * len(cut)
    assert "--full prints all" in cut
    assert "--full" not in whole


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    ("place", "view", "width"),
    [
        ("blocks.0.mlp.post", "neurons", 50), ("blocks.0.attn.rot_q", "rotation", 50),
        ("blocks.0.resid_pre", "lens", 40), ("blocks.0.attn.pattern", "arcs", 40),
        ("blocks.0.attn.pattern", "heatmap", 40),
    ],
)  # fmt: skip
def test_a_terminal_has_whole_columns_and_a_pipe_has_all(call: Call, tiny, monkeypatch, terminal, place, view, width):
    args = ("show", PROMPT, "--model", tiny, "--at", place, "--view", view)
    whole, told = call(*args, "--full").out, call(*args, "--json").json
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((width, 24)))
    said = call(*args).out
    if not terminal:
        assert said.split("\n\n")[-2].split("\n")[:5] == whole.split("\n\n")[-2].split("\n")[:5]
        return
    table = [line for part in said.split("\n\n")[1:-1] for line in part.splitlines()]
    assert max(map(cells, table)) <= width
    assert "--full prints all" in " ".join(said.split())
    if view == "neurons":  # what the list is sorted by, and what the walk speaks of, go last
        assert "… without" in said
        heads = table[0].split()
        assert {"neuron", "contribution", "promotes"} <= {*heads}
        assert {*heads} < {column["name"] for column in told["columns"]}
    assert len(said) < len(whole)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("logits[p=-1]", "more; --full prints all"),
        ("blocks.0.attn.pattern", "head 3"),
        ("blocks.0.attn.pattern[h=0,q=3]", "␣cras"),
        ("blocks.0.resid_pre[p=0]", "16  "),
        ("tokens", "pos"),
        ("blocks.0.attn.past_k", "(empty)"),
    ],
)
def test_every_shape_has_a_text(call: Call, tiny, address, words):
    done = call("show", "The server crashed", "--model", tiny, "--at", address)
    assert (done.code, done.err) == (0, "")
    assert words in done.out


def test_overview(call: Call, tiny, recorded):
    done = call("show", PROMPT, "--model", tiny)
    assert (done.code, done.err) == (0, "")
    for token in recorded.tokens[0]:
        assert token.label in done.out
    assert "blocks.0…1.attn.pattern" in done.out
    assert recorded.top(1)[0].label in done.out
    data = call("show", PROMPT, "--model", tiny, "--json").json
    assert data["prompt"] == PROMPT
    assert [t["id"] for t in data["tokens"][0]] == [t.id for t in recorded.tokens[0]]
    assert {s["name"] for s in data["sites"]} == {s.name for s in recorded.program.sites}
    assert data["top"][0][0]["id"] == recorded.top(1)[0].id


def test_checks(call: Call, tiny):
    done = call("show", PROMPT, "--model", tiny, "--checks", "--json")
    assert done.code == 0
    assert all(check["ok"] for check in done.json["checks"])
    one = call("show", PROMPT, "--model", tiny, "--at", "blocks.1.attn.pattern[h=0]", "--checks")
    assert "✓ blocks.1.attn.pattern@0  rows sum to 1" in one.out


def test_what_is_not_finite_has_a_name(call: Call, tmp_path):
    spoilt = write_model(tmp_path / "spoilt", spoil="blocks.1.mlp.up.weight")
    done = call("show", "dog", "--model", spoilt)
    assert (
        "no next token: the logits hold NaN; the first tensor that is not finite is blocks.1.mlp.pre_linear" in done.out
    )
    tensor = call("show", "dog", "--model", spoilt, "--at", "logits[p=-1]")
    assert "no ranking" in tensor.out
    assert "NOT FINITE 300 of 300 (300 nan)" in tensor.out
    data = call("show", "dog", "--model", spoilt, "--at", "logits[p=-1]", "--json").json
    assert set(data["values"]) == {"NaN"}
    failed = call("show", "dog", "--model", spoilt, "--checks")
    assert failed.code == 1
    assert "checks do not hold" in failed.err
    assert "✗" in failed.out


def piped(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize("source", [[], ["-"]])
@pytest.mark.parametrize(
    ("data", "prompt", "note"),
    [
        (b"dog bites\n", "dog bites", ""),
        (b"dog\r\nbites\r\n", "dog\r\nbites", ""),
        ("caf\u00e9".encode("latin-1"), "café", "Windows-1252"),
        ("\ufeffdog".encode("utf-16-le"), "dog", "UTF-16"),
        (b"a\0bcdef", "a\0bcdef", ""),
    ],
)
def test_a_prompt_from_a_pipe(call: Call, tiny, monkeypatch, source, data, prompt, note):
    piped(monkeypatch, data)
    done = call("show", *source, "--model", tiny, "--json")
    assert done.code == 0
    assert done.json["prompt"] == prompt
    assert note in done.err
    assert bool(note) == bool(done.err)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [("", "the prompt is empty"), ("a" * 2_000_001, "2,000,001 characters"), (b"\x81\0\xff", "is no text")],
)
def test_prompts_that_cannot_be(call: Call, tiny, monkeypatch, prompt, words):
    piped(monkeypatch, prompt if isinstance(prompt, bytes) else prompt.encode())
    done = call("show", "-", "--model", tiny)
    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_bytes_of_the_command_line_that_are_no_text(call: Call, tiny):
    done = call("show", "dog \udcff", "--model", tiny, "--json")
    assert done.code == 0
    assert done.json["prompt"] == "dog \ufffd"
    assert "lone surrogate" in done.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--at", "blocks.9.attn.q"], "there is no site 'blocks.9.attn.q'"),
        (["--at", "logits[h=1]"], "no axis 'h'"),
        (["--at", "logits[p=99]"], "outside"),
        (["--at", "logits@3"], "no pass 3"),
        (["--at", "!"], "is not an address"),
        (["--device", "toaster"], "toaster"),
        (["--kernel", "cudnn"], "runs on CUDA only"),
        (["--max-memory", "1K"], "needs"),
        (["--keep", "blocks.*.nope"], "nope"),
    ],
)
def test_refusals_are_one_line(call: Call, tiny, args, words):
    done = call("show", "dog bites man", "--model", tiny, *args)
    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_a_file_shows_what_the_prompt_does(call: Call, tiny, tmp_path):
    file = tmp_path / "a.trace.safetensors"
    assert call("trace", PROMPT, "--model", tiny, "-o", file).code == 0
    for address in ("blocks.1.attn.pattern[h=3]", "logits[p=-1]", "blocks.0.resid_mid"):
        run = call("show", PROMPT, "--model", tiny, "--at", address, "--json")
        saved = call("show", file, "--at", address, "--json")
        assert json.loads(run.out) == json.loads(saved.out)
    assert call("show", file).out == call("show", PROMPT, "--model", tiny).out
    assert call("show", file, "--keep", "residual").code == 2
    missing = call("show", tmp_path / "b.safetensors")
    assert (missing.code, missing.out) == (1, "")
    assert "b.safetensors" in missing.err


def test_a_prompt_of_ids(call: Call, tiny):
    done = call("show", "4, 5 6", "--ids", "--model", tiny, "--json")
    assert done.code == 0
    assert [t["id"] for t in done.json["tokens"][0]] == [4, 5, 6]
    assert call("show", "4 five", "--ids", "--model", tiny).code == 2
    beyond = call("show", "300", "--ids", "--model", tiny)
    assert (beyond.code, beyond.err.count("\n")) == (1, 1)
    assert call("show", "", "--ids", "--model", tiny).code == 1

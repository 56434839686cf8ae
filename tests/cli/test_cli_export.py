"""``layerstep export``: one file, what is said of it, and what is refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from calls import Call

from engine.cli import export
from engine.export.formats import FORMATS

PROMPT = "dog bites man"
PATTERN = "blocks.0.attn.pattern[h=1]"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which one is."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded and nothing runs."""
    for name in ("record", "open_file", "open_other"):
        monkeypatch.setattr(export, name, lambda *_, **__: pytest.fail("it ran"))


# -- what is written -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["--to", "csv", "--at", PATTERN], "blocks.0.attn.pattern-h-1.csv"),
        (["--to", "safetensors", "--keep", "residual"], "dog-bites-man.safetensors"),
        (["--to", "svg", "--view", "cost", "--size", "column"], "cost.svg"),
    ],
)
def test_a_file_is_named_after_what_it_is_of(call: Call, tiny: Path, here: Path, args: list[str], name: str):
    done = call("export", PROMPT, "--model", tiny, *args)
    assert (done.code, done.out) == (0, "")
    assert f"saved {name}: " in done.err
    assert files(here) == [name]


def test_the_size_is_told_before_and_the_result_as_json(call: Call, tiny: Path, here: Path):
    done = call("export", PROMPT, "--model", tiny, "-o", "x.npz", "--json")
    size = (here / "x.npz").stat().st_size
    assert done.json == {"file": "x.npz", "format": "npz", "bytes": size}
    assert done.err.startswith("layerstep: about ")


def test_stdout_has_the_export_and_nothing_else(call: Call, tiny: Path, here: Path, monkeypatch: pytest.MonkeyPatch):
    done = call("export", PROMPT, "--model", tiny, "--to", "json", "--at", PATTERN, "-o", "-")
    assert done.json["picture"]["address"] == "blocks.0.attn.pattern[b=0,h=1]"
    assert (done.err, files(here)) == ("", [])
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    refused = call("export", PROMPT, "--model", tiny, "--to", "npz", "-o", "-")
    assert (refused.code, refused.out) == (1, "")
    assert "npz is no text for a terminal" in refused.err


def test_a_saved_trace_is_exported_as_the_run_is(call: Call, tiny: Path, here: Path):
    assert call("trace", PROMPT, "--model", tiny, "-o", "t.trace.safetensors").code == 0
    assert call("export", "t.trace.safetensors", "--to", "csv", "--at", PATTERN, "-o", "file.csv").code == 0
    assert call("export", PROMPT, "--model", tiny, "--to", "csv", "--at", PATTERN, "-o", "run.csv").code == 0
    assert (here / "file.csv").read_text() == (here / "run.csv").read_text()


def test_of_a_saved_trace_some_is_chosen(call: Call, tiny: Path, here: Path):
    from safetensors import safe_open

    assert call("trace", PROMPT, "--model", tiny, "-o", "t.trace.safetensors").code == 0
    done = call("export", "t.trace.safetensors", "-o", "x.safetensors", "--keep", "blocks.*.attn.q", "--layers", "1")
    assert done.code == 0, done.err
    with safe_open(here / "x.safetensors", "pt") as found:
        assert list(found.keys()) == ["blocks.1.attn.q"]


def test_some_layers_and_heads_are_chosen(call: Call, tiny: Path, here: Path):
    import numpy as np

    keep = ["--keep", "blocks.*.attn.pattern,blocks.*.attn.q", "--layers", "1", "--heads", "0,2-3"]
    assert call("export", PROMPT, "--model", tiny, "-o", "x.npz", *keep, "--round-to", "float16").code == 0
    with np.load(here / "x.npz") as found:
        arrays = {name: found[name] for name in found.files if not name.startswith("__")}
    assert sorted(arrays) == ["blocks.1.attn.pattern", "blocks.1.attn.q"]
    assert arrays["blocks.1.attn.pattern"].shape[1] == arrays["blocks.1.attn.q"].shape[2] == 3
    assert {array.dtype for array in arrays.values()} == {np.dtype("float16")}


def test_a_caption_is_printed_for_who_sets_the_figure(call: Call, tiny: Path, here: Path):
    done = call("export", PROMPT, "--model", tiny, "-o", "x.tex", "--at", PATTERN, "--caption", "latex")
    assert done.code == 0
    assert r"$P_{ij} = \frac{" in done.out
    assert "``dog bites man''" in done.out


def test_the_app_records_a_cast(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch):
    told: list[tuple[object, ...]] = []
    app = SimpleNamespace(write=lambda request, path, **how: told.append((request, path, how)) or 7)
    monkeypatch.setattr("engine.cli.export.import_module", lambda name: {export.CASTING: app}[name])
    assert call("export", PROMPT, "--to", "cast", "--edit", "blocks.0.attn.z = 0").code == 0
    assert call("export", "--tour", "heads", "-o", "x.cast", "--force").code == 0
    (first, path, how), (none, other, more) = told
    assert (first["prompt"], first["edits"], path) == (PROMPT, ["blocks.0.attn.z = 0"], Path("walk.cast"))
    assert (none, other, more["tour"], more["force"], how["tour"]) == ({}, Path("x.cast"), "heads", True, None)


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("to", FORMATS)
def test_what_is_there_already_is_refused_before_anything_runs(call: Call, here: Path, to: str):
    path = here / f"x{FORMATS[to].suffix}"
    path.write_text("mine")
    done = call("export", PROMPT, "--to", to, "-o", path.name)
    assert (done.code, path.read_text()) == (1, "mine")
    assert f"{path.name} exists already" in done.err


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], 2, "say in which format with --to (html, svg"),
        (["-o", "-"], 2, "say in which format with --to"),
        (["-o", "x.doc"], 1, "x.doc does not say in which format; end it with one of .html"),
        (["--to", "doc"], 2, "'doc' is not one of 'html', 'svg'"),
        (["--to", "svg", "--at", "blocks..z["], 1, "blocks..z["),
        (["--to", "npz", "--layers", "1-"], 2, "'1-' are no numbers; write e.g. 0,2 or 0-3"),
        (["--to", "npz", "--heads", "3-1"], 2, "'3-1' are no numbers"),
        (["--to", "svg", "--view", "roofline", "--peaks", "1e12"], 2, "is not FLOPs and bytes a second"),
        (["--to", "svg", "--view", "roofline", "--peaks", "0,1"], 2, "write e.g. 5e12,2e11"),
        (["--to", "npz", "--max-size", "much"], 2, "much"),
        (["--to", "html", "--palette", "grey"], 2, "--palette is not for html; it is for svg, pdf, png, tikz"),
        (["--to", "npz", "--view", "heatmap"], 2, "--view is not for npz; it is for svg"),
        (["--to", "svg", "--round-to", "float16"], 2, "--round-to is not for svg"),
        (["--to", "csv", "--notes"], 2, "--notes is not for csv; it is for html, md, ipynb"),
        (["--to", "cast", "--max-size", "1M"], 2, "--max-size is not for cast"),
        (["--to", "csv", "--at", PATTERN, "--layers", "1"], 2, "--layers chooses of a whole trace"),
        (["--to", "csv", "--view", "heatmap"], 2, "--view is of one place; name that with --at"),
        (["--to", "json", "--minus", "embed"], 2, "--minus is of one place"),
        (["--to", "parquet", "--over", "head=mean"], 2, "--over is of one place"),
        (["--to", "csv", "--round-to", "float16"], 2, "--round-to rounds no table of the steps"),
        (["--to", "svg", "--at", PATTERN, "--peaks", "1e12,1e11"], 2, "--peaks is for --view roofline"),
        (["--to", "html", "--notes"], 2, "--notes are those of a tour"),
        (["--to", "cast", "--keep", "residual"], 2, "--keep is not for cast"),
        (["--to", "html", "--tour", "heads"], 2, "a tour has its own prompt"),
        (["--to", "html", "--tour", "heads", "--model", "classic"], 2, "--model is not for a tour"),
        (["--to", "ipynb", "--tour", "heads", "--edit", "embed = 0"], 2, "--edit is not for a tour"),
        (["--to", "md", "--tour", "heads", "--layers", "0"], 2, "--layers chooses nothing of a tour as md"),
        (["--to", "cast", "-o", "-"], 2, "a cast is written to a file"),
        (["--to", "csv", "-o", "gone/x.csv"], 1, "there is no folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_before_anything_runs(call: Call, here: Path, args, code: int, words: str):
    done = call("export", PROMPT, *args)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert files(here) == []


def test_a_limit_is_kept_by_formats_whose_size_is_known_only_afterwards(call: Call, tiny: Path, here: Path):
    for to in ("svg", "json", "parquet"):
        done = call("export", PROMPT, "--model", tiny, "--to", to, "--at", PATTERN, "--max-size", "100")
        assert done.code == 1
        assert "over the limit of 100 B" in done.err
        assert files(here) == []


def test_what_is_too_large_is_refused_with_a_cheaper_choice(call: Call, tiny: Path, here: Path):
    done = call("export", PROMPT, "--model", tiny, "-o", "x.html", "--max-size", "200K")
    assert done.code == 1
    assert "over the limit of 200.0 KiB" in done.err
    assert "--max-size 1M" in done.err
    assert files(here) == []


def test_a_trace_without_what_a_picture_needs_says_what_to_keep(call: Call, tiny: Path, here: Path):
    assert call("trace", PROMPT, "--model", tiny, "--keep", "residual", "-o", "t.trace.safetensors").code == 0
    for to in ("svg", "csv", "json"):
        done = call("export", "t.trace.safetensors", "--to", to, "--at", PATTERN)
        assert (done.code, done.out) == (1, "")
        assert "blocks.0.attn" in done.err
        assert "--model" in done.err or "--keep" in done.err
    assert files(here) == ["t.trace.safetensors"]


def test_options_of_a_run_are_refused_for_a_file(call: Call, tiny: Path, here: Path):
    (here / "t.trace.safetensors").write_text("")
    done = call("export", "t.trace.safetensors", "--to", "csv", "--edit", "blocks.0.attn.z = 0")
    assert done.code == 2
    assert "--edit" in done.err


def test_json_has_no_number_that_json_has_not(call: Call, tiny: Path, here: Path):
    assert call("export", PROMPT, "--model", tiny, "--keep", "blocks.0.attn.masked", "-o", "x.json").code == 0
    found = json.loads((here / "x.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    assert found["tensors"][0]["values"][0][0][0][1] == "-Infinity"

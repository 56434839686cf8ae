"""Notebooks: valid by nbformat, run by nbconvert, and the trace in them is the trace."""

from __future__ import annotations

import ast
import base64
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
import torch
from exported import HOSTILE, exported, hostile, of_kind, walked, with_tokens
from marked import Seen, rendered
from test_handout import TOUR

from engine import Trace, open_trace
from engine.export.selection import Selection
from engine.export.walk import plain
from engine.sites import Address
from engine.text import display
from engine.tours import Stop, Tour

ROOT = Path(__file__).parents[2]
JUPYTER_S = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
"""Its own folders: none of the user's."""


def notebook(t: Trace, **how: object) -> nbformat.NotebookNode:
    found = nbformat.reads(exported(t, "ipynb", **how).decode("ascii"), as_version=nbformat.NO_CONVERT)
    nbformat.validate(found)
    assert (found.nbformat, found.nbformat_minor) == (4, 5)
    return found


def sources(book: nbformat.NotebookNode, kind: str = "code") -> list[str]:
    return [cell.source for cell in book.cells if cell.cell_type == kind]


def embedded(book: nbformat.NotebookNode, folder: Path, name: str = "t") -> Trace:
    """The trace in a notebook, opened as its cells open it."""
    [source] = [source for source in sources(book) if f"{name}_data =" in source]
    [data] = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    path = folder / f"{name}.trace.safetensors"
    path.write_bytes(base64.b64decode(data))
    return open_trace(path)


@pytest.mark.parametrize("kind", ["walked", "hostile", "bfloat16", "batch", "encoder-decoder", "experts", "nan"])
def test_the_trace_in_a_notebook_is_the_trace(kind: str, tmp_path: Path) -> None:
    t = {"walked": walked, "hostile": hostile}.get(kind, lambda: of_kind(kind))()
    found = embedded(notebook(t), tmp_path)
    assert found.prompt == t.prompt
    for at in range(len(t.passes)):
        for name, tensor in t.passes[at].kept.items():
            own = found.site(name, at)
            assert own.dtype == tensor.dtype
            assert torch.equal(torch.nan_to_num(own), torch.nan_to_num(tensor)), name


def test_what_a_notebook_shows_is_there_before_it_has_run() -> None:
    book = notebook(walked())
    shown = [output.data for cell in book.cells for output in cell.get("outputs", ())]
    assert len(shown) >= 6
    for data in shown:
        assert not Seen(data["text/html"]).troubles
    calls = [source for source in sources(book) if source.startswith("show(")]
    assert "show(t, 'blocks.2.attn.pattern[h=0]', 'heatmap')" in calls
    assert any(source.endswith('if t.weights is not None else "this needs the model"') for source in calls)  # the lens


def test_nbconvert_runs_a_notebook_and_finds_the_numbers(tmp_path: Path) -> None:
    t = walked()
    (tmp_path / "walk.ipynb").write_bytes(exported(t, "ipynb", selection=Selection(layers=(1,), heads=(5,))))
    done = subprocess.run(
        [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output", "done", "walk.ipynb"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | dict.fromkeys(JUPYTER_S, str(tmp_path)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    book = json.loads((tmp_path / "done.ipynb").read_text(encoding="utf-8"))
    answers = ["".join(output.get("data", {}).get("text/html", "")) + "".join(output.get("text", ""))
               for cell in book["cells"] for output in cell.get("outputs", ())]  # fmt: skip
    pattern = next(answer for answer in answers if "blocks.1.attn.pattern[b=0,h=5]" in answer and "query" in answer)
    assert f"{float(t['blocks.1.attn.pattern'][0, 5, 5, 2]):.3g}" in Seen(pattern).texts
    figures = [output["data"] for cell in book["cells"] for output in cell.get("outputs", ())
               if "image/svg+xml" in output.get("data", {})]  # fmt: skip
    assert len(figures) == 1
    checks = next(answer for answer in answers if "rows sum to 1" in answer)
    assert "✗" not in checks
    assert "without its model" not in "".join(answers)
    assert any("Logit lens" in answer for answer in answers)


def test_a_tour_is_its_words_pictures_and_folded_answers() -> None:
    book = notebook(walked(), tour=TOUR)
    words = "\n\n".join(sources(book, "markdown"))
    assert f"The weight is **{float(walked()['blocks.2.attn.pattern[b=0,h=3,q=5,k=2]']):.3g}**" in words
    assert "<details><summary>Answer</summary>" in words
    assert "Do not say" not in words
    assert "Do not say" in "\n".join(sources(notebook(walked(), tour=TOUR, notes=True), "markdown"))
    calls = [source for source in sources(book) if source.startswith("show(")]
    assert calls[:2] == ["show(t, 'blocks.2.attn.pattern[b=0,h=3]', 'heatmap')",
                         "show(t, 'blocks.2.attn.pattern[b=0,h=4]', 'heatmap')"]  # fmt: skip


def test_a_second_trace_is_in_it_too(tmp_path: Path) -> None:
    book = notebook(walked(), tour=TOUR, beside=with_tokens(walked(), ("other",)))
    assert embedded(book, tmp_path, "other").prompt == "other"
    assert any(source.startswith("show(other, ") for source in sources(book))


def test_tokens_from_an_enemy_are_texts_and_no_code() -> None:
    stop = Stop(HOSTILE[1], Address.parse("blocks.0.attn.pattern[b=0,h=0,q=3,k=1]"), "heatmap",
                "<script>alert(1)</script> {token:tokens[b=0,p=0]}")  # fmt: skip
    t = hostile()
    for how in ({}, {"tour": Tour(HOSTILE[2], "m", "p", (stop,)), "title": HOSTILE[0]}):
        book = notebook(t, **how)
        for source in sources(book, "markdown"):
            seen = rendered(source)
            assert not seen.troubles
            assert "img" not in seen.tags
        for source in sources(book):
            ast.parse(source)
            assert "alert" not in source or "_data" in source
        for cell in book.cells:
            for output in cell.get("outputs", ()):
                assert not Seen(output.data["text/html"]).troubles
    assert display(HOSTILE[0])[:12] in rendered("\n".join(sources(book, "markdown"))).text
    assert plain("$x$") == "\\$x\\$"  # no formula of its own


def test_an_answer_cannot_close_its_fold() -> None:
    stop = replace(TOUR.stops[0], answer="</details><script>alert(1)</script>")
    book = notebook(walked(), tour=replace(TOUR, stops=(stop,)))
    for source in sources(book, "markdown"):
        assert not rendered(source).troubles

"""Figures as pgf code. There may be no LaTeX here, so mostly its structure is looked at."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import torch
from exported import exported, walked, with_tokens
from tiny import ARCHITECTURES, tiny

from engine import trace
from engine.errors import ExportError
from engine.export.figures.latex import escaped
from engine.export.formats import FigureStyle

PATTERN = "blocks.1.attn.pattern"
HOSTILE = (
    "\\input{/etc/passwd}", "} \\end{tikzpicture}", "$x_1^2$ & 50%", "#1 ~ {\\catcode", "--- ''`` \"", "漢👩\x1b\u202e",
    "␣[a];",
    "^^5c^^41",
)  # fmt: skip
VIEWS = {"heatmap": "[h=1]", "arcs": "[h=1]", "row": "[h=1,q=3]", "chain": "[h=1,q=3,k=2]"}


def code_of(t, at: str, view: str | None = None, **style) -> str:
    return exported(t, "tikz", at=at, view=view, style=FigureStyle(size="column", **style)).decode()


def hostile():
    return with_tokens(trace(tiny(dtype=torch.float32, **ARCHITECTURES["modern"]), list(range(len(HOSTILE)))), HOSTILE)


def balanced(code: str) -> bool:
    depth = 0
    for mark in re.findall(r"\\.|[{}]", code):
        depth += {"{": 1, "}": -1}.get(mark, 0)
        if depth < 0:
            return False
    return depth == 0


COMMANDS = {
    "begin", "end", "fill", "node", "path", "draw", "caption", "centering", "scriptsize", "small", "usepackage",
    "usetikzlibrary", "input", "ensuremath", "textbackslash", "textasciicircum", "textasciitilde", "char", "langle",
    "rangle", "sqcup", "hookleftarrow", "mapsto", "dots", "to", "times", "cdot", "infty", "frac", "sum", "sqrt", "leq",
    "geq", "surd", "Vert", "top",
}  # fmt: skip
"""What code is made of: our own commands and those that a character is escaped to."""


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("caption", ["", "latex"])
def test_groups_are_closed_and_no_text_from_outside_is_a_command(view, caption):
    code = code_of(hostile(), PATTERN + VIEWS[view], view, caption=caption)
    assert balanced(code)
    commands = set(re.findall(r"\\([a-zA-Z]+)", code))
    assert commands <= COMMANDS, commands - COMMANDS
    body = "\n".join(line for line in code.splitlines() if not line.startswith("%"))
    assert "\\input" not in body
    assert code.count("\\begin{tikzpicture}") == code.count("\\end{tikzpicture}") == 1
    assert "^^" not in code
    assert not re.search(r"(?<!\\)[#&~]", body)
    assert not re.search(r"(?<!\\)%", body)
    assert all(line.isascii() for line in body.splitlines()), "any LaTeX can read it"
    assert ("\\caption{" in code) == bool(caption)


@pytest.mark.parametrize("view", ["heatmap", "row", "arcs"])
def test_every_statement_ends_and_names_its_places_in_numbers(view):
    lines = code_of(walked(), PATTERN + VIEWS[view], view).splitlines()
    drawn = [line.strip() for line in lines if line.startswith("  ")]
    assert drawn
    for line in drawn:
        assert line.startswith(("\\fill", "\\node", "\\path", "\\draw"))
        assert line.endswith(";")
        assert "nan" not in line
        assert re.search(r"\(-?\d+(\.\d+)?,-?\d+(\.\d+)?\)", line), line


def test_a_heatmap_has_the_numbers_of_its_cells():
    t = walked()
    code = code_of(t, f"{PATTERN}[h=2]")
    found = [float(x) for x in re.findall(r"scale=0.8\] at \([^)]*\) \{(\d*\.\d\d)\}", code)]
    weights = t[PATTERN][0, 2]
    expected = [round(float(weights[i, j]), 2) for i in range(t.length) for j in range(i + 1)]
    assert found == pytest.approx(expected, abs=0.0051)
    assert code.count("north east lines") == t.length * (t.length - 1) // 2 + 1, "masked cells, and the key"


def test_a_picture_that_is_too_large_or_of_another_kind_is_refused_in_one_line_with_what_to_do():
    t = trace(tiny(dtype=torch.float32, **ARCHITECTURES["modern"]), [1] * 40)
    for view in ("heatmap", "arcs", "chain"):
        with pytest.raises(
            ExportError, match="40 along query, and pgf code at most 32; choose a range, or export it as pdf"
        ):
            code_of(t, f"{PATTERN}[h=1]", view)
    code_of(t, f"{PATTERN}[h=1,q=8:40,k=0:32]", "heatmap")
    for view in ("heads", "histogram"):
        with pytest.raises(ExportError, match="has no pgf form"):
            code_of(t, PATTERN, view)
    with pytest.raises(ExportError, match="has no pgf form; export it as pdf"):
        exported(t, "tikz", view="cost")


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("plain text 123", "plain text 123"),
        ("50% & #1_{a}^b~$", r"50\% \& \#1\_\{a\}\textasciicircum{}b\textasciitilde{}\$"),
        ("\\x", r"\textbackslash{}x"),
        ("---", "-{}-{}-{}"),
        ("é", "é"),
        ("漢\n", r"\ensuremath{\langle}U+6F22\ensuremath{\rangle}\ensuremath{\hookleftarrow}"),
        ("[a]", "{[}a{]}"),
    ],
)
def test_each_character_is_escaped_by_itself(text, latex):
    assert escaped(text) == latex


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex on this machine")
@pytest.mark.parametrize("view", VIEWS)
def test_latex_compiles_it(view, tmp_path):
    code = code_of(hostile(), PATTERN + VIEWS[view], view, caption="latex")
    head = "\\documentclass{article}\\usepackage{tikz}\\usetikzlibrary{patterns}\\begin{document}\n"
    (tmp_path / "figure.tex").write_text(f"{head}{code}\\end{{document}}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "figure.tex"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]

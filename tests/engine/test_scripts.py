"""The scripts that a researcher would start from: each runs, is short, and prints what the engine says."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from engine import load_model, trace

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "samples" / "scripts"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
PROMPT = "The server crashed because the disk was full"


def output(capsys, script: str, *args: str) -> list[str]:
    """The lines that a script prints."""
    names = runpy.run_path(str(FOLDER / f"{script}.py"))
    names["main"](*([list(args)] if args or script != "single_head" else []))
    return capsys.readouterr().out.splitlines()


def test_there_are_five():
    assert SCRIPTS == ["attention_of_a_head", "cache_as_it_grows", "compare_models", "logit_lens", "single_head"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_is_short_and_says_how_to_run_it(script):
    text = (FOLDER / f"{script}.py").read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert f"python samples/scripts/{script}.py" in text
    code = [line for line in text.partition('"""')[2].partition('"""')[2].splitlines() if line.strip()]
    assert len(code) <= 60


def test_a_script_runs_by_itself():
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / "single_head.py")],
        capture_output=True, encoding="utf-8", timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert "largest difference from torch.nn" in done.stdout


def test_single_head(capsys):
    *steps, last = output(capsys, "single_head")
    shapes = {line.split()[0]: re.search(r"\[[\d, ]+\]", line)[0] for line in steps}
    vector, cells = "[2, 5, 1, 32]", "[2, 1, 5, 5]"
    assert shapes == {
        "q": vector, "k": vector, "v": vector, "scores": cells, "scaled": cells, "pattern": cells, "z": vector,
    }  # fmt: skip
    assert float(last.rpartition(" ")[2]) < 1e-6


def test_attention_of_a_head(capsys):
    head, _, *rows = output(capsys, "attention_of_a_head", PROMPT, "--layer", "1", "--head", "2")
    assert head.startswith("modern, layer 1, head 2")
    t = trace(load_model("modern"), PROMPT)
    pattern = t["blocks.1.attn.pattern[h=2]"][0]
    n = len(t)
    for q, (row, token) in enumerate(zip(rows[:n], t.tokens[0], strict=True)):
        assert row.lstrip().startswith(token.label)
        cells = row[-5 * n :].split()
        assert len(cells) == n
        for k, cell in enumerate(cells):
            assert abs((0 if cell == "·" else int(cell)) - 100 * float(pattern[q, k])) <= 0.51
    assert rows[-1].startswith("strongest: ")
    assert rows[-1].count("→") == n


def test_logit_lens(capsys):
    title, *lines = output(capsys, "logit_lens", PROMPT)
    t = trace(load_model("modern"), PROMPT)
    assert title == "modern after …"
    assert len(lines) == t.config.n_layers + 1
    assert lines[-1].split()[:2] == ["block", str(t.config.n_layers - 1)]
    best = t.top(1)[0]
    assert f"  {best.label} {best.prob:.2f}  " in lines[-1]


def test_compare_models(capsys):
    lines = output(capsys, "compare_models", PROMPT)
    assert lines[0].split() == ["classic", "modern"]
    assert ["positions", "sinusoidal", "rotary"] in [line.split() for line in lines]
    checks = next(line for line in lines if line.startswith("checks"))
    for held, count in re.findall(r"(\d+) of (\d+) hold", checks):
        assert held == count
    first = lines[lines.index("next token") + 1]
    for name in ("classic", "modern"):
        best = trace(load_model(name), PROMPT).top(1)[0]
        assert f"{best.prob:.3f}  {best.label}" in first

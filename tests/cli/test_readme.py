"""What the README says can be typed works as it stands."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import readme_figures
from calls import ROOT, Call
from tiny_bert import write_bert

from engine import load_model, trace
from engine.cli.commands import COMMANDS
from engine.pictures import views_of
from engine.samples import sample_folders
from engine.sites import within_block
from engine.views import LOOKS

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
LINES = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if "layerstep" in line]
HEADLESS_COMMAND = r"layerstep (trace|show|generate|cache|plan|models|export|tour \w+ --(text|check)|--version)\b"
HEADLESS = [line for line in LINES if re.search(HEADLESS_COMMAND, line)]
APP = [line for line in LINES if line not in HEADLESS]

pytestmark = pytest.mark.skipif(len(sample_folders()) < 2, reason="the sample models are not here")


def stand_ins(folder: Path) -> None:
    """Small models under the names of those that a reader has."""
    shutil.copytree(sample_folders()["modern"], folder / "Qwen2.5-0.5B")
    write_bert(folder / "bert-base-uncased")


def says(args: list[str]) -> bool:
    """Whether a command prints a result, and does not only write a file."""
    return args[0] != "trace" and (args[0] != "export" or "-" in args or "--caption" in args)


def test_headless_lines(call: Call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stand_ins(tmp_path)
    assert len(HEADLESS) >= 5
    for line in HEADLESS:
        feed, _, command = line.rpartition(" | ")
        args = shlex.split(command, comments=True)
        assert args.pop(0) == "layerstep"
        if feed:
            said = re.fullmatch('echo "([^"]*)"', feed)
            assert said
            args.insert(1, said[1])
        done = call(*args)
        assert (done.code, bool(done.out)) == (0, says(args)), done.err


def test_app_lines(call: Call, monkeypatch):
    opened: list[tuple[object, ...]] = []
    monkeypatch.setattr("engine.cli.walk.open_app", lambda *what: opened.append(what) or 0)
    monkeypatch.setattr("engine.cli.open.open_app", lambda *what, **more: opened.append((*what, more)) or 0)
    monkeypatch.setattr("engine.cli.open.check_file", lambda _: None)
    monkeypatch.setattr("engine.cli.tour.open_app", lambda *what, **more: opened.append((*what, more)) or 0)
    monkeypatch.setattr("engine.cli.tour._notes", lambda *what: opened.append(what) or 0)
    for line in APP:
        assert call(*shlex.split(line, comments=True)[1:]).code == 0, line
    assert len(opened) == len(APP) >= 4


def test_python(tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    code = [block for kind, block in BLOCKS if kind == "python"]
    assert len(code) == 4
    for block in code:
        exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "server.trace.safetensors").exists()


def test_figures_are_the_models():
    assert readme_figures.filled(README) == README, "run python tests/cli/readme_figures.py"


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if target.startswith("#"):
            assert f"## {target[1:]}" in README.lower().splitlines()
        else:
            assert (ROOT / target).exists(), target


def test_the_pictures_are_of_the_sites_that_have_them():
    traces = [trace(load_model(name), "dog bites man") for name in ("modern", "classic")]
    having: dict[str, set[str]] = {}
    for one in traces:
        for site in (site for site in one.program.sites if "past" not in site.axes):
            for view in views_of(one, site):
                having.setdefault(view.name, set()).add(within_block(site.name).removeprefix("attn."))
    table = README.split("| picture |")[1].split("\n\n")[0].splitlines()[2:]
    columns = (row.split(" | ") for row in table)
    said = {name: of for names, of, *_ in columns for name in re.findall("`([^`]+)`", names)}
    assert {*said} == {*having}
    for name, sites in said.items():
        if named := {*re.findall("`([^`]+)`", sites)}:
            assert named == having[name], name
    assert having["row"] == having["histogram"] == set().union(*having.values()) - having["tokens"]
    assert having["heatmap"] < having["row"]


def test_every_view_is_named_beside_show():
    row = next(line for line in README.splitlines() if line.startswith("| `… --view NAME`"))
    names = {name.replace("-", " ") for name in re.findall("`([^`]+)`", row)}
    assert {*LOOKS, "chain", "heatmap", "row", "all heads", "arcs", "text", "mean", "max", "curves", "ranked"} <= names


def test_every_command_is_in_the_table():
    for name in COMMANDS:
        assert f"| `layerstep {name} " in README

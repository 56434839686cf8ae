"""Which command is meant, what comes back to the shell, and how little it takes to start."""

import subprocess
import sys

import click
import pytest
from calls import ROOT, Call, spawn

from engine.cli import entry, options, walk
from engine.cli.commands import COMMANDS, Layerstep
from engine.errors import Cancelled, LayerstepError


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What the app was opened with, in place of opening it."""
    calls: list[tuple[object, ...]] = []

    def record(*what: object, **more: object) -> int:
        calls.append((*what, *more.values()))
        return 0

    monkeypatch.setattr("engine.cli.walk.open_app", record)
    monkeypatch.setattr("engine.cli.open.open_app", record)
    return calls


@pytest.mark.parametrize(
    ("args", "prompt"),
    [
        ([], None),
        (["dog bites man"], "dog bites man"),
        (["show me"], "show me"),
        (["--", "show"], "show"),
        (["--", "--help"], "--help"),
        (["--model", "classic", "show"], "show"),
        ([""], ""),
        (["-"], None),
    ],
)
def test_what_is_no_command_is_a_prompt(call: Call, opened, args, prompt):
    assert call(*args).code == 0
    [(given, *_)] = opened
    assert given == prompt


def test_the_app_gets_model_address_and_file(call: Call, opened, tmp_path):
    file = tmp_path / "a.trace"
    file.touch()
    assert call("hi", "--model", "m", "--at", "blocks.0.attn.q[h=1]").code == 0
    assert call("open", file, "--at", "logits").code == 0
    assert call("hi", "--model", "m", "--allow-pickle").code == 0
    assert call("open", file, "--model", "m", "--allow-pickle").code == 0
    assert opened == [
        ("hi", "m", "blocks.0.attn.q[h=1]", None, False, None, False),
        (None, None, "logits", str(file), False),
        ("hi", "m", None, None, False, None, True),
        (None, "m", None, str(file), True),
    ]


@pytest.mark.parametrize("args", [["hi", "--at", "a b"], ["open", "not/there"], ["open", "."]])
def test_the_app_is_not_opened_on_what_cannot_be(call: Call, opened, args):
    done = call(*args)
    assert (done.code, done.out, opened) == (1, "", [])
    assert done.err.startswith("layerstep: ")
    assert done.err.count("\n") == 1


def test_without_the_app_the_rest_works(call: Call, monkeypatch):
    monkeypatch.setattr(walk, "APP", "tui_that_is_not_here.start")
    done = call("hi")
    assert (done.code, done.out) == (1, "")
    assert "tui_that_is_not_here" in done.err


def test_without_a_terminal_the_app_says_so():
    done = spawn("hi")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"needs a terminal" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["models"], ["show", "--help"], ["show", "--nope"]])
def test_torch_stays_out_where_nothing_is_computed(args):
    program = f"import sys; from engine.cli import main; main({args!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_help_names_every_command(call: Call):
    done = call("--help")
    assert done.code == 0
    for name, line in COMMANDS.items():
        assert f"  {name} " in done.out
        assert line in done.out
        command = Layerstep().get_command(click.Context(Layerstep()), name)
        assert command is not None
        assert command.name == name
        assert call(name, "--help").code == 0


@pytest.mark.parametrize(
    "args",
    [
        ["show", "--nope"],
        ["trace", "hi"],
        ["plan"],
        ["plan", "m", "--tokens", "0"],
        ["plan", "m", "--tokens", "many"],
        ["trace", "a", "b", "-o", "c"],
        ["show", "hi", "--max-memory", "lots"],
        ["show", "hi", "--kernel", "fast"],
        ["show", "hi", "--keep", ""],
        ["show", "hi", "--keep", ","],
        ["--nope\x1b[31m"],
        ["two", "prompts"],
    ],
)
def test_usage_errors_are_exit_2(call: Call, args):
    done = call(*args)
    assert (done.code, done.out) == (2, "")
    assert "Usage: layerstep" in done.err
    assert done.err.splitlines()[-1].startswith("layerstep: ")
    assert "\x1b" not in done.err


class Panic(BaseException):
    """As Rust libraries raise it."""


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (LayerstepError("so\x1b[0m it is"), 1, "layerstep: so␛[0m it is\n"),
        (Cancelled("stopped"), 130, "layerstep: cancelled\n"),
        (KeyboardInterrupt(), 130, "layerstep: cancelled\n"),
        (ZeroDivisionError("by\nzero"), 1, "layerstep: unexpected ZeroDivisionError: by"),
        (Panic("at the disco"), 1, "layerstep: unexpected Panic: at the disco; --debug shows the traceback\n"),
        (MemoryError(), 1, "layerstep: out of memory"),
        (PermissionError(13, "Permission denied", "/x"), 1, "layerstep: /x: Permission denied\n"),
        (LayerstepError(""), 1, "layerstep: failed without a reason\n"),
    ],
)
def test_what_an_exception_becomes(call: Call, monkeypatch, error, code, words):
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr("engine.cli.walk.open_app", fail)
    done = call("hi")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(words)
    assert done.err.count("\n") == 1


def test_debug_shows_the_traceback(call: Call, monkeypatch):
    def fail(*_: object) -> int:
        raise ZeroDivisionError("oh\x1b[0m")

    monkeypatch.setattr("engine.cli.walk.open_app", fail)
    done = call("hi", "--debug")
    assert done.code == 1
    assert "Traceback" in done.err
    assert "\x1b" not in done.err


def test_names_kept_without_torch_are_the_engines():
    from engine.ops.kernels import KERNELS

    assert options.KERNELS == KERNELS


@pytest.mark.parametrize(
    ("text", "size"),
    [("1G", 2**30), ("512M", 2**29), ("1.5GiB", 3 * 2**29), ("2kb", 2048), ("7", 7), ("0", 0), ("1T", 2**40)],
)
def test_sizes(text, size):
    option = click.Option(["--max-memory"])
    assert options.size_of(click.Context(Layerstep()), option, text) == size


def test_completion_is_the_shells(monkeypatch, capsys):
    monkeypatch.setenv("_LAYERSTEP_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "layerstep sh")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        entry.run([])
    assert "show" in capsys.readouterr().out

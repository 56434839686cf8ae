"""Streams that are closed, full, broken or dumb, and terminals that must get no foreign control byte."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest
from calls import ROOT, shell, spawn

from engine.cli import progress
from engine.jsontext import for_anyone, for_ourselves

HOSTILE = "AA\x1b]0;PWNED\x07BB\x1b[5;5HCC\x9b31mEE\rFF\u202egnp\u200b\x7f\x1b["


def test_json_values():
    nan, inf = float("nan"), float("inf")
    data = {"a": (nan, inf, -inf, 1.5), "b": [True, None, "x", 2]}
    assert json.loads(for_anyone(data)) == {"a": ["NaN", "Infinity", "-Infinity", 1.5], "b": [True, None, "x", 2]}
    assert json.loads(for_ourselves(data)) == {"a": [None, None, None, 1.5], "b": [True, None, "x", 2]}
    texts = ["caf\u00e9", "\ud83d\udc4d", "a\udcff"]
    assert json.loads(for_anyone(texts)) == ["café", "👍", "a\ufffd"]
    assert json.loads(for_ourselves(texts)) == ["café", "👍", "a\udcff"]


class Screen(io.StringIO):
    """Stands for stderr."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [1, 80])
def test_progress_is_one_line_that_goes_away(monkeypatch, terminal, width):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "PATIENCE", 0)
    monkeypatch.setenv("COLUMNS", str(width))
    with progress.Progress() as shown:
        shown.watch(3, 93, "blocks.0.attn.q")
        shown.watch(4, 93, "blocks.0.attn.k")  # too soon after the one before
    text = screen.getvalue()
    if not terminal:
        assert text == ""
        return
    _, line, blank, end = text.split("\r")
    assert line.strip() == ("layerstep: step 3/93 blocks.0.attn.q" if width == 80 else "…")
    assert (blank, end) == (" " * len(line), "")
    assert len(line) == max(1, width - 1)


def test_ctrl_c_ends_what_does_not_come_back():
    program = (
        "import hashlib\nfrom engine.cli import interrupt\ninterrupt.PATIENCE = 0.1\n"
        "with interrupt.prompt_interrupts():\n    print('go', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.read(2) == "go"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=20)
    assert (process.returncode, words) == (130, "layerstep: cancelled\n")


def test_stdin_closed(tiny):
    assert shell('layerstep show dog --model "$1" --at logits <&-', tiny).returncode == 0
    done = shell("layerstep show --at logits <&-")
    assert done.returncode == 2
    assert done.stderr.endswith("layerstep: there is no PROMPT, and stdin is closed\n")


def test_stdout_closed():
    done = shell("layerstep models >&-")
    assert (done.returncode, done.stderr) == (1, "layerstep: stdout is closed, so there is nowhere to print\n")


def test_all_streams_closed(tiny, tmp_path):
    target = tmp_path / "t.safetensors"
    assert shell('layerstep trace dog --model "$1" -o "$2" <&- >&- 2>&-', tiny, target).returncode == 0
    assert target.stat().st_size > 1000
    assert shell('layerstep show "$1" --at embed', target).returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_said():
    done = shell("layerstep models --json > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "layerstep: stdout cannot be written: No space left on device\n"


def test_a_broken_pipe_is_quiet(tiny):
    done = shell('{ layerstep show dog --model "$1" --at logits --json; echo "rc $?" >&2; } | head -c 5', tiny)
    assert done.stderr == "rc 0\n"


def test_a_narrow_encoding_gets_escapes(tiny):
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = spawn("show", "dog bites", "--model", tiny, env=env)
    assert done.returncode == 0
    assert done.stderr == b""
    assert done.stdout.isascii()


def test_a_terminal_gets_no_foreign_control(tiny, tmp_path):
    folder = tmp_path / "evil\x1b[31m\u202e"
    os.symlink(tiny, folder)
    calls = [
        ["show", HOSTILE],
        ["show", HOSTILE, "--json"],
        ["show", HOSTILE, "--checks", "--at", "blocks.0.attn.pattern[h=0]"],
        ["show", HOSTILE, "--at", HOSTILE],
        ["show", HOSTILE + ".safetensors"],
        ["show", HOSTILE, "--keep", HOSTILE],
        ["trace", HOSTILE, "-o", tmp_path / HOSTILE / "x"],
        ["trace", HOSTILE, "-o", tmp_path / "\x1b[5m"],
        ["open", HOSTILE],
        ["generate", HOSTILE, "-n", 9],
        ["generate", HOSTILE, "-n", 2, "--json"],
        ["generate", HOSTILE + ".safetensors"],
        ["generate", "x", "--trace", tmp_path / HOSTILE / "x"],
        ["plan", folder, "--tokens", HOSTILE],
        ["models", "--inspect", folder],
    ]
    named = [call + (["--model", folder] if call[0] in ("show", "trace", "open", "generate") else []) for call in calls]
    text = on_a_terminal(*named, ["show", "x", "--model", HOSTILE]).decode()
    assert text.count("code ") == len(calls) + 1
    assert text.count("PWNED") > len(calls) / 2
    bad = {char for char in text if ord(char) < 32 or 127 <= ord(char) < 160 or char in "\u202e\u200b"}
    assert bad == {"\n", "\r"}
    assert text.count("\r") == text.count("\r\n")


def on_a_terminal(*calls: list[object]) -> bytes:
    """All that a process writes to a terminal in which the program is called again and again."""
    ours, theirs = pty.openpty()
    program = "from engine.cli import main, progress\nprogress.PATIENCE = 1e9\n"  # it draws with carriage returns
    program += f"for args in {[list(map(str, call)) for call in calls]!r}:\n"
    program += "    print('code', main(args), flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux's word for the end
            break
        if not data:
            break
        seen += data
    os.close(ours)
    process.wait(60)
    return seen

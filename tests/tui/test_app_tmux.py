"""The real program with the real engine under tmux, from start to quit, the mouse off: what a person sees of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Tmux:
    """A pane of 110×34 in a server of its own."""

    def __init__(self, folder: Path, command: str) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", os.devnull]
        env = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder)}
        env.pop("TMUX", None)
        run = f"TERM=screen-256color {command}; echo code=$?; sleep 60"  # tmux has no mouse unless it is told to
        new = ["new-session", "-d", "-s", "x", "-x", "110", "-y", "34", "-c", str(folder), run]
        subprocess.run([*self._tmux, *new], check=True, env=env)

    def screen(self) -> str:
        capture = [*self._tmux, "capture-pane", "-p", "-t", "x"]
        return subprocess.run(capture, capture_output=True, text=True, check=True).stdout

    def press(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", "-t", "x", *keys], check=True)
        time.sleep(0.2 if "Escape" in keys else 0)  # or it is Alt with what comes next

    def type(self, text: str) -> None:
        subprocess.run([*self._tmux, "send-keys", "-t", "x", "-l", text], check=True)

    def sees(self, *texts: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not all(text in (screen := self.screen()) for text in texts):
            assert time.monotonic() < end, f"{texts} not in\n{screen}"
            time.sleep(0.03)

    def sees_no(self, text: str, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while text in (screen := self.screen()):
            assert time.monotonic() < end, f"{text!r} still in\n{screen}"
            time.sleep(0.03)

    def end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    made = Tmux(tmp_path, f"'{sys.executable}' -m tui")
    try:
        yield made
    finally:
        made.end()


def test_a_walk_from_start_to_quit(tmux: Tmux, tmp_path: Path) -> None:
    tmux.sees("step 1/")
    tmux.sees("welcome to layerstep", "Enter walks")
    tmux.press("Escape")
    tmux.sees_no("welcome to layerstep")
    tmux.press("Right", "Right")
    tmux.sees("step 3/")
    tmux.press("/")
    tmux.sees("find a step")
    tmux.type("1.attn.pattern")
    tmux.press("Enter")
    tmux.sees("block 1", "pattern", "[1 heatmap]")
    for key, name in (("v", "[2 row]"), ("3", "[3 arcs]"), ("1", "[1 heatmap]")):
        tmux.press(key)
        tmux.sees(name)
    tmux.press(":")
    tmux.sees("address")
    tmux.press("C-u")
    tmux.type("blocks.2.attn.pattern[h=3,q=5]")
    tmux.press("Enter")
    tmux.sees("block 2", "head 3 of")
    tmux.press("d")
    tmux.sees("head 4 ·")
    tmux.press("d", "d")
    tmux.sees_no("head 4 ·")
    tmux.press("e")
    tmux.sees("export")
    tmux.press("Enter")
    end = time.monotonic() + 20
    while not any(path.suffix in (".svg", ".txt", ".csv") for path in tmp_path.iterdir()):
        assert time.monotonic() < end, tmux.screen()
        tmux.press("Enter")
        time.sleep(0.5)
    tmux.press("Escape")
    tmux.press("g")
    tmux.sees("passes", "all 2 passes")
    tmux.press("K")
    tmux.sees("1 growth")
    tmux.press("Escape")
    tmux.sees_no("1 growth")
    tmux.press("?")
    tmux.sees("Words on this screen")
    tmux.press("Escape")
    tmux.sees_no("Words on this screen")
    tmux.press("q")
    tmux.sees("code=0")
    assert "Traceback" not in tmux.screen()

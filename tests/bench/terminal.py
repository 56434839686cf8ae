"""A program on a pseudo-terminal: what it draws, and what it reports of itself."""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[2]


class Terminal:
    """A program on a pseudo-terminal of ``width`` × ``height`` cells, and what it wrote."""

    def __init__(self, code: str, width: int = 100, height: int = 30) -> None:
        self.ours, theirs = os.openpty()
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        env = dict(os.environ, TERM="xterm-256color", COLORTERM="truecolor", PYTHONPATH=str(ROOT))
        actions = [(os.POSIX_SPAWN_DUP2, theirs, number) for number in range(3)]
        self.started = time.perf_counter()
        self.pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], env, file_actions=actions, setsid=True)
        os.close(theirs)
        self.output = b""

    def until(self, reached: Callable[[bytes], bool], seconds: float = 30.0) -> float:
        """Seconds from the start until the output is as wanted."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            if select.select([self.ours], [], [], 0.05)[0]:
                try:
                    self.output += os.read(self.ours, 65536)
                except OSError:
                    break
                if reached(self.output):
                    return time.perf_counter() - self.started
        raise RuntimeError(f"it was not drawn: {self.output[-500:]!r}")

    def drain(self, seconds: float) -> None:
        """Read for a while, as a terminal does: a full pseudo-terminal would hold the program up."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if select.select([self.ours], [], [], left)[0]:
                os.read(self.ours, 65536)

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def end(self) -> None:
        """Quit, and wait for the end."""
        self.press(b"\x11")  # ctrl+q
        self.wait()

    def wait(self) -> None:
        """Read to the end, reap."""
        with_output = True
        while with_output:
            try:
                data = os.read(self.ours, 65536)
            except OSError:
                data = b""
            self.output += data
            with_output = bool(data)
        os.waitpid(self.pid, 0)
        os.close(self.ours)


def report_of(module: str, *arguments: object, size: tuple[int, int]) -> dict[str, Any]:
    """What a module's ``main`` writes to the file named by its last argument, run on a terminal of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        given = [module, *map(str, arguments), str(path)]
        terminal = Terminal(f"import sys; sys.argv = {given!r}; from {module} import main; main()", *size)
        terminal.wait()
        if not path.exists():
            raise RuntimeError(terminal.output[-2000:].decode("utf-8", "replace"))
        return cast("dict[str, Any]", json.loads(path.read_text()))

"""The app's figures: the first frame beside an empty Textual app's, and the gaps of its event loop.

    python -m tests.bench.bench_app [--quick]

Both programs run in a pseudo-terminal of 100×30, by turns; a frame counts once its last line was drawn. The gaps are
measured inside the real program with the real engine, from the first frame on: while the rest of the app and torch are
imported, while the pass is recorded, and while somebody walks through it.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.ratio import interleave, report

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 100, 30
LAST_LINE = f"\x1b[{HEIGHT};1H".encode()
PROMPT = "The server crashed because the disk was full"

EMPTY = "from textual.app import App; App().run()"
APP = f"from tui.start import run; run({PROMPT!r})"
WATCHED = """
import asyncio, json, sys, time
import tui.app
from tui.start import run

gaps = []
mount = tui.app.LayerstepApp.on_mount

def on_mount(self):
    mount(self)

    async def tick():
        last, cpu = time.perf_counter(), time.process_time()
        while True:
            await asyncio.sleep(0.001)
            if self._exit:
                return  # Textual waits for its input thread at the end
            now, used = time.perf_counter(), time.process_time()
            gaps.append((now - last, used - cpu))
            last, cpu = now, used

    self.ticking = asyncio.get_running_loop().create_task(tick())

tui.app.LayerstepApp.on_mount = on_mount
run({prompt!r})
json.dump(gaps, open({report!r}, "w"))
"""


class Terminal:
    """A program on a pseudo-terminal, and what it wrote."""

    def __init__(self, code: str) -> None:
        self.ours, theirs = os.openpty()
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
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
        """Quit, read to the end, reap."""
        self.press(b"\x11")  # ctrl+q
        with_output = True
        while with_output:
            try:
                with_output = bool(os.read(self.ours, 65536))
            except OSError:
                with_output = False
        os.waitpid(self.pid, 0)
        os.close(self.ours)


def first_frame(code: str) -> float:
    """Seconds from exec to the last line of the first frame."""
    terminal = Terminal(code)
    took = terminal.until(lambda output: LAST_LINE in output)
    terminal.end()
    return took


def walk() -> tuple[float, list[tuple[float, float]]]:
    """The real program: seconds to the trace on the screen, and the gaps of its event loop (wall, CPU)."""
    with tempfile.TemporaryDirectory() as folder:
        report = str(Path(folder) / "gaps.json")
        terminal = Terminal(WATCHED.replace("{prompt!r}", repr(PROMPT)).replace("{report!r}", repr(report)))
        there = terminal.until(lambda output: b"step 1/" in output, 60)
        for keys in [b"\x1b[C"] * 30 + [b"]", b"h", b"\x1b[A"] * 5:
            terminal.press(keys)
            terminal.drain(0.05)
        terminal.end()
        return there, [tuple(gap) for gap in json.loads(Path(report).read_text())]


def main() -> int:
    """Measure and print; 0 if every target is met."""
    rounds = 4.0 if "--quick" in sys.argv else 15.0
    frames = interleave(lambda: first_frame(APP), lambda: first_frame(EMPTY), seconds=rounds)
    walks = [walk() for _ in range(1 if "--quick" in sys.argv else 3)]
    there = statistics.median(seconds for seconds, _ in walks)
    worst = min(max(wall for wall, _ in gaps) for _, gaps in walks)
    busy = min(max(cpu for _, cpu in gaps) for _, gaps in walks)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    report("app: first frame / an empty app's", frames.value, 1.2, detail=f"{frames.ours * 1e3:.0f} ms, {load}")
    report("app: longest gap of its event loop", worst * 1e3, 50, "ms", f"of it {busy * 1e3:.0f} ms of CPU, {load}")
    report("app: trace on the screen", there * 1e3, None, "ms", "torch imported, pass recorded")
    return 0 if frames.value <= 1.2 and worst <= 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())

"""The app's figures: its first frame beside an empty Textual app's, what scrolling costs, how soon a key is answered.

    python -m tests.bench.bench_app [--quick]

Scrolling is in ``app_frames``, keys are in ``app_keys``. For the first frame both programs run in a pseudo-terminal of
100×30, by turns; a frame counts once its last line was drawn. The gaps of the event loop are measured inside the real
program with the real engine, from the first frame on: while the rest of the app and torch are imported, while the pass
is recorded, and while somebody walks through it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench import app_frames, app_keys
from tests.bench.ratio import interleave, report
from tests.bench.terminal import Terminal

HEIGHT = 30
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
    quick = "--quick" in sys.argv
    rounds = 4.0 if quick else 15.0
    frames = interleave(lambda: first_frame(APP), lambda: first_frame(EMPTY), seconds=rounds)
    walks = [walk() for _ in range(1 if quick else 3)]
    there = statistics.median(seconds for seconds, _ in walks)
    worst = min(max(wall for wall, _ in gaps) for _, gaps in walks)
    busy = min(max(cpu for _, cpu in gaps) for _, gaps in walks)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    report("app: first frame / an empty app's", frames.value, 1.2, detail=f"{frames.ours * 1e3:.0f} ms, {load}")
    report("app: longest gap of its event loop", worst * 1e3, 50, "ms", f"of it {busy * 1e3:.0f} ms of CPU, {load}")
    report("app: trace on the screen", there * 1e3, None, "ms", "torch imported, pass recorded")
    reached = frames.value <= 1.2 and worst <= 0.05
    return 0 if all([reached, app_frames.measure(quick), app_keys.measure(quick)]) else 1


if __name__ == "__main__":
    sys.exit(main())

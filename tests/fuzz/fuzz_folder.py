"""Damages small model folders over and over: each loads, or says in one line why not.

    python -m tests.fuzz.fuzz_folder [--n 20000] [--seed 0]

Configs, indices, tokenizers and the headers of weights are changed: bits and bytes, lengths, types, huge numbers,
missing, doubled and invented keys, deep nesting, hostile texts. Nothing but a LayerstepError may be raised, nothing may
take longer than 5 seconds, and no folder may cost 100 MB of memory.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from engine import load_model
from engine.errors import LayerstepError
from engine.text import display
from tests.engine.damage_folder import damaged, example, kinds, written

SECONDS = 5
MOST = 100 * 10**6
_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def outcome(folder: Path) -> str:
    """What loading a folder came to; an AssertionError where it should not have."""
    try:
        load_model(folder, device="cpu")
    except LayerstepError as error:
        said = str(error)
        assert said == display(said), f"not printable: {said!r}"
        assert 15 < len(said) < 700, f"no clear line: {said!r}"
        return f"by accident, {said}" if error.__cause__ is not None else type(error).__name__
    return "loaded"


def memory(key: str) -> int:
    """VmRSS or VmHWM of this process; 0 where that is not known."""
    found = re.search(rf"{key}:\s+(\d+) kB", _STATUS.read_text()) if _STATUS.exists() else None
    return int(found[1]) * 1024 if found else 0


def peak_from_here() -> None:
    if _RESET.exists():
        _RESET.write_text("5")


def late(*args: object) -> None:
    raise TimeoutError(f"longer than {SECONDS} seconds")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    signal.signal(signal.SIGALRM, late)
    said: Counter[str] = Counter()
    started = time.perf_counter()
    slowest = largest = 0.0
    with tempfile.TemporaryDirectory() as place:
        models = []
        for kind in kinds():
            folder = Path(place) / kind
            folder.mkdir()
            try:
                files = example(kind)
                written(folder, files, {})
                load_model(folder, device="cpu")
            except Exception as error:
                print(f"left out {kind}: {display(str(error))}")
                continue
            models.append((folder, files))
        now = dict(models)
        for number in range(options.n):
            folder, files = draw.choice(models)
            what, bad = damaged(files, draw)
            written(folder, bad, now[folder])
            now[folder] = bad
            peak_from_here()
            before, began = memory("VmRSS"), time.perf_counter()
            signal.alarm(SECONDS)
            try:
                came_to = outcome(folder)
                signal.alarm(0)
                took, grown = time.perf_counter() - began, memory("VmHWM") - before
                assert grown < MOST, f"it took {grown / 1e6:.0f} MB"
            except BaseException:
                signal.alarm(0)
                traceback.print_exc()
                where = f"case {number} of seed {options.seed}: {folder.name}, {display(what)}"
                sys.exit(f"{where}; it is kept in {keep(bad)}")
            slowest, largest = max(slowest, took), max(largest, grown)
            said[f"{what.split(' ')[0].partition('-')[0]}: {came_to}"] += 1
    for line, count in sorted(said.items()):
        print(f"{count:8,}  {line}")
    print(
        f"{options.n:,} folders of {len(models)} families in {time.perf_counter() - started:.0f} s, seed "
        f"{options.seed}: nothing else was raised; at most {slowest:.2f} s and {largest / 1e6:.0f} MB for one"
    )


def keep(files: dict[str, bytes]) -> Path:
    """A folder with the files that were too much."""
    folder = Path(tempfile.mkdtemp(prefix="folder-"))
    written(folder, files, {})
    return folder


if __name__ == "__main__":
    main()

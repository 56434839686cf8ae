"""Damages a small GGUF file over and over: it loads, or says in one line why not.

    python -m tests.fuzz.fuzz_gguf [--n 20000] [--seed 0]

Mostly the header is changed: bits, lengths, counts, types and offsets, bytes cut out and put in. Nothing but a
LayerstepError may be raised, nothing may take longer than 5 seconds, and no file may cost 100 MB of memory.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "engine"))

from damage_gguf import damaged, sound

from tests.fuzz.fuzz_folder import MOST, SECONDS, late, memory, outcome, peak_from_here


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
        file = Path(place) / "damaged.gguf"
        data = sound(Path(place))
        file.write_bytes(data)
        assert outcome(file) == "loaded"
        for number in range(options.n):
            file.unlink()  # a file that is mapped may not become shorter
            file.write_bytes(bad := damaged(data, draw))
            peak_from_here()
            before, began = memory("VmRSS"), time.perf_counter()
            signal.alarm(SECONDS)
            try:
                came_to = outcome(file)
                signal.alarm(0)
                took, grown = time.perf_counter() - began, memory("VmHWM") - before
                assert grown < MOST, f"it took {grown / 1e6:.0f} MB"
            except BaseException:
                signal.alarm(0)
                traceback.print_exc()
                kept = Path(tempfile.mkdtemp(prefix="gguf-")) / "damaged.gguf"
                kept.write_bytes(bad)
                sys.exit(f"case {number} of seed {options.seed}; it is kept in {kept}")
            slowest, largest = max(slowest, took), max(largest, grown)
            said[came_to] += 1
    for line, count in sorted(said.items()):
        print(f"{count:8,}  {line}")
    print(
        f"{options.n:,} files in {time.perf_counter() - started:.0f} s, seed {options.seed}: nothing else was raised; "
        f"at most {slowest:.2f} s and {largest / 1e6:.0f} MB for one"
    )


if __name__ == "__main__":
    main()

"""Twenty thousand random keys for the app: no exception, no fault, and it answers at the end.

    python -m tests.soak.soak_app [--keys N] [--seed S] [--engine fake|hostile|real]

The fake engine stands in for the real one unless told otherwise, and is killed every now and then; with ``real`` the
engine is a process of its own and its traces are real ones. A failure prints the seed, the last keys and the screen.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tui"), str(ROOT)]
AT_ONCE = 1000
"""Keys between two looks at whether the app still answers."""


async def soak(keys: int, seed: int, engine: str) -> int:
    """Strike; 0 if all was well."""
    from fake_engine import FakeEngine, MemoryLink
    from hammering import Hammer
    from helpers import running

    from tui.link import ProcessLink

    links: list[MemoryLink | ProcessLink] = []

    def link() -> MemoryLink | ProcessLink:
        links.append(ProcessLink() if engine == "real" else MemoryLink(FakeEngine(hostile=engine == "hostile")))
        return links[-1]

    def kill() -> None:
        dying = links[-1]
        if isinstance(dying, ProcessLink):
            dying._process.kill()
        else:
            dying.die()

    request = {"model": "modern", "prompt": "The server crashed because the disk was full"}
    async with running(size=(120, 40), link=link, request=request) as (app, pilot):
        hammer = Hammer(app, pilot, seed, kill)
        for done in range(0, keys, AT_ONCE):
            try:
                await hammer.strike(min(AT_ONCE, keys - done))
                await hammer.responds()
            except BaseException:
                print(f"\nseed {seed}, between keys {done} and {done + AT_ONCE}; the last ones:\n{hammer.told()}")
                raise
            print(f"\r{min(done + AT_ONCE, keys)}/{keys} keys, seed {seed}, {engine} engine", end="", flush=True)
    print(": no exception, no fault, and it answers")
    return 0


def main() -> int:
    """Run in a folder of its own: dialogs may write files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--engine", choices=("fake", "hostile", "real"), default="fake")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        home = {f"XDG_{kind}_HOME": folder for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        os.environ |= {**home, "HOME": folder, "SSH_CONNECTION": "soak", "TEXTUAL_ANIMATIONS": "none"}
        os.environ |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        os.environ.pop("TMUX", None)
        try:
            return asyncio.run(soak(given.keys, given.seed, given.engine))
        finally:
            os.chdir(ROOT)


if __name__ == "__main__":
    sys.exit(main())

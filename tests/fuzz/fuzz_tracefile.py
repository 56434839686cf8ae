"""Damages a small trace file over and over: what opens is what was saved, and all else is said in one line.

    python -m tests.fuzz.fuzz_tracefile [--n 20000] [--seed 0]

Half of the files are damaged by accident (bytes changed, cut, inserted), half are forged: their checksums are
right and the header lies. A forged file may open, but nothing else than a TraceFileError may be raised.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import torch

from engine import tracefile
from engine.errors import TraceFileError
from engine.text import display
from engine.traceformat import DTYPES
from tests.engine.damage import accidents, forgeries

Contents = tuple[dict[str, object], dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]]


def example(path: Path) -> None:
    """A small file with every dtype, an alias, an empty tensor and one without axes."""
    draw = torch.Generator().manual_seed(0)
    raw = torch.randint(0, 256, (48,), generator=draw, dtype=torch.uint8)
    dtypes = {code: getattr(torch, name) for code, (name, _) in DTYPES.items() if code != "BOOL"}
    tensors = {f"as.{code}": raw.view(dtype) for code, dtype in dtypes.items()}
    tensors["blocks.0.resid_pre@0"] = torch.randn(2, 3, 5, generator=draw)
    tensors["blocks.0.resid_post@0"] = tensors["blocks.0.resid_pre@0"]
    tensors |= {"mask@0": torch.tensor([True, False, True]), "empty@0": torch.empty(0, 4), "one@0": torch.tensor(1.5)}
    header = {"prompt": "The disk was full\n\x00 é 👍", "tokens": [[1, 2.5, None], {"deep": [True]}], "n": 3}
    tracefile.write(path, header, tensors, force=True)


def contents(path: Path) -> Contents:
    """All that a file holds."""
    header, tensors = tracefile.read(path)
    found = {}
    for name in tensors:
        tensor = tensors[name]
        assert (tensors.shape(name), tensors.dtype(name)) == (tuple(tensor.shape), tensor.dtype)
        found[name] = (tensor.dtype, tuple(tensor.shape), tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return header, found


def outcome(path: Path, damaged: bytes, expected: Contents | None) -> str:
    """What opening a damaged file came to; an AssertionError where it should not have. None expects anything."""
    path.unlink(missing_ok=True)  # to write over a file makes some file systems wait for the disk
    path.write_bytes(damaged)
    try:
        found = contents(path)
    except TraceFileError as error:
        said = str(error)
        assert said == display(said), f"not printable: {said!r}"
        assert 20 < len(said) < 700, f"no clear line: {said!r}"
        return "refused"
    assert expected is None or found == expected, "it opened, and its contents are not those that were saved"
    return "opened"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    said: Counter[str] = Counter()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.trace.safetensors"
        example(path)
        whole, expected = path.read_bytes(), contents(path)
        kinds = [(accidents(whole, draw), expected), (forgeries(whole, draw), None)]
        for number in range(options.n):
            stream, wanted = kinds[number % 2]
            what, damaged = next(stream)
            try:
                came_to = outcome(path, damaged, wanted if damaged != whole else expected)
            except Exception:
                traceback.print_exc()
                sys.exit(f"case {number} of seed {options.seed}: {display(what)}")
            said[f"{('accident', 'forgery')[number % 2]}, {came_to}"] += 1
    for line, count in sorted(said.items()):
        print(f"{count:8,}  {line}")
    print(f"{options.n:,} files in {time.perf_counter() - started:.1f} s, seed {options.seed}: nothing else was raised")


if __name__ == "__main__":
    main()

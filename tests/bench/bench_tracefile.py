"""Trace files against bare safetensors: saving, opening and reading one tensor, memory until something is read.

    python -m tests.bench.bench_tracefile [--quick] [--folder FOLDER]

Both sides write to a new file, and what was written before is on the disk by then; neither is timed. Bare
`save_file` does not wait for the disk and we do, so there are three figures: as it is; against `save_file` with
an fsync after it; and without our fsync. Reading is timed until the values were used: bare safetensors only maps
a tensor and reads nothing until then, while ours are read once when mapped, to compare the checksum.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from engine import tracefile, tracewriter
from engine.checksum import checksum
from tests.bench.ratio import report

MIB = 1024 * 1024
Tensors = dict[str, torch.Tensor]


def like_gpt2(n: int, layers: int = 12, d: int = 768, vocab: int = 0) -> Tensors:
    """As many tensors, of the shapes, that a pass of GPT-2-small over ``n`` tokens keeps."""
    tensors: Tensors = {"tokens@0": torch.arange(n)[None]}
    per_block = {
        "resid_pre": d, "ln1.scale": 1, "ln1.normalized": d, "attn.q": d, "attn.k": d, "attn.v": d, "attn.z": d,
        "attn_out": d, "resid_mid": d, "ln2.scale": 1, "ln2.normalized": d, "mlp.pre": 4 * d, "mlp.post": 4 * d,
        "mlp_out": d, "resid_post": d,
    }  # fmt: skip
    for layer in range(layers):
        for name, width in per_block.items():
            tensors[f"blocks.{layer}.{name}@0"] = torch.randn(1, n, width)
    if vocab:
        tensors["logits@0"] = torch.randn(1, n, vocab)
    return tensors


def like_ours(n: int) -> dict[str, object]:
    """A header as a trace of ``n`` tokens has it."""
    tokens = [
        {"id": i, "bytes": "20746865", "special": False, "origin": "text", "span": [4 * i, 4 * i + 4]} for i in range(n)
    ]
    return {"config": {"name": "gpt2", "d_model": 768}, "tokens": [tokens], "top": {str(i): "␣the" for i in range(n)}}


class Times(dict[str, list[float]]):
    """Seconds of every run, by name."""

    def median(self, name: str) -> float:
        return statistics.median(self[name])

    def ratio(self, ours: str, theirs: str) -> float:
        """The median over rounds, so that a neighbour who comes and goes disturbs both sides alike."""
        return statistics.median(a / b for a, b in zip(self[ours], self[theirs], strict=True))

    def shown(self, *names: str) -> str:
        return " against ".join(f"{self.median(name) * 1e3:.2f} ms" for name in names)


def interleaved(runs: dict[str, Callable[[], object]], seconds: float, before: Callable[[], object]) -> Times:
    """Each in turn, after ``before``, for about ``seconds`` and at least five times after a warm-up."""
    times = Times({name: [] for name in runs})
    until = time.perf_counter() + seconds
    rounds = 0
    while rounds < 6 or (time.perf_counter() < until and rounds < 1000):
        for name, run in runs.items():
            before()
            start = time.perf_counter()
            result = run()
            if rounds:
                times[name].append(time.perf_counter() - start)
            del result
        rounds += 1
    return times


def saving(
    folder: Path, tensors: Tensors, header: dict[str, object], what: str, target: float | None, seconds: float
) -> None:
    path = folder / "saved.safetensors"

    def ours() -> None:
        tracefile.write(path, header, tensors)

    def ours_unsynced() -> None:
        with mock.patch("os.fsync"), mock.patch.object(tracewriter, "_writeback", return_value=None):
            tracefile.write(path, header, tensors)

    def bare() -> None:
        save_file(tensors, path)

    def bare_synced() -> None:
        save_file(tensors, path)
        fd = os.open(path, os.O_RDWR)
        os.fsync(fd)
        os.close(fd)

    def fresh() -> None:
        with suppress(FileNotFoundError):
            path.unlink()
        os.sync()

    runs = {"ours": ours, "bare": bare, "ours unsynced": ours_unsynced, "bare synced": bare_synced}
    took = interleaved(runs, seconds, fresh)
    for name, ours_name, bare_name, bound in (
        (f"save / save_file, {what}", "ours", "bare", target),
        ("  both with fsync", "ours", "bare synced", None),
        ("  both without fsync", "ours unsynced", "bare", None),
    ):
        report(name, took.ratio(ours_name, bare_name), bound, detail=took.shown(ours_name, bare_name))
    fresh()


def opening(folder: Path, tensors: Tensors, header: dict[str, object], name: str, what: str, seconds: float) -> None:
    ours_at, bare_at = folder / "ours.safetensors", folder / "bare.safetensors"
    tracefile.write(ours_at, header, tensors)
    with safe_open(ours_at, framework="pt") as file:
        save_file(tensors, bare_at, metadata=file.metadata())  # the same header

    def ours() -> torch.Tensor:
        return tracefile.read(ours_at)[1][name]

    def bare() -> torch.Tensor:
        with safe_open(bare_at, framework="pt") as file:
            return file.get_tensor(name)

    runs = {
        "ours": lambda: ours().sum(),
        "bare": lambda: bare().sum(),
        "ours mapped": ours,
        "bare mapped": bare,
        "ours opened": lambda: tracefile.read(ours_at),
    }
    took = interleaved(runs, seconds, lambda: None)
    report(f"open, read one, {what}", took.ratio("ours", "bare"), 1.5, detail=took.shown("ours", "bare"))
    detail = f"{took.shown('ours mapped', 'bare mapped')}, of which opening {took.shown('ours opened')}"
    report("  its values not used", took.ratio("ours mapped", "bare mapped"), None, detail=detail)
    ours_at.unlink()
    bare_at.unlink()


def generation(folder: Path, n: int) -> None:
    """A trace of a prompt and ``n`` tokens, a pass each: its size, and saving it beside its rows by `save_file`."""
    from engine import generate, load_model, open_trace

    path, bare = folder / "generated.safetensors", folder / "bare.safetensors"
    model = load_model("modern", device="cpu")
    for step in generate(model, "Once upon a time", max_new_tokens=n + 1, stop_tokens=[]):
        last = step
    trace = last.trace
    trace.save(path)
    with safe_open(path, framework="pt") as file:
        rows = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    what = f"{n} passes"
    size = sum(tensor.nbytes for tensor in rows.values())
    report(f"size of a generation, {what}", path.stat().st_size / size, 1.03, detail=f"{size / MIB:.1f} MiB of rows")
    runs = {
        "ours": lambda: trace.save(path, force=True),
        "bare": lambda: save_file(rows, bare),
        "opened": lambda: open_trace(path),
    }
    took = interleaved(runs, 3.0, lambda: None)
    detail = f"{took.shown('ours', 'bare')}; opened in {took.shown('opened')}"
    report(f"save / save_file of its rows, {what}", took.ratio("ours", "bare"), None, detail=detail)
    path.unlink()
    bare.unlink()


RSS = """
import sys
from pathlib import Path
import numpy, torch
from engine import tracefile
rss = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
small, large = map(Path, sys.argv[1:])
kept = tracefile.read(small)[1]["x"]
before = rss()
header, tensors = tracefile.read(large)
shapes = [tensors.shape(name) for name in tensors]
opened = rss()
tensors["blocks.5.mlp.post@0"]
print(opened - before, rss() - opened)
"""


def memory(folder: Path) -> None:
    if not sys.platform.startswith("linux"):
        return
    small, large = folder / "small.safetensors", folder / "large.safetensors"
    tracefile.write(small, {}, {"x": torch.zeros(10)})
    size = tracefile.write(large, {}, like_gpt2(300 * MIB // (12 * 19 * 768 * 4)))
    done = subprocess.run([sys.executable, "-c", RSS, small, large], capture_output=True, text=True, check=True)
    opened, read = (int(number) / MIB for number in done.stdout.split())
    detail = f"and {read:.1f} MiB after reading a tensor of {300 * 4 / (12 * 19):.1f} MiB"
    report(f"RSS growth at opening {size / MIB:.0f} MiB", opened, 1.0, "MiB", detail)


def checksums(seconds: float) -> None:
    import zlib

    data = torch.randn(16 * MIB).view(torch.uint8).numpy().data
    runs = {"ours": lambda: checksum(data), "crc": lambda: zlib.crc32(data)}
    took = interleaved(runs, seconds, lambda: None)
    rates = ", ".join(f"{name} {len(data) / 2**30 / took.median(name):.1f} GiB/s" for name in took)
    report("checksum / zlib.crc32", took.ratio("ours", "crc"), None, detail=rates)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    seconds = 4.0 if options.quick else 25.0
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        checksums(seconds / 8)
        one = {f"t{i:03}": torch.randn(768, 1024) for i in range(100)}
        saving(folder, one, {}, "100 × 3 MiB", 1.15, seconds)
        trace = like_gpt2(300 * MIB // (12 * 19 * 768 * 4))
        saving(folder, trace, like_ours(448), "as GPT-2, 300 MiB", 1.15, seconds)
        saving(folder, like_gpt2(10, 6, 256), like_ours(10), "as a sample, 1.2 MiB", None, seconds / 4)
        opening(folder, one, {}, "t050", "100 × 3 MiB", seconds / 8)
        opening(folder, trace, {}, "blocks.5.attn.z@0", "GPT-2, 1.3 MiB of 300", seconds / 8)
        opening(folder, trace, like_ours(448), "blocks.5.attn.z@0", "the same, 448 tokens in the header", seconds / 8)
        trace = like_gpt2(300, vocab=50257)
        opening(folder, trace, like_ours(300), "logits@0", "GPT-2, logits, 57 MiB", seconds / 8)
        generation(folder, 500)
        memory(folder)


if __name__ == "__main__":
    main()

"""Exports: how large a page is, how fast it opens and answers a key in Chromium, and what a file costs to write.

    python -m tests.bench.bench_export [--quick]

What a person waits for is a command: the one that exports a trace against the one that records it, each in a process
of its own. Beside it stands `save_as` against `trace` in one process, in turn, warm: a pass of a sample takes 2 to 3
milliseconds there, less than it takes to put a page's 7 MB on a disk, so that figure has no bound.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine import load_model, open_trace, trace  # first, so that the allocator is set up before torch starts
from engine.export.formats import FORMATS
from engine.export.page.blocks import size_of
from engine.export.saving import save_as
from engine.export.selection import Selection, parts
from engine.model import Model
from engine.traces import Trace
from tests.bench.ratio import report

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "export"))

TEXT = (
    "The server crashed because the disk was full, so the engineer looked at the log and found that a small program "
    "had written the same line again and again until nothing was left. "
)
WALK = ("ArrowRight",) * 12 + ("ArrowDown", "ArrowUp") * 3 + ("h", "]", "v", "v", "[", "ArrowLeft") * 4
"""Keys of a walk: step by step, along the tokens, other heads, layers and views."""
FILES = ("html", "json", "npz", "safetensors", "csv", "parquet", "md", "ipynb")
"""The formats of a whole trace; figures are of one place, and have figures of their own."""
LESS = Selection(("path", "*.pattern"))


def recorded(model: Model, tokens: int) -> Trace:
    """A trace of so many tokens of prose."""
    return trace(model, prose(model)[:tokens])


def prose(model: Model) -> list[int]:
    """Ids of a long text."""
    assert model.tokenizer is not None
    return [token.id for token in model.tokenizer.encode(TEXT * 20)]


def sizes(folder: Path) -> None:
    for name in ("modern", "classic"):
        model = load_model(name, device="cpu")
        for tokens, what, how in (
            (64, "all", {}), (64, "float16", {"dtype": "float16"}), (8, "all", {}),
            (64, "residual", {"selection": Selection(("residual",))}),
        ):  # fmt: skip
            t = recorded(model, tokens)
            size = save_as(t, folder / "x.html", force=True, **how)  # type: ignore[arg-type]
            chosen = parts(t, how.get("selection", Selection()))  # type: ignore[arg-type]
            halves = 2 if "dtype" in how else 1
            held = sum(part.nbytes() // (halves if part.dtype.is_floating_point else 1) for part in chosen)
            detail = (
                f"{size / 1e6:.2f} MB, of tensors {held / 1e6:.2f} MB ({sum(map(size_of, [held])) / 1e6:.2f} as base64)"
            )
            report(
                f"size / (1.40 × tensors + 300 KB), {name} N={tokens} {what}",
                size / (1.4 * held + 3e5),
                1.0,
                detail=detail,
            )


def in_chromium(folder: Path, quick: bool) -> None:
    from chromium import chromium, program

    if program() is None:
        print("no Chromium on this machine: the figures of an open page are left out")
        return
    pages: list[tuple[str, int, dict[str, object], float, float | None]] = [
        ("modern", 64, {}, 2.0, 50.0), ("classic", 64, {}, 2.0, 50.0),
        ("modern", 512, {"selection": LESS, "dtype": "float16"}, 3.0, None),
        ("modern", 512, {"max_size": 2**30}, 3.0, None),
    ]  # fmt: skip
    with chromium(timeout=120) as browser:
        for name, tokens, how, target, most in pages:
            path = folder / "page.html"
            size = save_as(recorded(load_model(name, device="cpu"), tokens), path, force=True, **how)
            ready, paint = [], []
            for _ in range(3 if quick else 7):
                page = browser.open(path)
                page.wait("window.layerstep && layerstep.ready", 60)
                ready.append(float(page.evaluate("layerstep.ready")) / 1000)
                for key in WALK:
                    page.press(key)
                    paint.append(float(page.evaluate("layerstep.paint")))
                assert not page.errors, page.errors
                page.close()
            paint.sort()
            what = f"{name} N={tokens}, {size / 1e6:.1f} MB"
            report(f"page ready, {what}", statistics.median(ready), target, "s", f"at most {max(ready):.2f} s")
            p95 = paint[int(0.95 * len(paint))]
            detail = f"median {statistics.median(paint):.1f} ms, at most {paint[-1]:.1f} ms, {len(paint)} keys"
            report(f"  key to paint, p95, {what}", p95, most, "ms", detail)


def files(folder: Path, seconds: float) -> None:
    """Writing each format against recording, on a trace that nothing has been derived of."""
    model = load_model("modern", device="cpu")
    ids = prose(model)[:64]
    for name in FILES:
        path = folder / f"x{FORMATS[name].suffix}"
        record, export = [], []
        until = time.perf_counter() + seconds
        while len(export) < 6 or (time.perf_counter() < until and len(export) < 200):
            start = time.perf_counter()
            t = trace(model, ids)
            record.append(time.perf_counter() - start)
            with timed(export):
                save_as(t, path, name, force=True)
        mine, other = statistics.median(export[1:]), statistics.median(record[1:])
        detail = f"{mine * 1e3:.1f} ms against {other * 1e3:.2f} ms, {path.stat().st_size / 1e6:.2f} MB"
        report(f"export / recording it, modern N=64, {name}", mine / other, None, detail=detail)


def commands(folder: Path, rounds: int) -> None:
    """The command that exports against the command that records."""
    prompt = (TEXT * 2)[:300]
    kept = folder / "t.trace.safetensors"
    record = ["trace", prompt, "-o", str(kept), "--force"]
    took: dict[str, list[float]] = {name: [] for name in ("record", *FILES)}
    for _ in range(rounds):
        for name in took:
            made = ["export", str(kept), "--model", "modern", "--to", name, "-o", str(folder / "y"), "--force"]
            with timed(took[name]):
                subprocess.run([sys.executable, "-m", "engine", *(record if name == "record" else made)], check=True,
                               capture_output=True)  # fmt: skip
    base = statistics.median(took.pop("record"))
    tokens = open_trace(kept).length
    for name, times in took.items():
        detail = f"{statistics.median(times):.2f} s against {base:.2f} s"
        report(
            f"command export / command trace, N={tokens}, {name}", statistics.median(times) / base, 5.0, detail=detail
        )


@contextmanager
def timed(times: list[float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    times.append(time.perf_counter() - start)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        steps: list[Callable[[], None]] = [
            lambda: sizes(folder), lambda: in_chromium(folder, quick), lambda: files(folder, 1.0 if quick else 4.0),
            lambda: commands(folder, 1 if quick else 5),
        ]  # fmt: skip
        for step in steps:
            step()


if __name__ == "__main__":
    main()

"""A pass beside a busy core against the same pass on a quiet machine, and against torch's own threads.

    python -m tests.bench.bench_threads [--quick]

Passes run in processes of their own: one as layerstep sets it up, one told by its environment to wait for work as
libgomp does by default. A third process keeps one core busy while it is let. Needs a machine that is otherwise idle;
the load that others make is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from tests.bench.ratio import report

LIBGOMP_DEFAULT = "300000"
MODELS = {
    "tiny": (128, 4, 8, 2048, 16),
    "GPT-2-small": (768, 12, 12, 50257, 64),
}  # d, layers, heads, vocabulary, tokens
PROMPT = "The server crashed because the disk was full"


def passes() -> dict[str, Callable[[], object]]:
    """What is timed: recording everything, with random weights in GPT-2's architecture, and the samples."""
    from engine import Model, ModelConfig, build_program, load_model, trace

    import torch  # isort: skip  # after the engine, which settles how torch starts

    def recorded(model: Model, prompt: str | list[int]) -> Callable[[], object]:
        return lambda: trace(model, prompt)

    found: dict[str, Callable[[], object]] = {}
    random = torch.Generator().manual_seed(1)
    for name, (d, layers, heads, vocabulary, tokens) in MODELS.items():
        config = ModelConfig(
            name=name, d_vocab=vocabulary, d_model=d, n_layers=layers, n_heads=heads, d_head=d // heads, d_mlp=4 * d,
            n_ctx=1024, positions="learned", activation="gelu_tanh", attn_bias=True, attn_out_bias=True, mlp_bias=True,
        )  # fmt: skip
        shapes = build_program(config).params
        weights = {param: torch.randn(shape, generator=random) * 0.02 for param, shape in shapes.items()}
        found[name] = recorded(Model.from_weights(config, weights), [i * 7 % vocabulary for i in range(tokens)])
    for name in ("classic", "modern"):
        found[name] = recorded(load_model(name), PROMPT)
    return found


def work() -> None:
    """In a process of its own: a name and a number of seconds per line in, the median of the passes' times out."""
    runs = passes()
    print(json.dumps(list(runs)), flush=True)
    for line in sys.stdin:
        name, seconds = json.loads(line)
        run, times = runs[name], []
        run()
        until = time.perf_counter() + seconds
        while len(times) < 5 or time.perf_counter() < until:
            start = time.perf_counter()
            result = run()
            times.append(time.perf_counter() - start)
            del result
        print(json.dumps(statistics.median(times)), flush=True)


class Worker:
    """A process that times passes when it is asked."""

    def __init__(self, **env: str) -> None:
        told = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.bench_threads", "--work"],
            env={name: value for name, value in os.environ.items() if name not in told} | env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.names: list[str] = self._answer()

    def median(self, name: str, seconds: float) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, seconds]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.communicate()

    def _answer(self):  # type: ignore[no-untyped-def]
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit("bench_threads: the process that times passes has ended")
        return json.loads(line)


@contextlib.contextmanager
def neighbour() -> Iterator[Callable[[bool], None]]:
    """A process that keeps one core busy while it is let: ``busy(True)``, ``busy(False)``."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    process.send_signal(signal.SIGSTOP)
    try:
        yield lambda on: process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    seconds, rounds = (0.2, 3) if "--quick" in sys.argv else (0.4, 9)
    print(f"load of this machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    ours, default = Worker(), Worker(GOMP_SPINCOUNT=LIBGOMP_DEFAULT)
    with neighbour() as busy:
        for name in ours.names:
            quiet, beside, spinning = [], [], []
            for _ in range(rounds):
                quiet.append(ours.median(name, seconds))
                spinning.append(default.median(name, seconds))
                busy(True)
                beside.append(ours.median(name, seconds))
                busy(False)
            q, b, s = (statistics.median(times) * 1e3 for times in (quiet, beside, spinning))
            report(f"beside a busy core / quiet, {name}", b / q, 2.2, detail=f"{b:.2f} ms against {q:.2f} ms")
            report(f"quiet / with libgomp's spinning, {name}", q / s, None, detail=f"{q:.2f} ms against {s:.2f} ms")
    ours.close()
    default.close()


if __name__ == "__main__":
    work() if "--work" in sys.argv else main()

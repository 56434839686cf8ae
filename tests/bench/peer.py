"""transformers in a process of its own, as its users run it: untouched by what the engine sets up.

Started by ``Peer``; on each line that it reads it works once and answers with the seconds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHILD = """
import sys, time
import torch
torch.set_num_threads(1)
from tests.bench import shapes
model = shapes.{make}.theirs
ids = torch.randint(0, model.config.vocab_size, (1, {length}), generator=torch.Generator().manual_seed(1))
print("ready", flush=True)
for _ in sys.stdin:
    with torch.no_grad():
        start = time.perf_counter()
        result = {work}
        seconds = time.perf_counter() - start
    del result
    print(seconds, flush=True)
"""
FORWARD = "model(ids, use_cache=False).logits"
GENERATE = (
    "model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens={n}, min_new_tokens={n}, do_sample=False, "
    "pad_token_id=0)"
)


class Child:
    """Another process that works on each line that it reads, and answers with one."""

    def __init__(self, code: str, first: str | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        if first is not None:
            self._tell(first)
        if self._answer() != "ready":
            raise SystemExit("the other process did not start")

    def ask(self) -> str:
        """The answer to a line."""
        self._tell("")
        return self._answer()

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()


class Peer(Child):
    """transformers; ``run()`` does its ``work`` once there, in seconds as measured there."""

    def __init__(self, make: str, length: int, work: str = FORWARD) -> None:
        super().__init__(CHILD.format(make=make, length=length, work=work))

    def run(self) -> float:
        return float(self.ask())

"""Recording everything against transformers' plain sdpa forward, which records nothing: same weights, one thread.

    python -m tests.bench.bench_record [--quick]

Each runs in a process of its own, as its users have it, in turn, so that a noisy machine disturbs both alike.
"""

from __future__ import annotations

import statistics
import sys
import time

from engine import trace  # first, so that the allocator and the thread pool are set up before torch starts
from tests.bench import shapes
from tests.bench.peer import Peer
from tests.bench.ratio import report


def compare(make: str, length: int, target: float, seconds: float) -> None:
    """``make`` is a call of one of the makers in ``shapes``."""
    import torch

    pair = eval(f"shapes.{make}", {"shapes": shapes})
    ids = torch.randint(0, pair.ours.config.d_vocab, (1, length), generator=torch.Generator().manual_seed(1))
    prompt = ids[0].tolist()
    with torch.no_grad():
        expected = pair.theirs(ids, use_cache=False).logits
    gap = float((trace(pair.ours, prompt)["logits"] - expected).abs().max() / expected.abs().max())
    name = pair.name
    del expected, pair.theirs
    theirs = Peer(make, length)
    ours, others = [], []
    until = time.perf_counter() + seconds
    while len(ours) < 5 or (time.perf_counter() < until and len(ours) < 400):
        start = time.perf_counter()
        result = trace(pair.ours, prompt, keep="all")
        ours.append(time.perf_counter() - start)
        del result
        others.append(theirs.run())
    theirs.close()
    mine, other = statistics.median(ours[1:]), statistics.median(others[1:])
    detail = f"{mine * 1e3:8.2f} ms against {other * 1e3:8.2f} ms, logits differ by {gap:.0e}"
    report(f"record all / plain transformers, {name} N={length}", mine / other, target, detail=detail)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    seconds = 1.5 if "--quick" in sys.argv else 6.0
    compare("llama(64, 5, 4, 2, 256, d_vocab=1000)", 16, 0.55, seconds)
    compare("llama(64, 5, 4, 2, 256, d_vocab=1000)", 256, 0.92, seconds)
    compare("llama(256, 4, 8, 4, 1024, d_vocab=4096)", 1024, 0.60, seconds)
    compare("llama(256, 4, 8, 4, 1024, d_vocab=4096)", 4096, 0.70, seconds)
    for make in ("gpt2(768, 12, 12)", "llama(768, 12, 12, 4, 2048)"):
        for length in (64, 256, 1024):
            compare(make, length, 0.60, seconds)


if __name__ == "__main__":
    main()

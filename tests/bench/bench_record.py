"""Recording everything against transformers' plain sdpa forward, which records nothing: same weights, one thread.

python -m tests.bench.bench_record [--quick]
"""

from __future__ import annotations

import sys

from engine import trace  # first, so that the allocator and the thread pool are set up before torch starts
from tests.bench.ratio import interleave, report
from tests.bench.shapes import Pair, gpt2, llama


def compare(pair: Pair, length: int, target: float, seconds: float) -> None:
    import torch

    ids = torch.randint(0, pair.ours.config.d_vocab, (1, length), generator=torch.Generator().manual_seed(1))
    prompt = ids[0].tolist()

    def theirs() -> object:
        with torch.no_grad():
            return pair.theirs(ids, use_cache=False).logits

    def ours() -> object:
        return trace(pair.ours, prompt, keep="all")

    logits = trace(pair.ours, prompt, keep="all")["logits"]
    gap = float((logits - theirs()).abs().max() / logits.abs().max())
    r = interleave(ours, theirs, seconds=seconds)
    detail = f"{r.ours * 1e3:8.2f} ms against {r.theirs * 1e3:8.2f} ms, logits differ by {gap:.0e}"
    report(f"record all / plain transformers, {pair.name} N={length}", r.value, target, detail=detail)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    seconds = 1.0 if "--quick" in sys.argv else 4.0
    tiny = llama(64, 5, 4, 2, 256, d_vocab=1000)
    compare(tiny, 16, 0.55, seconds)
    compare(tiny, 256, 0.92, seconds)
    small = llama(256, 4, 8, 4, 1024, d_vocab=4096)
    compare(small, 1024, 0.60, seconds)
    compare(small, 4096, 0.70, seconds)
    for pair in (gpt2(768, 12, 12), llama(768, 12, 12, 4, 2048)):
        for length in (64, 256, 1024):
            compare(pair, length, 0.60, seconds)


if __name__ == "__main__":
    main()

"""Generation with everything recorded, against transformers' greedy generate, which records nothing; and the cache.

    python -m tests.bench.bench_generate [--quick] [--compile]

Each of the two runs in a process of its own, as its users have it, in turn, so that a noisy machine disturbs both
alike. ``--compile`` adds the compiled step, which takes a while to compile.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time

from engine import generate, trace  # first, so that the allocator and the thread pool are set up before torch starts
from tests.bench import shapes
from tests.bench.peer import GENERATE, Child, Peer
from tests.bench.ratio import report

TINY = "llama(64, 5, 4, 2, 256, d_vocab=1000)"
SMALL = "gpt2(768, 12, 12)"
PROMPT = 16

RESIDUAL = """
import sys
from engine import trace
import torch
torch.set_num_threads(1)
from tests.bench import shapes
pair = shapes.{make}
prompt = torch.randint(0, 1000, ({length},), generator=torch.Generator().manual_seed(1)).tolist()
trace(pair.ours, prompt[:64], keep="residual")
def rss(): return int(open("/proc/self/statm").read().split()[1]) * 4096
open("/proc/self/clear_refs", "w").write("5")  # the high-water mark starts anew
before = rss()
t = trace(pair.ours, prompt, keep="residual")
rss_peak = int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) * 1024
t["blocks.3.attn.pattern[h=1,q=-64:]"]
kept = sum(x.nbytes for x in t.passes[0].kept.values())
del t
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
    trace(pair.ours, prompt, keep="residual")
live = peak = 0
for event in prof.profiler.kineto_results.events():
    if event.name() == "[memory]":
        live += event.nbytes()
        peak = max(peak, live)
print(peak, rss_peak - before, kept)
"""


OURS = """
import json, sys, time
from engine import Model, ModelConfig, generate
import torch
from safetensors.torch import load_file
torch.set_num_threads(1)
config, file, prompt, options = json.loads(sys.stdin.readline())
model = Model.from_weights(ModelConfig.from_json(config), load_file(file))
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    steps = list(generate(model, prompt, **options))
    took = time.perf_counter() - start  # and everything that was recorded is here
    print(json.dumps([took, [step.token.id for step in steps]]), flush=True)
    del steps
"""


def speed(make: str, new: int, target: float, seconds: float, compiled: bool = False) -> None:
    """Tokens per second of ours, recording, as a multiple of theirs."""
    import torch
    from safetensors.torch import save_file

    pair = eval(f"shapes.{make}", {"shapes": shapes})
    ids = torch.randint(0, pair.ours.config.d_vocab, (1, PROMPT), generator=torch.Generator().manual_seed(1))
    options = {"max_new_tokens": new, "stop_tokens": [], "compile": "torch" if compiled else "no"}
    with torch.no_grad():
        expected = pair.theirs.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False,
            pad_token_id=0,
        )[0, PROMPT:].tolist()  # fmt: skip
    mine, others, same = [], [], True
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/weights.safetensors"
        save_file({name: weight.contiguous().clone() for name, weight in pair.ours.weights.items()}, file)
        start = json.dumps([pair.ours.config.to_json(), file, ids[0].tolist(), options])
        del pair
        ours, theirs = Child(OURS, start), Peer(make, PROMPT, GENERATE.format(n=new))
        until = time.perf_counter() + seconds
        while len(mine) < 6 or time.perf_counter() < until:
            took, tokens = json.loads(ours.ask())
            mine.append(took)
            same = same and tokens == expected
            others.append(theirs.run())
        ours.close()
        theirs.close()
    a, b = statistics.median(mine[1:]) / new, statistics.median(others[1:]) / new
    detail = f"{a * 1e3:.2f} ms a token against {b * 1e3:.2f}, {'the same' if same else 'OTHER'} tokens"
    how = "compiled, " if compiled else ""
    report(f"generate / transformers, {how}{make}", b / a, target, detail=detail, least=True)


def step_at(make: str, near: int, far: int, target: float, rounds: int) -> None:
    """One token's time at ``far`` cached positions against ``near``, interleaved; and the bytes that it allocates."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    pair = eval(f"shapes.{make}", {"shapes": shapes})
    ids = torch.randint(0, 1000, (far,), generator=torch.Generator().manual_seed(1)).tolist()
    runs = {
        n: generate(pair.ours, trace(pair.ours, ids[:n], goes_on=True, keep="residual"), max_new_tokens=4000,
                    stop_tokens=())
        for n in (near, far)
    }  # fmt: skip
    times: dict[int, list[float]] = {near: [], far: []}
    for n, run in itertools.chain.from_iterable([runs.items()] * rounds):
        start = time.perf_counter()
        next(run)
        times[n].append(time.perf_counter() - start)
    a, b = (statistics.median(times[n][3:]) for n in (far, near))
    report(f"a token at {far} positions / at {near}, {make}", a / b, target,
           detail=f"{a * 1e3:.3f} ms against {b * 1e3:.3f}")  # fmt: skip
    allocated = {}
    for n, run in runs.items():
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
            next(run)
        events = prof.profiler.kineto_results.events()
        allocated[n] = sum(e.nbytes() for e in events if e.name() == "[memory]" and e.nbytes() > 0)
    cache = 2 * pair.ours.config.n_layers * pair.ours.config.kv_heads * pair.ours.config.d_head * far * 4
    detail = f"{allocated[far]:,} B against {allocated[near]:,} B; the cache is {cache:,} B"
    report("bytes allocated by that token / at the near one", allocated[far] / allocated[near], None, detail=detail)


def residual_line(make: str, lengths: list[int], target: float) -> None:
    """Memory allocated at the peak with keep="residual" over the prompt's length: what each further token takes, from
    one length to the next; the largest over the smallest. The process itself grows by what its heap takes at a time."""
    peaks = []
    for length in lengths:
        done = subprocess.run(
            [sys.executable, "-c", RESIDUAL.format(make=make, length=length)], capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        peak, rss, kept = map(int, done.stdout.split()[-3:])
        peaks.append(peak)
        sizes = f"{kept / 2**20:6.1f} MiB kept, {peak / 2**20:6.1f} at the peak, {peak / length:.0f} B a token"
        print(f"    keep=residual, {length:6} tokens: {sizes}; the process grows by {rss / 2**20:.1f}", flush=True)
    each = [
        (more - less) / (long - short)
        for (less, short), (more, long) in itertools.pairwise(zip(peaks, lengths, strict=True))
    ]
    detail = ", ".join(f"{size:.0f}" for size in each) + " B for each further token"
    report(f"residual memory a token, {lengths[0]} to {lengths[-1]}", max(each) / min(each), target, detail=detail)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    seconds = 4.0 if "--quick" in sys.argv else 20.0
    speed(TINY, 128, 2.1, seconds)
    if "--compile" in sys.argv:
        speed(TINY, 128, 2.5, seconds, compiled=True)
    speed(SMALL, 24, 1.5, seconds)
    step_at(TINY, 256, 4096, 1.3, 60)
    residual_line(TINY, [2048, 4096, 8192] if "--quick" in sys.argv else [4096, 8192, 16384, 32768], 1.05)


if __name__ == "__main__":
    main()

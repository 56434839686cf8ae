"""Memory of recording: the peak against what is kept, and what keeping only the residual stream costs in time.

python -m tests.bench.bench_memory [--quick]
"""

from __future__ import annotations

import subprocess
import sys

from tests.bench.ratio import interleave, report

MEASURE = """
import resource, sys
from engine import trace, plan_trace
import torch
torch.set_num_threads(1)
from tests.bench import shapes
pair = shapes.{make}
prompt = torch.randint(0, pair.ours.config.d_vocab, ({length},), generator=torch.Generator().manual_seed(1)).tolist()
trace(pair.ours, prompt[:64], keep=["logits"])  # kernels are loaded, the thread's scratch memory is there
page = resource.getpagesize()
def rss(): return int(open("/proc/self/statm").read().split()[1]) * page
open("/proc/self/clear_refs", "w").write("5")  # the high-water mark starts anew
before = rss()
t = trace(pair.ours, prompt, keep="all")
peak = int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) * 1024
held = {{x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in t.passes[0].kept.values()}}
print(peak - before, sum(held.values()), plan_trace(pair.ours, {length}).peak)
"""


def peak(make: str, length: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(make=make, length=length)], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    measured, kept, planned = map(int, done.stdout.split())
    mib = 2**20
    detail = f"{measured / mib:.1f} MiB at the peak, {kept / mib:.1f} kept, {planned / mib:.1f} planned"
    report(f"peak memory / kept, {make} N={length}", measured / kept, 1.05, detail=detail)


def residual_time(length: int, seconds: float) -> None:
    import torch

    from engine import trace
    from tests.bench.shapes import gpt2

    torch.set_num_threads(1)
    pair = gpt2(768, 12, 12)
    prompt = torch.randint(0, 50257, (length,), generator=torch.Generator().manual_seed(1)).tolist()
    r = interleave(
        lambda: trace(pair.ours, prompt, keep="residual"),
        lambda: trace(pair.ours, prompt, keep=["logits"]),
        seconds=seconds,
    )
    detail = f"{r.ours * 1e3:.1f} ms against {r.theirs * 1e3:.1f} ms"
    report(f"keep residual / keep nothing, gpt2 N={length}", r.value, 1.02, detail=detail)


def main() -> None:
    import engine.runtime

    engine.runtime.prepare()
    peak("gpt2(768, 12, 12)", 256)
    peak("gpt2(768, 12, 12)", 1024)
    peak("llama(768, 12, 12, 4, 2048)", 1024)
    residual_time(256, 3.0 if "--quick" in sys.argv else 12.0)


if __name__ == "__main__":
    main()

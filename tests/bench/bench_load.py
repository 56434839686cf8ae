"""Loading: memory against the file's size, and time to a usable model against transformers.

    python -m tests.bench.bench_load [--quick]

Memory is what a new process has resident at most while it loads a folder and touches every weight. Time is from the
call to the logits of one token, in a process that has imported all it needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.ratio import report

MEMORY, TIME = 1.15, 1.0
MEASURE = """
import sys
from engine.runtime import prepare
prepare()
import torch
from engine import load_model, trace
torch.set_num_threads(1)
load_model(sys.argv[2], device="cpu")  # what loading imports
trace(load_model("classic", device="cpu"), "a", keep=["logits"])  # kernels are loaded
def status(key): return int(next(l for l in open("/proc/self/status") if l.startswith(key)).split()[1]) * 1024
open("/proc/self/clear_refs", "w").write("5")  # the high-water mark starts anew
before = status("VmRSS")
model = load_model(sys.argv[1], device="cpu")
loaded = status("VmHWM")
for weight in model.weights.values():
    weight.view(-1, 1).sum() if weight.is_contiguous() else weight.sum()
print(loaded - before, status("VmHWM") - before)
"""
WAIT = """
import sys, time, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
{setup}
def usable():
{body}
usable()
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    usable()
    print(time.perf_counter() - start, flush=True)
"""
OURS = """
    from engine import load_model, trace
    return trace(load_model(sys.argv[1], device="cpu"), [1], keep=["logits"])["logits"]
"""
THEIRS = """
    from transformers import AutoModelForCausalLM
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto")(torch.tensor([[1]])).logits
"""


def write_folder(folder: Path, kind: str, dtype: str, **sizes: int) -> int:
    """A model with random weights as transformers saves it; the bytes of its weights. In a process of its own."""
    make = (
        "import sys, torch, transformers as t\n"
        "config = t.AutoConfig.for_model(sys.argv[2], **eval(sys.argv[3]))\n"
        "model = t.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, sys.argv[4]))\n"
        "model.save_pretrained(sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", make, str(folder), kind, repr(sizes), dtype], check=True)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def memory(name: str, folder: Path, size: int, small: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE, str(folder), str(small)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    loaded, touched = (int(word) / size for word in done.stdout.split())
    detail = f"{size / 2**20:.0f} MiB; {loaded:.3f} before a weight was used"
    report(f"peak memory / file size, {name}", touched, MEMORY, detail=detail)


class Loader:
    """A process that loads a folder whenever it is asked to; ``run()`` gives the seconds measured there."""

    def __init__(self, body: str, folder: Path, setup: str = "") -> None:
        code = WAIT.format(body=body, setup=setup)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._answer() != "ready":
            raise SystemExit("the other process did not start")

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def run(self) -> float:
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    quick = "--quick" in sys.argv
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    gpt2 = {"n_positions": 1024}
    shapes: dict[str, tuple[str, str, dict[str, int]]] = {
        "Llama, 300 MB, bfloat16": ("llama", "bfloat16", {
            "hidden_size": 768, "num_hidden_layers": 14, "num_attention_heads": 12, "num_key_value_heads": 4,
            "intermediate_size": 2048, "vocab_size": 32000,
        }),
        "GPT-2 small, float32": ("gpt2", "float32", gpt2),
        "Pythia-like, float32": ("gpt_neox", "float32", {
            "hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "intermediate_size": 3072,
            "vocab_size": 20000,
        }),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        for name, (kind, dtype, sizes) in shapes.items():
            folder, small = Path(place) / kind, Path(place) / f"small-{kind}"
            size = write_folder(folder, kind, dtype, **sizes)
            few = {"num_hidden_layers": 1, "vocab_size": 300} if kind != "gpt2" else {"n_layer": 1}
            write_folder(small, kind, dtype, **(sizes | few))
            memory(name, folder, size, small)
            if kind == "gpt2":
                timed(folder, seconds=4.0 if quick else 15.0)


def timed(folder: Path, seconds: float) -> None:
    import statistics
    import time

    mine, other = Loader(OURS, folder), Loader(THEIRS, folder)
    ours: list[float] = []
    theirs: list[float] = []
    until = time.perf_counter() + seconds
    while len(ours) < 5 or time.perf_counter() < until:
        ours.append(mine.run())
        theirs.append(other.run())
    a, b = statistics.median(ours), statistics.median(theirs)
    detail = f"{a * 1e3:.0f} ms against {b * 1e3:.0f} ms, medians of {len(ours)}"
    report("load to first logits ÷ transformers, GPT-2 small", a / b, TIME, detail=detail)
    mine.close()
    other.close()


if __name__ == "__main__":
    main()

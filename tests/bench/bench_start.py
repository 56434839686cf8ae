"""Process start to the first recorded value printed, against transformers' eager run with attentions.

    python -m tests.bench.bench_start [--quick]

Both are new processes on the same Llama folder, and both print a layer's attention pattern for one prompt.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.ratio import interleave, report

TARGET = 0.35
PROMPT = "The server crashed because the disk was full"
OURS = [sys.executable, "-m", "engine", "show", PROMPT, "--at", "blocks.0.attn.pattern[h=0]", "--model"]
THEIRS = """
import sys, torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation="eager")
ids = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json").encode(sys.argv[2]).ids
with torch.no_grad():
    print(model(torch.tensor([ids]), output_attentions=True).attentions[0][0, 0], flush=True)
"""


def first_output(command: list[str]) -> None:
    """Run until something is printed, and a little of it; then end it, since its leaving is not timed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    if not process.stdout.read(16):
        raise SystemExit(f"{' '.join(command[:4])} … printed nothing")
    process.kill()
    process.wait()
    process.stdout.close()


def write_folder(folder: Path) -> None:
    """A small Llama with random weights, and a byte-level tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [PROMPT], trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = LlamaConfig(
        vocab_size=2048, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


def main() -> None:
    quick = "--quick" in sys.argv
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONUNBUFFERED": "1"}
    os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "llama"
        folder.mkdir()
        write_folder(folder)
        ours, theirs = [*OURS, str(folder)], [sys.executable, "-c", THEIRS, str(folder), PROMPT]
        least = 3 if quick else 9
        ratio = interleave(lambda: first_output(ours), lambda: first_output(theirs), seconds=0, least=least)
    detail = f"{ratio.ours:.2f} s against {ratio.theirs:.2f} s, medians of {least}"
    report("start to first value, ÷ transformers eager", ratio.value, TARGET, detail=detail)


if __name__ == "__main__":
    main()

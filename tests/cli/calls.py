"""Ways to call the program, and a tiny random model in a folder to call it on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TEXT = "The server crashed because the disk was full. It rebooted. dog bites man"


class Done(NamedTuple):
    """What a call came to."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


Call = Callable[..., Done]


def write_model(folder: Path, seed: int = 0, spoil: str | None = None, **traits) -> Path:
    """A model folder in layerstep's own format; the weight named by ``spoil`` is all NaN."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from engine import ModelConfig, build_program

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    sizes = {"d_model": 20, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_head": 6, "d_mlp": 26, "n_ctx": 32}
    kind = {"positions": "rotary", "norm": "rms", "norm_bias": False, "activation": "silu", "gated": True}
    config = ModelConfig(name="tiny", d_vocab=tokenizer.get_vocab_size(), **(sizes | kind | traits))
    draw = torch.Generator().manual_seed(seed)
    weights = {name: torch.randn(shape, generator=draw) for name, shape in build_program(config).params.items()}
    if spoil:
        weights[spoil].fill_(torch.nan)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(weights, folder / "model.safetensors")
    fields = {key: value for key, value in config.to_json().items() if key != "name"}
    (folder / "config.json").write_text(json.dumps({"model_type": "layerstep", "format_version": 1, **fields}))
    return folder


def spawn(*args: object, **settings) -> subprocess.CompletedProcess[bytes]:
    """The program in a process of its own, without a terminal."""
    settings = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60} | settings
    command = [sys.executable, "-m", "engine", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, start_new_session=True, check=False, **settings)


def shell(line: str, *args: object) -> subprocess.CompletedProcess[str]:
    """A line of sh in which ``layerstep`` is the program and $1, $2 … are ``args``."""
    function = f'layerstep() {{ "{sys.executable}" -m engine "$@"; }}\n'
    command = ["sh", "-c", function + line, "sh", *map(str, args)]
    return subprocess.run(
        command, cwd=ROOT, start_new_session=True, check=False, capture_output=True, text=True, timeout=60
    )

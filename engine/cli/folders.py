"""A model folder's config and sizes, read without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.checkpoints.families import family_of
from engine.checkpoints.folder import read_json
from engine.config import ModelConfig
from engine.errors import CheckpointError
from engine.samples import sample_folder
from engine.text import display


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder and the architecture that its config.json describes."""

    path: Path
    config: ModelConfig

    @property
    def bytes(self) -> int:
        """What its weights take on disk."""
        return sum(file.stat().st_size for file in self.path.glob("*.safetensors"))

    def dtype(self) -> str:
        """What it runs in when nothing else is asked for: the file's own, but no float16 on a CPU."""
        import torch

        from engine.checkpoints.folder import open_tensors

        with open_tensors(self.path) as files:
            stored = str(files.tensor(min(files.names)).dtype).removeprefix("torch.")
        return "float32" if stored == "float16" and not torch.cuda.is_available() else stored


def find(model: str) -> Folder:
    """A sample by its name, or a folder. Raises CheckpointError."""
    path = sample_folder(model) or Path(model)
    if not path.is_dir():
        raise CheckpointError(f"there is no sample model and no folder {model}; `layerstep models` lists the samples")
    raw = read_json(path, "config.json")
    name = display(path.resolve().name)
    return Folder(path, family_of(raw, name).config(raw, name))


def traits(c: ModelConfig) -> str:
    """The architecture in a line."""
    heads = "MHA" if c.kv_heads == c.n_heads else "MQA" if c.kv_heads == 1 else f"GQA {c.n_heads}/{c.kv_heads}"
    norm = f"{'LayerNorm' if c.norm == 'layer' else 'RMSNorm'} {c.norm_place}"
    inner = {"silu": "SwiGLU", "gelu": "GEGLU", "gelu_tanh": "GEGLU", "relu": "ReGLU"} if c.gated else {}
    return ", ".join([f"{c.positions} positions", norm, heads, f"{inner.get(c.activation, c.activation)} FFN"])

"""GGUF, llama.cpp's one-file format: the header read safely, its metadata as a config, its tensors under our names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints.folder import inside, is_folder, shown
from engine.checkpoints.gguf.architectures import ARCHITECTURES, INTERLEAVED
from engine.checkpoints.gguf.described import Described
from engine.checkpoints.gguf.header import Header, read_header
from engine.checkpoints.gguf.names import source
from engine.checkpoints.lookup import Folder, read_config
from engine.config import ModelConfig, Pooling
from engine.errors import CheckpointError
from engine.text import display

if TYPE_CHECKING:
    from engine.checkpoints.files import Stored

SUFFIX = ".gguf"
POOLINGS: dict[int, Pooling] = {1: "mean", 2: "cls", 3: "last"}
"""llama.cpp's number -> ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile(Folder):
    """A model in one file. ``used`` are the tensors that its config was read from."""

    header: Header
    used: frozenset[str]

    @property
    def bytes(self) -> int:
        return self.path.stat().st_size

    def open(self, allow_pickle: bool = False) -> Stored:
        from engine.checkpoints.gguf.tensors import GgufTensors

        return GgufTensors(self.header, self.used)


def file_at(path: Path) -> Path | None:
    """The GGUF file that a path means: itself, or the only one in a folder that has no config.json; None for neither.

    Raises CheckpointError where a folder has several.
    """
    if not is_folder(path):
        return path if path.suffix.lower() == SUFFIX else None
    try:
        found = sorted(file for file in path.iterdir() if file.suffix.lower() == SUFFIX)
        if not found or (path / "config.json").exists():
            return None
    except OSError:  # which reading its config.json says
        return None
    if len(found) > 1:
        names = ", ".join(display(file.name)[:80] for file in found[:5]) + (", …" if len(found) > 5 else "")
        raise CheckpointError(f"{shown(path)} holds {len(found)} GGUF files ({names}); give the path of one")
    return inside(path, found[0].name)


def find(path: Path) -> GgufFile:
    """The model of a GGUF file: its header is read, and none of its weights. Raises CheckpointError."""
    header = read_header(path)
    name = display(path.stem)[:200]
    raw, used = config_of(header)
    config, family, _, notes = read_config(raw, name)
    arch = header.architecture
    where = partial(source, arch=arch, held=frozenset(header.tensors), interleaved=arch in INTERLEAVED)
    ours = replace(family, source=where, canonical=str, ignored=("blk.*.attn_rot_embd.weight",))
    usual = "float32" if header.quantised() else None
    told = header.metadata.get(f"{arch}.vocab_size", config.d_vocab)
    if told != config.d_vocab:
        notes += (f"ignored {arch}.vocab_size {display(str(told))[:40]}: there are {config.d_vocab} embeddings",)
    return GgufFile(path, name, _pooled(header, config), ours, usual, notes, header=header, used=used)


def _pooled(header: Header, config: ModelConfig) -> ModelConfig:
    """An encoder with what makes one vector of its stream, which no config.json says."""
    kind = header.metadata.get(f"{header.architecture}.pooling_type", 0)
    if config.head != "none" or kind == 0:
        return config
    if not isinstance(kind, int) or kind not in POOLINGS:
        raise CheckpointError(f"{shown(header.path)}: pooling_type {display(str(kind))[:40]} is not supported")
    dense = [header.tensors[name].shape for name in ("dense_2.weight", "dense_3.weight") if name in header.tensors]
    layers = tuple((shape[1], shape[0]) for shape in dense if len(shape) == 2)
    return replace(config, pooling=POOLINGS[kind], pool_layers=layers)


def config_of(header: Header) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The config.json that a header describes, and the tensors that it was read from. Raises CheckpointError.

    An architecture that is not known is refused, and so is what is no whole model.
    """
    where, arch = shown(header.path), header.architecture
    kind = header.metadata.get("general.type", "model")
    if kind != "model":
        raise CheckpointError(f"{where} is no model but of type {display(str(kind))[:40]!r}")
    parts = header.metadata.get("split.count", 0)
    if parts not in (0, 1):
        raise CheckpointError(
            f"{where} is one of {display(str(parts))[:20]} parts, which are not read together; "
            "join them with llama.cpp's llama-gguf-split --merge"
        )
    if arch not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise CheckpointError(
            f"{where}: GGUF architecture {display(arch)[:80]!r} is not supported; supported are {known}"
        )
    described = Described(header)
    config = ARCHITECTURES[arch](described)
    described.done()
    return config, frozenset(described.used)

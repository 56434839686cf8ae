"""Which model is meant: a sample by its name, or a folder; what its config.json says, read without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.checkpoints.families import Family, family_of
from engine.checkpoints.folder import is_folder, read_json, shown
from engine.config import ModelConfig
from engine.errors import CheckpointError
from engine.samples import sample_folder
from engine.text import display

LONGEST_NAME = 80
"""So much of a name that names nothing is repeated."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A model folder and the architecture that its config.json describes."""

    path: Path
    name: str
    config: ModelConfig
    family: Family

    @property
    def bytes(self) -> int:
        """What its weights take on disk."""
        return sum(file.stat().st_size for file in self.path.glob("*.safetensors"))


def find(model: str | Path) -> Folder:
    """The folder of a sample's name or of a path. Raises CheckpointError where there is none, or it holds no model."""
    path = sample_folder(str(model)) or Path(model)
    if not is_folder(path):
        name = shown(path)
        name = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
        raise CheckpointError(f"there is no sample model and no folder {name}; `layerstep models` lists the samples")
    raw = read_json(path, "config.json")
    name = display(path.resolve().name)
    family = family_of(raw, name)
    return Folder(path, name, family.config(raw, name), family)

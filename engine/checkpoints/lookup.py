"""Which model is meant: a sample, a folder, a file or a hub id; what its config says, read without its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints.families import family_of
from engine.checkpoints.family import Family
from engine.checkpoints.fields import Fields
from engine.checkpoints.folder import is_folder, name_of, read_json, shown
from engine.checkpoints.sentence import as_encoder, with_dense, with_pooling
from engine.config import ModelConfig
from engine.errors import CheckpointError, LayerstepError
from engine.runtime import Watch
from engine.samples import sample_folder
from engine.text import display

if TYPE_CHECKING:
    from engine.checkpoints.files import Stored

LONGEST_NAME = 80
"""So much of a name that names nothing is repeated."""
WEIGHTS = ("model.safetensors", "model-*.safetensors", "pytorch_model.bin", "pytorch_model-*.bin")


@dataclass(frozen=True, slots=True)
class Folder:
    """A model folder and the architecture that its config.json describes.

    ``usual`` is the dtype that the config names, which counts only where the files hold several; ``notes`` are what
    there is to say of the config. ``dense`` are the places in it of weights beside the stack's.
    """

    path: Path
    name: str
    config: ModelConfig
    family: Family
    usual: str | None = None
    notes: tuple[str, ...] = ()
    dense: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """What its weights take on disk."""
        places = (self.path, *(self.path / place for place in self.dense))
        return sum(file.stat().st_size for place in places for file in _weight_files(place))

    def open(self, allow_pickle: bool = False) -> Stored:
        """Its tensors, mapped and not read. Raises CheckpointError where a file is missing, damaged or unsafe."""
        from engine.checkpoints.files import TensorFiles
        from engine.checkpoints.joined import Joined

        files = TensorFiles(self.path, allow_pickle)
        return Joined(files, self.path, self.dense, allow_pickle) if self.dense else files


def _weight_files(place: Path) -> list[Path]:
    """Those that would be read: a folder may hold the same weights in another form beside them."""
    kinds = (sorted(place.glob(pattern)) for pattern in WEIGHTS)
    return next((files for files in kinds if files), [])


def find(model: str | Path, watch: Watch | None = None, allow_pickle: bool = False) -> Folder:
    """What a name or a path means; a model of the hub is downloaded where it is not in the cache, as ``watch`` is told.

    Raises CheckpointError where there is no such model, or it is none that layerstep can read.
    """
    path = sample_folder(str(model)) or Path(model)
    if path.suffix.lower() == ".gguf" or (is_folder(path) and not (path / "config.json").exists()):
        from engine.checkpoints import gguf  # with torch, which the others need only for their weights

        if (file := gguf.file_at(path)) is not None:
            return gguf.find(file)
    if not is_folder(path):
        path = _elsewhere(model, watch, allow_pickle)
    raw = read_json(path, "config.json")
    name = name_of(path)
    config, family, usual, notes = read_config(raw, name)
    encoder, dense, said = with_pooling(path, config)
    if encoder.pooling != "none":
        family = with_dense(as_encoder(family, config), dense)
    return Folder(path, name, encoder, family, usual, (*notes, *said), dense)


def read_config(raw: Mapping[str, Any], name: str) -> tuple[ModelConfig, Family, str | None, tuple[str, ...]]:
    """Config, family, usual dtype and notes of a config.json."""
    try:
        family = family_of(raw, name)
    except CheckpointError as error:
        if "auto_map" in raw:
            raise CheckpointError(f"{error}; it brings its own code (auto_map), and such code is never run") from None
        raise
    try:
        config = family.config(Fields(raw, name))
    except LayerstepError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # A family computes with what it reads; a value of another kind than it counts on may trip it anywhere.
        why = f"{type(error).__name__}: {display(str(error))}"[:160]
        raise CheckpointError(f"{name}: config.json holds a value that no {raw['model_type']} has ({why})") from error
    notes = ("ignored auto_map in config.json: code that comes with a model is never run",) if "auto_map" in raw else ()
    usual = raw.get("dtype") or raw.get("torch_dtype")
    usual = usual.removeprefix("torch.") if isinstance(usual, str) else None
    return config, family, usual, notes


def _elsewhere(model: str | Path, watch: Watch | None, allow_pickle: bool) -> Path:
    """The folder of a hub id. Raises CheckpointError where the name is none."""
    from engine.checkpoints import hub

    if isinstance(model, str) and (found := hub.parse(model)):
        return hub.folder_of(found, watch, allow_pickle)
    name = shown(model)
    name = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    raise CheckpointError(f"there is no sample model and no folder {name}; `layerstep models` lists the samples")

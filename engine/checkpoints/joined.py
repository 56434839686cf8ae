"""The tensors of a folder together with those in folders of it, as sentence-transformers keeps its Dense modules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from torch import Tensor

from engine.checkpoints.files import BIN, SAFETENSORS, Pickled, Safetensors, Stored
from engine.checkpoints.folder import inside, refuse_special, shown, unfinished
from engine.errors import CheckpointError


class Joined:
    """``files``, and the one file in each of ``places``, whose tensors are called PLACE/NAME.

    (`engine.checkpoints.files.Stored`) Raises CheckpointError where a place has no file that may be read.
    """

    def __init__(self, files: Stored, folder: Path, places: Collection[str], allow_pickle: bool) -> None:
        self.notes: Sequence[str] = files.notes
        self._where: dict[str, tuple[Stored, str]] = {name: (files, name) for name in files.names}
        for place in places:
            one = _open(folder, place, allow_pickle)
            self._where |= {f"{place}/{name}": (one, name) for name in one.names}

    @property
    def names(self) -> Collection[str]:
        return self._where.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        files, name = self._where[name]
        return files.shape(name)

    def dtype(self, name: str) -> str:
        files, name = self._where[name]
        return files.dtype(name)

    def mapped(self, name: str) -> bool:
        files, name = self._where[name]
        return files.mapped(name)

    def tensor(self, name: str) -> Tensor:
        files, name = self._where[name]
        return files.tensor(name)

    def release(self, name: str) -> None:
        files, name = self._where[name]
        files.release(name)


def _open(folder: Path, place: str, allow_pickle: bool) -> Stored:
    if (file := inside(folder, f"{place}/{SAFETENSORS}")).exists():
        refuse_special(file)
        return Safetensors(file)
    pickle = inside(folder, f"{place}/{BIN}")
    if allow_pickle and pickle.exists():
        refuse_special(pickle)
        return Pickled(pickle)
    why = "a pickle is read only where you allow it" if pickle.is_file() else unfinished(folder)
    raise CheckpointError(f"{shown(folder)} has no {place}/{SAFETENSORS}; {why}")

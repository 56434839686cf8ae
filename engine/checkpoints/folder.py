"""Reading a model folder as hostile input: nothing outside it is opened, nothing is allocated on a header's word."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import CheckpointError
from engine.text import display

if TYPE_CHECKING:
    from torch import Tensor

MAX_JSON_BYTES = 64 * 1024 * 1024
INDEX = "model.safetensors.index.json"


def shown(path: Path | str) -> str:
    """A path as it may be printed."""
    return display(str(path))


def is_folder(path: Path) -> bool:
    """Whether there is a folder at ``path``, which may be any text at all."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long
        return False


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object from ``folder/name``. Raises CheckpointError where it is missing, too large or not one."""
    path = inside(folder, name)
    try:
        status = path.stat()
        data = b"" if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_JSON_BYTES else path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(
            f"{shown(folder)} has no {name}; it is no model folder, or the download is incomplete"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{shown(path)} cannot be read: {error.strerror or error}") from None
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
        raise CheckpointError(f"{shown(path)} is no ordinary file")
    if status.st_size > MAX_JSON_BYTES:
        raise CheckpointError(f"{shown(path)} is {status.st_size} bytes; more than {MAX_JSON_BYTES} is no {name}")
    return _object(path, data)


def _object(path: Path, text: bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{shown(path)} is not JSON: {display(str(error))[:200]}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{shown(path)} must hold a JSON object, but holds a {type(data).__name__}")
    return data


def inside(folder: Path, name: str) -> Path:
    """``folder/name`` if it really lies in the folder, links followed. Raises CheckpointError where it leads out."""
    try:
        root = folder.resolve()
        path = (root / name).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{display(name)!r} in {shown(folder)} is no file name: {display(str(error))}") from None
    if Path(name).is_absolute() or not path.is_relative_to(root):
        raise CheckpointError(f"{shown(folder)}: {display(name)!r} leads out of the model folder; it is refused")
    return path


@contextmanager
def open_tensors(folder: Path) -> Iterator[TensorFiles]:
    """The folder's safetensors files, one or sharded, mapped and not read."""
    with ExitStack() as stack:
        yield TensorFiles(folder, stack)


class TensorFiles:
    """Tensor names -> the mapped file that holds each."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        from safetensors import SafetensorError, safe_open

        self.folder = folder
        self._where: dict[str, Any] = {}
        for file, names in self._files(folder).items():
            path = inside(folder, file)
            if not path.is_file():
                raise CheckpointError(f"{shown(folder)} has no {display(file)}; the download is incomplete")
            try:
                handle = stack.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{shown(path)} is damaged: {display(str(error))[:200]}") from None
            held = set(handle.keys())
            if names is not None and (absent := sorted(names - held)):
                raise CheckpointError(f"{shown(path)} lacks tensor {display(absent[0])!r}, which {INDEX} places there")
            for name in held if names is None else names:
                self._where[name] = handle

    def _files(self, folder: Path) -> dict[str, set[str] | None]:
        if not inside(folder, INDEX).exists():
            return {"model.safetensors": None}
        placed = read_json(folder, INDEX).get("weight_map")
        if not isinstance(placed, dict) or not all(isinstance(file, str) for file in placed.values()):
            raise CheckpointError(f"{shown(folder / INDEX)}: weight_map must map tensor names to file names")
        files: dict[str, set[str] | None] = {}
        for name, file in placed.items():
            names = files.setdefault(file, set())
            assert names is not None
            names.add(name)
        return files

    @property
    def names(self) -> set[str]:
        return set(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._where[name].get_slice(name).get_shape())

    def tensor(self, name: str) -> Tensor:
        """The tensor, mapped from the file and not copied."""
        tensor: Tensor = self._where[name].get_tensor(name)
        return tensor

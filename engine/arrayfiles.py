"""Foreign files of arrays, npz and safetensors, as hostile input: what they hold is looked at before it is read.

An npz is a zip of npy files. Nothing is unpacked to disk and no name in it is used as a path; a pickled array is never
loaded; a member whose header and size disagree is refused before memory is taken for it.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from engine.checkpoints.files import Safetensors
from engine.dtypes import dtype_name
from engine.errors import ArraysError, CheckpointError
from engine.text import display

if TYPE_CHECKING:
    import numpy as np

MOST_ARRAYS = 20_000
"""A cache of all that a model of a hundred layers computes holds some 3,000."""
MAX_DIRECTORY = 4 * 1024 * 1024
"""Bytes of a zip's table of members, some 100 for each."""
LARGE_ZIP = 2**32
"""Zips of so many bytes have a second table behind the first, and no others need one."""
MAX_HEADER = 10_000
"""Bytes of an npy file's header; numpy's own bound."""
PIECE = 1024 * 1024
SHORT = 80

_END, _END_64 = b"PK\5\6", b"PK\6\7"
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".npy")


class Arrays(Protocol):
    """Arrays by name. ``dtype`` is torch's name of it; any other is shown as it is, and has no tensor."""

    @property
    def names(self) -> Iterable[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> str: ...
    def tensor(self, name: str) -> Tensor: ...


def open_arrays(path: Path) -> Arrays:
    """The arrays of an npz or a safetensors file, none of which is read yet. Raises ArraysError."""
    where = display(str(path))
    if path.suffix.lower() in _PICKLES:
        raise ArraysError(
            f"{where}: only .npz and .safetensors are read, as they hold arrays and no code; save with "
            "numpy.savez(FILE, **{name: array}) or safetensors.torch.save_file"
        )
    try:
        if not path.is_file():
            why = "is no ordinary file" if path.exists() else "does not exist; check the name"
            raise ArraysError(f"{where} {why}")
        with path.open("rb") as file:
            start = file.read(16)
        if start.startswith(b"PK"):
            return Npz(path)
        if start[8:9] != b"{":
            raise ArraysError(f"{where} is neither an npz nor a safetensors file")
        found = Safetensors(path)
    except ArraysError:
        raise
    except CheckpointError as error:
        raise ArraysError(str(error)) from None
    except (OSError, ValueError) as error:
        raise ArraysError(f"{where} cannot be read: {_short(error)}") from None
    if len(list(found.names)) > MOST_ARRAYS:
        raise ArraysError(f"{where} holds more than {MOST_ARRAYS:,} arrays, as no recording does")
    return found


class Npz:
    """The arrays of an npz file. Raises ArraysError where it is damaged, too large a table, or pickled."""

    def __init__(self, path: Path) -> None:
        self._path, self._where = path, display(str(path))
        self._found: dict[str, tuple[str, np.dtype[Any], tuple[int, ...], bool]] = {}
        with self._opened() as archive:
            members = archive.infolist()
            if len(members) > MOST_ARRAYS:
                raise ArraysError(f"{self._where} holds more than {MOST_ARRAYS:,} arrays, as no recording does")
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in self._found:
                    raise ArraysError(f"{self._where}: {_shown(name)} is in it twice")
                with archive.open(member) as file:
                    self._found[name] = (member.filename, *self._header(name, file, member.file_size))

    @property
    def names(self) -> Iterable[str]:
        return self._found.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._found[name][2]

    def dtype(self, name: str) -> str:
        return _torch_name(self._found[name][1])

    def tensor(self, name: str) -> Tensor:
        import numpy as np

        member, dtype, shape, fortran = self._found[name]
        with self._opened() as archive, archive.open(member) as file:
            self._header(name, file, archive.getinfo(member).file_size)
            buffer = bytearray(prod(shape) * dtype.itemsize)
            room = memoryview(buffer)
            while len(room) and (got := file.read(min(len(room), PIECE))):
                room[: len(got)] = got
                room = room[len(got) :]
            if len(room) or file.read(1):  # whose end compares the checksum
                raise ArraysError(f"{self._where}: {_shown(name)} is damaged: it ends too early or too late")
        array = np.frombuffer(buffer, dtype).reshape(shape, order="F" if fortran else "C")
        return torch.from_numpy(np.ascontiguousarray(array.astype(dtype.newbyteorder("="), copy=False))).reshape(shape)

    def _header(self, name: str, file: IO[bytes], size: int) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
        """Dtype, shape and order of an npy file, of which its size says that they are true."""
        from numpy.lib import format as npy

        if file.read(len(npy.MAGIC_PREFIX)) != npy.MAGIC_PREFIX:
            raise ArraysError(f"{self._where}: {_shown(name)} is no array, and an npz holds nothing else")
        version = tuple(file.read(2))
        if version not in ((1, 0), (2, 0)):
            raise ArraysError(f"{self._where}: {_shown(name)} is npy of version {version}; save it as plain numbers")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file, max_header_size=MAX_HEADER)
        if dtype.hasobject:
            raise ArraysError(
                f"{self._where}: {_shown(name)} is a pickled object, which is never loaded; save arrays of numbers"
            )
        if not all(0 <= n < 2**40 for n in shape) or file.tell() + prod(shape) * dtype.itemsize != size:
            raise ArraysError(f"{self._where}: {_shown(name)} is damaged: its shape does not fit its size")
        return dtype, tuple(map(int, shape)), bool(fortran)

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        """The zip; whatever its reader or numpy's stumbles over is told in one line."""
        try:
            self._check_directory()
            with zipfile.ZipFile(self._path) as archive:
                yield archive
        except ArraysError:
            raise
        except Exception as error:  # zip, zlib and numpy raise a dozen kinds
            raise ArraysError(f"{self._where} is damaged, or no npz: {_short(error)}") from None

    def _check_directory(self) -> None:
        """Refuse a table of members that would itself fill memory, before it is read."""
        size = os.path.getsize(self._path)
        with self._path.open("rb") as file:
            file.seek(max(0, size - 66_000))
            tail = file.read()
        at = tail.rfind(_END)
        table = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
        if table > MAX_DIRECTORY or (tail[max(0, at - 20) :].startswith(_END_64) and size < LARGE_ZIP):
            raise ArraysError(f"{self._where} holds more than {MOST_ARRAYS:,} arrays, as no recording does")


class Given:
    """Arrays of torch or numpy that are in memory. Raises ArraysError for anything else."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._tensors: dict[str, Tensor] = {}
        for name, array in arrays.items():
            if not isinstance(name, str):
                raise ArraysError(f"arrays go by names, and {_shown(repr(name))} is none")
            self._tensors[name] = _as_tensor(name, array)

    @property
    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> str:
        return dtype_name(self._tensors[name].dtype)

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name].detach().cpu()


def _as_tensor(name: str, array: object) -> Tensor:
    if isinstance(array, Tensor):
        return array
    import numpy as np

    try:
        return torch.from_numpy(np.ascontiguousarray(array)) if isinstance(array, np.ndarray) else torch.tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArraysError(f"{_shown(name)} is no array of numbers: {_short(error)}") from None


def _torch_name(dtype: np.dtype[Any]) -> str:
    """torch's name of a numpy dtype that both have; numpy's of another one."""
    return str(dtype.newbyteorder("=")) if dtype.kind in "fiub" and dtype.itemsize <= 8 else str(dtype)[:SHORT]


def _shown(name: str) -> str:
    text = display(name)
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"


def _short(error: BaseException) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    return " ".join(display(said).split())[:160]

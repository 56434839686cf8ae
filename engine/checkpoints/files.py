"""The tensors in a folder's files, mapped and not read; a file's header is checked before anything else of it is."""

from __future__ import annotations

import json
import mmap
import os
import re
import struct
import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from engine.checkpoints.folder import (
    foreign,
    inside,
    read_json,
    refuse_dense,
    refuse_pointer,
    refuse_special,
    shown,
    unfinished,
)
from engine.dtypes import ITEMSIZE, dtype_name
from engine.errors import CheckpointError
from engine.text import display

SAFETENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
BIN, BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"

MAX_HEADER = 8 * 1024 * 1024
"""Bytes of a safetensors header: several times what the largest models would need with all tensors in one file."""
MAX_SHARDS = 4096
"""Files of one model; the largest have some 200."""
MAX_PICKLED = 1024 * 1024
"""Bytes that the structure of a pickle may have, and 1024 more for each of its tensors' storages."""
MAGIC = torch.serialization.MAGIC_NUMBER.to_bytes(10, "little")
"""Stands at the start of what torch saved before 1.6."""

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
    "BOOL": "bool",
}  # fmt: skip
"""safetensors' name -> torch's; any other is shown as it is."""


class Stored(Protocol):
    """The tensors of a file, or of several, by their names in it."""

    @property
    def notes(self) -> Sequence[str]:
        """What there is to say of the files."""
        ...

    @property
    def names(self) -> Iterable[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def dtype(self, name: str) -> str:
        """What ``tensor`` gives, by torch's name; a dtype that is no weight's is never asked for."""
        ...

    def mapped(self, name: str) -> bool:
        """Whether ``tensor`` is the file itself and takes no memory but the page cache."""
        ...

    def tensor(self, name: str) -> Tensor: ...

    def release(self, name: str) -> None:
        """Let go of the pages that reading a mapped tensor brought in; it can be read again."""
        ...


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class Safetensors:
    """One safetensors file. Raises CheckpointError where it is damaged, which the library's own checks decide."""

    notes: Sequence[str] = ()

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            with path.open("rb") as file:
                start = file.read(64)
                refuse_pointer(path, start)
                length = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else 0
                if MAX_HEADER < length < path.stat().st_size:
                    raise ValueError(f"its header has {length} bytes; more than {MAX_HEADER} is no model's")
                file.seek(8)
                text = file.read(min(length, MAX_HEADER))
                refuse_dense(path, text)
                with safe_open(path, framework="numpy"):
                    pass  # it has checked the header now
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            header = json.loads(text)
        except (SafetensorError, OSError, ValueError) as error:
            if isinstance(error, CheckpointError):
                raise
            if isinstance(error, OSError):
                raise CheckpointError(f"{shown(path)} cannot be read: {_why_not(error, path)}") from None
            raise CheckpointError(f"{shown(path)} is damaged: {display(str(error))[:200]}") from None
        header.pop("__metadata__", None)
        data = 8 + length
        self._entries = {
            name: _Entry(DTYPES.get(e["dtype"], e["dtype"]), tuple(e["shape"]), data + start, data + stop)
            for name, e in header.items()
            for start, stop in [e["data_offsets"]]
        }

    @property
    def names(self) -> Iterable[str]:
        return self._entries.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def dtype(self, name: str) -> str:
        return self._entries[name].dtype

    def mapped(self, name: str) -> bool:
        entry = self._entries[name]  # as every writer places tensors, but none has to
        return entry.start % ITEMSIZE.get(entry.dtype, 1) == 0

    def tensor(self, name: str) -> Tensor:
        """The tensor, mapped from the file and not copied; the mapping lives as long as one of its tensors."""
        entry = self._entries[name]
        dtype = getattr(torch, entry.dtype)
        if not (count := prod(entry.shape)):
            return torch.empty(entry.shape, dtype=dtype)
        tensor = torch.frombuffer(self._map, dtype=dtype, count=count, offset=entry.start).reshape(entry.shape)
        return tensor if self.mapped(name) else tensor.clone()

    def release(self, name: str) -> None:
        entry = self._entries[name]
        if hasattr(mmap, "MADV_DONTNEED") and entry.stop > entry.start:
            first = entry.start - entry.start % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, entry.stop - first)


def _why_not(error: OSError, path: Path) -> str:
    """Why a file cannot be opened; safetensors calls any such file missing."""
    missing = isinstance(error, FileNotFoundError) and path.exists()
    return "too many files are open at once" if missing else error.strerror or display(str(error))[:200]


class Pickled:
    """One pytorch_model.bin, read as data: ``weights_only`` knows tensors and containers, and runs nothing.

    How much a pickle of torch's newer format holds beside its tensors is looked at before it is read. In the older one
    (before 1.6) the tensors follow without a mark, so there nothing but the file's size bounds what reading it takes.
    """

    notes: Sequence[str] = ()

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                start = file.read(64)
            refuse_pointer(path, start)
            self._mapped = zipfile.is_zipfile(path)
            if self._mapped:
                _refuse_bloated(path)
            elif MAGIC not in start:
                raise ValueError
            with warnings.catch_warnings(action="ignore"):  # torch's advice to whoever writes such files
                found = torch.load(path, map_location="cpu", weights_only=True, mmap=self._mapped)
        except CheckpointError:
            raise
        except OSError as error:
            raise CheckpointError(f"{shown(path)} cannot be read: {_why_not(error, path)}") from None
        except Exception as error:  # a damaged pickle may raise anything; torch's own text says how to run its code
            asked = re.search(r"GLOBAL ([\w.]{1,80})", str(error), re.ASCII)
            why = f"it asks for {asked[1]}, and no code of a file is run" if asked else "torch cannot read it as such"
            raise CheckpointError(f"{shown(path)} is damaged, or holds more than tensors: {why}") from None
        if not isinstance(found, Mapping) or not all(
            isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in found.items()
        ):
            raise CheckpointError(f"{shown(path)} must hold tensors by name, and holds something else")
        for name, tensor in found.items():
            if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
                kind = "without numbers" if tensor.is_meta else "quantised" if tensor.is_quantized else "sparse"
                raise CheckpointError(
                    f"{shown(path)}: tensor {display(name)[:200]!r} is {kind}, which is not supported"
                )
        self._tensors: dict[str, Tensor] = {name: tensor.detach() for name, tensor in found.items()}

    @property
    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> str:
        return dtype_name(self._tensors[name].dtype)

    def mapped(self, name: str) -> bool:
        return self._mapped

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]

    def release(self, name: str) -> None:
        """Not possible here: torch holds the mapping."""


def _refuse_bloated(path: Path) -> None:
    """Refuse a pickle that is far larger than the names and shapes of its tensors, and would fill memory."""
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
    size = max((record.file_size for record in records if record.filename.lower().endswith("/data.pkl")), default=0)
    if size > (most := MAX_PICKLED + 1024 * len(records)):
        raise CheckpointError(f"{shown(path)} holds {size} bytes beside its tensors; more than {most} are no model's")


class TensorFiles:
    """The tensors of a folder: model.safetensors, or the shards that an index names; of pickles only if allowed.

    What a shard holds beside that which the index places there plays no part.
    """

    notes: Sequence[str] = ()

    def __init__(self, folder: Path, allow_pickle: bool = False) -> None:
        self.folder = folder
        self._where: dict[str, Stored] = {}
        opened: dict[str, Stored] = {}
        index, placed, kind = _find(folder, allow_pickle)
        for file in dict.fromkeys(placed.values()):
            path = inside(folder, file)
            if not os.path.exists(path):  # which is no error where a name is too long
                raise CheckpointError(f"{shown(folder)} has no {display(file)[:200]}; {unfinished(folder)}")
            refuse_special(path)
            opened[file] = kind(path)
        if not index:
            (one,) = opened.values()
            self._where = dict.fromkeys(one.names, one)
            return
        listed: dict[str, set[str]] = {}
        for name, file in placed.items():
            self._where[name] = opened[file]
            listed.setdefault(file, set()).add(name)
        unlisted: list[str] = []
        for file, stored in opened.items():
            held = set(stored.names)
            if absent := listed[file] - held:
                raise CheckpointError(
                    f"{shown(folder / file)} lacks tensor {display(min(absent))[:200]!r}, which {index} places there"
                )
            unlisted += sorted(held - listed[file])
        if unlisted:
            self.notes = (
                f"ignored {display(unlisted[0])[:200]} ({len(unlisted)} tensors), which the index does not list",
            )

    @property
    def names(self) -> Iterable[str]:
        return self._where.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._where[name].shape(name)

    def dtype(self, name: str) -> str:
        return self._where[name].dtype(name)

    def mapped(self, name: str) -> bool:
        return self._where[name].mapped(name)

    def tensor(self, name: str) -> Tensor:
        return self._where[name].tensor(name)

    def release(self, name: str) -> None:
        self._where[name].release(name)


def _find(folder: Path, allow_pickle: bool) -> tuple[str, dict[str, str], type[Safetensors] | type[Pickled]]:
    """The index or '', tensor name -> file (one entry where there is no index), and what reads such a file."""
    for file, index, kind in ((SAFETENSORS, INDEX, Safetensors), (BIN, BIN_INDEX, Pickled)):
        single = inside(folder, file).exists()
        if not single and not inside(folder, index).exists():
            continue
        if kind is Pickled and not allow_pickle:
            raise CheckpointError(
                f"{shown(folder)} has its weights only in {file if single else index}, a pickle, which is read only "
                "where you allow it: --allow-pickle, allow_pickle=True; it is then read as data and runs no code"
            )
        if single:
            return "", {"": file}, kind
        placed = read_json(folder, index).get("weight_map")
        if not isinstance(placed, dict) or not all(isinstance(file, str) for file in placed.values()) or not placed:
            raise CheckpointError(f"{shown(folder / index)}: weight_map must map tensor names to file names")
        shards = dict.fromkeys(placed.values())
        if len(shards) > MAX_SHARDS:
            raise CheckpointError(
                f"{shown(folder / index)} names {len(shards)} files; more than {MAX_SHARDS} are no model's"
            )
        for shard in shards:
            inside(folder, shard)  # all of them, before the first is opened
        return index, placed, kind
    if found := next(folder.glob("*.gguf"), None):
        raise CheckpointError(f"{shown(folder)} holds {shown(found.name)[:80]}; give that file's path to open it")
    why = foreign([file.name for file in folder.iterdir()]) or unfinished(folder)
    raise CheckpointError(f"{shown(folder)} has no {SAFETENSORS}; {why}")

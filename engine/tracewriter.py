"""Writes trace files: whole or not at all, and on the disk before they have their name."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine import wholefile
from engine.checksum import checksum
from engine.dtypes import dtype_name
from engine.errors import TraceFileError
from engine.traceformat import (
    ALIGN,
    CHECKSUM_AT,
    DTYPES,
    MAX_AXES,
    MAX_HEADER_BYTES,
    NO_SUM,
    SUMS_AT,
    VERSION,
    Rows,
    Stored,
    shown_name,
)
from engine.wholefile import replacing, said, short, shown, target

if TYPE_CHECKING:
    from torch import Tensor

_CODE: Final = {name: code for code, (name, _) in DTYPES.items()}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_PIECE: Final = 4 * 1024 * 1024  # as much as a cache still holds when it is written after its checksum was taken
_EARLY: Final = 8 * 1024 * 1024


def write(
    path: Path,
    header: Mapping[str, Any],
    tensors: Mapping[str, Tensor | Rows],
    *,
    force: bool = False,
    version: int = VERSION,
) -> int:
    """Write header and tensors to one file, whole or not at all; the file's size in bytes.

    ``header`` is a JSON object, without NaN and infinities. Tensors that are the same view of the same memory are
    stored once, and so are `Rows` of the same views. An existing file is replaced only with ``force``; ``version`` says
    who can read it. Raises TraceFileError.
    """
    with said(path, TraceFileError):
        place, mode = target(path, TraceFileError, force=force)
    stored, aliases = _shared(path, tensors)
    head, plan = _laid_out(path, header, stored, aliases, version)
    size = len(head) + max((entry.end for entry in plan.values()), default=0)
    with (
        said(path, TraceFileError, size),
        replacing(place, mode, lambda: target(path, TraceFileError, force=force)) as fd,
    ):
        _make_room(fd, size)
        os.lseek(fd, len(head), os.SEEK_SET)
        sums = "".join(f"{_write_data(fd, _bytes_of(stored[name])):08x}" for name in plan)
        head[SUMS_AT : SUMS_AT + len(sums)] = sums.encode()
        head[CHECKSUM_AT : CHECKSUM_AT + 8] = f"{zlib.crc32(head):08x}".encode()
        os.lseek(fd, 0, os.SEEK_SET)  # last, so that nothing unfinished looks like a trace
        _write_all(fd, memoryview(head))
    return size


def check_target(path: Path, *, force: bool = False) -> None:
    """Refuse a place that `write` could not write to, before there is anything to write. Raises TraceFileError."""
    wholefile.check_target(path, TraceFileError, force=force)


# --- before anything is written ---------------------------------------------------------------------------


def _shared(path: Path, tensors: Mapping[str, Tensor | Rows]) -> tuple[dict[str, Tensor | Rows], dict[str, str]]:
    """The tensors to store, and the further names of those that are one view of one memory."""
    stored: dict[str, Tensor | Rows] = {}  # holds every tensor, so that no address is used for a second one meanwhile
    aliases: dict[str, str] = {}
    seen: dict[object, str] = {}
    for name, tensor in tensors.items():
        parts = tensor.parts if isinstance(tensor, Rows) else (tensor,)
        if why := next(filter(None, (_unstorable(name, part) for part in parts)), ""):
            raise TraceFileError(f"{shown(path)} cannot be written: tensor {shown_name(name)} {why}")
        first = seen.setdefault(tuple(map(_view, parts)), name) if tensor.nbytes else name
        if first == name:
            stored[name] = tensor
        else:
            aliases[name] = first
    return stored, aliases


def _view(tensor: Tensor) -> object:
    """Tells what a tensor looks at."""
    strides = [step for step, length in zip(tensor.stride(), tensor.shape, strict=True) if length != 1]
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.is_neg(), tuple(tensor.shape), *strides)


def _unstorable(name: str, tensor: Tensor) -> str:
    """Why a tensor cannot be stored, and what to do; empty where it can."""
    import torch

    if name == "__metadata__" or _SURROGATE.search(name):
        return "has a name that safetensors cannot hold; give it another"
    if tensor.layout is not torch.strided or tensor.is_meta:
        return f"is {'without data' if tensor.is_meta else 'sparse'}; make it dense"
    if dtype_name(tensor.dtype) not in _CODE:
        return f"is {dtype_name(tensor.dtype)}; cast it to one of {', '.join(_CODE)}"
    if tensor.ndim > MAX_AXES:
        return f"has {tensor.ndim} axes; at most {MAX_AXES} can be stored"
    return ""


def _laid_out(
    path: Path,
    header: Mapping[str, Any],
    stored: Mapping[str, Tensor | Rows],
    aliases: Mapping[str, str],
    version: int,
) -> tuple[bytearray, dict[str, Stored]]:
    """All that comes before the data, its checksums still zeros, and the place of every tensor in order."""
    plan: dict[str, Stored] = {}
    position = 0
    # Whatever divides a tensor's size best comes first, so that every tensor begins where its items may begin.
    for name in sorted(stored, key=lambda name: -math.gcd(stored[name].nbytes, ALIGN)):
        tensor = stored[name]
        end = position + tensor.nbytes
        plan[name] = Stored(_CODE[dtype_name(tensor.dtype)], tuple(tensor.shape), position, end)
        position = end
    ours = {"version": version, "checksum": NO_SUM, "sums": NO_SUM * len(plan), "data": position}
    ours |= {"aliases": aliases, "header": dict(header)}
    table = {
        name: {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": (entry.begin, entry.end)}
        for name, entry in plan.items()
    }
    try:
        # In ASCII: a lone surrogate becomes an escape inside our text, which any reader of the file passes over.
        text = json.dumps(ours, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise TraceFileError(f"{shown(path)} cannot be written: its header is no JSON ({short(error)})") from None
    outer = json.dumps({"__metadata__": {"layerstep": text}, **table}, separators=(",", ":")).encode("ascii")
    length = -(-(8 + len(outer)) // ALIGN) * ALIGN - 8
    if length > MAX_HEADER_BYTES:
        raise TraceFileError(
            f"{shown(path)} cannot be written: its header would be {length:,} bytes long, and safetensors files "
            f"hold at most {MAX_HEADER_BYTES:,}; keep fewer tensors or save fewer passes"
        )
    return bytearray(length.to_bytes(8, "little") + outer.ljust(length)), plan


def _bytes_of(tensor: Tensor | Rows) -> memoryview:
    """A tensor's elements in order as bytes in host memory: its own where they lie so, else a copy."""
    import torch

    whole = tensor.joined() if isinstance(tensor, Rows) else tensor
    host = whole.detach().resolve_neg().cpu().contiguous()
    flat = host.as_strided((host.numel(),), (1,))  # an axis of length 1 may have any stride until here
    return flat.view(torch.uint8).numpy().data


# --- writing ----------------------------------------------------------------------------------------------


def _make_room(fd: int, size: int) -> None:
    """Ask the disk for all of it, which tells of a full one beforehand and halves the time that writing takes."""
    if size < _EARLY or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:  # a file system that knows it not
            raise


def _write_data(fd: int, data: memoryview) -> int:
    """Write one tensor's data after those before; their checksum."""
    total = 0
    for begin in range(0, len(data), _PIECE):
        piece = data[begin : begin + _PIECE]
        total = checksum(piece, total)
        _write_all(fd, piece)
        position = os.lseek(fd, 0, os.SEEK_CUR)
        if position // _EARLY != (position - len(piece)) // _EARLY and (start_writeback := _writeback()):
            start_writeback(fd, 0, 0, 2)
    return total


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


@lru_cache(maxsize=1)
def _writeback() -> Callable[[int, int, int, int], int] | None:
    """Linux's `sync_file_range`: with (fd, 0, 0, 2) the disk begins to write what it has of a file while we go on,
    so that `fsync` finds little left to do."""
    if sys.platform != "linux":
        return None
    import ctypes

    call: Callable[[int, int, int, int], int] | None = getattr(ctypes.CDLL(None), "sync_file_range", None)
    return call

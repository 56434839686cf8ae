"""Tensors for other programs: one safetensors file with bits and dtypes kept, or one npz for numpy.

Tensors are written one after the other, each asked for when its turn comes, so that no more than one is in memory
beside the trace. Numpy has no bfloat16: in an npz such numbers are float32, which holds each of them exactly, and
``__meta__`` says what they were.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

import torch
from torch import Tensor

from engine.dtypes import dtype_name
from engine.errors import ExportError
from engine.export import contents
from engine.export.order import Order
from engine.export.selection import Part, parts, tensor
from engine.jsontext import Json, for_anyone
from engine.runtime import Watch
from engine.traceformat import DTYPES, MAX_HEADER_BYTES

if TYPE_CHECKING:
    import numpy as np

META = "__meta__"
CODES = {name: code for code, (name, _) in DTYPES.items()}
ENTRY = 240
"""About how many bytes an entry of a zip file takes beside its numbers."""
PIECE = 16 * 1024 * 1024


def size(order: Order) -> int:
    """The bytes that the file will have; of an npz some more."""
    found = parts(order.trace, order.selection)
    dtype = contents.asked(order)
    if order.to == "safetensors":
        return len(_header(order, found, dtype)) + sum(part.nbytes(dtype) for part in found)
    names = sum(ENTRY + 2 * len(part.site.name) for part in found)
    return 4 * len(_meta(order, found, dtype)) + names + sum(
        part.numel * _for_numpy(contents.stored(part, dtype)).itemsize for part in found
    )  # fmt: skip


def write(order: Order, file: BinaryIO, watch: Watch | None = None) -> None:
    """Write the chosen tensors. Raises ExportError where the format cannot hold them."""
    found = parts(order.trace, order.selection)
    (_write_safetensors if order.to == "safetensors" else _write_npz)(order, found, file, watch)


def numbers(order: Order, part: Part, watch: Watch | None) -> Tensor:
    """The numbers of a part, in the dtype that they are written in."""
    found = tensor(order.trace, part, watch)
    if found.dtype != part.dtype or tuple(found.shape) != part.shape:
        raise ExportError(
            f"{part.site.name} is {dtype_name(found.dtype)} {tuple(found.shape)} and was expected to be "
            f"{dtype_name(part.dtype)} {part.shape}; this is a bug of layerstep"
        )
    return found.to(contents.stored(part, contents.asked(order))).contiguous()


# -- safetensors ---------------------------------------------------------------------------------------------------


def _write_safetensors(order: Order, found: Sequence[Part], file: BinaryIO, watch: Watch | None) -> None:
    file.write(_header(order, found, contents.asked(order)))
    for i, part in enumerate(found):
        data = numbers(order, part, _of(watch, i, len(found)))
        flat = data.reshape(-1).view(torch.uint8).numpy().data if data.numel() else memoryview(b"")
        for start in range(0, len(flat), PIECE):
            file.write(flat[start : start + PIECE])


def _header(order: Order, found: Sequence[Part], dtype: torch.dtype | None) -> bytes:
    """The file's beginning: how long its JSON is, then JSON that says where each tensor lies."""
    table: Json = {"__metadata__": {"format": "pt", "layerstep_tensors": _meta(order, found, dtype)}}
    end = 0
    for part in found:
        begin, end = end, end + part.nbytes(dtype)
        code = CODES[dtype_name(contents.stored(part, dtype))]
        table[part.site.name] = {"dtype": code, "shape": list(part.shape), "data_offsets": [begin, end]}
    text = json.dumps(table, separators=(",", ":")).encode("ascii")
    length = -(-len(text) // 8) * 8
    if length > MAX_HEADER_BYTES:
        raise ExportError(
            f"the header of {len(found):,} tensors would be {length:,} bytes long, and safetensors files "
            f"hold at most {MAX_HEADER_BYTES:,}; choose fewer with --keep or --layers"
        )
    return length.to_bytes(8, "little") + text.ljust(length)


# -- npz -----------------------------------------------------------------------------------------------------------


def _write_npz(order: Order, found: Sequence[Part], file: BinaryIO, watch: Watch | None) -> None:
    import numpy as np

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        _entry(archive, META, np.array(_meta(order, found, contents.asked(order))))
        for i, part in enumerate(found):
            data = numbers(order, part, _of(watch, i, len(found)))
            _entry(archive, part.site.name, data.to(_for_numpy(data.dtype)).numpy())


def _entry(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    import numpy as np

    info = zipfile.ZipInfo(f"{name}.npy")  # of no date, so that equal tensors are equal files
    info.external_attr = 0o644 << 16
    with archive.open(info, "w", force_zip64=True) as entry:
        np.lib.format.write_array(entry, array, allow_pickle=False)


def _for_numpy(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype is torch.bfloat16 else dtype


# -- both ----------------------------------------------------------------------------------------------------------


def _meta(order: Order, found: Sequence[Part], dtype: torch.dtype | None) -> str:
    """What the file is of, as JSON in ASCII."""
    held = contents.tensors(found, dtype)
    if order.to == "npz":
        for entry in held.values():
            entry["dtype"] = "float32" if entry["dtype"] == "bfloat16" else entry["dtype"]
    told = {"format": "layerstep-tensors", "version": contents.FORMAT_VERSION, **contents.about(order.trace)}
    return for_anyone(told | {"selection": contents.chosen(order.selection), "tensors": held})


def _of(watch: Watch | None, done: int, of: int) -> Watch | None:
    """Progress by tensors."""
    return None if watch is None else lambda _, __, what: watch(done, of, what)

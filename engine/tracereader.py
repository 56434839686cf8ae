"""Reads trace files, which may come from anywhere: all that they say is checked in type and range before it is used.

Opening reads the header alone. A tensor is mapped, and its checksum compared, when it is asked for.
"""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from engine.checksum import checksum
from engine.errors import TraceFileError
from engine.traceformat import (
    CHECKSUM_AT,
    DTYPES,
    EDITED,
    MAX_AXES,
    MAX_HEADER_BYTES,
    NO_SUM,
    OPENING,
    OPENINGS,
    VERSION,
    Stored,
    expect,
    shown_name,
)
from engine.wholefile import check_ordinary, check_path, short, shown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_ANY_VERSION: Final = re.compile(rb'\{"__metadata__":\{"layerstep":"\{\\"version\\":(\d{1,9}),')
_HEXADECIMAL: Final = re.compile("[0-9a-f]*")
_MAX_SIZE: Final = 2**63 - 1


def read(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Open a file that `write` wrote: its header, and its tensors, none of which is read yet.

    Raises TraceFileError where the file is missing, damaged or something else.
    """
    check_path(path, TraceFileError)
    try:
        # to open a pipe would wait for its other end
        check_ordinary(path, path.stat().st_mode, "name a trace file", TraceFileError)
        with path.open("rb") as file:
            return _read(path, file)
    except OSError as error:
        why = f"{short(error.strerror or error)}; name a trace file"
        if error.errno == errno.ENOENT:
            why = "there is no such file; check the name"
        raise TraceFileError(f"{shown(path)} cannot be read: {why}") from None


# --- the header -------------------------------------------------------------------------------------------


def _read(path: Path, file: BinaryIO) -> tuple[dict[str, Any], Tensors]:
    size = os.fstat(file.fileno()).st_size
    head = file.read(CHECKSUM_AT + 8)
    length = int.from_bytes(head[:8], "little")
    if len(head) < CHECKSUM_AT + 8 or not head.startswith(OPENINGS, 8):
        raise _not_ours(path, size, length, head)
    if length > MAX_HEADER_BYTES or 8 + length > size:
        raise _damaged(path, f"its header should have {length:,} bytes and the file has {size:,}")
    if length < len(OPENING) + 8 or _header_checksum(file, head, length) != head[CHECKSUM_AT:]:
        raise _damaged(path, "its header was changed or cut")
    file.seek(8)
    table, ours = _parsed(path, file.read(length))
    data = expect(ours.get("data"), int, f"{shown(path)}: the header's data")
    if size != 8 + length + data:
        raise _damaged(path, f"it should have {8 + length + data:,} bytes and has {size:,}")
    header = expect(ours.get("header"), dict, f"{shown(path)}: the header's header")
    return header, Tensors(path, _map(file.fileno(), size), 8 + length, table, ours)


def _header_checksum(file: BinaryIO, head: bytes, length: int) -> bytes:
    """Taken before the header is held, in blocks: a length changed to something huge costs no memory."""
    found = zlib.crc32(head[:CHECKSUM_AT] + NO_SUM.encode())
    left = 8 + length - len(head)
    while left > 0 and (block := file.read(min(left, 1024 * 1024))):
        found = zlib.crc32(block, found)
        left -= len(block)
    return f"{found:08x}".encode()


def _parsed(path: Path, text: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table of tensors, and what else we wrote, both as yet unchecked."""
    table = expect(_json(path, text), dict, f"{shown(path)}: the header")
    metadata = expect(table.pop("__metadata__", None), dict, f"{shown(path)}: the header's __metadata__")
    text_of_ours = expect(metadata.get("layerstep"), str, f"{shown(path)}: the header's layerstep")
    return table, expect(_json(path, text_of_ours), dict, f"{shown(path)}: the header's layerstep")


def _json(path: Path, text: bytes | str) -> object:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is no JSON ({short(error)})") from None


def _map(fd: int, size: int) -> mmap.mmap:
    """The whole file, mapped: private, so that writing to a tensor changes no file, and without a promise of memory
    for that, since a trace may be larger than the machine's memory."""
    if sys.platform == "linux":
        no_reserve = 0x4000
        return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE | no_reserve, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return mmap.mmap(fd, size, access=mmap.ACCESS_COPY)


def _not_ours(path: Path, size: int, length: int, head: bytes) -> TraceFileError:
    """What to say of a file that does not begin as ours do."""
    if not size:
        return TraceFileError(f"{shown(path)} is empty; record the trace again")
    if any(head[8:] == opening[: len(head) - 8] for opening in OPENINGS) or size < 8:
        return _damaged(path, f"it was cut after {size:,} bytes")
    if (version := _ANY_VERSION.match(head, 8)) and int(version[1]) not in (VERSION, EDITED):
        return TraceFileError(
            f"{shown(path)} is a trace file of version {int(version[1])}, and this layerstep reads version {VERSION}, "
            f"and {EDITED} where it was edited; update layerstep, or record the trace again"
        )
    if length <= size - 8 and head.startswith(b"{", 8):
        return TraceFileError(
            f"{shown(path)} is a safetensors file but no layerstep trace, or a damaged one; name a file that "
            "layerstep saved"
        )
    return TraceFileError(f"{shown(path)} is no trace file, or is damaged; name a file that layerstep saved")


def _damaged(path: Path, what: str) -> TraceFileError:
    return TraceFileError(f"{shown(path)} is damaged: {what}; record the trace again, or copy the file anew")


# --- the tensors ------------------------------------------------------------------------------------------


class Tensors(Mapping[str, "Tensor"]):
    """The tensors of a file by name, in the file's order, further names last. Each is mapped when it is asked for.

    What the file says of a tensor is checked when the tensor is first named, and its checksum when its data are
    first mapped; TraceFileError where they are wrong.
    """

    def __init__(
        self, path: Path, mapped: mmap.mmap, start: int, table: Mapping[str, Any], ours: Mapping[str, Any]
    ) -> None:
        self._path, self._mapped, self._start = path, mapped, start
        self._table = table
        self._number = dict(zip(table, range(len(table)), strict=True))
        self._sums = expect(ours.get("sums"), str, f"{shown(path)}: the header's sums")
        if len(self._sums) != 8 * len(table) or not _HEXADECIMAL.fullmatch(self._sums):
            raise _damaged(path, "its checksums do not fit its tensors")
        self._aliases = expect(ours.get("aliases"), dict, f"{shown(path)}: the header's aliases")
        for name, first in self._aliases.items():
            if type(first) is not str or first not in table or name in table:
                what = f"tensor {shown_name(name)} is another name for {shown_name(first)}, which is not stored"
                raise _damaged(path, what)
        self._stored: dict[str, Stored] = {}
        self._sound: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        import torch

        name = self._aliases.get(name, name)
        entry = self._entry(name)
        self._verify(name, entry)
        dtype = self.dtype(name)
        if entry.begin == entry.end:
            return torch.empty(entry.shape, dtype=dtype)
        offset = self._start + entry.begin
        flat = torch.frombuffer(self._mapped, dtype=dtype, count=math.prod(entry.shape), offset=offset)
        return flat.view(entry.shape)

    def __iter__(self) -> Iterator[str]:
        yield from self._table
        yield from self._aliases

    def __len__(self) -> int:
        return len(self._table) + len(self._aliases)

    def __contains__(self, name: object) -> bool:
        return name in self._table or name in self._aliases

    # By identity: to compare the contents, or to hash them, would read the whole file.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<{len(self)} tensors of {shown(self._path)}>"

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape; its data are not read."""
        return self._entry(self._aliases.get(name, name)).shape

    def dtype(self, name: str) -> torch.dtype:
        """A tensor's dtype; its data are not read."""
        import torch

        dtype: torch.dtype = getattr(torch, DTYPES[self._entry(self._aliases.get(name, name)).dtype][0])
        return dtype

    def verify(self) -> None:
        """Read all data and compare every checksum. Raises TraceFileError naming the first tensor that is damaged."""
        for name in self._table:
            self._verify(name, self._entry(name))

    def _entry(self, name: str) -> Stored:
        entry = self._stored.get(name)
        if entry is None:
            entry = self._stored[name] = self._checked(name, self._table[name])
        return entry

    def _checked(self, name: str, row: object) -> Stored:
        """What the file says of a tensor, if it can be so."""
        if type(row) is not dict:
            raise self._wrong(name, "is not described")
        dtype, shape, span = row.get("dtype"), row.get("shape"), row.get("data_offsets")
        if type(dtype) is not str or dtype not in DTYPES:
            raise self._wrong(name, f"has the unknown dtype {shown_name(dtype)}")
        if (
            type(shape) is not list
            or len(shape) > MAX_AXES
            or not all(type(n) is int and n >= 0 for n in shape)
            or math.prod(n or 1 for n in shape) > _MAX_SIZE  # torch multiplies them, an axis of 0 or not
        ):
            raise self._wrong(name, "has an impossible shape")
        if type(span) is not list or len(span) != 2 or type(span[0]) is not int or type(span[1]) is not int:
            raise self._wrong(name, "has no place in the data")
        begin, end = span
        itemsize = DTYPES[dtype][1]
        inside = 0 <= begin <= end <= len(self._mapped) - self._start
        if not inside or end - begin != math.prod(shape) * itemsize or (self._start + begin) % itemsize:
            raise self._wrong(name, "does not lie where its shape and dtype put it")
        return Stored(dtype, tuple(shape), begin, end)

    def _verify(self, name: str, entry: Stored) -> None:
        if name in self._sound:
            return
        at = 8 * self._number[name]
        with memoryview(self._mapped) as whole, whole[self._start + entry.begin : self._start + entry.end] as data:
            if checksum(data) != int(self._sums[at : at + 8], 16) or (entry.dtype == "BOOL" and _beyond_bool(data)):
                raise _damaged(self._path, f"the data of tensor {shown_name(name)} were changed")
        self._sound.add(name)

    def _wrong(self, name: str, what: str) -> TraceFileError:
        return _damaged(self._path, f"tensor {shown_name(name)} {what}")


def _beyond_bool(data: memoryview) -> bool:
    """Whether a byte is neither 0 nor 1; torch would take it for a bool all the same, and count wrongly."""
    import numpy as np

    return len(data) > 0 and bool(np.frombuffer(data, np.uint8).max() > 1)

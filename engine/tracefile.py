"""Trace files as files: one safetensors file, a JSON header beside the tensors, written whole and mapped on demand.

This layer knows names, tensors and a JSON object; what they mean is known where traces are saved and opened.
A file is ordinary safetensors, which any reader of that format understands:

    8 bytes         the length of what follows
    {"__metadata__": {"layerstep": OURS}, NAME: {"dtype": …, "shape": …, "data_offsets": …}, …}, then spaces
    the data        of one tensor after the other, without gaps

OURS is JSON as text: `version`; `checksum`, over all bytes up to the data, with the checksum itself as zeros;
`sums`, one for each tensor's data; `data`, the bytes of all data; `aliases`, further names of stored tensors; and
`header`, the caller's object. Checksums are 32 bits in eight hexadecimal digits. They find accidents. They do not
make a file trusted, so everything is checked in type and range as well.
"""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
import re
import secrets
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeVar

from engine.dtypes import dtype_name
from engine.errors import TraceFileError
from engine.text import display

if TYPE_CHECKING:
    import torch
    from torch import Tensor

VERSION: Final = 1
MAX_HEADER_BYTES: Final = 100_000_000
"""No safetensors reader opens a file whose header is longer."""

_ITEMSIZE: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_TORCH_NAME: Final = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
_CODE: Final = {name: code for code, name in _TORCH_NAME.items()}
_MAX_AXES: Final = 64  # torch's own limit for most of what it does
_MAX_SIZE: Final = 2**63 - 1

# A file of ours begins with these bytes after its length, so that version and checksum are found without parsing.
_OPENING: Final = b'{"__metadata__":{"layerstep":"{\\"version\\":%d,\\"checksum\\":\\"' % VERSION
_ANY_VERSION: Final = re.compile(rb'\{"__metadata__":\{"layerstep":"\{\\"version\\":(\d{1,9}),')
_BETWEEN: Final = b'\\",\\"sums\\":\\"'
_CHECKSUM_AT: Final = 8 + len(_OPENING)
_SUMS_AT: Final = _CHECKSUM_AT + 8 + len(_BETWEEN)
_NO_SUM: Final = "00000000"
_HEXADECIMAL: Final = re.compile("[0-9a-f]*")
_ALIGN: Final = 64

_T = TypeVar("_T")


class _Stored(NamedTuple):
    """Where a tensor's data lie, counted from the first byte of all data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


# --- writing ----------------------------------------------------------------------------------------------


def write(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor], *, force: bool = False) -> int:
    """Write header and tensors to one file, whole or not at all; the file's size in bytes.

    ``header`` is a JSON object, without NaN and infinities. Tensors that are the same view of the same memory are
    stored once. An existing file is replaced only with ``force``. Raises TraceFileError.
    """
    with _said(path, writing=True):
        target, mode = _target(path, force)
    stored, aliases = _shared(path, tensors)
    head, plan = _laid_out(path, header, stored, aliases)
    size = len(head) + max((entry.end for entry in plan.values()), default=0)
    with _said(path, writing=True, size=size), _replacing(target, mode, lambda: _target(path, force)) as fd:
        writer = _Writer(fd, len(head), size)
        sums = [writer.tensor(_bytes_of(stored[name])) for name in plan]
        head[_SUMS_AT : _SUMS_AT + 8 * len(sums)] = "".join(f"{s:08x}" for s in sums).encode()
        head[_CHECKSUM_AT : _CHECKSUM_AT + 8] = f"{zlib.crc32(head):08x}".encode()
        writer.header(head)
    return size


def check_target(path: Path, *, force: bool = False) -> None:
    """Refuse a place that `write` could not write to, before there is anything to write. Raises TraceFileError."""
    with _said(path, writing=True):
        folder = _target(path, force)[0].parent
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _target(path: Path, force: bool) -> tuple[Path, int | None]:
    """The file that ``path`` leads to, links followed, and its permissions where it is there to be replaced."""
    _check_path(path)
    target = Path(os.path.realpath(path))
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return target, None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
        raise TraceFileError(f"{_shown(path)} is {what}; choose another name")
    if not force:
        raise TraceFileError(f"{_shown(path)} exists already; choose another name, or replace it with force")
    return target, stat.S_IMODE(mode)


def _shared(path: Path, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors to store, and the further names of those that are one view of one memory."""
    stored: dict[str, Tensor] = {}  # holds every tensor, so that no address is used for a second one meanwhile
    aliases: dict[str, str] = {}
    seen: dict[object, str] = {}
    for name, tensor in tensors.items():
        _check_storable(path, name, tensor)
        strides = [step for step, length in zip(tensor.stride(), tensor.shape, strict=True) if length != 1]
        view = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.is_neg(), tuple(tensor.shape), *strides)
        first = seen.setdefault(view, name) if tensor.numel() else name
        if first == name:
            stored[name] = tensor
        else:
            aliases[name] = first
    return stored, aliases


def _check_storable(path: Path, name: str, tensor: Tensor) -> None:
    import torch

    where = f"{_shown(path)} cannot be written: tensor {_name(name)}"
    if name == "__metadata__" or _has_surrogates(name):
        raise TraceFileError(f"{where} has a name that safetensors cannot hold; give it another")
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise TraceFileError(f"{where} is {'without data' if tensor.is_meta else 'sparse'}; make it dense")
    if dtype_name(tensor.dtype) not in _CODE:
        raise TraceFileError(f"{where} is {dtype_name(tensor.dtype)}; cast it to one of {', '.join(_CODE)}")
    if tensor.ndim > _MAX_AXES:
        raise TraceFileError(f"{where} has {tensor.ndim} axes; at most {_MAX_AXES} can be stored")


def _laid_out(
    path: Path, header: Mapping[str, Any], stored: Mapping[str, Tensor], aliases: Mapping[str, str]
) -> tuple[bytearray, dict[str, _Stored]]:
    """All that comes before the data, its checksums still zeros, and the place of every tensor in order."""
    plan: dict[str, _Stored] = {}
    position = 0
    # Whatever divides a tensor's size best comes first, so that every tensor begins where its items may begin.
    for name in sorted(stored, key=lambda name: -math.gcd(stored[name].nbytes, _ALIGN)):
        tensor = stored[name]
        end = position + tensor.nbytes
        plan[name] = _Stored(_CODE[dtype_name(tensor.dtype)], tuple(tensor.shape), position, end)
        position = end
    ours = {
        "version": VERSION,
        "checksum": _NO_SUM,
        "sums": _NO_SUM * len(plan),
        "data": position,
        "aliases": aliases,
        "header": dict(header),
    }
    table = {
        name: {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": (entry.begin, entry.end)}
        for name, entry in plan.items()
    }
    try:
        # In ASCII: a lone surrogate becomes an escape inside our text, which any reader of the file passes over.
        text = json.dumps(ours, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise TraceFileError(f"{_shown(path)} cannot be written: its header is no JSON ({_short(error)})") from None
    outer = json.dumps({"__metadata__": {"layerstep": text}, **table}, separators=(",", ":")).encode("ascii")
    length = -(-(8 + len(outer)) // _ALIGN) * _ALIGN - 8
    if length > MAX_HEADER_BYTES:
        raise TraceFileError(
            f"{_shown(path)} cannot be written: its header would be {length:,} bytes long, and safetensors files "
            f"hold at most {MAX_HEADER_BYTES:,}; keep fewer tensors or save fewer passes"
        )
    return bytearray(length.to_bytes(8, "little") + outer.ljust(length)), plan


def _bytes_of(tensor: Tensor) -> memoryview:
    """A tensor's elements in order as bytes in host memory: its own where they lie so, else a copy."""
    import torch

    host = tensor.detach().resolve_neg().cpu().contiguous()
    flat = host.as_strided((host.numel(),), (1,))  # an axis of length 1 may have any stride until here
    return flat.view(torch.uint8).numpy().data


class _Writer:
    """Writes the data of tensors, each with its checksum, then what comes before them.

    The disk is asked early for the room, which tells of a full one before anything is written and halves the
    time that writing takes, and it is kept busy from then on, so that `fsync` finds little left to do.
    """

    PIECE = 4 * 1024 * 1024  # as much as a cache still holds when it is written after its checksum was taken
    EARLY = 8 * 1024 * 1024

    def __init__(self, fd: int, start: int, size: int) -> None:
        self._fd, self._position, self._begun = fd, start, start
        if size >= self.EARLY and hasattr(os, "posix_fallocate"):
            _allocate(fd, size)
        os.lseek(fd, start, os.SEEK_SET)

    def tensor(self, data: memoryview) -> int:
        checksum = 0
        for begin in range(0, len(data), self.PIECE):
            piece = data[begin : begin + self.PIECE]
            checksum = _checksum(piece, checksum)
            self._write(piece)
            self._position += len(piece)
            if self._position - self._begun >= self.EARLY:
                if start_writeback := _writeback():
                    start_writeback(self._fd, self._begun, self._position - self._begun, 2)
                self._begun = self._position
        return checksum

    def header(self, data: bytearray) -> None:
        """Last, so that nothing unfinished looks like a trace."""
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._write(memoryview(data))

    def _write(self, data: memoryview) -> None:
        while data:
            data = data[os.write(self._fd, data) :]


def _allocate(fd: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:  # a file system that knows it not
            raise


@lru_cache(maxsize=1)
def _writeback() -> Callable[[int, int, int, int], int] | None:
    """Linux's `sync_file_range`, by which the disk begins to write a range while we go on. [fd, start, length, 2]"""
    if sys.platform != "linux":
        return None
    import ctypes

    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


@contextmanager
def _replacing(target: Path, mode: int | None, check: Callable[[], object]) -> Iterator[int]:
    """A new file that takes the place of ``target`` once it is complete and on the disk; else it is removed."""
    temporary = target.with_name(f".layerstep-{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        fd = os.open(temporary, flags, 0o666)
        try:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, mode)
            yield fd
            os.fsync(fd)
        finally:
            os.close(fd)
        check()  # again: another process may have written there meanwhile
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


# --- reading ----------------------------------------------------------------------------------------------


def read(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Open a file that `write` wrote: its header, and its tensors, none of which is read yet.

    Raises TraceFileError where the file is missing, damaged or something else.
    """
    with _said(path):
        _check_path(path)
        mode = path.stat().st_mode  # before opening: to open a pipe would wait for its other end
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
            raise TraceFileError(f"{_shown(path)} is {what}; name a trace file")
        with path.open("rb") as file:
            return _read(path, file)


def _read(path: Path, file: BinaryIO) -> tuple[dict[str, Any], Tensors]:
    size = os.fstat(file.fileno()).st_size
    head = file.read(_CHECKSUM_AT + 8)
    length = int.from_bytes(head[:8], "little")
    if len(head) < _CHECKSUM_AT + 8 or not head.startswith(_OPENING, 8):
        raise _not_ours(path, file, size, length, head)
    if length > MAX_HEADER_BYTES or 8 + length > size:
        raise _damaged(path, f"its header should have {length:,} bytes and the file has {size:,}")
    if length < len(_OPENING) + 8 or _header_checksum(file, length) != head[_CHECKSUM_AT:]:
        raise _damaged(path, "its header was changed or cut")
    file.seek(8)
    table, ours = _parsed(path, file.read(length))
    data = expect(ours.get("data"), int, f"{_shown(path)}: the header's data")
    if size != 8 + length + data:
        raise _damaged(path, f"it should have {8 + length + data:,} bytes and has {size:,}")
    header = expect(ours.get("header"), dict, f"{_shown(path)}: the header's header")
    return header, Tensors(path, _map(file.fileno(), size), 8 + length, table, ours)


def _header_checksum(file: BinaryIO, length: int) -> bytes:
    """Taken before the header is held, in blocks: a length changed to something huge costs no memory."""
    file.seek(0)
    checksum = zlib.crc32(file.read(_CHECKSUM_AT))
    checksum = zlib.crc32(_NO_SUM.encode(), checksum)
    file.seek(_CHECKSUM_AT + 8)
    left = 8 + length - _CHECKSUM_AT - 8
    while left > 0 and (block := file.read(min(left, 1024 * 1024))):
        checksum = zlib.crc32(block, checksum)
        left -= len(block)
    return f"{checksum:08x}".encode()


def _parsed(path: Path, text: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table of tensors, and what else we wrote, both as yet unchecked."""
    table = expect(_json(path, text), dict, f"{_shown(path)}: the header")
    metadata = expect(table.pop("__metadata__", None), dict, f"{_shown(path)}: the header's __metadata__")
    text_of_ours = expect(metadata.get("layerstep"), str, f"{_shown(path)}: the header's layerstep")
    return table, expect(_json(path, text_of_ours), dict, f"{_shown(path)}: the header's layerstep")


def _map(fd: int, size: int) -> mmap.mmap:
    """The whole file, mapped: private, so that writing to a tensor changes no file, and without a promise of memory
    for that, since a trace may be larger than the machine's memory."""
    if sys.platform == "linux":
        no_reserve = 0x4000
        return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE | no_reserve, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return mmap.mmap(fd, size, access=mmap.ACCESS_COPY)


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
        self._sums = expect(ours.get("sums"), str, f"{_shown(path)}: the header's sums")
        if len(self._sums) != 8 * len(table) or not _HEXADECIMAL.fullmatch(self._sums):
            raise _damaged(path, "its checksums do not fit its tensors")
        self._aliases = expect(ours.get("aliases"), dict, f"{_shown(path)}: the header's aliases")
        for name, first in self._aliases.items():
            if type(first) is not str or first not in table or name in table:
                what = f"tensor {_name(name)} is another name for {_name(str(first))}, which is not stored"
                raise _damaged(path, what)
        self._stored: dict[str, _Stored] = {}
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
        return f"<{len(self)} tensors of {_shown(self._path)}>"

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape; its data are not read."""
        return self._entry(self._aliases.get(name, name)).shape

    def dtype(self, name: str) -> torch.dtype:
        """A tensor's dtype; its data are not read."""
        import torch

        dtype: torch.dtype = getattr(torch, _TORCH_NAME[self._entry(self._aliases.get(name, name)).dtype])
        return dtype

    def verify(self) -> None:
        """Read all data and compare every checksum. Raises TraceFileError naming the first tensor that is damaged."""
        for name in self._table:
            self._verify(name, self._entry(name))

    def _entry(self, name: str) -> _Stored:
        entry = self._stored.get(name)
        if entry is None:
            entry = self._stored[name] = self._checked(name, self._table[name])
        return entry

    def _checked(self, name: str, row: object) -> _Stored:
        """What the file says of a tensor, if it can be so."""
        if type(row) is not dict:
            raise _damaged(self._path, f"tensor {_name(name)} is not described")
        dtype, shape, span = row.get("dtype"), row.get("shape"), row.get("data_offsets")
        if type(dtype) is not str or (itemsize := _ITEMSIZE.get(dtype)) is None:
            raise _damaged(self._path, f"tensor {_name(name)} has the unknown dtype {_name(str(dtype))}")
        if (
            type(shape) is not list
            or len(shape) > _MAX_AXES
            or not all(type(n) is int and n >= 0 for n in shape)
            or math.prod(n or 1 for n in shape) > _MAX_SIZE  # torch multiplies them, an axis of 0 or not
        ):
            raise _damaged(self._path, f"tensor {_name(name)} has an impossible shape")
        if type(span) is not list or len(span) != 2 or type(span[0]) is not int or type(span[1]) is not int:
            raise _damaged(self._path, f"tensor {_name(name)} has no place in the data")
        begin, end = span
        inside = 0 <= begin <= end <= len(self._mapped) - self._start
        if not inside or end - begin != math.prod(shape) * itemsize or (self._start + begin) % itemsize:
            raise _damaged(self._path, f"tensor {_name(name)} does not lie where its shape and dtype put it")
        return _Stored(dtype, tuple(shape), begin, end)

    def _verify(self, name: str, entry: _Stored) -> None:
        if name in self._sound:
            return
        at = 8 * self._number[name]
        with memoryview(self._mapped) as whole, whole[self._start + entry.begin : self._start + entry.end] as data:
            if _checksum(data) != int(self._sums[at : at + 8], 16) or (entry.dtype == "BOOL" and _beyond_bool(data)):
                raise _damaged(self._path, f"the data of tensor {_name(name)} were changed")
        self._sound.add(name)


# --- checksums --------------------------------------------------------------------------------------------

_BLOCK: Final = 1024 * 1024
_LANES: Final = 1023


def _checksum(data: memoryview, checksum: int = 0) -> int:
    """A checksum of data, and of what went before it if that was a whole number of `_BLOCK`s.

    Each block is read as rows of 1023 words of 64 bits, the rows are added up, and what is added to the CRC-32 is
    the sum of rows and the bytes after the last whole row. A plain CRC-32 takes two to five times as long, more
    than saving may cost beside writing to the disk. A changed byte always changes the sum; and since 1023 is odd,
    so do pages or sectors that changed places within a block, while blocks that did so change the CRC.
    """
    import numpy as np

    for begin in range(0, len(data), _BLOCK):
        block = data[begin : begin + _BLOCK]
        rows = len(block) // (8 * _LANES)
        if rows > 1:
            words = np.frombuffer(block, "<u8", rows * _LANES).reshape(rows, _LANES)
            checksum = zlib.crc32(np.add.reduce(words, axis=0), checksum)
            block = block[rows * _LANES * 8 :]
        checksum = zlib.crc32(block, checksum)
    return checksum


def _beyond_bool(data: memoryview) -> bool:
    """Whether a byte is neither 0 nor 1; torch would take it for a bool all the same, and count wrongly."""
    import numpy as np

    return len(data) > 0 and bool(np.frombuffer(data, np.uint8).max() > 1)


# --- what is said -----------------------------------------------------------------------------------------

_KINDS: Final = {
    dict: "an object", list: "a list", str: "text", int: "a whole number", float: "a number", bool: "true or false",
    type(None): "missing",
}  # fmt: skip


def expect(value: object, kind: type[_T], where: str) -> _T:
    """``value`` if it is of exactly this type (JSON's true is no number), else a TraceFileError naming ``where``.

    A whole number is taken for a float as well; an infinite one, which JSON can write as 1e999, for none.
    """
    given: Any = value
    if kind is float and type(given) in {int, float} and abs(given) <= sys.float_info.max:
        given = float(given)
    elif type(given) is not kind or kind is float:
        numeric = kind is float and type(given) in {int, float}
        found = "out of range" if numeric else _KINDS.get(type(given), "something else")
        raise TraceFileError(f"{where} is {found}, not {_KINDS.get(kind, kind.__name__)}; the file is damaged")
    checked: _T = given
    return checked


def _json(path: Path, text: bytes | str) -> object:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is no JSON ({_short(error)})") from None


def _not_ours(path: Path, file: BinaryIO, size: int, length: int, head: bytes) -> TraceFileError:
    """What to say of a file that does not begin as ours do."""
    if not size:
        return TraceFileError(f"{_shown(path)} is empty; record the trace again")
    if head[8:] == _OPENING[: len(head) - 8] or size < 8:
        return _damaged(path, f"it was cut after {size:,} bytes")
    if (version := _ANY_VERSION.match(head, 8)) and int(version[1]) != VERSION:
        return TraceFileError(
            f"{_shown(path)} is a trace file of version {int(version[1])}, and this layerstep reads version {VERSION}; "
            "update layerstep, or record the trace again"
        )
    if _is_safetensors(file, size, length):
        return TraceFileError(
            f"{_shown(path)} is a safetensors file but no layerstep trace; name a file that layerstep saved"
        )
    return TraceFileError(f"{_shown(path)} is no trace file, or is damaged; name a file that layerstep saved")


def _is_safetensors(file: BinaryIO, size: int, length: int) -> bool:
    """Whether the header of a file that is not ours looks like safetensors; only a short one is parsed."""
    if not 2 <= length <= min(size - 8, MAX_HEADER_BYTES):
        return False
    file.seek(8)
    text = file.read(min(length, _BLOCK))
    if length > _BLOCK:
        return text.startswith(b'{"')
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(table, dict) and all(isinstance(row, dict) for row in table.values())


def _damaged(path: Path, what: str) -> TraceFileError:
    return TraceFileError(f"{_shown(path)} is damaged: {what}; record the trace again, or copy the file anew")


def _check_path(path: Path) -> None:
    try:
        is_path = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise TraceFileError(f"{_shown(path)} holds characters that no file name can have; choose another name")


@contextmanager
def _said(path: Path, *, writing: bool = False, size: int = 0) -> Iterator[None]:
    """Say an error of the operating system in one line that names what to do."""
    try:
        yield
    except OSError as error:
        why = _why_not_written(path, error, size) if writing else _why_not_read(error)
        raise TraceFileError(f"{_shown(path)} cannot be {'written' if writing else 'read'}: {why}") from None


def _why_not_written(path: Path, error: OSError, size: int) -> str:
    folder = _shown(path.parent)
    if error.errno == errno.ENOENT:
        return f"there is no folder {folder}; create it or choose another"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"the disk is full ({size:,} bytes are needed); make room, or choose another folder"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"no permission to write in the folder {folder}; choose another"
    return f"{_short(error.strerror or error)}; choose another place"


def _why_not_read(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "there is no such file; check the name"
    return f"{_short(error.strerror or error)}; name a trace file"


def _shown(path: Path) -> str:
    return display(str(path))


def _name(name: str) -> str:
    shown = display(name)
    return shown if len(shown) <= 80 else shown[:79] + "…"


def _short(what: object) -> str:
    return display(str(what))[:120]


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)

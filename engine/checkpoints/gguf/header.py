"""A GGUF file's header, read as hostile input: metadata, and where each tensor lies, all bounds checked.

Layout (ggml's docs/gguf.md): magic, version, the two counts; then key-value pairs; then for each tensor its name, shape
(fastest dimension first), type and offset; then, at the next multiple of the alignment, the data.
"""

from __future__ import annotations

import mmap
import stat
import struct
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from engine.checkpoints.folder import refuse_pointer, shown
from engine.errors import CheckpointError
from engine.text import display

MAX_COUNT = 65_536
"""Metadata keys, and tensors; the largest files in use have some thousands."""
MAX_STRINGS = 2**20
"""Strings in one list; the largest vocabularies have 262,144 tokens, and about twice as many merges."""
MAX_NAME_BYTES = 1024
MAX_TEXT_BYTES = 128 * 2**20
"""A text; the longest is a whole tokenizer.json, and the largest of those are around 35 MB."""
MAX_DIMS = 4

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
_VERSIONS = (2, 3)
_LENGTH = struct.Struct("<Q")

_K = 256
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 28: ("F64", 1, 8), 30: ("BF16", 1, 2),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8),
    2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34),
    10: ("Q2_K", _K, 84), 11: ("Q3_K", _K, 110), 12: ("Q4_K", _K, 144), 13: ("Q5_K", _K, 176), 14: ("Q6_K", _K, 210),
    16: ("IQ2_XXS", _K, 66), 17: ("IQ2_XS", _K, 74), 22: ("IQ2_S", _K, 82), 18: ("IQ3_XXS", _K, 98),
    21: ("IQ3_S", _K, 110), 19: ("IQ1_S", _K, 50), 29: ("IQ1_M", _K, 56), 20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", _K, 136), 34: ("TQ1_0", _K, 54), 35: ("TQ2_0", _K, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
"""ggml's number of a tensor type -> its name, the numbers in a block, the bytes of a block."""
BLOCKS = {name: (numbers, size) for name, numbers, size in TYPES.values()}

PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64",
         "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64"}  # fmt: skip
"""Types that are torch's too, by ggml's name; any other is quantised, and float32 when dequantised."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor: ``shape`` slowest dimension first as torch has it, and its bytes in the file."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Strings:
    """A list of strings left in the file, ``count`` of them from byte ``start`` on."""

    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file says of itself. ``metadata`` holds numbers, texts, arrays of numbers, and Strings."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Entry]

    @property
    def architecture(self) -> str:
        """``general.architecture``, which also begins the keys that describe it. Raises CheckpointError."""
        named = self.metadata.get("general.architecture")
        if not isinstance(named, str):
            raise CheckpointError(f"{shown(self.path)} does not name its general.architecture")
        return named

    def quantised(self) -> dict[str, int]:
        """How many tensors there are of each quantised type."""
        return dict(Counter(entry.kind for entry in self.tensors.values() if entry.kind not in PLAIN))

    def strings(self, key: str) -> list[str] | None:
        """A list of strings, read from the file now; None where there is none under this key."""
        held = self.metadata.get(key)
        if not isinstance(held, Strings):
            return None
        with _mapped(self.path) as data:
            return list(_Reader(self.path, data, held.start).strings(held.count, key))


def read_header(path: Path) -> Header:
    """The header of a GGUF file. Raises CheckpointError where it is none, is damaged, or is of a kind not read here."""
    with _mapped(path) as data:
        reader = _Reader(path, data, 0)
        if data[:4] != b"GGUF":
            raise CheckpointError(f"{shown(path)} is no GGUF file; it does not begin with GGUF")
        reader.at = 4
        version = reader.number("I")
        if version not in _VERSIONS:
            if version & 0xFFFF == 0:
                raise CheckpointError(f"{shown(path)} is a big-endian GGUF file, which is not supported")
            raise CheckpointError(f"{shown(path)} is GGUF version {version}; versions 2 and 3 are read")
        n_tensors, n_keys = reader.number("Q"), reader.number("Q")
        for count, what in ((n_tensors, "tensors"), (n_keys, "metadata keys")):
            if count > MAX_COUNT:
                raise reader.damage(f"it claims {count} {what}; more than {MAX_COUNT} are not believed")
        metadata = _metadata(reader, n_keys)
        return Header(path, metadata, _tensors(reader, n_tensors, metadata.get("general.alignment", 32)))


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    """A file's bytes, mapped; only an ordinary file, since reading a pipe would wait for ever."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # a name that is none
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{shown(path)} is no ordinary file")
    if not status.st_size:
        raise CheckpointError(f"{shown(path)} is empty; the download is incomplete")
    try:
        with path.open("rb") as file:
            refuse_pointer(path, file.read(64))
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise _unreadable(path, error) from None
    with data:
        yield data


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    why = getattr(error, "strerror", None) or str(error)
    return CheckpointError(f"{shown(path)[:200]} cannot be read: {display(why)[:200]}")


class _Reader:
    """A place in the file that moves on with every read, and never beyond the end."""

    def __init__(self, path: Path, data: mmap.mmap, at: int) -> None:
        self.path, self.data, self.at = path, data, at

    def damage(self, why: str) -> CheckpointError:
        return CheckpointError(f"{shown(self.path)} is damaged: {why}"[:400])

    def skip(self, size: int, what: str) -> int:
        """Move on by ``size`` bytes, which must be there; where they start."""
        start, left = self.at, len(self.data) - self.at
        if size > left:
            raise self.damage(f"{what} needs {size} bytes at byte {start}, but {left} are left")
        self.at += size
        return start

    def number(self, code: str, what: str = "the header") -> Any:
        """One little-endian number; a float32 as the shortest decimal that it is, since that is what was written."""
        start = self.skip(struct.calcsize(f"<{code}"), what)
        (value,) = struct.unpack_from(f"<{code}", self.data, start)
        return shortest(value) if code == "f" else value

    def string(self, what: str, most: int | None = None) -> str:
        length = self.number("Q", what)
        if most is not None and length > most:
            raise self.damage(f"{what} is {length} bytes long; at most {most} are believed")
        start = self.skip(length, what)
        try:
            return self.data[start : start + length].decode()
        except UnicodeDecodeError:
            raise self.damage(f"{what} at byte {start} is not UTF-8") from None

    def value(self, kind: int, what: str) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind], what)
        if kind == _STRING:
            return self.string(what, MAX_TEXT_BYTES)
        if kind != _ARRAY:
            raise self.damage(f"{what} is of type {kind}, which there is not")
        inner, count = self.number("I", what), self.number("Q", what)
        if inner in _SCALARS:
            return self._numbers(_SCALARS[inner], count, what)
        if inner != _STRING:
            raise self.damage(f"{what} is a list of type {inner}, which is not read")
        if count > MAX_STRINGS:
            raise self.damage(f"{what} claims {count} strings; more than {MAX_STRINGS} are not believed")
        start, end, at = self.at, len(self.data), self.at
        for _ in range(count):
            at += 8 + _LENGTH.unpack_from(self.data, at)[0] if at + 8 <= end else end
            if at > end:
                raise self.damage(f"{what} claims {count} strings, but the file ends before")
        self.at = at
        return Strings(start, count)

    def strings(self, count: int, what: str) -> Iterator[str]:
        """Strings one after another, whose lengths were checked before."""
        at = self.at
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(self.data, at)
            at += 8 + length
            try:
                yield self.data[at - length : at].decode()
            except UnicodeDecodeError:
                raise self.damage(f"{what} at byte {at - length} is not UTF-8") from None

    def _numbers(self, code: str, count: int, what: str) -> array[Any]:
        start = self.skip(count * struct.calcsize(f"<{code}"), what)
        return array("B" if code == "?" else code, self.data[start : self.at])


def shortest(value: float) -> float:
    """The shortest decimal that rounds to the same float32: 1e-05, where the float32 itself is 9.9999997e-06."""
    import numpy as np

    return float(str(np.float32(value)))


def _metadata(reader: _Reader, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = reader.string("a metadata key", MAX_NAME_BYTES)
        named = f"metadata {display(key)[:80]!r}"
        if key in metadata:
            raise reader.damage(f"{named} is there twice")
        metadata[key] = reader.value(reader.number("I", named), named)
    return metadata


def _tensors(reader: _Reader, count: int, alignment: object) -> dict[str, Entry]:
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise reader.damage(f"general.alignment is {display(str(alignment))[:40]}, which is no power of two")
    listed = [_tensor(reader) for _ in range(count)]
    data = -(-reader.at // alignment) * alignment
    tensors: dict[str, Entry] = {}
    for name, shape, number, offset in listed:
        named = f"tensor {display(name)[:80]!r}"
        if name in tensors:
            raise reader.damage(f"{named} is there twice")
        if number not in TYPES:
            known = ", ".join(kind for kind, *_ in TYPES.values())
            raise CheckpointError(f"{shown(reader.path)}: {named} is of type {number}; known are {known}")
        kind, block, size = TYPES[number]
        if shape[-1] % block:
            raise reader.damage(f"{named} has rows of {shape[-1]} numbers, but {kind} has blocks of {block}")
        start, length = data + offset, prod(shape) // block * size
        if offset % alignment:
            raise reader.damage(f"{named} begins at {offset}, which is no multiple of the alignment {alignment}")
        if start + length > len(reader.data):
            raise reader.damage(
                f"{named} {list(shape)} of {kind} ends at byte {start + length}, but the file has {len(reader.data)}; "
                "the download is incomplete"
            )
        tensors[name] = Entry(name, kind, shape, start, length)
    end, before = 0, ""
    for entry in sorted(tensors.values(), key=lambda entry: (entry.start, entry.bytes)):
        if entry.start < end:
            raise reader.damage(f"tensors {display(before)[:80]!r} and {display(entry.name)[:80]!r} overlap")
        end, before = entry.start + entry.bytes, entry.name
    return tensors


def _tensor(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    name = reader.string("a tensor name", MAX_NAME_BYTES)
    named = f"tensor {display(name)[:80]!r}"
    n_dims = reader.number("I", named)
    if not 1 <= n_dims <= MAX_DIMS:
        raise reader.damage(f"{named} has {n_dims} dimensions; 1 to {MAX_DIMS} there can be")
    shape = tuple(reversed([reader.number("Q", named) for _ in range(n_dims)]))
    if 0 in shape:
        raise reader.damage(f"{named} {list(shape)} is empty")
    return name, shape, reader.number("I", named), reader.number("Q", named)

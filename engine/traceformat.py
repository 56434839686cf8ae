"""What the writer and the reader of trace files agree on: the bytes of a file, and the words for what they refuse.

    8 bytes         the length of what follows
    {"__metadata__": {"layerstep": OURS}, NAME: {"dtype": …, "shape": …, "data_offsets": …}, …}, then spaces
    the data        of one tensor after the other, without gaps

OURS is JSON as text: `version`; `checksum`, over all bytes up to the data, with the checksum itself as zeros;
`sums`, one for each tensor's data; `data`, the bytes of all data; `aliases`, further names of stored tensors; and
`header`, the caller's object. Checksums are 32 bits in eight hexadecimal digits: the header's a CRC-32, the data's
`engine.checksum`. They find accidents. They do not make a file trusted, so everything is checked in type and range
as well.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from engine.errors import TraceFileError
from engine.text import display

if TYPE_CHECKING:
    import torch
    from torch import Tensor

VERSION: Final = 3
EDITED: Final = 4
"""The version of a trace with what-ifs, which readers of the one before would take for one without."""
MAX_HEADER_BYTES: Final = 100_000_000
"""No safetensors reader opens a file whose header is longer."""

DTYPES: Final = {
    "F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2),
    "I64": ("int64", 8), "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}  # fmt: skip
"""safetensors' name of a dtype -> torch's, and the bytes of an item."""

ALIGN: Final = 64
"""Where torch's own tensors begin: at multiples of so many bytes."""

MAX_AXES: Final = 64
"""torch's own limit for most of what it does."""

# A file of ours begins with these bytes after its length, so that version and checksum are found without parsing.
OPENINGS: Final = tuple(
    b'{"__metadata__":{"layerstep":"{\\"version\\":%d,\\"checksum\\":\\"' % version for version in (VERSION, EDITED)
)
OPENING: Final = OPENINGS[0]
CHECKSUM_AT: Final = 8 + len(OPENING)
SUMS_AT: Final = CHECKSUM_AT + 8 + len(b'\\",\\"sums\\":\\"')
NO_SUM: Final = "00000000"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Tensors to be stored as one, joined along an axis; that is done when they are written."""

    parts: tuple[Tensor, ...]
    axis: int

    @property
    def dtype(self) -> torch.dtype:
        return self.parts[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        size = sum(part.shape[self.axis] for part in self.parts)
        return tuple(size if i == self.axis else n for i, n in enumerate(self.parts[0].shape))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def joined(self) -> Tensor:
        import torch

        return torch.cat(self.parts, self.axis)


class Stored(NamedTuple):
    """Where a tensor's data lie, counted from the first byte of all data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def shown_name(name: object) -> str:
    """A tensor's name, or what a file has in the place of one."""
    text = display(str(name))
    return text if len(text) <= 80 else text[:79] + "…"


_KINDS: Final = {
    dict: "an object", list: "a list", str: "text", int: "a whole number", float: "a number", bool: "true or false",
    type(None): "missing",
}  # fmt: skip


def expect(value: object, kind: type[_T], where: str) -> _T:
    """JSON's ``value`` if it is of exactly this type (true is no number), else a TraceFileError naming ``where``.

    A whole number is taken for a float as well; an infinite one, which JSON can write as 1e999, for none.
    """
    given: Any = value
    found = _KINDS.get(type(given), "something else")
    if kind is float and type(given) in {int, float}:
        given = float(given) if abs(given) <= sys.float_info.max else None
        found = "out of range"
    if type(given) is not kind:
        raise TraceFileError(f"{where} is {found}, not {_KINDS[kind]}; the file is damaged")
    checked: _T = given
    return checked

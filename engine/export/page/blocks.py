"""The tensors of a page: their bytes as base64, one element each, written as they come so that memory stays small."""

from __future__ import annotations

import binascii
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from engine.dtypes import dtype_name
from engine.errors import ExportError
from engine.export.contents import DTYPES

CHUNK = 3 * 256 * 1024
"""Bytes that are encoded in one go: a multiple of three, so that the parts fit together."""
DIGITS = {torch.float16: "3 to 4", torch.bfloat16: "2 to 3", torch.float32: "7 to 8"}
"""How many decimal digits a dtype keeps."""
_OPEN, _CLOSE = '<script type="text/plain" id="{}">', "</script>\n"


def stored(dtype: torch.dtype, wanted: str) -> torch.dtype:
    """What a tensor is embedded as: a floating-point one as ``wanted``, or as it is (auto); any other as int32."""
    if not dtype.is_floating_point:
        return torch.uint8 if dtype == torch.uint8 else torch.int32
    if wanted in DTYPES:
        return DTYPES[wanted]
    return torch.float32 if dtype == torch.float64 else dtype


def size_of(nbytes: int) -> int:
    """Bytes in the page of a tensor of so many."""
    return 4 * -(-nbytes // 3) + len(_OPEN.format("t00") + _CLOSE)


@dataclass(slots=True)
class Rounding:
    """What was rounded to a dtype, and where by most, as a share of the largest number there."""

    dtype: torch.dtype
    worst: tuple[float, float, float, str] = (-1.0, 0.0, 0.0, "")  # share, error, largest number, of which tensor

    def add(self, name: str, before: Tensor, after: Tensor) -> None:
        """Raises ExportError where a number that was finite is so no more."""
        finite = before[before.isfinite()]
        largest = float(finite.abs().max()) if finite.numel() else 0.0
        if largest > torch.finfo(self.dtype).max:
            kept = "bfloat16 or float32" if self.dtype == torch.float16 else "float32"
            raise ExportError(
                f"{name} holds {largest:.4g}, and {dtype_name(self.dtype)} ends at {torch.finfo(self.dtype).max:.4g}; "
                f"round to {kept} (--round-to), or leave it out of --keep"
            )
        gap = (before - after.to(before.dtype))[before.isfinite()].abs()
        error = float(gap.max()) if gap.numel() else 0.0
        self.worst = max(self.worst, (error / largest if largest else 0.0, error, largest, name))

    def told(self) -> str:
        """In words, for the page."""
        _, error, largest, name = self.worst
        return (
            f"Numbers are rounded to {dtype_name(self.dtype)}, which keeps {DIGITS[self.dtype]} digits. For their size "
            f"they are furthest off in {name}: by {error:.1e} at most, where numbers reach {largest:.3g}. Sums and "
            "shares that are made of them here are no more exact than that."
        )


@dataclass(slots=True)
class Blocks:
    """Writes the elements that hold tensors; floating-point numbers are ``wanted`` (auto: as they are)."""

    file: BinaryIO
    wanted: str = "auto"
    nbytes: int = 0
    count: int = 0
    roundings: dict[torch.dtype, Rounding] = field(default_factory=dict)
    _masks: dict[bytes, str] = field(default_factory=dict)

    def add(self, tensor: Tensor, name: str = "") -> tuple[str, str]:
        """Write a tensor; the id of its element and its dtype there. What has a ``name`` is rounded as wanted."""
        dtype = stored(tensor.dtype, self.wanted if name else "auto")
        after = tensor.to(dtype)
        if _narrower(dtype, tensor.dtype):
            self.roundings.setdefault(dtype, Rounding(dtype)).add(name, tensor, after)
        return self._write(_bytes(after)), dtype_name(dtype)

    def mask(self, hidden: Tensor) -> str:
        """Write booleans, eight to a byte, the first in the highest bit; equal ones once. The id of the element."""
        packed = np.packbits(hidden.cpu().numpy().reshape(-1)).tobytes()
        if packed not in self._masks:
            self._masks[packed] = self._write(memoryview(packed))
        return self._masks[packed]

    @property
    def rounded(self) -> list[str]:
        """What was rounded, in sentences."""
        return [rounding.told() for rounding in self.roundings.values()]

    def _write(self, data: memoryview) -> str:
        name = f"t{self.count}"
        self.count += 1
        self.nbytes += len(data)
        self.file.write(_OPEN.format(name).encode())
        for start in range(0, len(data), CHUNK):
            self.file.write(binascii.b2a_base64(data[start : start + CHUNK], newline=False))
        self.file.write(_CLOSE.encode())
        return name


def _narrower(dtype: torch.dtype, than: torch.dtype) -> bool:
    """Whether some floating-point numbers of the one are none of the other."""
    if not (dtype.is_floating_point and than.is_floating_point):
        return False
    mine, other = torch.finfo(dtype), torch.finfo(than)
    return mine.eps > other.eps or mine.max < other.max


def _bytes(tensor: Tensor) -> memoryview:
    """Its bytes in memory, which every machine that torch runs on has little-endian."""
    flat = tensor.contiguous().reshape(-1)
    if not flat.numel():
        return memoryview(b"")
    return (flat.view(torch.int16) if flat.dtype == torch.bfloat16 else flat).numpy().data.cast("B")

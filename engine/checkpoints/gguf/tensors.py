"""The tensors of a GGUF file: floating-point ones mapped and not copied, quantised ones dequantised when asked for.

A stack of experts, [expert, d_out, d_in] in one tensor, is given as one tensor for each expert, ``NAME[3]``, since that
is how they are used: then no more than one expert's part is ever dequantised for it.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterable, Sequence
from math import prod

import torch
from torch import Tensor

from engine.checkpoints.folder import shown
from engine.checkpoints.gguf.header import BLOCKS, PLAIN, Entry, Header
from engine.errors import CheckpointError

MAX_PARTS = 2**18
"""Tensors with every expert's counted; models of 384 experts have some 70,000."""


class GgufTensors:
    """The tensors of one GGUF file by their names in it (`engine.checkpoints.files.Stored`)."""

    def __init__(self, header: Header, without: Collection[str] = ()) -> None:
        """``without``: tensors that are no weights."""
        self.path = header.path
        self.notes: Sequence[str] = ()
        if counted := header.quantised():
            listed = ", ".join(f"{n} tensors from {kind}" for kind, n in counted.items())
            self.notes = (f"dequantised {listed} to float32",)
        self._entries: dict[str, Entry] = {}
        for entry in header.tensors.values():
            for part in () if entry.name in without else _parts(entry):
                self._entries[part.name] = part
            if len(self._entries) > MAX_PARTS:
                raise CheckpointError(
                    f"{shown(header.path)} has more than {MAX_PARTS} tensors, experts counted one by one"
                )
        with header.path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    @property
    def names(self) -> Iterable[str]:
        return self._entries.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def dtype(self, name: str) -> str:
        return PLAIN.get(self._entries[name].kind, "float32")

    def mapped(self, name: str) -> bool:
        return self._entries[name].kind in PLAIN

    def tensor(self, name: str) -> Tensor:
        """The tensor as torch's. Raises CheckpointError where it is of a type that cannot be dequantised here."""
        entry = self._entries[name]
        if entry.kind not in PLAIN:
            return self._dequantised(entry)
        dtype: torch.dtype = getattr(torch, PLAIN[entry.kind])
        if entry.start % dtype.itemsize:  # an alignment too small for the type
            held = bytearray(self._map[entry.start : entry.start + entry.bytes])
            return torch.frombuffer(held, dtype=dtype).reshape(entry.shape)
        count = prod(entry.shape)
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=entry.start).reshape(entry.shape)

    def release(self, name: str) -> None:
        entry = self._entries[name]
        if hasattr(mmap, "MADV_DONTNEED"):
            first = entry.start - entry.start % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, first, entry.start + entry.bytes - first)

    def _dequantised(self, entry: Entry) -> Tensor:
        import numpy as np

        try:
            import gguf
        except ImportError:
            raise CheckpointError(
                f"{shown(self.path)} holds quantised tensors, for which the gguf package is needed: pip install gguf"
            ) from None
        block, size = BLOCKS[entry.kind]
        rows = np.frombuffer(self._map, np.uint8, entry.bytes, entry.start)
        rows = rows.reshape(*entry.shape[:-1], entry.shape[-1] // block * size)
        try:
            with np.errstate(all="ignore"):  # a block's scale may be anything; what is not finite is shown as that
                numbers = gguf.dequantize(rows, gguf.GGMLQuantizationType[entry.kind])
        except (KeyError, NotImplementedError):
            raise CheckpointError(
                f"{shown(self.path)}: {entry.name} is {entry.kind}, which this version of the gguf package does not "
                "know: pip install --upgrade gguf"
            ) from None
        return torch.from_numpy(numbers).reshape(entry.shape)


def _parts(entry: Entry) -> list[Entry]:
    """A tensor, or each expert's part of a stack of them."""
    stem = entry.name.rpartition(".")[0]
    if not stem.endswith("_exps") or len(entry.shape) < 2 or entry.shape[0] > MAX_PARTS:
        return [entry]
    size = entry.bytes // entry.shape[0]
    return [
        Entry(f"{entry.name}[{expert}]", entry.kind, entry.shape[1:], entry.start + expert * size, size)
        for expert in range(entry.shape[0])
    ]

"""MXFP4, in which gpt-oss's experts are published: 4-bit numbers, and a power of two for every 32 of them.

(OCP Microscaling Formats, 2023, sections 5.3 and 6.3)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from jaxtyping import BFloat16, UInt8
from torch import Tensor

from engine.checkpoints.files import Stored
from engine.errors import CheckpointError
from engine.text import display

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""What the 16 codes of a sign, two bits of exponent and one of mantissa stand for."""
BIAS = 127
BLOCKS, SCALES = "_blocks", "_scales"


def dequantised(
    blocks: UInt8[Tensor, "*rows block byte"], scales: UInt8[Tensor, "*rows block"]
) -> BFloat16[Tensor, "*rows block*byte*2"]:
    """The numbers, two to a byte and the low four bits first: code · 2^(scale − 127), which bfloat16 can hold."""
    values = torch.tensor(E2M1, dtype=torch.bfloat16, device=blocks.device)
    both = torch.stack((values.repeat(16), values.repeat_interleave(16)), -1)  # [256 2], the two numbers of every byte
    looked_up = both.view(torch.int32).flatten().index_select(0, blocks.flatten().int())  # as one number: the fastest
    numbers = looked_up.view(torch.bfloat16).view(*scales.shape, -1)  # [*rows block byte*2]
    powers = torch.exp2(scales.float() - BIAS).to(torch.bfloat16)  # [*rows block]
    return (numbers * powers.unsqueeze(-1)).flatten(-2)


class Dequantised:
    """A model's files, in which NAME_blocks [expert, d_out, block, 16] and NAME_scales [expert, d_out, block] are one
    tensor NAME [expert, d_in, d_out] of bfloat16, as gpt-oss is stored unquantised. (`engine.checkpoints.files.Stored`)

    The one that was asked for last is kept: its experts are views of it, and it is dequantised once.
    """

    def __init__(self, files: Stored) -> None:
        """Raises CheckpointError where blocks and scales do not fit each other."""
        self._files = files
        self.notes: Sequence[str] = files.notes
        self._last: tuple[str, Tensor] | None = None
        names = set(files.names)
        stems = {name.removesuffix(BLOCKS) for name in names if name.endswith(BLOCKS)} - names
        self._shapes = {stem: self._shape(stem) for stem in sorted(stems) if stem + SCALES in names}
        packed = {stem + end for stem in self._shapes for end in (BLOCKS, SCALES)}
        self._names = [*(name for name in files.names if name not in packed), *self._shapes]
        if self._shapes:
            self.notes = (*self.notes, f"dequantised {len(self._shapes)} tensors from MXFP4 to bfloat16")

    def _shape(self, stem: str) -> tuple[int, ...]:
        blocks, scales = self._files.shape(stem + BLOCKS), self._files.shape(stem + SCALES)
        kinds = {self._files.dtype(stem + end) for end in (BLOCKS, SCALES)}
        if len(blocks) != 4 or blocks[3] != 16 or blocks[:3] != scales or kinds != {"uint8"}:
            raise CheckpointError(
                f"{display(stem + BLOCKS)[:200]} is {list(blocks)} and {display(stem + SCALES)[:200]} {list(scales)}; "
                "MXFP4 has uint8 [expert, d_out, block, 16] and [expert, d_out, block]"
            )
        return blocks[0], blocks[2] * 32, blocks[1]

    @property
    def names(self) -> Collection[str]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes.get(name) or self._files.shape(name)

    def dtype(self, name: str) -> str:
        return "bfloat16" if name in self._shapes else self._files.dtype(name)

    def mapped(self, name: str) -> bool:
        return name not in self._shapes and self._files.mapped(name)

    def tensor(self, name: str) -> Tensor:
        if name not in self._shapes:
            return self._files.tensor(name)
        if self._last is None or self._last[0] != name:
            self._last = None  # before the next is made
            self._last = name, self._dequantised(name)
        return self._last[1]

    def _dequantised(self, stem: str) -> BFloat16[Tensor, "expert d_in d_out"]:
        blocks, scales = self._files.tensor(stem + BLOCKS), self._files.tensor(stem + SCALES)
        experts, d_in, d_out = self._shapes[stem]
        whole = torch.empty(experts, d_out, d_in, dtype=torch.bfloat16)
        for expert in range(experts):  # one at a time: what is needed in between is several times as large
            whole[expert] = dequantised(blocks[expert], scales[expert])
        for end in (BLOCKS, SCALES):
            self._files.release(stem + end)
        return whole.transpose(1, 2)

    def release(self, name: str) -> None:
        if name not in self._shapes:
            self._files.release(name)

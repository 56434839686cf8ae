"""Keys and values stored as whole numbers: what is read back of them.

Each row is cut into groups along d_head, and each group has its own scale (of 4 bits its own minimum too) in float16,
as in KIVI (Liu et al. 2024, section 3) and KVQuant (Hooper et al. 2024), whose other ideas (keys by channel, outliers
apart) are not taken. With groups of 32 these are the formats that llama.cpp calls q8_0 and q4_1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from engine.ops.attention import Append
from engine.ops.base import PassInfo, Shape, Text, at_least_float32

BITS = (8, 4)


def read_back(x: Float[Tensor, "*rows d_head"], bits: int, group: int) -> Float[Tensor, "*rows d_head"]:
    """What is read after ``x`` was stored with 8 or 4 bits a number, in groups of ``group`` numbers of a row.

    A group whose scale is beyond float16 is not finite any more.
    """
    through = _int8 if bits == 8 else _int4
    return torch.cat([through(part) for part in at_least_float32(x).split(group, -1)], -1).to(x.dtype)


def _int8(x: Float[Tensor, "*rows group"]) -> Float[Tensor, "*rows group"]:
    """s = max |x| / 127; q = round(x / s); x̂ = q · s"""
    scale = _float16(x.abs().amax(-1, keepdim=True) / 127)
    return (x / _divisor(scale)).round().clamp(-127, 127) * scale


def _int4(x: Float[Tensor, "*rows group"]) -> Float[Tensor, "*rows group"]:
    """m = min x; s = (max x − m) / 15; q = round((x − m) / s); x̂ = q · s + m"""
    low, high = x.aminmax(dim=-1, keepdim=True)
    scale, low = _float16((high - low) / 15), _float16(low)
    return ((x - low) / _divisor(scale)).round().clamp(0, 15) * scale + low


def _float16(x: Tensor) -> Tensor:
    """Rounded to float16, as it is stored."""
    return x.half().to(x.dtype)


def _divisor(scale: Tensor) -> Tensor:
    """A scale to divide by: 1 where all numbers of a group are alike."""
    return scale.where(scale != 0, 1)


@dataclass(frozen=True, slots=True)
class QuantisedAppend(Append):
    """What a pass attends to where rows are stored as whole numbers: its own rows too are read as they were stored."""

    bits: int
    group: int

    @property
    def text(self) -> Text:
        return Text(
            "Into a quantised KV cache",
            f"cache ← [past ; int{self.bits}(new)]",
            rf"\mathrm{{cache}} \leftarrow [\mathrm{{past}}\,;\,\mathrm{{int}}_{{{self.bits}}}(\mathrm{{new}})]",
            f"Every row is stored with {self.bits} bits a number, and read back a little off. Every {self.group} "
            "numbers of a head share a scale.",
        )

    def run(
        self,
        info: PassInfo,
        past: Float[Tensor, "batch past kv_head d_head"],
        new: Float[Tensor, "batch pos kv_head d_head"],
    ) -> Float[Tensor, "batch kv_pos kv_head d_head"]:
        return Append.run(self, info, past, read_back(new, self.bits, self.group))

    def alias(self, reads: Sequence[Shape]) -> int | None:
        return None

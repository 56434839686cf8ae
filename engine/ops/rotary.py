"""Rotary positions: queries and keys turned by an angle that grows with the position. (Su et al. 2021, RoFormer)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from engine.config import RotaryStyle
from engine.ops.base import Op, PassInfo, Shape, Text


@dataclass(frozen=True, slots=True)
class RotaryTable(Op):
    """cos or sin of pos · θ^(−2i/d_head), float32 whatever the model's dtype. (Su et al. 2021, eq. 15)"""

    float32: ClassVar = True
    function: Literal["cos", "sin"]
    d_head: int
    theta: float

    @property
    def text(self) -> Text:
        f = self.function
        return Text(
            f"Rotary table: {f}",
            f"{f}(pos · θ^(−2i/d_head))",
            rf"\{f}\left(\mathrm{{pos}}\cdot\theta^{{-2i/d_{{\mathrm{{head}}}}}}\right)",
            "Every pair of a head's dimensions is a clock hand with its own speed. This table holds where each hand "
            "stands at each position; it depends on nothing that the model computes.",
        )

    def run(self, info: PassInfo, positions: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_rot"]:
        even = torch.arange(0, self.d_head, 2, device=positions.device, dtype=torch.float32)  # [d_rot]
        inv_freq = 1.0 / self.theta ** (even / self.d_head)  # [d_rot]
        angle = positions.clamp(min=0).float()[..., None] * inv_freq  # [batch pos d_rot]
        return angle.cos() if self.function == "cos" else angle.sin()

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"θ = {self.theta:g}, d_head = {self.d_head}: {out[-1]} pairs"


@dataclass(frozen=True, slots=True)
class Rotate(Op):
    """(a, b) → (a cos − b sin, b cos + a sin) for each pair of dimensions. (Su et al. 2021, eq. 34)

    ``half`` pairs dimension i with i + d_head/2 (GPT-NeoX, Llama as published by Hugging Face); ``interleaved``
    pairs 2i with 2i + 1 (the paper, GPT-J). The products are taken in float32 and rounded once.
    """

    style: RotaryStyle
    TEXT: ClassVar[Text] = Text(
        "Rotation by position",
        "(a, b) → (a·cos − b·sin, b·cos + a·sin)",
        r"\begin{pmatrix}a\\b\end{pmatrix}\mapsto\begin{pmatrix}a\cos - b\sin\\ b\cos + a\sin\end{pmatrix}",
        "Each pair of a head's dimensions is turned by the angle of its position. The length stays; and the score of a "
        "turned query with a turned key depends only on how far apart the two stand.",
    )

    def run(
        self,
        info: PassInfo,
        x: Float[Tensor, "batch pos head d_head"],
        cos: Float[Tensor, "batch pos d_rot"],
        sin: Float[Tensor, "batch pos d_rot"],
    ) -> Float[Tensor, "batch pos head d_head"]:
        cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)  # [batch pos 1 d_rot]
        if self.style == "half":
            a, b = x.chunk(2, dim=-1)  # [batch pos head d_rot] each
            return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2).to(x.dtype)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 3 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        d = out[-1]
        pair = f"i with i + {d // 2}" if self.style == "half" else "2i with 2i + 1"
        return f"d_head = {d}: {d // 2} pairs, {pair}"

"""Rotary positions: queries and keys turned by an angle that grows with the position. (Su et al. 2021, RoFormer)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from engine.config import RotaryStyle
from engine.ops.base import Op, PassInfo, Shape, Text


@cache
def inverse_frequencies(d_head: int, theta: float, device: torch.device) -> Float[Tensor, " d_head/2"]:
    """θ^(−2i/d_head): the angle by which each pair of dimensions turns from one position to the next, in float32."""
    even = torch.arange(0, d_head, 2, device=device, dtype=torch.float32)  # [d_head/2]
    return 1.0 / theta ** (even / d_head)


@dataclass(frozen=True, slots=True)
class RotaryTable(Op):
    """cos, or ±sin, of pos · θ^(−2i/d_head) for every dimension of a head. (Su et al. 2021, eq. 15 and 34)

    Both dimensions of a pair have the same angle; the sine is negative for the first of the two, so that turning is
    one product and one multiply-add. float32 whatever the model's dtype.
    """

    float32: ClassVar = True
    function: Literal["cos", "sin"]
    style: RotaryStyle
    d_head: int
    theta: float

    @property
    def text(self) -> Text:
        f = self.function
        sign, latex = ("", "") if f == "cos" else ("±", r"\pm")
        return Text(
            f"Rotary table: {sign}{f}",
            f"{sign}{f}(pos · θ^(−2i/d_head))",
            rf"{latex}\{f}\left(\mathrm{{pos}}\cdot\theta^{{-2i/d_{{\mathrm{{head}}}}}}\right)",
            "Every pair of a head's dimensions is a clock hand with its own speed. This table holds where each hand "
            "stands at each position; it depends on nothing that the model computes.",
        )

    def run(self, info: PassInfo, positions: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_rot"]:
        angle = positions.float()[..., None] * inverse_frequencies(self.d_head, self.theta, positions.device)
        if self.function == "cos":
            first = second = angle.cos()  # [batch pos d_head/2]
        else:
            second = angle.sin()
            first = -second
        if self.style == "half":
            return torch.cat((first, second), -1)  # [batch pos d_head]
        return torch.stack((first, second), -1).flatten(-2)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"θ = {self.theta:g}, d_head = {self.d_head}: {out[-1] // 2} pairs"


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
        if self.style == "half":
            partner = x.roll(x.shape[-1] // 2, -1)  # [batch pos head d_head], each dimension's partner in its place
        else:
            partner = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return torch.addcmul(x * cos.unsqueeze(2), partner, sin.unsqueeze(2)).to(x.dtype)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 3 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        d = out[-1]
        pair = f"i with i + {d // 2}" if self.style == "half" else "2i with 2i + 1"
        return f"d_head = {d}: {d // 2} pairs, {pair}"

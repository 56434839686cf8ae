"""From an encoder's positions to one vector for the text. (Reimers and Gurevych 2019, Sentence-BERT, section 3)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from engine.config import Pooling
from engine.ops.base import Op, PassInfo, Shape, Text, counted

WORDS = {
    "cls": ("the first token's vector", "x[0]", r"x_0"),
    "last": ("the last token's vector", "x[−1]", r"x_{-1}"),
    "mean": ("the mean over the tokens", "Σ x / n", r"\tfrac{1}{n}\sum_i x_i"),
    "max": ("the largest of each dimension over the tokens", "max x", r"\max_i x_i"),
}


@dataclass(frozen=True, slots=True)
class Pool(Op):
    """One vector for a text, padding left out."""

    how: Pooling

    @property
    def text(self) -> Text:
        words, formula, latex = WORDS[self.how]
        return Text(
            f"Pooled: {self.how}",
            f"s = {formula}",
            f"s = {latex}",
            f"The sentence's vector is {words}; padding does not count. "
            "Two texts are compared by comparing such vectors.",
        )

    def run(
        self, info: PassInfo, x: Float[Tensor, "batch pos d_model"], positions: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch d_model"]:
        real = positions >= 0  # [batch pos]
        if self.how == "mean":
            weights = real.to(x.dtype)
            return (x * weights.unsqueeze(-1)).sum(1) / weights.sum(1, keepdim=True).clamp(min=1e-9)
        if self.how == "max":
            return x.masked_fill(~real.unsqueeze(-1), -torch.inf).amax(1)
        place = torch.arange(x.shape[1], device=x.device).expand_as(real)  # [batch pos]
        at = place.masked_fill(~real, x.shape[1]).amin(1) if self.how == "cls" else place.masked_fill(~real, 0).amax(1)
        return x[torch.arange(x.shape[0], device=x.device), at.clamp(max=x.shape[1] - 1)]

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return prod(reads[0])

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{counted(reads[0][1], 'position')} → 1 vector of {out[-1]}"


@dataclass(frozen=True, slots=True)
class UnitLength(Op):
    """y = x / ‖x‖₂, the norm at least 1e-12."""

    TEXT: ClassVar[Text] = Text(
        "Length 1",
        "s ← s / ‖s‖",
        r"s \leftarrow s / \lVert s \rVert_2",
        "The vector is divided by its length. Then the dot product of two of them is the cosine of their angle: 1 for "
        "the same direction, 0 for nothing in common.",
    )

    def run(self, info: PassInfo, x: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d"]:
        return F.normalize(x, dim=-1)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 3 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{out[-1]} dimensions"

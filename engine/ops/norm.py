"""LayerNorm and RMSNorm: bring every position's vector to one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from engine.ops.base import Op, PassInfo, Shape, Text, at_least_float32


@cache
def _scalar(value: float, dtype: torch.dtype, device: torch.device) -> Float[Tensor, ""]:
    """A number as a tensor; making one anew in every step costs more than the step's arithmetic."""
    return torch.tensor(value, dtype=dtype, device=device)


@dataclass(frozen=True, slots=True)
class LayerNorm(Op):
    """y = (x − μ) / √(σ² + ε) · w + b, over d_model. (Ba et al. 2016, eq. 3 and 4)"""

    eps: float
    TEXT: ClassVar[Text] = Text(
        "LayerNorm",
        "y = (x − μ) / √(σ² + ε) · w + b",
        r"y = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \odot w + b",
        "Each position's vector is centred and divided by its own spread, then scaled and shifted by learned numbers. "
        "What follows always sees vectors of the same size, however large the residual stream has grown.",
    )

    def run(
        self,
        info: PassInfo,
        x: Float[Tensor, "batch pos d_model"],
        weight: Float[Tensor, " d_model"],
        bias: Float[Tensor, " d_model"] | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        return F.layer_norm(x, weight.shape, weight, bias, self.eps)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 8 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"d_model = {out[-1]}, ε = {self.eps:g}"


@dataclass(frozen=True, slots=True)
class RMSNorm(Op):
    """y = x / √(mean(x²) + ε) · w, over d_model, float32 but for w. (Zhang and Sennrich 2019, eq. 4)"""

    eps: float
    TEXT: ClassVar[Text] = Text(
        "RMSNorm",
        "y = x / √(mean(x²) + ε) · w",
        r"y = \frac{x}{\sqrt{\frac{1}{d}\sum_i x_i^2 + \varepsilon}} \odot w",
        "Each position's vector is divided by its root mean square, then scaled by learned numbers. Unlike LayerNorm "
        "it takes no mean away and adds no bias; today's models found that they do not need either.",
    )

    def run(
        self, info: PassInfo, x: Float[Tensor, "batch pos d_model"], weight: Float[Tensor, " d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        wide = at_least_float32(x)
        size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)  # [batch pos 1]
        eps = _scalar(self.eps, wide.dtype, wide.device)
        scale = torch.addcmul(eps, size, size, value=1 / x.shape[-1]).rsqrt_()  # [batch pos 1]
        return (wide * scale).to(x.dtype).mul_(weight)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 4 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"d_model = {out[-1]}, ε = {self.eps:g}"


@dataclass(frozen=True, slots=True)
class NormScale(Op):
    """The number a norm divides by at each position: √(σ² + ε), or √(mean(x²) + ε) where nothing is centred."""

    eps: float
    centred: bool

    @property
    def text(self) -> Text:
        inside, latex = ("σ²", r"\sigma^2") if self.centred else ("mean(x²)", r"\tfrac{1}{d}\sum_i x_i^2")
        return Text(
            "The norm's divisor",
            f"s = √({inside} + ε)",
            rf"s = \sqrt{{{latex} + \varepsilon}}",
            "One number per position: how large its vector is. The norm divides by it, so positions with a large "
            "residual stream are shrunk more.",
        )

    def run(self, info: PassInfo, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos 1"]:
        x = at_least_float32(x)
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        return torch.sqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return (4 if self.centred else 2) * prod(reads[0])

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"d_model = {reads[0][-1]}, ε = {self.eps:g}"

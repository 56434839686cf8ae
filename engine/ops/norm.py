"""LayerNorm and RMSNorm: bring every position's vector, or every head's, to one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from engine.ops.base import Op, PassInfo, Shape, Text, at_least_float32


@cache
def _scalar(value: float, dtype: torch.dtype, device: torch.device) -> Float[Tensor, ""]:
    """A number as a tensor; making one anew in every step costs more than the step's arithmetic."""
    return torch.tensor(value, dtype=dtype, device=device)


@dataclass(frozen=True, slots=True)
class LayerNorm(Op):
    """y = (x − μ) / √(σ² + ε) · w + b, over the last axis. (Ba et al. 2016, eq. 3 and 4)

    Without weights it stops at the quotient; ``biased`` says whether there is a b.
    """

    eps: float
    weighted: bool = True
    biased: bool = True

    @property
    def text(self) -> Text:
        w, b = (" · w" if self.weighted else ""), (" + b" if self.biased else "")
        latex = (r" \odot w" if self.weighted else "") + b
        shifted = " and shifted" if self.biased else ""
        then = f", then scaled{shifted} by learned numbers" if self.weighted else ""
        return Text(
            "LayerNorm",
            f"y = (x − μ) / √(σ² + ε){w}{b}",
            rf"y = \frac{{x - \mu}}{{\sqrt{{\sigma^2 + \varepsilon}}}}{latex}",
            f"Each position's vector is centred and divided by its own spread{then}. "
            "What follows always sees vectors of the same size, however large the residual stream has grown.",
        )

    def run(
        self,
        info: PassInfo,
        x: Float[Tensor, "*rows d"],
        weight: Float[Tensor, " d"] | None = None,
        bias: Float[Tensor, " d"] | None = None,
    ) -> Float[Tensor, "*rows d"]:
        return torch.layer_norm(x, x.shape[-1:], weight, bias, self.eps)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 8 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return _size(out, self.eps)


@dataclass(frozen=True, slots=True)
class RMSNorm(Op):
    """y = x / √(mean(x²) + ε) · w, over the last axis, float32 but for w. (Zhang and Sennrich 2019, eq. 4)

    ``plus_one``: the weight is 1 + w, as Gemma stores it. ``casts_last``: a 16-bit result is rounded once, after the
    weight, and not before it as well.
    """

    eps: float
    weighted: bool = True
    plus_one: bool = False
    casts_last: bool = False

    @property
    def text(self) -> Text:
        weight = "" if not self.weighted else " · (1 + w)" if self.plus_one else " · w"
        latex = "" if not self.weighted else r" \odot (1 + w)" if self.plus_one else r" \odot w"
        then = ", then scaled by learned numbers" if self.weighted else ""
        return Text(
            "RMSNorm",
            f"y = x / √(mean(x²) + ε){weight}",
            rf"y = \frac{{x}}{{\sqrt{{\frac{{1}}{{d}}\sum_i x_i^2 + \varepsilon}}}}{latex}",
            f"Each position's vector is divided by its root mean square{then}. Unlike LayerNorm "
            "it takes no mean away and adds no bias; today's models found that they do not need either.",
        )

    def run(
        self, info: PassInfo, x: Float[Tensor, "*rows d"], weight: Float[Tensor, " d"] | None = None
    ) -> Float[Tensor, "*rows d"]:
        wide = at_least_float32(x)
        size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)  # [*rows 1]
        eps = _scalar(self.eps, wide.dtype, wide.device)
        scale = torch.addcmul(eps, size, size, value=1 / x.shape[-1]).rsqrt_()  # [*rows 1]
        y = wide * scale
        if weight is None:
            return y.to(x.dtype)
        if self.plus_one:
            weight = 1.0 + weight.to(wide.dtype)
        if wide is x:  # nothing to round
            return y.mul_(weight)
        return y.mul_(weight).to(x.dtype) if self.casts_last else y.to(x.dtype).mul_(weight)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 4 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return _size(out, self.eps)


@dataclass(frozen=True, slots=True)
class HeadNorm(Op):
    """A norm of queries or keys, so that their length no longer decides how large a score can be.

    Each head by itself, with one weight for all or one for each (then there are as many ``norm`` weights as heads);
    or with ``across`` all heads of a position together. (Henry et al. 2020; Dehghani et al. 2023)
    """

    norm: LayerNorm | RMSNorm
    across: bool = False

    @property
    def text(self) -> Text:
        text = self.norm.text
        over = "all heads of a position together" if self.across else "each head by itself"
        return Text(
            f"{text.title} of queries or keys",
            text.formula,
            text.latex,
            f"The vectors are brought to one size, {over}, before they are compared. A score then says how well "
            "directions agree and not how long the vectors happen to be, and softmax cannot run away.",
        )

    def run(
        self,
        info: PassInfo,
        x: Float[Tensor, "batch pos head d_head"],
        *weights: Float[Tensor, " d"],
    ) -> Float[Tensor, "batch pos head d_head"]:
        if self.across:
            return self.norm.run(info, x.flatten(-2), *weights).view(x.shape)
        per_norm = 1 + (isinstance(self.norm, LayerNorm) and self.norm.biased)
        if len(weights) <= per_norm:
            return self.norm.run(info, x, *weights)
        heads = [
            self.norm.run(info, x[:, :, h], *weights[h * per_norm : (h + 1) * per_norm]) for h in range(x.shape[2])
        ]
        return torch.stack(heads, dim=2)  # [batch pos head d_head]

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return self.norm.flops(reads, params, out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        heads = f"{out[-2]} heads of {out[-1]}"
        return f"{heads}{' together' if self.across else ''}, ε = {self.norm.eps:g}"


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

    def run(self, info: PassInfo, x: Float[Tensor, "batch pos d"]) -> Float[Tensor, "batch pos 1"]:
        x = at_least_float32(x)
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        return torch.sqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return (4 if self.centred else 2) * prod(reads[0])

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return _size(reads[0], self.eps)


def _size(shape: Shape, eps: float) -> str:
    return f"d_model = {shape[-1]}, ε = {eps:g}"

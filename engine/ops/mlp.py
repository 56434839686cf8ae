"""The FFN between its projections: activation, and the gate of GLU variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from engine.config import Activation
from engine.ops.base import Op, PassInfo, Shape, Text, counted, times


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _gelu_quick(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
    "gelu_quick": _gelu_quick,
    "silu": F.silu,
}

FORMULAS: dict[Activation, tuple[str, str, str]] = {
    "relu": ("ReLU", "max(0, x)", r"\max(0, x)"),
    "gelu": ("GELU", "x · Φ(x)", r"x\,\Phi(x)"),
    "gelu_tanh": (
        "GELU (tanh)",
        "x/2 · (1 + tanh(√(2/π)(x + 0.044715x³)))",
        r"\tfrac{x}{2}\left(1+\tanh\sqrt{2/\pi}\,(x+0.044715x^3)\right)",
    ),
    "gelu_quick": ("GELU (quick)", "x · σ(1.702x)", r"x\,\sigma(1.702x)"),
    "silu": ("SiLU", "x · σ(x)", r"x\,\sigma(x)"),
}


@dataclass(frozen=True, slots=True)
class Activate(Op):
    """post = act(pre): ReLU, GELU (Hendrycks and Gimpel 2016; erf or its tanh form), SiLU."""

    function: Activation
    of: Literal["FFN", "Head"] = "FFN"

    @property
    def text(self) -> Text:
        name, formula, latex = FORMULAS[self.function]
        return Text(
            f"{self.of}: {name}",
            f"post = {formula}, x = pre",
            rf"\mathrm{{post}} = {latex},\; x = \mathrm{{pre}}",
            "Neurons whose pattern is not there are switched off, the others pass. Without this bend the two "
            "projections would be one linear map, and depth would bring nothing."
            if self.of == "FFN"
            else "Dimensions that are not called for are switched off. Without this bend the projection before it and "
            "the unembedding after it would be little more than one linear map.",
        )

    def run(self, info: PassInfo, pre: Float[Tensor, "*rows d_mlp"]) -> Float[Tensor, "*rows d_mlp"]:
        return FUNCTIONS[self.function](pre)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return (1 if self.function == "relu" else 8) * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return _size(out)


@dataclass(frozen=True, slots=True)
class Gate(Op):
    """post = act(pre) · pre_linear; with SiLU this is SwiGLU. (Shazeer 2020, eq. 6)"""

    function: Activation

    @property
    def text(self) -> Text:
        name, formula, latex = FORMULAS[self.function]
        glu = {"silu": "SwiGLU", "relu": "ReGLU"}.get(self.function, "GEGLU")
        return Text(
            f"FFN: {glu}",
            f"post = ({formula}) · pre_linear, x = pre",
            rf"\mathrm{{post}} = \left({latex}\right) \odot \mathrm{{pre\_linear}},\; x = \mathrm{{pre}}",
            f"{name} of the gate says how far each neuron is open; it is multiplied with what the neuron would pass "
            "on. Two projections in, one out: today's models took this over since it learns better for the same size.",
        )

    def run(
        self,
        info: PassInfo,
        pre: Float[Tensor, "*rows d_mlp"],
        pre_linear: Float[Tensor, "*rows d_mlp"],
    ) -> Float[Tensor, "*rows d_mlp"]:
        return FUNCTIONS[self.function](pre).mul_(pre_linear)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return (2 if self.function == "relu" else 6) * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return _size(out)


@dataclass(frozen=True, slots=True)
class ClampedGate(Op):
    """post = g · σ(1.702 g) · (1 + u), with g = min(pre, c) and u = pre_linear within ±c. (gpt-oss, 2025)"""

    clamp: float

    @property
    def text(self) -> Text:
        return Text(
            "FFN: clamped SwiGLU",
            "post = g · σ(1.702 g) · (1 + u), g = min(pre, c), u = clip(pre_linear, ±c)",
            r"\mathrm{post} = g\,\sigma(1.702 g)\,(1 + u),\; g = \min(\mathrm{pre}, c)",
            "The gate says how far each neuron is open; it is multiplied with one more than what the neuron would pass "
            "on. Both are clamped, so that no neuron can grow out of bounds.",
        )

    def run(
        self,
        info: PassInfo,
        pre: Float[Tensor, "*rows d_expert"],
        pre_linear: Float[Tensor, "*rows d_expert"],
    ) -> Float[Tensor, "*rows d_expert"]:
        gate = pre.clamp(max=self.clamp)
        return _gelu_quick(gate).mul_(pre_linear.clamp(-self.clamp, self.clamp).add_(1))

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 9 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{_size(out)}, c = {self.clamp:g}"


def _size(out: Shape) -> str:
    """Positions, of experts with the choices of each, and neurons."""
    rows = times(*out[1:-1])
    return f"{rows} position{'' if rows == '1' else 's'} × {counted(out[-1], 'neuron')}"

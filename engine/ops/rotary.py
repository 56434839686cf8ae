"""Rotary positions: queries and keys turned by an angle that grows with the position. (Su et al. 2021, RoFormer)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, log, pi, prod
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from engine.config import Rotary, RotaryStyle
from engine.ops.base import Op, PassInfo, Shape, Text
from engine.told import SCALINGS


def inverse_frequencies(rotary: Rotary, dims: int, extent: int, device: torch.device) -> Float[Tensor, " dims/2"]:
    """The angle by which each pair of dimensions turns from one position to the next, in float32.

    θ^(−2i/dims), scaled. ``extent`` is one more than the largest position in the pass. (linear: Chen et al. 2023; YaRN:
    Peng et al. 2023, section 3; LongRoPE: Ding et al. 2024; llama3: Dubey et al. 2024, as in the published code)
    """
    return _inverse_frequencies(rotary, dims, regime(rotary, extent), device)


def regime(rotary: Rotary, extent: int) -> int:
    """What of a pass's extent the angles depend on: with dynamic and LongRoPE scaling all beyond ``original_n_ctx``, or
    whether it is beyond; else nothing. Keys of one regime in the cache are not what a pass of another would make."""
    original = rotary.original_n_ctx or 0
    return {"dynamic": max(extent, original), "longrope": int(extent > original)}.get(rotary.scaling, 0)


@lru_cache(maxsize=256)
def _inverse_frequencies(rotary: Rotary, dims: int, length: int, device: torch.device) -> Float[Tensor, " dims/2"]:
    exponent = torch.arange(0, dims, 2, device=device, dtype=torch.float32) / dims  # [dims/2]
    theta: float | Tensor = rotary.theta
    factor, original = rotary.factor, rotary.original_n_ctx or 1
    if rotary.scaling == "dynamic" and length > original:  # in float32 already here, as in the published code
        longer = factor * torch.tensor(length) / original - (factor - 1)
        theta = theta * longer ** (dims / (dims - 2))
    plain = 1.0 / theta**exponent  # [dims/2]
    if rotary.scaling == "linear":
        return plain / factor
    if rotary.scaling == "longrope":
        factors = torch.tensor(rotary.long_factors if length else rotary.short_factors, dtype=torch.float32)
        factors = factors.to(device)  # [dims/2]
        return 1.0 / (factors * theta**exponent)
    if rotary.scaling == "llama3":
        turns = original / (2 * pi / plain)  # [dims/2], over the context it was first trained on
        low, high = rotary.low_freq_factor, rotary.high_freq_factor
        smooth = ((turns - low) / (high - low)).clamp(0, 1)
        return (1 - smooth) * plain / factor + smooth * plain
    if rotary.scaling == "yarn":
        fast = 1 - yarn_ramp(rotary, dims).to(device)  # [dims/2]
        return 1.0 / (factor * theta**exponent) * (1 - fast) + plain * fast
    return plain


def yarn_ramp(rotary: Rotary, dims: int) -> Float[Tensor, " dims/2"]:
    """How far each pair is divided by ``factor``: 0 for those that turn often, 1 for those that hardly do."""

    def pair_with(turns: float) -> float:
        return dims * log((rotary.original_n_ctx or 1) / (turns * 2 * pi)) / (2 * log(rotary.theta))

    low, high = pair_with(rotary.beta_fast), pair_with(rotary.beta_slow)
    if rotary.truncate:
        low, high = float(floor(low)), float(ceil(high))
    low, high = max(low, 0), min(high, dims - 1)
    high += 0.001 if low == high else 0  # a step where the ramp has no width
    return ((torch.arange(dims // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)


@dataclass(frozen=True, slots=True)
class RotaryTable(Op):
    """cos, or ±sin, of pos · θ^(−2i/dims) for every dimension that turns. (Su et al. 2021, eq. 15 and 34)

    Both dimensions of a pair have the same angle; the sine is negative for the first of the two, so that turning is
    one product and one multiply-add. float32 whatever the model's dtype.
    """

    float32: ClassVar = True
    function: Literal["cos", "sin"]
    rotary: Rotary
    dims: int

    @property
    def text(self) -> Text:
        f = self.function
        sign, latex = ("", "") if f == "cos" else ("±", r"\pm")
        scaled = SCALINGS[self.rotary.scaling]
        story = (
            "Every pair of a head's dimensions is a clock hand with its own speed. This table holds where each hand "
            "stands at each position; it depends on nothing that the model computes."
        )
        if scaled:
            story += f" With {scaled} the slow hands are slowed further, for prompts longer than those of training."
        return Text(
            f"Rotary table: {sign}{f}",
            f"{sign}{f}(pos · θ^(−2i/d_rot))" + (f", with {scaled}" if scaled else ""),
            rf"{latex}\{f}\left(\mathrm{{pos}}\cdot\theta^{{-2i/d_{{\mathrm{{rot}}}}}}\right)",
            story,
        )

    def run(self, info: PassInfo, positions: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_rot"]:
        device, extents = positions.device, info.extents or (0,)
        rows = [inverse_frequencies(self.rotary, self.dims, extent, device) for extent in extents]
        alike = all(row is rows[0] for row in rows)
        turn = rows[0] if alike else torch.stack(rows)[:, None]  # [d_rot/2] or [batch 1 d_rot/2]
        angle = positions.float()[..., None] * turn  # [batch pos d_rot/2]
        if self.function == "cos":
            first = second = angle.cos()
        else:
            second = angle.sin()
            first = -second
        half = self.rotary.style == "half"
        table = torch.cat((first, second), -1) if half else torch.stack((first, second), -1).flatten(-2)
        factor = self.rotary.attention_factor
        return table if factor == 1 else table * factor  # [batch pos d_rot]

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{told(self.rotary)}, d_rot = {self.dims}: {out[-1] // 2} pairs"


def told(rotary: Rotary) -> str:
    """θ and the scaling, as people read them."""
    if rotary.scaling == "none":
        return f"θ = {rotary.theta:g}"
    factor = "" if rotary.scaling == "longrope" else f" by {rotary.factor:g}"
    return f"θ = {rotary.theta:g}, {SCALINGS[rotary.scaling]}{factor}"


@dataclass(frozen=True, slots=True)
class Rotate(Op):
    """(a, b) → (a cos − b sin, b cos + a sin) for each pair of dimensions. (Su et al. 2021, eq. 34)

    ``half`` pairs dimension i with i + d_rot/2 (GPT-NeoX, Llama as published by Hugging Face); ``interleaved``
    pairs 2i with 2i + 1 (the paper, GPT-J). The products are taken in float32 and rounded once. Dimensions beyond the
    table's d_rot stay as they are.
    """

    rotary: Rotary
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
        dims = cos.shape[-1]
        if dims == x.shape[-1]:
            return turned(x, cos, sin, self.rotary.style)
        first, rest = x[..., :dims], x[..., dims:]  # [batch pos head d_rot], [batch pos head d_head-d_rot]
        return torch.cat((turned(first, cos, sin, self.rotary.style), rest), -1)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 3 * prod(out[:-1]) * reads[1][-1]

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        d, dims = out[-1], reads[1][-1]
        pair = f"i with i + {dims // 2}" if self.rotary.style == "half" else "2i with 2i + 1"
        part = f"d_head = {d}" if dims == d else f"the first {dims} of d_head = {d}"
        return f"{told(self.rotary)}, {part}: {dims // 2} pairs, {pair}"


def turned(
    x: Float[Tensor, "batch pos head d_rot"],
    cos: Float[Tensor, "batch pos d_rot"],
    sin: Float[Tensor, "batch pos d_rot"],
    style: RotaryStyle,
) -> Float[Tensor, "batch pos head d_rot"]:
    """Every pair of dimensions turned by its angle."""
    partner = x.take(_partner_places(x.shape, style, x.device)) if x.shape[1] == 1 else _partners(x, style)
    if cos.numel() != x.shape[-1]:  # one row fits all heads as it is
        cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)  # [batch pos 1 d_rot]
    y = torch.addcmul(x * cos, partner, sin)
    return y if y.dtype is x.dtype else y.to(x.dtype)


def _partners(x: Num[Tensor, "batch pos head d_rot"], style: RotaryStyle) -> Num[Tensor, "batch pos head d_rot"]:
    """The other of each pair, in its place."""
    if style == "half":
        return x.roll(x.shape[-1] // 2, -1)
    pairs: Tensor = x.unflatten(-1, (-1, 2))  # [batch pos head d_rot/2 2]
    return pairs.flip(-1).flatten(-2)


@lru_cache(maxsize=16)
def _partner_places(shape: Shape, style: RotaryStyle, device: torch.device) -> Int[Tensor, "batch pos head d_rot"]:
    """Where each partner stands, counted through the whole tensor: one fetch in place of several small steps, which
    is what counts where there is but one position."""
    return _partners(torch.arange(prod(shape), device=device).view(shape), style)

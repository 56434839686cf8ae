"""From token ids and positions to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from engine.ops.base import Op, PassInfo, Shape, Text, times


@dataclass(frozen=True, slots=True)
class Embed(Op):
    """Row lookup: x = W_E[token]. (Vaswani et al. 2017, section 3.4)"""

    TEXT: ClassVar[Text] = Text(
        "Token embedding",
        "x = W_E[token]",
        r"x = W_E[\mathrm{token}]",
        "Each token id picks one row of the embedding matrix. From here on a token is this vector of d_model numbers; "
        "nothing yet says where it stands or what is around it.",
    )

    def run(
        self, info: PassInfo, tokens: Int[Tensor, "batch pos"], weight: Float[Tensor, "d_vocab d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        return F.embedding(tokens, weight)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 0

    def touched(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return prod(reads[0]) + 2 * prod(out)  # the rows that are looked up, not the whole matrix

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{out[-2]} of {params[0][0]} rows, d_model = {out[-1]}"


@dataclass(frozen=True, slots=True)
class ScaleEmbedding(Op):
    """x · √d_model, the factor rounded to the model's dtype as it is stored. (Vaswani et al. 2017, section 3.4)"""

    factor: float
    TEXT: ClassVar[Text] = Text(
        "Scaled embedding",
        "x ← x · √d_model",
        r"x \leftarrow x\,\sqrt{d_{\mathrm{model}}}",
        "The embedding is multiplied by √d_model. In the 2017 model this lifts the token's own vector to the size of "
        "the position vector that is added next, so that neither drowns the other.",
    )

    def run(self, info: PassInfo, embed: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        return embed * torch.tensor(self.factor, dtype=embed.dtype).item()

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"√d_model = √{out[-1]} = {self.factor:.6g}"


@dataclass(frozen=True, slots=True)
class LearnedPositions(Op):
    """Row lookup by position: p = W_pos[pos]; padding takes row 0 and is masked later."""

    TEXT: ClassVar[Text] = Text(
        "Learned positions",
        "p = W_pos[pos]",
        r"p = W_{\mathrm{pos}}[\mathrm{pos}]",
        "Attention alone does not see order, so each position has a vector of its own, learned like the embedding. "
        "There are only n_ctx of them: a longer prompt has no position left.",
    )

    def run(
        self, info: PassInfo, positions: Int[Tensor, "batch pos"], weight: Float[Tensor, "n_ctx d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        return F.embedding(positions.clamp(min=0), weight)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 0

    def touched(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return prod(reads[0]) + 2 * prod(out)  # the rows that are looked up, not the whole matrix

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{out[-2]} of {params[0][0]} rows, d_model = {out[-1]}"


@dataclass(frozen=True, slots=True)
class SinusoidalPositions(Op):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same). (Vaswani et al. 2017, section 3.5)

    Computed in float32 and then rounded to the model's dtype.
    """

    d_model: int
    TEXT: ClassVar[Text] = Text(
        "Sinusoidal positions",
        "p[2i] = sin(pos / 10000^(2i/d)),  p[2i+1] = cos(pos / 10000^(2i/d))",
        r"p_{2i} = \sin\frac{\mathrm{pos}}{10000^{2i/d}},\quad p_{2i+1} = \cos\frac{\mathrm{pos}}{10000^{2i/d}}",
        "Each pair of dimensions is a clock hand turning at its own speed, from one turn in about 6 tokens to one in "
        "tens of thousands. Nothing is learned; moving k tokens on turns every hand by a fixed angle.",
    )

    def run(self, info: PassInfo, positions: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        even = torch.arange(0, self.d_model, 2, device=positions.device, dtype=torch.float32)  # [d_model / 2]
        angle = positions.clamp(min=0).float()[..., None] / 10_000 ** (even / self.d_model)  # [batch pos d_model/2]
        table = angle.new_empty(*positions.shape, self.d_model)  # [batch pos d_model]
        table[..., 0::2] = angle.sin()
        table[..., 1::2] = angle.cos()[..., : self.d_model // 2]
        return table.to(info.dtype)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 2 * out[0] * out[1] * out[2]

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{times(*out[-2:])}, d = {self.d_model}"

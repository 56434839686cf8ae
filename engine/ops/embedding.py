"""From token ids and positions to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose, prod, sqrt
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from engine.config import SinusoidStyle
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
    """x · √d_model, or another factor. (Vaswani et al. 2017, section 3.4)

    ``rounded``: the factor is rounded to the model's dtype first, as where it is stored. ``placed``: whether vectors
    for the positions are added next.
    """

    factor: float
    d_model: int
    rounded: bool = True
    placed: bool = True

    @property
    def usual(self) -> bool:
        """Whether it is the paper's √d_model."""
        return isclose(self.factor, sqrt(self.d_model), rel_tol=1e-6)

    @property
    def text(self) -> Text:
        by, latex = ("√d_model", r"\sqrt{d_{\mathrm{model}}}") if self.usual else ("c", "c")
        return Text(
            "Scaled embedding",
            f"x ← x · {by}",
            rf"x \leftarrow x\,{latex}",
            f"The embedding is multiplied by {by if self.usual else 'a number of the config'}. {self._why}",
        )

    @property
    def _why(self) -> str:
        if self.placed:
            return (
                "In the 2017 model this lifts the token's own vector to the size of the position vector that is added "
                "next, so that neither drowns the other."
            )
        if self.usual:
            return (
                "In the 2017 model it was to match the size of the position vectors that were added next. This model "
                "adds none, and the factor sets the size at which the residual stream begins."
            )
        return "It sets the size at which the residual stream begins."

    def run(self, info: PassInfo, embed: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        factor = torch.tensor(self.factor, dtype=embed.dtype).item() if self.rounded else self.factor
        return embed * factor

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"√d_model = √{out[-1]} = {self.factor:.6g}" if self.usual else f"c = {self.factor:.6g}"


@dataclass(frozen=True, slots=True)
class TokenType(Op):
    """t = W_type[0]: every token of a prompt is of the first segment. (Devlin et al. 2018, BERT, section 3)"""

    TEXT: ClassVar[Text] = Text(
        "Segment embedding",
        "t = W_type[0]",
        r"t = W_{\mathrm{type}}[0]",
        "BERT was trained on pairs of texts and marks which of the two a token belongs to. A single prompt is all of "
        "the first, so every position gets the same vector.",
    )

    def run(
        self, info: PassInfo, tokens: Int[Tensor, "batch pos"], weight: Float[Tensor, "types d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        return weight[0].repeat(*tokens.shape, 1)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 0

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"the first of {params[0][0]} rows, d_model = {out[-1]}"


@dataclass(frozen=True, slots=True)
class LearnedPositions(Op):
    """Row lookup by position: p = W_pos[pos + offset]; padding takes the first row and is masked later."""

    offset: int = 0
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
        return F.embedding(positions.clamp(min=0) + self.offset, weight)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 0

    def touched(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return prod(reads[0]) + 2 * prod(out)  # the rows that are looked up, not the whole matrix

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        offset = f", counted from row {self.offset}" if self.offset else ""
        return f"{out[-2]} of {params[0][0]} rows, d_model = {out[-1]}{offset}"


@dataclass(frozen=True, slots=True)
class SinusoidalPositions(Op):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same). (Vaswani et al. 2017, section 3.5)

    Rounded to float32 and then to the model's dtype. "halves": all sines first, then all cosines, as in the
    paper's own code and in Marian.
    """

    d_model: int
    style: SinusoidStyle = "interleaved"
    TEXT: ClassVar[Text] = Text(
        "Sinusoidal positions",
        "p[2i] = sin(pos / 10000^(2i/d)),  p[2i+1] = cos(pos / 10000^(2i/d))",
        r"p_{2i} = \sin\frac{\mathrm{pos}}{10000^{2i/d}},\quad p_{2i+1} = \cos\frac{\mathrm{pos}}{10000^{2i/d}}",
        "Each pair of dimensions is a clock hand turning at its own speed, from one turn in about 6 tokens to one in "
        "tens of thousands. Nothing is learned; moving k tokens on turns every hand by a fixed angle.",
    )

    def run(self, info: PassInfo, positions: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        wide = torch.float32 if positions.device.type == "mps" else torch.float64  # at large positions it shows
        even = torch.arange(0, self.d_model, 2, device=positions.device, dtype=wide)  # [d_model / 2]
        angle = positions.clamp(min=0).to(wide)[..., None] / 10_000 ** (even / self.d_model)  # [batch pos d_model/2]
        if self.style == "halves":
            table = torch.cat((angle.sin(), angle.cos()), -1)[..., : self.d_model]  # [batch pos d_model]
            return table.float().to(info.dtype)
        table = angle.new_empty(*positions.shape, self.d_model)  # [batch pos d_model]
        table[..., 0::2] = angle.sin()
        table[..., 1::2] = angle.cos()[..., : self.d_model // 2]
        return table.float().to(info.dtype)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 2 * out[0] * out[1] * out[2]

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{times(*out[-2:])}, d = {self.d_model}"

"""From the last residual stream to a distribution over the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from engine.ops.base import Op, PassInfo, Shape, Text, at_least_float32, times
from engine.ops.linear import linear


@dataclass(frozen=True, slots=True)
class Unembed(Op):
    """logits = x W_Uᵀ (+ b_U); W_U is the embedding matrix itself where they are tied. (Press and Wolf 2017)"""

    tied: bool
    masked: bool = False

    @property
    def text(self) -> Text:
        matrix = "the embedding matrix itself (tied)" if self.tied else "an unembedding matrix of its own"
        return Text(
            "Logits",
            "logits = x W_Uᵀ",
            r"\mathrm{logits} = x\, W_U^\top",
            f"Each position's last vector is compared with a vector for every token of the vocabulary: {matrix}. "
            + (
                "The larger the logit, the better that token would fit in this place."
                if self.masked
                else "The larger the logit, the more the model expects that token next."
            ),
        )

    def run(
        self,
        info: PassInfo,
        x: Float[Tensor, "batch pos d_model"],
        weight: Float[Tensor, "d_vocab d_model"],
        bias: Float[Tensor, " d_vocab"] | None = None,
    ) -> Float[Tensor, "batch pos d_vocab"]:
        return linear(x, weight, bias)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 2 * prod(out) * reads[0][-1]

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"[{times(out[1], reads[0][-1])}] · [{times(reads[0][-1], out[-1])}] → [{times(*out[1:])}]"


@dataclass(frozen=True, slots=True)
class Probabilities(Op):
    """p = softmax(logits) over the vocabulary, in float32; ``masked``: of the token in this place, not the next."""

    along: ClassVar = {"pos": ("pos",), "batch": ("batch",)}
    masked: bool = False

    @property
    def text(self) -> Text:
        story = (
            "At a masked position it is the prediction of what stands there. The model sees both ways, so there is no "
            "next token to predict."
            if self.masked
            else "At the last position it is the prediction; at the others, what the model would have said there."
        )
        return Text(
            "Probabilities of the token in this place" if self.masked else "Next-token probabilities",
            "p = exp(logit) / Σ exp(logit)",
            r"p_t = \frac{e^{\mathrm{logit}_t}}{\sum_{t'} e^{\mathrm{logit}_{t'}}}",
            f"Softmax turns the logits of each position into a distribution over the whole vocabulary. {story}",
        )

    def run(self, info: PassInfo, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, "batch pos d_vocab"]:
        return at_least_float32(logits).softmax(-1)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 4 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"over {out[-1]} tokens"

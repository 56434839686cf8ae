"""The residual stream: what a block leaves to the next, and what each sub-layer adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from engine.ops.base import Op, PassInfo, Shape, Text


@dataclass(frozen=True, slots=True)
class Add(Op):
    """y = x + f. (He et al. 2015; Vaswani et al. 2017, section 3.1)"""

    TEXT: ClassVar[Text] = Text(
        "Added to the residual stream",
        "y = x + f(x)",
        r"y = x + f(x)",
        "The sub-layer does not replace the vector, it adds to it. So every layer reads and writes one running sum, "
        "and what one layer wrote is still there for all later ones.",
    )

    def run(
        self, info: PassInfo, x: Float[Tensor, "batch pos d_model"], f: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        return x + f


@dataclass(frozen=True, slots=True)
class Carry(Op):
    """y = x: the same tensor under the name by which the next part knows it. Nothing is computed or copied."""

    TEXT: ClassVar[Text] = Text(
        "Carried on",
        "y = x",
        r"y = x",
        "Nothing is computed here, and nothing is copied. The block begins with the stream as the part before has left "
        "it.",
    )

    def run(self, info: PassInfo, x: Float[Tensor, ...]) -> Float[Tensor, ...]:
        return x

    def alias(self, reads: Sequence[Shape]) -> int:
        return 0

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 0

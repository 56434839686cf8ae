"""The residual stream: what a block leaves to the next, and what each sub-layer adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose, prod, sqrt
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from engine.ops.base import Op, PassInfo, Shape, Text, times


@dataclass(frozen=True, slots=True)
class Add(Op):
    """y = x + f, or + f + g in a block whose two sub-layers read the same stream. (He et al. 2015)

    ``of`` says what is added: a sub-layer, both of a parallel block, or what makes up a token's first vector.
    """

    of: Literal["sub-layer", "both", "embedding"] = "sub-layer"

    @property
    def text(self) -> Text:
        if self.of == "embedding":
            return Text(
                "Embeddings added",
                "x = Σ eᵢ",
                r"x = \sum_i e_i",
                "What a token is and what is known of its place become one vector by adding. With this vector the "
                "residual stream begins: every layer reads it and adds to it.",
            )
        both = self.of == "both"
        return Text(
            "Added to the residual stream",
            "y = x + attn_out + mlp_out" if both else "y = x + f(x)",
            r"y = x + \mathrm{attn}(x) + \mathrm{mlp}(x)" if both else r"y = x + f(x)",
            f"{'Both sub-layers do not replace' if both else 'The sub-layer does not replace'} the vector, "
            f"{'they add' if both else 'it adds'} to it. So every layer reads and writes one running sum, "
            "and what one layer wrote is still there for all later ones.",
        )

    def run(
        self, info: PassInfo, x: Float[Tensor, "batch pos d_model"], *f: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        y = x + f[0]
        for more in f[1:]:
            y = y.add_(more)
        return y

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return (len(reads) - 1) * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{' + '.join(f'[{times(*read[1:])}]' for read in reads)} → [{times(*out[1:])}]"


@dataclass(frozen=True, slots=True)
class Multiply(Op):
    """y = c · x, where c is a number of the config. ``title`` says what for.

    ``d_model``: the width of what logits are made of; T5's c is 1/√d_model, where the embedding unembeds as well.
    """

    factor: float
    title: str
    d_model: int | None = None

    @property
    def by_width(self) -> bool:
        """Whether it is T5's 1/√d_model."""
        return self.d_model is not None and isclose(self.factor, 1 / sqrt(self.d_model), rel_tol=1e-6)

    @property
    def text(self) -> Text:
        if self.by_width:
            return Text(
                self.title,
                "y = x / √d_model",
                r"y = x / \sqrt{d_{\mathrm{model}}}",
                "A dot product of d_model numbers has a spread of about √d_model. The embedding matrix, which unembeds "
                "here as well, was not made small for that, so its logits are divided by it.",
            )
        return Text(
            self.title,
            "y = c · x",
            r"y = c\,x",
            "The vector is multiplied by one number that the config gives. Training chose the sizes of everything else "
            "around it.",
        )

    def run(self, info: PassInfo, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        return x * self.factor

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        if self.by_width:
            return f"1/√d_model = 1/√{self.d_model} = {self.factor:.6g}"
        return f"c = {self.factor:.6g}"


@dataclass(frozen=True, slots=True)
class Clip(Op):
    """y = x within ±bound."""

    bound: float
    TEXT: ClassVar[Text] = Text(
        "Clipped",
        "y = clip(x, −c, c)",
        r"y = \mathrm{clip}(x, -c, c)",
        "Numbers beyond ±c are set to ±c. It was put in for stable training; most numbers never come near the bound.",
    )

    def run(self, info: PassInfo, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        return x.clamp(-self.bound, self.bound)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"c = {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Carry(Op):
    """y = x: the same tensor under the name by which the next part knows it. Nothing is computed or copied.

    ``to`` says what the next part is: a block, or the addition to the residual stream.
    """

    to: Literal["block", "stream"] = "block"

    @property
    def text(self) -> Text:
        story = (
            "The block begins with the stream as the part before has left it."
            if self.to == "block"
            else "This is the name under which every model has what a sub-layer adds to its residual stream."
        )
        return Text("Carried on", "y = x", "y = x", f"Nothing is computed here, and nothing is copied. {story}")

    def run(self, info: PassInfo, x: Float[Tensor, ...]) -> Float[Tensor, ...]:
        return x

    def alias(self, reads: Sequence[Shape]) -> int:
        return 0

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 0

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"[{times(*out[1:])}], as it was"

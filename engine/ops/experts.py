"""A mixture of experts: a router picks, for every token, the few FFNs that run. (Shazeer et al. 2017, section 2)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from engine.config import Routing
from engine.ops.base import Op, PassInfo, Shape, Text, at_least_float32, counted, times
from engine.ops.linear import linear
from engine.ops.projection import TEXTS, Role


@dataclass(frozen=True, slots=True)
class ChooseExperts(Op):
    """The numbers of the experts with the highest router scores, the highest first."""

    per_token: int
    int64: ClassVar = True
    TEXT: ClassVar[Text] = Text(
        "Chosen experts",
        "e = the k experts with the highest r",
        r"e = \mathrm{topk}(r)",
        "For each token the experts with the highest scores are chosen. The others do nothing for it.",
    )

    def run(self, info: PassInfo, router: Float[Tensor, "batch pos expert"]) -> Int[Tensor, "batch pos choice"]:
        return router.topk(self.per_token, dim=-1).indices

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return prod(reads[0])

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{out[-1]} of {reads[0][-1]} experts for each of {counted(out[1], 'position')}"


@dataclass(frozen=True, slots=True)
class ExpertWeights(Op):
    """How much each chosen expert counts: softmax of the router's scores, taken in float32.

    Over all experts, and then brought to sum 1 among the chosen where ``normalised`` (Jiang et al. 2024, section 2.1);
    or over the chosen alone.
    """

    routing: Routing
    normalised: bool

    @property
    def text(self) -> Text:
        if self.routing == "softmax of the chosen":
            formula, latex = "w = softmax(r[e])", r"w = \mathrm{softmax}(r_e)"
        else:
            formula, latex = "w = softmax(r)[e]", r"w = \mathrm{softmax}(r)_e"
            if self.normalised:
                formula, latex = f"{formula} / Σ", rf"{latex} / \textstyle\sum"
        return Text(
            "Weights of the experts",
            formula,
            latex,
            "The scores of the chosen experts become weights by softmax. What the experts answer will be mixed in "
            "these shares.",
        )

    def run(
        self,
        info: PassInfo,
        router: Float[Tensor, "batch pos expert"],
        chosen: Int[Tensor, "batch pos choice"],
    ) -> Float[Tensor, "batch pos choice"]:
        scores = at_least_float32(router)
        if self.routing == "softmax of the chosen":
            return scores.gather(-1, chosen).softmax(-1).to(router.dtype)
        weights = scores.softmax(-1).gather(-1, chosen)  # [batch pos choice]
        if self.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(router.dtype)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 4 * prod(reads[0])

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{out[-1]} of {reads[0][-1]} experts"


@dataclass(frozen=True, slots=True)
class ExpertProject(Op):
    """y = x W_eᵀ (+ b_e) with the chosen expert's own weights, for every token and choice.

    ``x`` is one vector per position, or one per position and choice. The weights come expert by expert, then the
    biases.
    """

    role: Role
    experts: int
    biased: bool = False

    @property
    def text(self) -> Text:
        text = TEXTS[self.role]
        story = f"The same as in an FFN, with the weights of each chosen expert. {text.story}"
        if self.role == "expert_out":
            story += " This is one expert's answer; it is weighted and mixed with the others' in the next step."
        return replace(text, title=text.title.replace("FFN", "Experts"), story=story)

    def run(
        self,
        info: PassInfo,
        x: Float[Tensor, "batch pos ... d_in"],
        chosen: Int[Tensor, "batch pos choice"],
        *weights: Float[Tensor, "d_out ..."],
    ) -> Float[Tensor, "batch pos choice d_out"]:
        matrices, biases = weights[: self.experts], weights[self.experts :]
        if info.static:
            return self._of_all(x, chosen, matrices, biases)
        if x.dim() == 3:
            x = x.unsqueeze(2).expand(*chosen.shape, -1)  # [batch pos choice d_in]
        y = x.new_zeros(*chosen.shape, matrices[0].shape[0])  # [batch pos choice d_out]
        for e in chosen.unique().tolist():  # those that run; a GPU is waited for once
            mine = chosen == e  # [batch pos choice]
            y[mine] = linear(x[mine], matrices[e], biases[e] if biases else None)
        return y

    def _of_all(
        self,
        x: Float[Tensor, "batch pos ... d_in"],
        chosen: Int[Tensor, "batch pos choice"],
        matrices: Sequence[Float[Tensor, "d_out d_in"]],
        biases: Sequence[Float[Tensor, " d_out"]],
    ) -> Float[Tensor, "batch pos choice d_out"]:
        """The same without looking which are chosen: every expert runs, and the chosen ones' results are taken."""
        each = [linear(x, matrix, biases[e] if biases else None) for e, matrix in enumerate(matrices)]
        if x.dim() == 3:
            y = torch.stack(each, dim=2)  # [batch pos expert d_out]
            return y.gather(2, chosen.unsqueeze(-1).expand(-1, -1, -1, y.shape[-1]))
        y = torch.stack(each, dim=3)  # [batch pos choice expert d_out]
        return y.gather(3, chosen[..., None, None].expand(-1, -1, -1, 1, y.shape[-1])).squeeze(3)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 2 * prod(out) * params[0][1]

    def touched(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        used = min(self.experts, prod(out[:3]))  # experts that run at most
        return sum(map(prod, reads)) + used * prod(params[0]) + prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        (d_out, d_in), n = params[0], times(*out[1:3])
        return f"{self.experts} experts of [{times(d_in, d_out)}]; {n} runs of one"


@dataclass(frozen=True, slots=True)
class MixExperts(Op):
    """y = Σ w_e · out_e over the chosen experts. ``added``: whether y is added to the residual stream as it is."""

    added: bool = True

    @property
    def text(self) -> Text:
        name, latex = ("mlp_out", r"mlp\_out") if self.added else ("mlp.out", "mlp.out")
        then = (
            "The sum is what the layer adds to the residual stream."
            if self.added
            else "Before the sum is added to the residual stream, one more step is taken with it."
        )
        return Text(
            "Experts mixed",
            f"{name} = Σ w_e · out_e",
            rf"\mathrm{{{latex}}} = \sum_e w_e\, \mathrm{{out}}_e",
            f"What the chosen experts answer is mixed in the router's shares. {then}",
        )

    def run(
        self,
        info: PassInfo,
        out: Float[Tensor, "batch pos choice d_model"],
        weights: Float[Tensor, "batch pos choice"],
    ) -> Float[Tensor, "batch pos d_model"]:
        return (at_least_float32(out) * weights.unsqueeze(-1)).sum(2).to(out.dtype)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 2 * prod(reads[0])

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{reads[0][2]} experts each"

"""Linear maps: y = x Wᵀ + b, with W as torch.nn.Linear stores it, [out, in]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from engine.ops.base import Op, PassInfo, Shape, Text, at_least_float32, times
from engine.ops.linear import linear

Role = Literal[
    "query", "key", "value", "attn_out", "up", "gate", "linear_up", "down", "embed_in", "embed_out", "head", "pool",
    "router", "expert_out", "cross_query", "cross_key", "cross_value", "cross_out",
]  # fmt: skip

TEXTS: dict[Role, Text] = {
    "query": Text(
        "Queries",
        "q = x W_Qᵀ",
        r"q = x W_Q^\top",
        "Every position asks a question: a projection of its vector, cut into heads of d_head numbers. "
        "A head compares this query with the keys of all positions that it may look at.",
    ),
    "key": Text(
        "Keys",
        "k = x W_Kᵀ",
        r"k = x W_K^\top",
        "Every position also puts up a label by which it can be found: its key. Where a query and a key point the same "
        "way, the score is high. With fewer key-value heads than query heads (GQA), several query heads share one.",
    ),
    "value": Text(
        "Values",
        "v = x W_Vᵀ",
        r"v = x W_V^\top",
        "The value is what a position hands over when it is looked at. Keys decide how much is taken from a position, "
        "values decide what is taken.",
    ),
    "attn_out": Text(
        "Output projection",
        "attn_out = concat(z₁ … z_h) W_Oᵀ",
        r"\mathrm{attn\_out} = \mathrm{concat}(z_1,\dots,z_h)\, W_O^\top",
        "The heads' results stand side by side and are mapped back to d_model. This is exactly what attention adds to "
        "the residual stream; it is also the sum of each head's own share.",
    ),
    "up": Text(
        "FFN: up",
        "pre = x W_upᵀ",
        r"\mathrm{pre} = x W_{\mathrm{up}}^\top",
        "Each position alone is compared with d_mlp learned patterns, one per neuron. "
        "A large positive number says: this pattern is here.",
    ),
    "gate": Text(
        "FFN: gate",
        "pre = x W_gateᵀ",
        r"\mathrm{pre} = x W_{\mathrm{gate}}^\top",
        "The first of two projections to d_mlp. Its activation says, neuron by neuron, how far the gate is open for "
        "what the second one brings.",
    ),
    "linear_up": Text(
        "FFN: up",
        "pre_linear = x W_upᵀ",
        r"\mathrm{pre\_linear} = x W_{\mathrm{up}}^\top",
        "The second projection to d_mlp, with no activation of its own. It says what each neuron would pass on if its "
        "gate were open.",
    ),
    "down": Text(
        "FFN: down",
        "mlp_out = post W_downᵀ",
        r"\mathrm{mlp\_out} = \mathrm{post}\, W_{\mathrm{down}}^\top",
        "Every active neuron adds its own vector, weighted by how active it is. The sum is exactly what the FFN adds "
        "to the residual stream.",
    ),
}

TEXTS |= {
    "embed_in": Text(
        "Embedding to d_model",
        "x ← x W_inᵀ",
        r"x \leftarrow x W_{\mathrm{in}}^\top",
        "The token embedding of this model is narrower than its residual stream. A projection widens it.",
    ),
    "embed_out": Text(
        "Back to the embedding's width",
        "x ← x W_outᵀ",
        r"x \leftarrow x W_{\mathrm{out}}^\top",
        "The last stream is narrowed to the width of the token embedding. It is compared with its rows next.",
    ),
    "head": Text(
        "Head: dense",
        "h = x W_headᵀ",
        r"h = x W_{\mathrm{head}}^\top",
        "Before the unembedding this model has one more layer. In it the stream is made ready for guessing the token "
        "that stands, or is masked, at each position.",
    ),
    "pool": Text(
        "Sentence vector: dense",
        "s ← s Wᵀ",
        r"s \leftarrow s W^\top",
        "The pooled vector goes through one more linear map. It was trained so that texts of like meaning come out "
        "close to each other.",
    ),
    "router": Text(
        "Router",
        "r = x W_routerᵀ",
        r"r = x W_{\mathrm{router}}^\top",
        "A small projection scores every expert for every token. Only the few with the highest scores will run, so the "
        "model can be large while each token pays for a small part of it.",
    ),
    "expert_out": Text(
        "Experts: down",
        "out_e = post W_downᵀ",
        r"\mathrm{out}_e = \mathrm{post}\, W_{\mathrm{down}}^\top",
        "Every active neuron adds its own vector, weighted by how active it is.",
    ),
    "cross_query": Text(
        "Queries to the source",
        "q = x W_Qᵀ",
        r"q = x W_Q^\top",
        "Every position of the decoder asks a question, a query for each head. It is not about the decoder's own text "
        "but about the source, which the encoder has read.",
    ),
    "cross_key": Text(
        "Keys of the source",
        "k = memory W_Kᵀ",
        r"k = \mathrm{memory}\, W_K^\top",
        "The keys are made from the memory: what the encoder made of the source, one vector for each of its positions. "
        "They depend on the source alone, so they stay the same for every token that the decoder writes.",
    ),
    "cross_value": Text(
        "Values of the source",
        "v = memory W_Vᵀ",
        r"v = \mathrm{memory}\, W_V^\top",
        "The value is what a position of the source hands over when the decoder looks at it. Like the keys, the values "
        "are made from the memory, what the encoder made of the source.",
    ),
    "cross_out": Text(
        "Output projection",
        "cross_attn_out = concat(z₁ … z_h) W_Oᵀ",
        r"\mathrm{cross\_attn\_out} = \mathrm{concat}(z_1,\dots,z_h)\, W_O^\top",
        "What the heads took from the source stands side by side and is mapped back to d_model. This is exactly what "
        "cross-attention adds to the decoder's residual stream.",
    ),
}

BEFORE_MORE: dict[Role, Text] = {
    "attn_out": Text(
        "Output projection",
        "attn.out = concat(z₁ … z_h) W_Oᵀ",
        r"\mathrm{attn.out} = \mathrm{concat}(z_1,\dots,z_h)\, W_O^\top",
        "The heads' results stand side by side and are mapped back to d_model. Before it is added to the residual "
        "stream, one more step is taken with it.",
    ),
    "cross_out": Text(
        "Output projection",
        "cross_attn.out = concat(z₁ … z_h) W_Oᵀ",
        r"\mathrm{cross\_attn.out} = \mathrm{concat}(z_1,\dots,z_h)\, W_O^\top",
        "What the heads took from the source stands side by side and is mapped back to d_model. Before it is added to "
        "the residual stream, one more step is taken with it.",
    ),
    "down": Text(
        "FFN: down",
        "mlp.out = post W_downᵀ",
        r"\mathrm{mlp.out} = \mathrm{post}\, W_{\mathrm{down}}^\top",
        "Every active neuron adds its own vector, weighted by how active it is. Before the sum is added to the "
        "residual stream, one more step is taken with it.",
    ),
}
"""The same where a norm or a multiplier stands between a sub-layer and the residual stream."""

BIASES: dict[Role, str] = {
    "query": "b_Q", "key": "b_K", "value": "b_V", "attn_out": "b_O",
    "cross_query": "b_Q", "cross_key": "b_K", "cross_value": "b_V", "cross_out": "b_O",
}  # fmt: skip
"""How a bias is written; b where a role is not named."""


@dataclass(frozen=True, slots=True)
class Project(Op):
    """y = x Wᵀ + b over the last axis. (Vaswani et al. 2017, sections 3.2.2 and 3.3)

    ``added``: whether what a sub-layer makes here is added to the residual stream as it is.
    """

    role: Role
    biased: bool = field(default=False, kw_only=True)
    added: bool = field(default=True, kw_only=True)

    @property
    def text(self) -> Text:
        text = TEXTS[self.role] if self.added else BEFORE_MORE[self.role]
        if not self.biased:
            return text
        bias = BIASES.get(self.role, "b")
        return replace(text, formula=f"{text.formula} + {bias}", latex=f"{text.latex} + {bias}")

    def run(
        self,
        info: PassInfo,
        x: Float[Tensor, "*rows d_in"],
        weight: Float[Tensor, "d_out d_in"],
        bias: Float[Tensor, " d_out"] | None = None,
    ) -> Float[Tensor, "*rows d_out"]:
        return linear(x, weight, bias)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 2 * prod(out) * params[0][1]

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        n, (d_out, d_in) = prod(out[1:]) // params[0][0], params[0]
        bias = f" + [{d_out}]" if len(params) > 1 else ""
        return f"[{times(n, d_in)}] · [{times(d_in, d_out)}]{bias} → [{times(n, d_out)}]"


@dataclass(frozen=True, slots=True)
class ProjectToHeads(Project):
    """The same map, its result cut into heads."""

    d_head: int = 1

    def run(
        self,
        info: PassInfo,
        x: Float[Tensor, "batch pos d_model"],
        weight: Float[Tensor, "head*d_head d_model"],
        bias: Float[Tensor, " head*d_head"] | None = None,
    ) -> Float[Tensor, "batch pos head d_head"]:
        y = linear(x, weight, bias)  # [batch pos head*d_head]
        return y.view(y.shape[0], y.shape[1], -1, self.d_head)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{Project.numbers(self, reads, params, out)} = {out[-2]} heads of {out[-1]}"


@dataclass(frozen=True, slots=True)
class ProjectFromHeads(Project):
    """The heads side by side, mapped back to d_model."""

    def run(
        self,
        info: PassInfo,
        z: Float[Tensor, "batch pos head d_head"],
        weight: Float[Tensor, "d_model head*d_head"],
        bias: Float[Tensor, " d_model"] | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        return linear(z.flatten(-2), weight, bias)  # [batch pos head*d_head] -> [batch pos d_model]


@dataclass(frozen=True, slots=True)
class HeadResult(Op):
    """Each head's share of ``out``: z_h · W_O[:, h]ᵀ, in float32. The shares and the bias add up to it."""

    out: str = "attn_out"
    along: ClassVar = {"pos": ("pos",), "batch": ("batch",), "head": ("head",)}
    along_weight: ClassVar = {"head": 1}

    @property
    def text(self) -> Text:
        adds = "adds to the residual stream" if self.out.endswith("_out") else "puts in"
        return Text(
            "Each head's share",
            "result_h = z_h W_O[h]ᵀ",
            r"\mathrm{result}_h = z_h\, W_O^{(h)\top}",
            f"The output projection taken apart: what each head alone {adds}. "
            f"Summed over the heads (and the bias) it is {self.out}.",
        )

    def run(
        self,
        info: PassInfo,
        z: Float[Tensor, "batch pos head d_head"],
        weight: Float[Tensor, "d_model head*d_head"],
    ) -> Float[Tensor, "batch pos head d_model"]:
        per_head = at_least_float32(weight).unflatten(-1, z.shape[-2:])  # [d_model head d_head]
        return torch.einsum("bphd,mhd->bphm", at_least_float32(z), per_head)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 2 * prod(out) * reads[0][-1]

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{out[-2]} heads: [{times(out[1], reads[0][-1])}] · [{times(reads[0][-1], out[-1])}]"

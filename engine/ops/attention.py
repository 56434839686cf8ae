"""Attention: softmax(QKᵀ / √d_head) V, fused on the path, and step by step off it. (Vaswani et al. 2017, section 3.2)

The fused kernel gives z without ever writing scores. Scores, scaled scores, masked scores and pattern are steps
too, computed in float32 from the same queries and keys when somebody looks, for all or for a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from engine.ops.base import Op, PassInfo, Shape, Text, at_least_float32, times
from engine.ops.kernels import fused_attention
from engine.ops.mask import attention_mask, no_key

SAME_CELLS = {"batch": ("batch",), "head": ("head",), "query": ("query",)}


def per_query_head(kv: Float[Tensor, "batch pos kv_head d_head"], heads: int) -> Float[Tensor, "batch pos head d_head"]:
    """Keys or values with one entry per query head: each kv head is repeated for the query heads that share it."""
    return kv if kv.shape[2] == heads else kv.repeat_interleave(heads // kv.shape[2], dim=2)


def score_scale(d_head: int) -> float:
    """1/√d_head, by which scores are multiplied."""
    return 1 / sqrt(d_head)


@dataclass(frozen=True, slots=True)
class Append(Op):
    """What a pass attends to: the keys (or values) of earlier passes, then its own."""

    what: str
    TEXT: ClassVar[Text] = Text(
        "Into the KV cache",
        "cache ← [past ; new]",
        r"\mathrm{cache} \leftarrow [\mathrm{past}\,;\,\mathrm{new}]",
        "Keys and values of earlier tokens do not change any more, so they are kept instead of computed again. "
        "A new token adds one row per layer; that is all the KV cache is.",
    )

    def run(
        self,
        info: PassInfo,
        past: Float[Tensor, "batch past kv_head d_head"],
        new: Float[Tensor, "batch pos kv_head d_head"],
    ) -> Float[Tensor, "batch kv_pos kv_head d_head"]:
        return new if past.shape[1] == 0 else torch.cat((past, new), dim=1)

    def alias(self, reads: Sequence[Shape]) -> int | None:
        return 1 if reads[0][1] == 0 else None

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 0

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{reads[0][1]} earlier + {reads[1][1]} new = {out[1]} {self.what}, {out[2]} kv heads of {out[3]}"


@dataclass(frozen=True, slots=True)
class Scores(Op):
    """q kᵀ for every head, query and key, in float32."""

    hides: ClassVar = True
    along: ClassVar = {"batch": ("batch", "batch"), "head": ("head", "kv_head"), "query": ("pos", None)}
    TEXT: ClassVar[Text] = Text(
        "Scores",
        "score = q · k",
        r"S = Q K^\top",
        "Every query is compared with every key by a dot product. A large score says that this position has what that "
        "query asks for. Nothing is hidden yet: even positions to come have a score here.",
    )

    def run(
        self,
        info: PassInfo,
        q: Float[Tensor, "batch pos head d_head"],
        k: Float[Tensor, "batch kv_pos kv_head d_head"],
    ) -> Float[Tensor, "batch head query key"]:
        k = per_query_head(at_least_float32(k), q.shape[2])
        return at_least_float32(q).transpose(1, 2) @ k.permute(0, 2, 3, 1)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 2 * prod(out) * reads[0][-1]

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        d = reads[0][-1]
        shared = f", {out[1] // reads[1][2]} query heads share a key head" if out[1] != reads[1][2] else ""
        return f"{out[1]} heads: [{times(out[2], d)}] · [{times(d, out[3])}] → [{times(*out[2:])}]{shared}"


@dataclass(frozen=True, slots=True)
class Scale(Op):
    """score / √d_head. (Vaswani et al. 2017, section 3.2.1)"""

    d_head: int
    hides: ClassVar = True
    along: ClassVar = SAME_CELLS
    TEXT: ClassVar[Text] = Text(
        "Scaled scores",
        "scaled = score / √d_head",
        r"\frac{Q K^\top}{\sqrt{d_{\mathrm{head}}}}",
        "A dot product of d_head random numbers has a spread of about √d_head. Dividing by it keeps the scores near 1, "
        "so that softmax stays soft and can learn.",
    )

    def run(
        self, info: PassInfo, scores: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        return scores * score_scale(self.d_head)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"√d_head = √{self.d_head} = {sqrt(self.d_head):.4g}"


@dataclass(frozen=True, slots=True)
class Mask(Op):
    """−∞ where a query may not attend to a key."""

    causal: bool
    hides: ClassVar = True
    along: ClassVar = {
        "batch": ("batch", "batch", "batch"),
        "head": ("head", None, None),
        "query": ("query", "pos", None),
    }

    @property
    def text(self) -> Text:
        if not self.causal:
            return Text(
                "Masked scores",
                "masked = scaled, −∞ at padding",
                r"M_{ij} = -\infty \text{ if } j \text{ is padding}",
                "This model looks both ways, so only padding is hidden. A score of −∞ becomes a weight of exactly 0.",
            )
        return Text(
            "Masked scores",
            "masked = scaled, −∞ where key > query",
            r"M_{ij} = \begin{cases} S_{ij}/\sqrt{d} & j \le i\\ -\infty & j > i \end{cases}",
            "A position may look at itself and at what came before, never ahead: the answer would be in the question. "
            "A score of −∞ becomes a weight of exactly 0.",
        )

    def run(
        self,
        info: PassInfo,
        scaled: Float[Tensor, "batch head query key"],
        positions: Int[Tensor, "batch pos"],
        key_positions: Int[Tensor, "batch kv_pos"],
    ) -> Float[Tensor, "batch head query key"]:
        allowed = attention_mask(positions, key_positions, causal=self.causal)  # [batch query key]
        return scaled.masked_fill(~allowed[:, None], -torch.inf)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{out[2]} queries × {out[3]} keys"


@dataclass(frozen=True, slots=True)
class Softmax(Op):
    """exp(s) / Σ exp(s) over the keys; a row that may attend to nothing is zeros."""

    along: ClassVar = SAME_CELLS
    unseen: ClassVar = 0.0
    TEXT: ClassVar[Text] = Text(
        "Softmax over keys",
        "p = eˢ / Σ eˢ",
        r"P_{ij} = \frac{e^{M_{ij}}}{\sum_{j'} e^{M_{ij'}}}",
        "Each row of scores becomes weights that add up to 1: how much of each position's value this query takes. "
        "The largest score gets the most, and the gap grows exponentially.",
    )

    def run(
        self, info: PassInfo, masked: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        return masked.softmax(-1).masked_fill_(no_key(masked), 0.0)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 4 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{out[1]} heads × {out[2]} rows over {out[3]} keys"


@dataclass(frozen=True, slots=True)
class Attention(Op):
    """z = softmax(q kᵀ / √d_head + mask) v in one fused kernel. (Dao et al. 2022, FlashAttention)

    Reads the positions of queries and keys where a mask may be needed. ``is_causal`` is only given where every
    query has as many keys as its own row number, that is for a dense block with no past.
    """

    d_head: int
    causal: bool
    TEXT: ClassVar[Text] = Text(
        "Weighted values",
        "z = softmax(q kᵀ / √d_head) v",
        r"z = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{d_{\mathrm{head}}}}\right) V",
        "Every position takes a mixture of values, weighted by its pattern. One fused kernel does scores, mask, "
        "softmax and mixture together and never writes the N × N scores; the steps before show what it would have "
        "written.",
    )

    def run(
        self,
        info: PassInfo,
        q: Float[Tensor, "batch pos head d_head"],
        k: Float[Tensor, "batch kv_pos kv_head d_head"],
        v: Float[Tensor, "batch kv_pos kv_head d_head"],
        positions: Int[Tensor, "batch pos"],
        key_positions: Int[Tensor, "batch kv_pos"],
    ) -> Float[Tensor, "batch pos head d_head"]:
        queries, keys = q.shape[1], k.shape[1]
        square = info.dense and queries == keys
        whole = info.dense and (not self.causal or queries == 1)
        mask = None
        if not (square or whole):
            mask = attention_mask(positions, key_positions, causal=self.causal)[:, None]  # [batch 1 query key]
        return fused_attention(info, q, k, v, mask, is_causal=self.causal and square, scale=score_scale(self.d_head))

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return (4 * out[3] + 4) * out[0] * out[1] * out[2] * reads[1][1]

    def scratch(self, reads: Sequence[Shape], out: Shape, itemsize: int) -> int:
        batch, queries, keys = reads[0][0], reads[0][1], reads[1][1]
        if batch == 1 and queries in (1, keys):
            return 0
        return batch * queries * keys * (1 + itemsize)  # a batch may be padded: the mask, and its form in the kernel

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{out[2]} heads of {out[3]}: {out[1]} queries, {reads[1][1]} keys, √d_head = {sqrt(self.d_head):.4g}"

"""Attention: softmax(QKᵀ / √d_head) V, fused on the path, and step by step off it. (Vaswani et al. 2017, section 3.2)

The fused kernel gives z without ever writing scores. Scores, scaled, capped and masked scores and pattern are steps
too, computed in float32 from the same queries and keys when somebody looks, for all or for a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from engine.cache import Held
from engine.ops.base import Op, PassInfo, Shape, Text, at_least_float32, counted, times
from engine.ops.kernels import fused_attention, note_explicit
from engine.ops.mask import attention_mask, no_key
from engine.ops.position_bias import Alibi

CELLS_AT_ONCE = 4 * 1024 * 1024
"""Attention cells that are written out in one go, where no kernel spares writing them."""

Looks = Literal["back", "both ways", "at the source"]
"""Where queries look: at what came before, at all of their own text, or from a decoder at its encoder's."""

SAME_CELLS = {"batch": ("batch",), "head": ("head",), "query": ("query",)}


def per_query_head(kv: Float[Tensor, "batch pos kv_head d_head"], heads: int) -> Float[Tensor, "batch pos head d_head"]:
    """Keys or values with one entry per query head: each kv head is repeated for the query heads that share it."""
    return kv if kv.shape[2] == heads else kv.repeat_interleave(heads // kv.shape[2], dim=2)


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
        if past.shape[1] == 0:
            return new
        if info.append is not None:
            return info.append(past, new)
        return Held.of(past, info.start - past.shape[1]).append(new).rows

    def alias(self, reads: Sequence[Shape]) -> int | None:
        return 1 if reads[0][1] == 0 else None

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 0

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        earlier, new = reads[0][1], reads[1][1]
        first = f"{earlier} earlier + {new} new = " if earlier else ""  # none too where all passes are seen together
        held = counted(out[1], self.what.removesuffix("s"))
        return f"{first}{held}, {counted(out[2], 'kv head')} of {out[3]}"


@dataclass(frozen=True, slots=True)
class Scores(Op):
    """q kᵀ for every head, query and key, in float32."""

    looks: Looks = "back"
    hides: ClassVar = True
    along: ClassVar = {"batch": ("batch", "batch"), "head": ("head", "kv_head"), "query": ("pos", None)}

    @property
    def text(self) -> Text:
        who = (
            "query of the decoder is compared with every key of the source"
            if self.looks == "at the source"
            else ("query is compared with every key")
        )
        hidden = "positions to come have" if self.looks == "back" else "padding has"
        return Text(
            "Scores",
            "score = q · k",
            r"S = Q K^\top",
            f"Every {who} by a dot product. A large score says that this position has what that query asks for. "
            f"Nothing is hidden yet: even {hidden} a score here.",
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
        return f"{counted(out[1], 'head')}: [{times(out[2], d)}] · [{times(d, out[3])}] → [{times(*out[2:])}]{shared}"


@dataclass(frozen=True, slots=True)
class Scale(Op):
    """score / √d_head, or times what the model has in its place. (Vaswani et al. 2017, section 3.2.1)"""

    d_head: int
    own: float | None = None
    hides: ClassVar = True
    along: ClassVar = SAME_CELLS

    @property
    def usual(self) -> bool:
        """Whether it is the paper's 1/√d_head."""
        return self.factor == 1 / sqrt(self.d_head)

    @property
    def factor(self) -> float:
        """What scores are multiplied by."""
        return 1 / sqrt(self.d_head) if self.own is None else self.own

    @property
    def text(self) -> Text:
        if self.factor == 1 and not self.usual:
            return Text(
                "Scaled scores",
                "scaled = score",
                r"Q K^\top",
                "The paper divides scores by √d_head. This model takes them as they are: its weights were trained to "
                "make them of the right size.",
            )
        if not self.usual:
            return Text(
                "Scaled scores",
                "scaled = score · scale",
                r"c\, Q K^\top",
                "Scores are multiplied by a number of the model's own in place of the paper's 1/√d_head. The purpose "
                "is the same: softmax stays soft and can learn.",
            )
        return Text(
            "Scaled scores",
            "scaled = score / √d_head",
            r"\frac{Q K^\top}{\sqrt{d_{\mathrm{head}}}}",
            "A dot product of d_head random numbers has a spread of about √d_head (√d_k in the paper). Dividing by it "
            "keeps the scores near 1, so that softmax stays soft and can learn.",
        )

    def run(
        self, info: PassInfo, scores: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        return scores * self.factor

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        root = f"√d_head = √{self.d_head} = {sqrt(self.d_head):.4g}"
        return (
            root if self.usual else f"scale = {self.factor:.6g}, where 1/√d_head would be {1 / sqrt(self.d_head):.4g}"
        )


@dataclass(frozen=True, slots=True)
class SoftCap(Op):
    """y = cap · tanh(x / cap): no value beyond ±cap, and small ones hardly changed. (Gemma 2, 2024, section 2)

    ``of`` says what is capped, scores or logits.
    """

    cap: float
    of: Literal["scores", "logits"] = "scores"
    hides: ClassVar = True
    along: ClassVar = SAME_CELLS

    @property
    def text(self) -> Text:
        return Text(
            f"Soft-capped {self.of}",
            "capped = cap · tanh(x / cap)",
            r"c \tanh(x / c)",
            f"No {self.of[:-1]} may grow beyond ±cap, so that one cannot drown all others. Those far below the cap "
            "are left almost as they are.",
        )

    def run(self, info: PassInfo, x: Float[Tensor, "*cells"]) -> Float[Tensor, "*cells"]:
        return soft_capped(x, self.cap)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 3 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"cap = {self.cap:g}"


def soft_capped(x: Float[Tensor, "*cells"], cap: float) -> Float[Tensor, "*cells"]:
    """cap · tanh(x / cap)"""
    return (x / cap).tanh_() * cap


@dataclass(frozen=True, slots=True)
class Mask(Op):
    """−∞ where a query may not attend to a key. ``cross``: the keys are those of another text, the source."""

    causal: bool
    window: int | None = None
    cross: bool = False
    hides: ClassVar = True
    along: ClassVar = {
        "batch": ("batch", "batch", "batch"),
        "head": ("head", None, None),
        "query": ("query", "pos", None),
    }

    @property
    def text(self) -> Text:
        far, far_latex, far_story = "", "", ""
        if self.window is not None:
            far = ", and where it is W or more away"
            far_latex = r" \text{ or } |i - j| \ge W"
            far_story = f" This layer has a sliding window: it looks at most {self.window - 1} positions away."
        if not self.causal:
            if self.cross:
                seen = "The decoder may look at all of the source, whatever it has written, so only padding is hidden."
            elif self.window is None:
                seen = (
                    "Queries and keys stand at the same places of one text, and each may look at all of it: only "
                    "padding is hidden."
                )
            else:
                seen = (
                    "A position may look before it and after it, but this layer has a sliding window: what is more "
                    f"than {self.window - 1} positions away is hidden, and so is padding."
                )
            return Text(
                "Masked scores",
                f"masked = scores, −∞ at padding{far}",
                rf"M_{{ij}} = -\infty \text{{ if }} j \text{{ is padding}}{far_latex}",
                f"{seen} A score of −∞ becomes a weight of exactly 0.",
            )
        return Text(
            "Masked scores",
            f"masked = scores, −∞ where key > query{far}",
            rf"M_{{ij}} = -\infty \text{{ if }} j > i{far_latex}",
            "A position may look at itself and at what came before, never ahead: the answer would be in the question. "
            "A score of −∞ becomes a weight of exactly 0." + far_story,
        )

    def allowed(
        self, positions: Int[Tensor, "batch pos"], key_positions: Int[Tensor, "batch kv_pos"]
    ) -> Bool[Tensor, "batch query key"]:
        """True where a query may attend to a key."""
        return attention_mask(positions, key_positions, causal=self.causal, window=self.window)

    def of_held(self, key_positions: Int[Tensor, "batch kv_pos"], keys: int) -> Int[Tensor, "batch key"]:
        """The positions of the keys that are held: the last ones, where a window has let go of the others."""
        return key_positions if key_positions.shape[1] == keys else key_positions[:, -keys:]

    def run(
        self,
        info: PassInfo,
        scores: Float[Tensor, "batch head query key"],
        positions: Int[Tensor, "batch pos"],
        key_positions: Int[Tensor, "batch kv_pos"],
    ) -> Float[Tensor, "batch head query key"]:
        allowed = self.allowed(positions, self.of_held(key_positions, scores.shape[-1]))  # [batch query key]
        return scores.masked_fill(~allowed[:, None], -torch.inf)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        window = "" if self.window is None else f", W = {self.window}"
        return f"{counted(out[2], 'query', 'queries')} × {counted(out[3], 'key')}{window}"


@dataclass(frozen=True, slots=True)
class Softmax(Op):
    """exp(s) / Σ exp(s) over the keys; a row that may attend to nothing is zeros."""

    cross: bool = False
    along: ClassVar = SAME_CELLS
    unseen: ClassVar = 0.0

    @property
    def text(self) -> Text:
        where, whose = (" of the source", " of the decoder") if self.cross else ("", "")
        return Text(
            f"Softmax over keys{where}",
            "p = eˢ / Σ eˢ",
            r"P_{ij} = \frac{e^{M_{ij}}}{\sum_{j'} e^{M_{ij'}}}",
            f"Each row of scores becomes weights that add up to 1: how much of the value of each position{where} this "
            f"query{whose} takes. The largest score gets the most, and the gap grows exponentially.",
        )

    def run(
        self, info: PassInfo, masked: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        return masked.softmax(-1).masked_fill_(no_key(masked), 0.0)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 4 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return _rows_over_keys(out)


def _rows_over_keys(out: Shape) -> str:
    return f"{counted(out[1], 'head')} × {counted(out[2], 'row')} over {counted(out[3], 'key')}"


@dataclass(frozen=True, slots=True)
class Sinks(Op):
    """One learned score for each head. (gpt-oss, 2025)"""

    TEXT: ClassVar[Text] = Text(
        "Attention sinks",
        "sink_h = a learned number",
        r"s_h",
        "Every head has one more score that belongs to no key, the same for every query. It will compete with the "
        "scores of the keys.",
    )

    def run(self, info: PassInfo, sinks: Float[Tensor, " head"]) -> Float[Tensor, " head"]:
        return sinks.clone()  # a record of its own

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 0

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return counted(out[0], "head")


@dataclass(frozen=True, slots=True)
class SinkSoftmax(Op):
    """exp(s) / (exp(sink_h) + Σ exp(s)): what the sink takes goes to no key. (Xiao et al. 2023; gpt-oss, 2025)"""

    along: ClassVar = {axis: (axis, "head" if axis == "head" else None) for axis in SAME_CELLS}
    unseen: ClassVar = 0.0
    TEXT: ClassVar[Text] = Text(
        "Softmax over keys and a sink",
        "p = eˢ / (e^sink + Σ eˢ)",
        r"P_{ij} = \frac{e^{M_{ij}}}{e^{s_h} + \sum_{j'} e^{M_{ij'}}}",
        "Each row of scores becomes weights, but every head has one more score of its own, learned, that belongs to no "
        "key. A head that finds nothing can give its weight to this sink; the row then sums to less than 1.",
    )

    def run(
        self,
        info: PassInfo,
        masked: Float[Tensor, "batch head query key"],
        sinks: Float[Tensor, " head"],
    ) -> Float[Tensor, "batch head query key"]:
        return sink_softmax(masked, sinks)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 4 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{_rows_over_keys(out)} and a sink"


def sink_softmax(
    masked: Float[Tensor, "batch head query key"], sinks: Float[Tensor, " head"]
) -> Float[Tensor, "batch head query key"]:
    """Softmax over the keys and one more score per head, which is then left out. A row without any key is zeros."""
    sink = sinks.to(masked.dtype)[:, None, None]  # [head 1 1]
    most = masked.amax(-1, keepdim=True).maximum(sink)  # [batch head query 1], taken off so that no power overflows
    powers = (masked - most).exp_()
    return powers.div_(powers.sum(-1, keepdim=True) + (sink - most).exp_())


@dataclass(frozen=True, slots=True)
class Attention(Op):
    """z = softmax(q kᵀ · scale + mask) v in one fused kernel. (Dao et al. 2022, FlashAttention)

    Reads the positions of queries and keys where a mask may be needed. ``is_causal`` is only given where every
    query has as many keys as its own row number, that is for a dense block with no past. ``bias`` is the op that
    makes a bias from positions, each time anew; ``biased`` says that one is read. No fused kernel has a soft cap or a
    sink: with one of them the arithmetic is written out, in float32 and a block of query rows at a time.
    """

    scale: Scale
    mask: Mask
    bias: Alibi | None = None
    cap: float | None = None
    sinks: bool = False
    biased: bool = False

    @property
    def text(self) -> Text:
        inside, latex = "q kᵀ / √d_head", r"\frac{QK^\top}{\sqrt{d_{\mathrm{head}}}}"
        if not self.scale.usual:
            one = self.scale.factor == 1
            inside, latex = ("q kᵀ", r"QK^\top") if one else ("q kᵀ · scale", r"c\,QK^\top")
        if self.cap is not None:
            inside, latex = f"softcap({inside})", rf"\mathrm{{softcap}}({latex})"
        if self.bias is not None or self.biased:
            inside, latex = f"{inside} + bias", f"{latex} + B"
        fused = (
            "One fused kernel does scores, mask, softmax and mixture together and never writes the N × N scores; the "
            "steps before show what it would have written."
        )
        if why := self.explicit:
            fused = f"No fused kernel has {why}, so the arithmetic is written out here, a block of rows at a time."
        who, what = "Every position takes", "values"
        if self.mask.cross:
            who, what = "Every position of the decoder takes", "the source's values"
        return Text(
            "Weighted values",
            f"z = softmax({inside}) v",
            rf"z = \mathrm{{softmax}}\!\left({latex}\right) V",
            f"{who} a mixture of {what}, weighted by its pattern. {fused}",
        )

    @property
    def explicit(self) -> str:
        """Why no fused kernel can do it; empty where one can."""
        return "a soft cap" if self.cap is not None else "a sink" if self.sinks else ""

    def run(
        self,
        info: PassInfo,
        q: Float[Tensor, "batch pos head d_head"],
        k: Float[Tensor, "batch kv_pos kv_head d_head"],
        v: Float[Tensor, "batch kv_pos kv_head d_head"],
        positions: Int[Tensor, "batch pos"],
        key_positions: Int[Tensor, "batch kv_pos"],
        *more: Float[Tensor, " head"] | Float[Tensor, "batch head query key"],
    ) -> Float[Tensor, "batch pos head d_head"]:
        key_positions = self.mask.of_held(key_positions, k.shape[1])
        bias = more[-1] if self.biased else None
        if self.explicit:
            return self._written_out(info, q, k, v, positions, key_positions, more[0] if self.sinks else None, bias)
        queries, keys = q.shape[1], k.shape[1]
        near = info.dense and (self.mask.window is None or keys <= self.mask.window)
        square = near and queries == keys
        whole = near and (not self.mask.causal or queries == 1)
        mask: Tensor | None = None
        if not (square or whole):
            mask = self.mask.allowed(positions, key_positions)[:, None]  # [batch 1 query key]
        is_causal = self.mask.causal and square
        if self.bias is not None:
            bias = self.bias.run(info, positions, key_positions)  # [batch head query key]
        if bias is not None:
            allowed = self.mask.allowed(positions, key_positions)[:, None]
            mask, is_causal = bias.to(q.dtype).masked_fill(~allowed, -torch.inf), False
        own = not self.mask.cross
        return fused_attention(info, q, k, v, mask, is_causal=is_causal, scale=self.scale.factor, own=own)

    def _written_out(
        self,
        info: PassInfo,
        q: Float[Tensor, "batch pos head d_head"],
        k: Float[Tensor, "batch kv_pos kv_head d_head"],
        v: Float[Tensor, "batch kv_pos kv_head d_head"],
        positions: Int[Tensor, "batch pos"],
        key_positions: Int[Tensor, "batch kv_pos"],
        sinks: Float[Tensor, " head"] | None,
        bias: Float[Tensor, "batch head query key"] | None,
    ) -> Float[Tensor, "batch pos head d_head"]:
        note_explicit(info, self.explicit)
        k, v = (per_query_head(at_least_float32(x), q.shape[2]) for x in (k, v))  # [batch kv_pos head d_head]
        at_once = max(1, CELLS_AT_ONCE // max(1, q.shape[0] * q.shape[2] * k.shape[1]))
        blocks = []
        for start in range(0, q.shape[1], at_once):
            rows, places = q[:, start : start + at_once], positions[:, start : start + at_once]
            s = at_least_float32(rows).transpose(1, 2) @ k.permute(0, 2, 3, 1)  # [batch head rows key]
            s = s * self.scale.factor
            if self.cap is not None:
                s = soft_capped(s, self.cap)
            if self.bias is not None:
                s = s + self.bias.run(info, places, key_positions)
            if bias is not None:
                s = s + bias[:, :, start : start + at_once]
            s = self.mask.run(info, s, places, key_positions)
            p = Softmax().run(info, s) if sinks is None else sink_softmax(s, sinks)
            blocks.append((p @ v.transpose(1, 2)).transpose(1, 2))  # [batch rows head d_head]
        return torch.cat(blocks, dim=1).to(q.dtype)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return (4 * out[3] + 4) * out[0] * out[1] * out[2] * reads[1][1]

    def scratch(self, reads: Sequence[Shape], out: Shape, itemsize: int) -> int:
        batch, queries, heads, keys = *reads[0][:3], reads[1][1]
        if self.explicit:
            widened = 2 * batch * keys * heads * out[3] * 4
            return widened + 16 * min(batch * heads * queries * keys, max(CELLS_AT_ONCE, batch * heads * keys))
        if self.bias is not None or self.biased:
            return batch * heads * queries * keys * (8 + itemsize)
        if batch == 1 and (queries == 1 or (queries == keys and self.mask.window is None)):
            return 0
        return batch * queries * keys * (1 + itemsize)  # a batch may be padded: the mask, and its form in the kernel

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        d_head, factor = self.scale.d_head, self.scale.factor
        root = f"√d_head = {sqrt(d_head):.4g}" if self.scale.usual else f"scale = {factor:.6g}"
        cells = f"{counted(out[1], 'query', 'queries')}, {counted(reads[1][1], 'key')}"
        return f"{counted(out[2], 'head')} of {out[3]}: {cells}, {root}"

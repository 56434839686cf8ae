"""Positions as a bias on scores: nothing is added to the stream, but far keys score lower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log, prod
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from engine.ops.base import Op, PassInfo, Shape, Text, counted


@lru_cache(maxsize=64)
def _numbers(values: tuple[float, ...], device: torch.device) -> Float[Tensor, " n"]:
    """Numbers of a config on a device; putting them there anew in every pass would wait for it."""
    return torch.tensor(values, device=device)


@dataclass(frozen=True, slots=True)
class Alibi(Op):
    """bias = slope_h · (key − query) · scale, float32; a slope for each head. (Press et al. 2021, ALiBi, section 3)

    ``rounded``: slope_h · key, both and their product in bfloat16, as Falcon was trained with. The query's own part is
    the same for a whole row, so softmax does not see that it is missing.
    """

    float32: ClassVar = True
    hides: ClassVar = True
    slopes: tuple[float, ...]
    scale: float = 1.0
    rounded: bool = False
    along: ClassVar = {"batch": ("batch", "batch"), "query": ("pos", None)}

    @property
    def text(self) -> Text:
        by, latex = ("", "") if self.scale == 1 else (" · scale", r"\,c")
        story = (
            "No position is added to the embedding. Instead every head lowers the score of a key in proportion to how "
            "far back it stands, each head with a slope of its own: steep ones look near, flat ones look far."
        )
        if not self.rounded:
            formula, in_latex = f"bias = −slope_h · (query − key){by}", rf"B_{{ij}} = -m_h\,(i - j){latex}"
            return Text("ALiBi: a bias by distance", formula, in_latex, story)
        return Text(
            "ALiBi: a bias by position",
            f"bias = slope_h · key{by}",
            rf"B_{{ij}} = m_h\,j{latex}",
            f"{story} Here it is counted from the first position: that adds one number to a whole row, which softmax "
            "takes out again.",
        )

    def run(
        self, info: PassInfo, positions: Int[Tensor, "batch pos"], key_positions: Int[Tensor, "batch kv_pos"]
    ) -> Float[Tensor, "batch head query key"]:
        slopes = _numbers(self.slopes, positions.device)[:, None, None]  # [head 1 1]
        if self.rounded:
            by_key = slopes.bfloat16() * key_positions[:, None, None].bfloat16()  # [batch head 1 key]
            by_key = (by_key.float() * self.scale).to(info.dtype).float()  # as the kernel gets it
            return by_key.expand(-1, -1, positions.shape[1], -1).contiguous()
        distance = (key_positions[:, None, :] - positions[:, :, None]).float()  # [batch query key]
        bias = slopes * self.scale * distance[:, None]  # [batch head query key]
        return bias.to(info.dtype).float()  # as the kernel gets it

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        scale = "" if self.scale == 1 else f", scale = {self.scale:.4g}"
        return f"{len(self.slopes)} slopes, {max(self.slopes):.4g} … {min(self.slopes):.4g}{scale}"


@dataclass(frozen=True, slots=True)
class AddBias(Op):
    """biased = scaled + bias"""

    hides: ClassVar = True
    along: ClassVar = {"batch": ("batch", "batch"), "head": ("head", "head"), "query": ("query", "query")}
    TEXT: ClassVar[Text] = Text(
        "Scores with the positions' bias",
        "biased = scaled + bias",
        r"S_{ij} + B_{ij}",
        "The bias of each pair of positions is added to its score. This is the only place where this model is told "
        "where things stand.",
    )

    def run(
        self,
        info: PassInfo,
        scaled: Float[Tensor, "batch head query key"],
        bias: Float[Tensor, "batch head query key"],
    ) -> Float[Tensor, "batch head query key"]:
        return scaled + bias[..., -scaled.shape[-1] :]  # of the keys that are held: the last ones

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        _, heads, queries, keys = out
        return f"{counted(heads, 'head')} × {counted(queries, 'query', 'queries')} × {counted(keys, 'key')}"


@dataclass(frozen=True, slots=True)
class RelativeBias(Op):
    """bias = W_rel[bucket(key − query)]: a learned number per head and range of distances. (Raffel et al. 2019, T5)

    Half of the ``buckets`` are single distances, the other half ranges that grow with the logarithm up to ``distance``,
    and all farther ones share the last. ``both_ways`` gives keys before and after the query buckets of their own.
    """

    buckets: int
    distance: int
    both_ways: bool
    hides: ClassVar = True
    TEXT: ClassVar[Text] = Text(
        "Relative position bias",
        "bias = W_rel[bucket(key − query)]",
        r"B_{ij} = W_{\mathrm{rel}}[\mathrm{bucket}(j - i)]",
        "No position is added to the embedding. Instead every head has learned a number for each distance between "
        "query and key, near ones one by one and far ones in ranges; all layers share it.",
    )

    def run(
        self,
        info: PassInfo,
        positions: Int[Tensor, "batch pos"],
        key_positions: Int[Tensor, "batch kv_pos"],
        weight: Float[Tensor, "buckets head"],
    ) -> Float[Tensor, "batch head query key"]:
        bucket = self.bucket(key_positions[:, None, :] - positions[:, :, None])  # [batch query key]
        return weight[bucket].permute(0, 3, 1, 2)  # [batch head query key]

    def bucket(self, ahead: Int[Tensor, "*cells"]) -> Int[Tensor, "*cells"]:
        """The row of the table for a key that stands ``ahead`` of the query, or behind it where negative."""
        buckets = self.buckets // 2 if self.both_ways else self.buckets
        first = (ahead > 0) * buckets if self.both_ways else torch.zeros_like(ahead)
        far = ahead.abs() if self.both_ways else (-ahead).clamp(min=0)
        exact = buckets // 2
        grown = torch.log(far.float() / exact) / log(self.distance / exact) * (buckets - exact)
        beyond = (exact + grown.nan_to_num(neginf=0).long()).clamp(max=buckets - 1)
        return first + torch.where(far < exact, far, beyond)

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return 4 * prod(out)

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        return f"{self.buckets} buckets up to distance {self.distance}, {counted(out[1], 'head')}"

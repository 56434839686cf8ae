"""What is told of many numbers at once: how many of each kind, and the spread of the finite ones."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class Statistics:
    """Counts of all numbers; of the finite ones min, max, mean, std and norm (infinite and NaN where there is none).

    ``std`` is that of the whole, not an estimate from a sample.
    """

    size: int = 0
    finite: int = 0
    nan: int = 0
    above: int = 0
    below: int = 0
    min: float = math.inf
    max: float = -math.inf
    mean: float = math.nan
    spread: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, blocks: Iterable[Tensor]) -> Statistics:
        """Of all numbers in the blocks, in float64, one block in memory at a time.

        Each block's mean and its squared distances from that mean are joined (Chan, Golub and LeVeque 1979): a
        difference of two large sums would lose the spread of numbers that lie far from zero.
        """
        told = cls()
        for block in blocks:
            told._add((block.cpu() if block.device.type == "mps" else block).to(torch.float64))
        return told

    def _add(self, block: Tensor) -> None:
        values = block[block.isfinite()]
        count = values.numel()
        self.size += block.numel()
        if count < block.numel():
            self.nan += int(block.isnan().sum())
            self.above += int((block == math.inf).sum())
            self.below += int((block == -math.inf).sum())
        if not count:
            return
        self.min, self.max = min(self.min, float(values.min())), max(self.max, float(values.max()))
        self.squares += float(values.square().sum())
        mean = float(values.mean())
        gap = mean - self.mean if self.finite else 0.0
        total = self.finite + count
        self.spread += float((values - mean).square().sum()) + gap * gap * self.finite * count / total
        self.mean = self.mean + gap * count / total if self.finite else mean
        self.finite = total

    @property
    def std(self) -> float:
        return math.sqrt(self.spread / self.finite) if self.finite else math.nan

    @property
    def norm(self) -> float:
        return math.sqrt(self.squares) if self.finite else math.nan

    def told(self, *, masks: bool) -> dict[str, float | int | None]:
        """As people are told: −∞ is a masked cell where a step hides cells, else not finite like the rest; None is a
        figure of no finite number."""
        masked = self.below if masks else 0
        figures: dict[str, float | int | None] = dict.fromkeys(("min", "max", "mean", "std", "norm"))
        return (
            figures
            | self.spread_to_json()
            | {"count": self.finite, "nonfinite": self.size - self.finite - masked, "masked": masked}
        )

    def spread_to_json(self) -> dict[str, float]:
        """The five figures of the finite numbers; empty where there are none."""
        if not self.finite:
            return {}
        return {"min": self.min, "max": self.max, "mean": self.mean, "std": self.std, "norm": self.norm}

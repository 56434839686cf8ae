"""How far rounding moves a pass: the pass once more, with noise of the size of a rounding in every number.

This is Monte Carlo arithmetic (Parker 1997; Denis, de Oliveira Castro and Petit 2016) at the precision of the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.ops.base import Op, PassInfo, at_least_float32
from engine.program import Program


def noisy(program: Program, seed: int, device: torch.device) -> Program:
    """A program that moves all that its steps write by about one rounding; it is to run once."""
    draw = torch.Generator(device).manual_seed(seed)
    return program.with_ops({step.site.name: Noisy(step.op, draw) for step in program.steps})


@dataclass(frozen=True, slots=True)
class Noisy(Op):
    """x · (1 + ε · n), with n drawn from the normal distribution; whole numbers stay as they are."""

    op: Op
    draw: torch.Generator

    def run(self, info: PassInfo, *args: Any, **kwargs: Any) -> Tensor:
        x = self.op.run(info, *args, **kwargs)
        if not x.is_floating_point():
            return x
        wide = at_least_float32(x)
        n = torch.randn(x.shape, generator=self.draw, device=x.device, dtype=wide.dtype)
        return wide.mul(n.mul_(torch.finfo(x.dtype).eps).add_(1)).to(x.dtype)

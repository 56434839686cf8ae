"""Statistics taken block by block are those of the whole."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.statistics import Statistics


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6), far=st.sampled_from([0.0, 1.0, -1e9]))
def test_blocks_are_joined(sizes: list[int], far: float) -> None:
    draw = torch.Generator().manual_seed(sum(sizes))
    blocks = [far + torch.randn(size, generator=draw, dtype=torch.float64) for size in sizes]
    whole = torch.cat(blocks)
    told = Statistics.of(blocks)
    assert told.size == told.finite == whole.numel()
    if not whole.numel():
        assert told.spread_to_json() == {}
        return
    assert (told.min, told.max) == (float(whole.min()), float(whole.max()))
    assert told.mean == pytest.approx(float(whole.mean()))
    assert told.norm == pytest.approx(float(whole.norm()))
    assert told.std == pytest.approx(float(whole.std(correction=0)), rel=1e-6)


def test_a_spread_far_from_zero_is_kept() -> None:
    """E[x²] − mean² would find 0 here, or worse."""
    told = Statistics.of(1e9 + torch.tensor(block, dtype=torch.float64) for block in ([0, 1], [2]))
    assert told.std == pytest.approx(math.sqrt(2 / 3))


def test_what_is_not_finite_is_counted_by_kind() -> None:
    told = Statistics.of([torch.tensor([math.nan, math.inf, 1.0]), torch.tensor([-math.inf, -math.inf]), torch.ones(0)])
    assert (told.size, told.finite, told.nan, told.above, told.below) == (5, 1, 1, 1, 2)
    assert told.spread_to_json() == {"min": 1.0, "max": 1.0, "mean": 1.0, "std": 0.0, "norm": 1.0}
    assert Statistics.of([torch.tensor([math.nan])]).spread_to_json() == {}


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16])
def test_any_dtype(dtype: torch.dtype) -> None:
    assert Statistics.of([torch.tensor([0, 1, 1, 0]).to(dtype)]).mean == 0.5

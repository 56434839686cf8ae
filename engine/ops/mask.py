"""Who may attend to whom: the one place where a mask is built."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

PADDING = -1
"""The position of a token that is only padding."""


def is_dense(positions: Sequence[Sequence[int]], start: int) -> bool:
    """Whether every row counts up from ``start`` without padding or gap, so that lengths alone say who may attend."""
    return all(list(row) == list(range(start, start + len(row))) for row in positions)


def attention_mask(
    positions: Int[Tensor, "batch query"],
    key_positions: Int[Tensor, "batch key"],
    *,
    causal: bool,
    window: int | None = None,
) -> Bool[Tensor, "batch query key"]:
    """True where a query may attend to a key, from absolute positions alone.

    A padded key (position −1) is seen by nobody and a padded query sees nothing; with ``causal`` a key must not
    stand after the query; with ``window`` it must stand less than that many positions away, so a causal window of W
    holds W keys, the query's own among them. The conditions are combined with AND.
    """
    query, key = positions[:, :, None], key_positions[:, None, :]  # [batch query 1], [batch 1 key]
    allowed = (query > PADDING) & (key > PADDING)  # [batch query key]
    if causal:
        allowed &= key <= query
    if window is not None:
        allowed &= (query - key).abs() < window
    return allowed


def no_key(scores: Tensor) -> Bool[Tensor, "... query 1"]:
    """True for the rows of masked scores [… query key] that may attend to nothing."""
    return scores.amax(-1, keepdim=True) == -torch.inf

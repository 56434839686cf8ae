"""Matrices that a family stores as one: which rows of it are ours."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from engine.checkpoints.family import Source
from engine.config import ModelConfig

QKV = ("attn.q", "attn.k", "attn.v")


def fused_qkv(name: str, stem: str, config: ModelConfig, *, groups: int = 1) -> Source:
    """The queries, keys or values (``stem`` is one of QKV) of a tensor ``name`` that holds all three.

    Its rows stand in ``groups`` of one size, each with its queries, then its keys, then its values: one group is
    Phi-3's [Q; K; V], ``n_heads`` groups are GPT-NeoX's, where the three of each head stand together, and
    ``n_kv_heads`` groups Falcon 40B's, where the queries that share a key stand with it.
    """
    q, kv = config.n_heads * config.d_head // groups, config.kv_heads * config.d_head // groups
    start = (0, q, q + kv)[QKV.index(stem)]
    stop = (q, q + kv, q + 2 * kv)[QKV.index(stem)]
    return Source(name, partial(_rows, groups, start, stop), _shape(name, groups * (q + 2 * kv), config))


def fused_gate_up(name: str, stem: str, config: ModelConfig) -> Source:
    """The gate ("mlp.gate") or what it lets through ("mlp.up") of a tensor that holds first the one, then the other."""
    start = 0 if stem == "mlp.gate" else config.d_mlp
    return Source(name, partial(_rows, 1, start, start + config.d_mlp), _shape(name, 2 * config.d_mlp, config))


def _shape(name: str, rows: int, config: ModelConfig) -> tuple[int, ...]:
    return (rows,) if name.endswith(".bias") else (rows, config.d_model)


def _rows(groups: int, start: int, stop: int, fused: Tensor) -> Tensor:
    """Rows ``start`` to ``stop`` of each group: a view of one group, a copy of these rows alone from several."""
    ours: Tensor = fused.unflatten(0, (groups, -1))[:, start:stop]
    return ours.flatten(0, 1)

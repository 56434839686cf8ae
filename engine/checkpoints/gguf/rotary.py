"""Rotary scaling as a GGUF file says it: by keys, and for some kinds by a tensor of factors."""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

from engine.checkpoints.gguf.described import Described
from engine.text import display

FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""The numbers of every Llama 3.x; a GGUF file holds only the factors that come of them."""


def rope(d: Described, dims: int) -> dict[str, Any]:
    """``rope_theta`` and ``rope_scaling`` of a config.json, for a head of which ``dims`` dimensions turn."""
    theta = d.number("rope.freq_base", 10_000.0)
    return {"rope_theta": float(theta), "rope_scaling": _scaling(d, dims, float(theta))}


def _scaling(d: Described, dims: int, theta: float) -> dict[str, Any] | None:
    if d.has(FREQS):
        return _by_frequency(d, dims, theta, d.values(FREQS))
    kind = d.get("rope.scaling.type", "linear")
    factor = float(d.number("rope.scaling.factor", d.get("rope.scale_linear", 1.0)))
    original = d.get("rope.scaling.original_context_length")
    if d.has(LONG) or d.has(SHORT):
        return _longrope(d, original)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor} if factor not in (0.0, 1.0) else None
    if kind == "none":
        return None
    if kind != "yarn":
        raise d.refusal(
            f"rope.scaling.type {display(str(kind))[:40]!r} is not supported; none, linear, yarn and longrope are"
        )
    for key in ("yarn_ext_factor", "yarn_attn_factor", "attn_factor"):
        d.only(f"rope.scaling.{key}", 1.0)
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original or d.size("context_length"),
        "beta_fast": d.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": d.number("rope.scaling.yarn_beta_slow", 1.0),
    }


def _longrope(d: Described, original: Any) -> dict[str, Any]:
    n_ctx = d.size("context_length")
    first = original if isinstance(original, int) and original > 1 else n_ctx
    factor = d.number("rope.scaling.attn_factor", 1.0)
    usual = sqrt(1 + log(n_ctx / first) / log(first)) if n_ctx > first else 1.0
    return {
        "rope_type": "longrope",
        "short_factor": d.values(SHORT) if d.has(SHORT) else d.values(LONG),
        "long_factor": d.values(LONG) if d.has(LONG) else d.values(SHORT),
        "attention_factor": usual
        if abs(factor - usual) < 1e-6
        else factor,  # in full precision, where it is the rule's
        "original_max_position_embeddings": first,
    }


def _by_frequency(d: Described, dims: int, theta: float, factors: list[float]) -> dict[str, Any]:
    """Llama 3's scaling, where the factors are what its rule gives; else the factors as they are."""
    for key in ("rope.scaling.type", "rope.scaling.factor", "rope.scale_linear"):
        d.only(key, "none", 1.0)
    rule = {"rope_type": "llama3", "factor": max(factors), **LLAMA3}
    expected = _llama3_factors(dims, theta, max(factors))
    if len(factors) == len(expected) and all(abs(f - e) <= 1e-5 * e for f, e in zip(factors, expected, strict=True)):
        return rule
    return {
        "rope_type": "longrope",
        "short_factor": factors,
        "long_factor": factors,
        "attention_factor": 1.0,
        "original_max_position_embeddings": d.size("context_length"),
    }


def _llama3_factors(dims: int, theta: float, factor: float) -> list[float]:
    """What each pair's frequency is divided by. (transformers' ``_compute_llama3_parameters``)"""
    low, high, original = (
        LLAMA3["low_freq_factor"],
        LLAMA3["high_freq_factor"],
        LLAMA3["original_max_position_embeddings"],
    )
    factors = []
    for pair in range(dims // 2):
        turns = original * theta ** (-2 * pair / dims) / (2 * pi)
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors

"""Answers of the engine other than windows: rankings of the vocabulary, and checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible next token."""

    id: int
    label: str
    prob: float
    logit: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """The first candidates at a position; ``nonfinite`` values mean that there is no ranking."""

    rows: tuple[Candidate, ...] = ()
    nonfinite: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """One of the engine's checks: what holds, and with which figure."""

    name: str
    ok: bool
    text: str = ""

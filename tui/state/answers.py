"""Answers of the engine other than windows: rankings of the vocabulary, and checks."""

from __future__ import annotations

from dataclasses import dataclass

from tui.state.numbers import special


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible next token."""

    id: int
    label: str
    prob: float
    logit: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """The first candidates at a position; none where values are ``nonfinite`` or for the reason in ``trouble``."""

    rows: tuple[Candidate, ...] = ()
    nonfinite: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One of the engine's checks: what holds, and with which figure."""

    name: str
    ok: bool
    text: str = ""
    figure: float | None = None
    tolerance: float | None = None

    @property
    def words(self) -> str:
        """How far off it is and may be; what the engine wrote where it gives no numbers."""
        if self.figure is None or self.tolerance is None:
            return self.text.removeprefix(self.name).lstrip(": ")
        if self.figure == self.tolerance == 0:
            return "exact"
        return f"off by {_figure(self.figure)}, allowed {_figure(self.tolerance)}"


def _figure(number: float) -> str:
    return special(number) or (f"{number:.1e}" if number else "0")

"""Two things timed against each other in one run: interleaved, so that a noisy machine disturbs both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """Medians in seconds, and how many times the first is the second."""

    ours: float
    theirs: float

    @property
    def value(self) -> float:
        return self.ours / self.theirs


def interleave(
    ours: Callable[[], object], theirs: Callable[[], object], *, seconds: float = 4.0, least: int = 5
) -> Ratio:
    """Run both in turn for about ``seconds``, at least ``least`` times each after one warm-up; their medians."""
    ours(), theirs()
    mine: list[float] = []
    other: list[float] = []
    until = time.perf_counter() + seconds
    while len(mine) < least or (time.perf_counter() < until and len(mine) < 400):
        for run, times in ((ours, mine), (theirs, other)):
            start = time.perf_counter()
            result = run()
            times.append(time.perf_counter() - start)
            del result
    return Ratio(statistics.median(mine), statistics.median(other))


def report(
    name: str, value: float, target: float | None, unit: str = "×", detail: str = "", *, least: bool = False
) -> None:
    """One line per figure: name, value, target (at most, or at ``least``), whether it is reached."""
    verdict = "" if target is None else "reached" if (value >= target if least else value <= target) else "MISSED"
    bound = "" if target is None else f"{'≥' if least else '≤'} {target:.2f}"
    print(f"{name:<52} {value:7.3f} {unit} {bound:<8} {verdict:<8} {detail}", flush=True)

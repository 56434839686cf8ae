"""How soon the app answers: from a key to its frame, how late its event loop is, and the first look at each picture."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tests.bench.ratio import report
from tests.bench.terminal import report_of

TERMINAL = (120, 40)
MODELS = ("classic", "modern")
FRAME, STALL, SOON = 33.0, 50.0, 100.0
"""Milliseconds."""


def high(values: Sequence[float], share: float = 0.95) -> float:
    """The value that so many do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(quick: bool = False) -> bool:
    """Measure and print; whether every target is met."""
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    met = []
    for model in MODELS[-1:] if quick else MODELS:
        told = report_of("tests.bench.walked", model, 512, "moves", size=TERMINAL)
        took = {move: high([wall for wall, _ in frames]) for move, frames in told["moves"].items() if frames}
        slowest = max(took, key=lambda move: took[move])
        busy = high([cpu for frames in told["moves"].values() for _, cpu in frames]) * 1e3
        value = took[slowest] * 1e3
        met.append(value <= FRAME)
        report(
            f"app: a key to its frame, {model}",
            value,
            FRAME,
            "ms",
            f"p95 of {slowest}; CPU p95 of all {busy:.0f} ms; {load}",
        )
        still, running = ([late for late, _ in told[when]] for when in ("idle", "busy"))
        worst, own = max(running) * 1e3, max(cpu for _, cpu in told["busy"]) * 1e3
        met.append(worst <= STALL)
        report(
            "app: event loop late while a pass runs", worst, STALL, "ms", f"of it at most {own:.0f} ms of CPU; {load}"
        )
        ratio = high(running) / high(still)
        met.append(ratio <= 1.5)
        report("app: the same, p95 / idle", ratio, 1.5, detail=f"{high(still) * 1e3:.1f} ms idle")
    told = report_of("tests.bench.walked", "modern", 1024, "steps", size=TERMINAL)
    late = [row for row in told["steps"] if row[1] and row[1][0] * 1e3 > SOON and not row[3]]
    busiest = max(told["steps"], key=lambda row: row[1][1] if row[1] else 0)
    slowest = max((row for row in told["steps"] if not row[3]), key=lambda row: row[2])
    detail = f"of {len(told['steps'])}; at most {busiest[1][1] * 1e3:.0f} ms of CPU ({busiest[0]}); {load}; "
    detail += f"last numbers without progress: {slowest[2] * 1e3:.0f} ms ({slowest[0]})"
    report("app: first frames of a look later than 100 ms without progress", len(late), 0, "", detail)
    return all(met) and not late

"""What a scroll frame of a pattern costs: CPU of the whole app, beside the least a widget can cost and a DataTable.

CPU, not time: a frame waits for the next tick of the screen anyway. The DataTable keeps each line that it has drawn, so
its figure is of a page, all of it new; line by line it is some ten times the app's frame, and a bare widget's too.
"""

from __future__ import annotations

import statistics
from typing import Any

from tests.bench.ratio import report
from tests.bench.terminal import report_of

TERMINAL = (160, 45)


def scrolled(kind: str, way: str, size: int, frames: int, area: tuple[int, int]) -> tuple[float, dict[str, Any]]:
    """Median CPU seconds of a frame, and all that was reported."""
    told = report_of("tests.bench.scrolled", kind, way, size, frames, size=area)
    return statistics.median(told["costs"]), told


def measure(quick: bool = False) -> bool:
    """Measure and print; whether every target is met."""
    told = scrolled("app", "line", 512, 5, TERMINAL)[1]
    area = (told["area"][0], told["area"][1])  # what the picture has in the app, the others have to themselves
    cases = {
        "app": ("app", "line", 512, 40, TERMINAL),
        "large": ("app", "line", 4096, 40, TERMINAL),
        "bare": ("bare", "line", 512, 40, area),
        "page": ("app", "page", 512, 6, TERMINAL),
        "table": ("table", "page", 512, 3, area),
    }
    costs: dict[str, list[float]] = {name: [] for name in cases}
    grown = []
    for _ in range(1 if quick else 5):
        for name, case in cases.items():
            cost, told = scrolled(*case)
            costs[name].append(cost)
            grown += [told["grown"]] if name == "large" else []
    usual = {name: statistics.median(each) for name, each in costs.items()}
    figures = (
        (
            "app: a scroll frame of 4096² / of 512²",
            usual["large"] / usual["app"],
            1.3,
            f"{usual['app'] * 1e3:.1f} ms CPU",
        ),
        (
            "app: a scroll frame / a bare widget's",
            usual["app"] / usual["bare"],
            1.5,
            f"{usual['bare'] * 1e3:.1f} ms CPU",
        ),
        ("app: a page / a DataTable's", usual["page"] / usual["table"], 1 / 30, f"{usual['table'] * 1e3:.0f} ms CPU"),
    )
    for name, value, target, detail in figures:
        report(name, value, target, detail=detail)
    most = max(grown) / 1e6
    report("app: memory that a 4096² pattern takes", most, 50, "MB", "opened and scrolled")
    return all(value <= target for _, value, target, _ in figures) and most < 50

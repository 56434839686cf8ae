"""Which cells of a difference of attention weights are masked on both sides.

A masked weight is 0 and so is the difference of two, as it is of two equal weights: the values cannot tell. Of causal
attention the places can, since no query ever sees a later key. Cells that another mask hides (a window, padding) stay
zeros.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import replace

from tui.state.block import Stats
from tui.state.views import Plane


def with_masks(
    plane: Plane, row: int, col: int, cols: int, values: Sequence[float], stats: Stats
) -> tuple[array[float], Stats]:
    """The cells from ``row``, ``col`` on with −∞ where both sides are masked, as engine differences of masked scores
    have it, and statistics that count them. Anything but a difference of causal weights stays as it is.
    """
    found = array("f", values)
    if not _causal_weights(plane):
        return found, stats
    for n in range(len(found) // cols if cols else 0):
        for cell in range(n * cols + max(0, _later(plane, row + n) - col), (n + 1) * cols):
            if found[cell] == 0:
                found[cell] = -math.inf
    rows, width = plane.size
    return found, replace(stats, masked=sum(width - _later(plane, at) for at in range(rows)))


def _causal_weights(plane: Plane) -> bool:
    """Whether both sides are weights over the keys of a text that is only seen backward."""
    sides = () if plane.minus is None else (plane, plane.minus)
    return bool(sides) and all(
        side.trace.predicts == "next token" and "arcs" in side.step.looks and {"query", "key"} <= set(side.step.axes)
        for side in sides
    )


def _later(plane: Plane, row: int) -> int:
    """The first column of a row whose key is after its query on both sides; all columns where there is none."""
    view, width, sides = plane.view, plane.size[1], [plane] if plane.minus is None else [plane, plane.minus]
    queries = [(dict(side.place) | {view.rows: row})["query"] + side.step.first("query") for side in sides]
    last = max(query - side.step.first("key") for query, side in zip(queries, sides, strict=True))
    if view.cols == "key":
        return max(0, min(width, last + 1))
    return 0 if row > last else width

"""Numbers along positions as lines: some dimensions of a table of positions."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from engine.export.figures import chart, letters
from engine.export.figures.cells import numbers
from engine.export.figures.chart import Chart
from engine.export.figures.sheet import Sheet
from engine.pictures import Picture

CURVES, HEIGHT = 6, 0.5
DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1.2)), (0, (9, 2)))
"""How lines are dashed, so that they are told apart without colour."""
MARKERS = ("o", "s", "^", "D", "v", "P")


def curves(sheet: Sheet, picture: Picture) -> None:
    """Some of the dimensions, evenly from first to last, each along the positions."""
    place = picture.place
    assert place is not None
    rows, dims = place.axes
    values = numbers(place)
    chosen = _some(values)
    finite = values[np.isfinite(values)]
    low, high = float(finite.min(initial=0)), float(finite.max(initial=0))
    size, line = sheet.size.small, letters.height(sheet.size.small)
    names = [f"{dims.name} {dims.start + d}" for d in chosen]
    rest = f"{len(chosen)} of {dims.size}"
    right = max(letters.widest(names, size), letters.width(rest, size)) + 2.8 * line
    last = rows.start + rows.size - 1
    box = sheet.open(HEIGHT * sheet.width)
    drawn = Chart.of(
        sheet, box, (rows.start - 0.3, max(last, rows.start) + 0.3), chart.padded(low, high),
        x_ticks=chart.whole_ticks(rows.start, last),
        y_ticks=chart.round_ticks(*chart.padded(low, high)), x_name=rows.name, y_name="value", right=right,
    )  # fmt: skip
    along = np.arange(rows.start, rows.start + rows.size)
    for n, (d, name) in enumerate(zip(chosen, names, strict=True)):
        colour, dash = sheet.inks.lines[n % len(sheet.inks.lines)], DASHES[n % len(DASHES)]
        marked = rows.size <= 24
        drawn.axes.plot(
            along, values[:, d], color=colour, linestyle=dash, linewidth=0.8 * sheet.size.line,
            marker=MARKERS[n % len(MARKERS)] if marked else "", markersize=2.2 * sheet.size.line, clip_on=False,
        )  # fmt: skip
        y = drawn.box.top - (n + 0.5) * 1.25 * line
        x = drawn.box.right + 0.6 * line
        sheet.line([x, x + 1.7 * line], [y, y], color=colour, linestyle=dash, linewidth=0.8 * sheet.size.line)
        sheet.text(x + 2.0 * line, y, name, size, va="center_baseline")
    if low < 0 < high:
        drawn.axes.axhline(0, color=sheet.inks.muted, linewidth=sheet.thin, zorder=0.8)
    if dims.size > len(chosen):
        sheet.text(drawn.box.right + 2.6 * line, drawn.box.top - (len(chosen) + 0.6) * 1.25 * line, rest, size,
                   va="center_baseline", colour=sheet.inks.muted)  # fmt: skip


def _some(values: Float[np.ndarray, "pos dims"]) -> list[int]:
    """Some dimensions, evenly from the first to the last; of those that are the same everywhere only the first."""
    seen: dict[bytes, int] = {}
    for d in range(values.shape[1]):
        seen.setdefault(values[:, d].tobytes(), d)
    others = list(seen.values())
    count = min(CURVES, len(others))
    return [others[round(i * (len(others) - 1) / max(1, count - 1))] for i in range(count)]

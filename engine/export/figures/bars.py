"""One number for each index: bars from zero, along tokens, dimensions, or bins of a histogram."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from matplotlib.collections import PolyCollection

from engine.export.figures import axisnames, chart, letters, numerals
from engine.export.figures.cells import Cells, Side, numbers
from engine.export.figures.chart import Chart
from engine.export.figures.heatmap import hatch, legend
from engine.export.figures.sheet import Box, Sheet
from engine.pictures import Picture

HEIGHT, BARS = 0.5, 512
"""How high the picture is in its widths, and the most bars of it; of more numbers several share one."""


def bars(sheet: Sheet, picture: Picture) -> None:
    """The numbers of a place over one axis."""
    place = picture.place
    assert place is not None
    [axis] = place.axes
    cells = Cells.of(numbers(place)[None], masks=place.plane.masks).shrunk((1, BARS))
    side = Side.of(place, axis, cells.bins[1])
    box = sheet.open(HEIGHT * sheet.width)
    values, kinds = cells.values[0], cells.kinds[0]
    drawn = _chart(sheet, box, values, side)
    _bars(drawn, values)
    for kind in cells.there():
        drawn.axes.add_collection(
            PolyCollection(
                [_box(i + 0.04, i + 0.96, *drawn.axes.get_ylim()) for i in np.flatnonzero(kinds == kind)],
                linewidths=0,
                zorder=0.6,
                **hatch(sheet, kind),  # type: ignore[arg-type]
            ),
            autolim=False,
        )
    line = letters.height(sheet.size.small)
    legend(sheet, drawn.box.x, box.top, box.right, cells.there())
    if len(values) <= 24:
        _values(drawn, values, line)


def _chart(sheet: Sheet, box: Box, values: Float[np.ndarray, " n"], side: Side) -> Chart:
    finite = values[np.isfinite(values)]
    ends = chart.padded(min(0.0, float(finite.min(initial=0))), max(0.0, float(finite.max(initial=0))), 0.09)
    ticks = chart.round_ticks(*ends)
    names = axisnames.along(sheet, side, box.width * 0.92)
    drawn = Chart.of(
        sheet, box, (0, max(1, len(values))), ends, y_ticks=ticks, x_name=side.name, y_name=" ", below=names.room
    )
    axisnames.write_along(sheet, axisnames.along(sheet, side, drawn.box.width), side, drawn.box)
    return drawn


def _bars(drawn: Chart, values: Float[np.ndarray, " n"]) -> None:
    up, down = drawn.sheet.inks.lines[1], drawn.sheet.inks.lines[0]
    gap = 0.12 if len(values) <= 64 else 0.0
    shown = [(i, float(value)) for i, value in enumerate(values) if np.isfinite(value)]
    drawn.axes.add_collection(
        PolyCollection(
            [_box(i + gap, i + 1 - gap, 0.0, value) for i, value in shown],
            facecolors=[up if value >= 0 else down for _, value in shown],
            linewidths=0,
            gid="bars",
        ),
        autolim=False,
    )
    drawn.axes.axhline(0, color=drawn.sheet.inks.ink, linewidth=drawn.sheet.thin)


def _values(drawn: Chart, values: Float[np.ndarray, " n"], line: float) -> None:
    """The number over every bar, where all of them have room."""
    sheet = drawn.sheet
    finite = values[np.isfinite(values)]
    places = numerals.decimals(float(np.abs(finite).max(initial=0)))
    if places < 0:
        return
    texts = [(i, float(v), numerals.in_cell(float(v), places)) for i, v in enumerate(values) if np.isfinite(v)]
    if letters.widest([text for *_, text in texts], sheet.size.small) > drawn.box.width / len(values) * 0.95:
        return
    for i, value, text in texts:
        y = drawn.y(value) + (0.12 * line if value >= 0 else -0.12 * line)
        sheet.text(drawn.x(i + 0.5), y, text, sheet.size.small, ha="center", va="bottom" if value >= 0 else "top")


def histogram(sheet: Sheet, picture: Picture) -> None:
    """How many numbers lie in each bin, and where the quantiles are."""
    told = picture.told
    assert told is not None
    box = sheet.open(HEIGHT * sheet.width)
    edges, counts = told["edges"], told["counts"]
    size = sheet.size.small
    beside = [
        f"{told[key]:,} {word}"
        for key, word in (("masked", "masked"), ("nan", "NaN"), ("above", "+∞"), ("below", "−∞"))
        if told[key]
    ]
    if not counts:
        sheet.text(box.x, box.y + box.height / 2, "no finite number: " + ", ".join(beside), sheet.size.base)
        return
    ends = (0.0, max(counts) * 1.12)
    ticks = [(value, numerals.amount(value)) for value, _ in chart.round_ticks(*ends) if value == int(value)]
    drawn = Chart.of(
        sheet, box, (edges[0], edges[-1]), ends, x_ticks=chart.round_ticks(edges[0], edges[-1], 7), y_ticks=ticks,
        x_name="value", y_name="numbers in a bin",
    )  # fmt: skip
    drawn.axes.add_collection(
        PolyCollection(
            [_box(a, b, 0, n) for a, b, n in zip(edges, edges[1:], counts, strict=False)],
            facecolors=sheet.inks.lines[0], edgecolors=sheet.inks.ground, linewidths=0.4 * sheet.thin, gid="bars",
        ),
        autolim=False,
    )  # fmt: skip
    for key, name, style in (("q01", "1 %", ":"), ("q50", "median", "-"), ("q99", "99 %", ":")):
        if told[key] is not None:
            drawn.axes.axvline(told[key], color=sheet.inks.odd, linewidth=sheet.thin, linestyle=style)
            sheet.text(drawn.x(told[key]), drawn.box.top, name, sheet.size.least, ha="center", va="bottom",
                       colour=sheet.inks.odd)  # fmt: skip
    if beside:
        sheet.text(box.right, box.top, "beside these " + ", ".join(beside), size, ha="right", va="top",
                   colour=sheet.inks.muted)  # fmt: skip


def _box(left: float, right: float, low: float, high: float) -> list[tuple[float, float]]:
    return [(left, low), (right, low), (right, high), (left, high)]

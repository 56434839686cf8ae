"""What the steps of a pass cost: operations and bytes of each, and how these compare with what a machine can do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import ExportError
from engine.export.figures.numerals import amount
from engine.export.figures.subject import Subject
from engine.export.formats import FigureStyle
from engine.ops.base import Cost, counted
from engine.sites import ENCODER, within_block
from engine.text import human
from engine.traces import Trace

if TYPE_CHECKING:
    from engine.export.figures.chart import Chart
    from engine.export.figures.sheet import Box, Sheet

ASSUMED = (1e12, 1e11)
"""FLOPs and bytes a second that are assumed where nobody says what a machine can do; of no machine in particular."""
ROWS = {"slide": 14, "column": 16, "page": 20}
LABELLED = {"slide": 12, "column": 8, "page": 12}
TOUCHED = "Bytes are those read and written when every tensor is touched once"


@dataclass(frozen=True, slots=True)
class StepCost:
    """A step's cost, together with that of the same step in ``count`` layers."""

    name: str
    count: int
    cost: Cost

    @property
    def intensity(self) -> float:
        """FLOPs for each byte."""
        return self.cost.flops / self.cost.bytes

    @property
    def label(self) -> str:
        return self.name if self.count == 1 else f"{self.name} × {self.count}"


def step_costs(trace: Trace, passes: Sequence[int]) -> list[StepCost]:
    """The steps on the path in their order, those of all layers together, summed over some passes."""
    found: dict[str, list[Cost]] = {}
    layers: dict[str, set[str]] = {}
    for at in passes:
        costs_of = trace.program.costs(trace.sizes(at), trace.dtype.itemsize)
        for step in trace.program.steps:
            if not step.on_path or (at and step.site.name in trace.program.once):
                continue
            site = step.site.name
            name = (ENCODER if site.startswith(ENCODER) else "") + within_block(site)
            found.setdefault(name, []).append(costs_of[site])
            layers.setdefault(name, set()).add(site)
    return [StepCost(name, len(layers[name]), sum(costs, Cost(0, 0))) for name, costs in found.items()]


def cost(trace: Trace, style: FigureStyle, title: str = "") -> Subject:
    """The operations and bytes of every step, summed over all passes."""
    steps = step_costs(trace, range(len(trace.passes)))
    total = sum((step.cost for step in steps), Cost(0, 0))
    run = f"{counted(trace.length, 'position')} in {counted(len(trace.passes), 'pass', 'passes')}"
    formula = f"{run}: {amount(total.flops)}FLOP, {human(total.bytes)}"
    return Subject(
        trace, title or "What each step costs", formula, (TOUCHED,), "", lambda sheet: _bars(sheet, steps)
    )  # fmt: skip


def roofline(trace: Trace, style: FigureStyle, title: str = "") -> Subject:
    """Every step at its operations per byte, under the most that a machine could do there. Raises ExportError for
    peaks that no machine has."""
    flops, rate = peaks = style.peaks or ASSUMED
    if not all(1 <= peak <= 1e30 for peak in peaks):
        raise ExportError("a roofline's peaks are FLOPs and bytes a second, both from 1 to 1e30, e.g. 1e12 and 1e11")
    said = f"{amount(flops)}FLOP/s and {amount(rate)}B/s"
    given = f"peaks as given: {said}" if style.peaks else f"assumed peaks, of no machine in particular: {said}"
    passes = [0] if len(trace.passes) == 1 else [0, len(trace.passes) - 1]
    points = [[step for step in step_costs(trace, [at]) if step.cost.flops and step.cost.bytes] for at in passes]
    facts = (
        "Nothing here was timed",
        "A step left of the ridge would wait for memory, one to the right of it for arithmetic",
        TOUCHED,
    )
    return Subject(
        trace, title or "Roofline", f"FLOP/s ≤ min(peak, bytes/s · FLOP/byte) · {given}", facts, "",
        lambda sheet: _roof(sheet, trace, points, passes, (flops, rate), assumed=not style.peaks),
    )  # fmt: skip


def shown(steps: Sequence[StepCost], most: int) -> list[StepCost]:
    """At most so many steps in their order: the dearest ones, and the others together."""
    flops, size = (max(1, sum(parts)) for parts in zip(*((s.cost.flops, s.cost.bytes) for s in steps), strict=True))
    steps = [step for step in steps if step.cost.flops or step.cost.bytes]
    if len(steps) <= most:
        return list(steps)
    dear = sorted(steps, key=lambda step: max(step.cost.flops / flops, step.cost.bytes / size), reverse=True)
    named = {step.name for step in dear[: most - 1]}
    rest = [step for step in steps if step.name not in named]
    others = StepCost(f"{len(rest)} others", 1, sum((step.cost for step in rest), Cost(0, 0)))
    return [*(step for step in steps if step.name in named), others]


def _bars(sheet: Sheet, steps: Sequence[StepCost]) -> None:
    from engine.export.figures import letters
    from engine.export.figures.sheet import Box

    steps = shown(steps, ROWS[sheet.style.size])
    size = sheet.size.small
    line = letters.height(size)
    box = sheet.open((len(steps) + 1.3) * 1.2 * line)
    pitch = box.height / (len(steps) + 1.3)
    left = letters.widest([step.label for step in steps], size) + 0.6 * line
    wide = (box.width - left - line) / 2
    panels = (
        ("FLOP", [step.cost.flops for step in steps], [amount(step.cost.flops) for step in steps], sheet.inks.lines[0]),
        ("bytes", [step.cost.bytes for step in steps], [human(step.cost.bytes) for step in steps], sheet.inks.lines[1]),
    )
    for i, step in enumerate(steps):
        y = box.top - (i + 1.8) * pitch
        sheet.text(box.x + left - 0.6 * line, y, step.label, size, ha="right", va="center_baseline")
    for n, (name, values, texts, colour) in enumerate(panels):
        x = box.x + left + n * (wide + line)
        room = wide - letters.widest(texts, size) - 0.5 * line
        sheet.text(x, box.top, name, size, va="top", colour=sheet.inks.muted)
        most = max(values) or 1
        for i, (value, text) in enumerate(zip(values, texts, strict=True)):
            y = box.top - (i + 1.8) * pitch
            bar = Box(x, y - 0.36 * min(pitch, 1.4 * line), room * value / most, 0.72 * min(pitch, 1.4 * line))
            sheet.block(bar, colour, gid=name)
            sheet.text(bar.right + 0.3 * line, y, text, size, va="center_baseline", colour=sheet.inks.muted)
        sheet.line([x, x], [box.y, box.top - 1.25 * pitch], color=sheet.inks.line)


def _roof(
    sheet: Sheet,
    trace: Trace,
    points: Sequence[Sequence[StepCost]],
    passes: Sequence[int],
    peaks: tuple[float, float],
    *,
    assumed: bool,
) -> None:
    from engine.export.figures import letters
    from engine.export.figures.chart import Chart, decades

    flops, rate = peaks
    ridge = flops / rate
    every = [step.intensity for steps in points for step in steps]
    low, high = min([ridge, *every]) / 3, max([ridge, *every]) * 6
    dear = sorted(points[0], key=lambda step: step.cost.flops, reverse=True)[: LABELLED[sheet.style.size]]
    number = {step.name: n for n, step in enumerate(sorted(dear, key=lambda step: step.intensity), 1)}
    size, line = sheet.size.small, letters.height(sheet.size.small)
    names = {number[step.name]: f"{number[step.name]}  {step.label}: {amount(step.intensity)}" for step in dear}
    right = letters.widest(list(names.values()), size) + 1.6 * line if sheet.style.size != "column" else 0.5 * line
    foot = 0.0 if sheet.style.size != "column" else 1.2 * line * -(-len(names) // 2) + 0.6 * line
    box = sheet.open(0.62 * sheet.width + foot)
    ends = min(rate * low, flops) / 2, flops * 5
    drawn = Chart.of(
        sheet, box.inside(bottom=foot), (low, high), ends, x_ticks=decades(low, high), y_ticks=decades(*ends, 5),
        x_name="FLOP per byte", y_name="attainable FLOP/s", log=True, right=right,
    )  # fmt: skip
    ink, muted = sheet.inks.ink, sheet.inks.muted
    drawn.axes.plot([low, ridge, high], [rate * low, flops, flops], color=ink, linewidth=sheet.size.line, zorder=2)
    drawn.axes.axvline(ridge, color=sheet.inks.line, linewidth=sheet.thin, linestyle=":", zorder=1)
    words = f" ridge: {amount(ridge)}"
    sheet.text(drawn.x(ridge), drawn.y(flops) - 0.5 * line, words, size, va="top", colour=muted)
    _peaks(drawn, peaks, assumed=assumed)
    colours = sheet.inks.lines
    for series, (steps, at) in enumerate(zip(points, passes, strict=True)):
        most = max(step.cost.flops for step in steps)
        drawn.axes.scatter(
            [step.intensity for step in steps], [min(flops, rate * step.intensity) for step in steps],
            s=[(sheet.size.line * (2 + 4 * math.sqrt(step.cost.flops / most))) ** 2 for step in steps],
            facecolors=colours[0] if series == 0 else "none", edgecolors=colours[series], zorder=3 + series,
            linewidths=0.6 * sheet.size.line, alpha=0.85, gid=f"pass {at}",
        )  # fmt: skip
    _numbers(drawn, [(step.intensity, number[step.name]) for step in points[0] if step.name in number], peaks)
    _passes(sheet, drawn.box, trace, passes)
    for n, text in names.items():
        if foot:
            x, y = box.x + (n - 1) % 2 * box.width / 2, box.y + foot - 0.9 * line - (n - 1) // 2 * 1.2 * line
        else:
            x, y = drawn.box.right + 1.2 * line, drawn.box.top - (n - 0.3) * 1.25 * line
        sheet.text(x, y, letters.fit(text, box.width / 2 if foot else right, size), size, va="center_baseline")


def _peaks(drawn: Chart, peaks: tuple[float, float], *, assumed: bool) -> None:
    """What a machine can do, along the two parts of the roof, and whether that is assumed."""
    from engine.export.figures import letters

    sheet, (flops, rate) = drawn.sheet, peaks
    size, line = sheet.size.small, letters.height(sheet.size.small)
    said = "assumed " if assumed else ""
    top = drawn.y(flops) + 1.9 * line
    sheet.text(drawn.box.right, top, f"{said}peak: {amount(flops)}FLOP/s", size, ha="right", va="bottom",
               colour=sheet.inks.accent)  # fmt: skip
    (x, y), (right, high) = ((drawn.x(i), drawn.y(rate * i)) for i in (drawn.axes.get_xlim()[0], flops / rate))
    turn = math.degrees(math.atan2(high - y, right - x))
    x, y = x + 0.03 * (right - x), y + 0.03 * (high - y) - 0.5 * line / math.cos(math.radians(turn))
    sheet.text(x, y, f"{said}{amount(rate)}B/s", size, va="top", rotation=turn, colour=sheet.inks.accent)


def _numbers(drawn: Chart, places: Sequence[tuple[float, int]], peaks: tuple[float, float]) -> None:
    """The number of each step over its point; of points that are close the first and the last number."""
    from engine.export.figures import letters

    sheet, size = drawn.sheet, drawn.sheet.size.small
    groups: list[list[tuple[float, int]]] = []
    for place in sorted(places):
        if groups and drawn.x(place[0]) - drawn.x(groups[-1][-1][0]) < letters.width("10–12", size):
            groups[-1].append(place)
        else:
            groups.append([place])
    for group in groups:
        (first, one), (last, other) = group[0], group[-1]
        middle = math.sqrt(first * last)
        y = drawn.y(min(peaks[0], peaks[1] * last)) + 0.9 * letters.height(size)
        sheet.text(drawn.x(middle), y, str(one) if one == other else f"{one}–{other}", size, ha="center", va="bottom")


def _passes(sheet: Sheet, box: Box, trace: Trace, passes: Sequence[int]) -> None:
    """Which points are of which pass."""
    from engine.export.figures import letters

    size, line = sheet.size.small, letters.height(sheet.size.small)
    if len(passes) == 1:
        return
    y = box.y + 0.9 * line
    for series, at in reversed(list(enumerate(passes))):
        words = f"pass {at}: {counted(trace.passes[at].length, 'new token')}"
        x = box.right - letters.width(words, size)
        sheet.text(x, y, words, size, va="center_baseline", colour=sheet.inks.lines[series])
        sheet.text(
            x - line, y, "●" if series == 0 else "○", size, va="center_baseline", colour=sheet.inks.lines[series]
        )
        y += 1.2 * line

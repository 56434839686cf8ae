"""The KV cache as it grows: its bytes after every position, also for more or fewer kv heads than the model has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.analysis.cachecost import CacheReport, NoCache
from engine.analysis.kvcache import cache_report
from engine.errors import ExportError
from engine.export.figures.subject import Subject
from engine.export.formats import FigureStyle
from engine.ops.base import counted
from engine.text import human
from engine.traces import Trace

if TYPE_CHECKING:
    from engine.export.figures.sheet import Sheet

POINTS = 200
"""Lengths at which the bytes of a line are computed, at most."""


def growth(trace: Trace, style: FigureStyle, title: str = "") -> Subject:
    """Raises ExportError for a model that has no KV cache."""
    report = cache_report(trace)
    if isinstance(report, NoCache):
        raise ExportError(report.text)
    measured = "" if report.bytes is None else f"Measured after the last pass: {human(report.bytes)}"
    facts = (
        report.text,
        f"Passes: {len(report.passes)}" + (", each a point on the line" if len(report.passes) > 1 else ""),
        measured,
    )
    return Subject(
        trace, title or "The KV cache as it grows", report.formula_text, tuple(fact for fact in facts if fact), "",
        lambda sheet: _paint(sheet, report),
    )  # fmt: skip


def lengths(report: CacheReport) -> list[int]:
    """The numbers of positions at which bytes are computed: all, or evenly many of them."""
    last = max(1, report.tokens)
    step = max(1, -(-last // POINTS))
    return [*range(0, last, step), last]


def _paint(sheet: Sheet, report: CacheReport) -> None:
    from engine.export.figures import chart, letters
    from engine.export.figures.chart import Chart
    from engine.export.figures.lines import DASHES

    along = lengths(report)
    kinds = sorted(report.as_kinds(), key=lambda kind: kind["bytes"], reverse=True)
    names = [_name(kind) for kind in kinds]
    size, line = sheet.size.small, letters.height(sheet.size.small)
    wide = (letters.width(name, size, bold=kind["this"]) for name, kind in zip(names, kinds, strict=True))
    right, notes = max(wide) + 1.2 * line, _notes(report)
    over = 1.2 * len(notes) * line
    box = sheet.open(0.56 * sheet.width + over)
    top = 1.12 * max(kind["bytes"] for kind in kinds) or 1
    y_ticks = [(value, human(round(value)).replace(".0 ", " ") if value else "0") for value in _round_bytes(top)]
    drawn = Chart.of(
        sheet, box.inside(top=over), (0, along[-1]), (0, top), x_ticks=chart.whole_ticks(0, along[-1]), y_ticks=y_ticks,
        x_name="positions", y_name="bytes", right=right,
    )  # fmt: skip
    ends: list[tuple[float, int]] = []
    for n, kind in enumerate(kinds):
        values = [report.at(tokens, kv_heads=kind["kv_heads"]) for tokens in along]
        this = bool(kind["this"])
        colour = sheet.inks.lines[0] if this else sheet.inks.muted
        drawn.axes.plot(
            along, values, color=colour, linewidth=sheet.size.line * (1.3 if this else 0.7), clip_on=False,
            linestyle="-" if this else DASHES[1 + n % (len(DASHES) - 1)], zorder=3 if this else 2, gid=kind["name"],
        )  # fmt: skip
        ends.append((drawn.y(values[-1]), n))
    for y, n in _apart(ends, 1.1 * line):
        this = bool(kinds[n]["this"])
        sheet.text(drawn.box.right + 0.5 * line, y, names[n], size, va="center_baseline", bold=this,
                   colour=sheet.inks.lines[0] if this else sheet.inks.muted)  # fmt: skip
    passes = report.growth()
    drawn.axes.scatter(
        [p["positions"] for p in passes], [p["bytes"] for p in passes], s=(2.6 * sheet.size.line) ** 2, zorder=4,
        color=sheet.inks.ground, edgecolors=sheet.inks.lines[0], linewidths=0.8 * sheet.size.line, clip_on=False,
        gid="passes",
    )  # fmt: skip
    if len(passes) > 1:
        sheet.line([drawn.x(passes[0]["positions"])] * 2, [drawn.box.y, drawn.y(passes[0]["bytes"])], linestyle=":")
    for i, words in enumerate(notes):
        y = box.top - 1.2 * i * line
        sheet.text(drawn.box.x, y, letters.fit(words, drawn.box.width + right, size), size, va="top",
                   colour=sheet.inks.muted)  # fmt: skip


def _notes(report: CacheReport) -> list[str]:
    """What is told over the picture."""
    first, more = report.growth()[:1], len(report.passes) - 1
    found = []
    if more:
        found.append(f"prefill: {counted(first[0]['positions'], 'position')}, then {counted(more, 'pass', 'passes')}")
    return found if report.bytes is None else [*found, f"measured at the end: {human(report.bytes)}"]


def _name(kind: dict[str, object]) -> str:
    return f"{kind['name']}{', this model' if kind['this'] else ''}"


def _round_bytes(top: float) -> list[float]:
    """Round numbers of bytes up to a largest one, some steps of 1, 2 or 5 times a power of 2¹⁰."""
    unit = 1.0
    while top / unit >= 1024:
        unit *= 1024
    for step in (n * 10**p for p in range(-2, 4) for n in (1, 2, 5)):
        if top / unit / step <= 5.5:
            return [i * step * unit for i in range(int(top / unit / step) + 1)]
    return [0.0]


def _apart(ends: Sequence[tuple[float, int]], gap: float) -> list[tuple[float, int]]:
    """Heights moved up until each is so far above the one before."""
    placed: list[tuple[float, int]] = []
    for y, n in sorted(ends):
        placed.append((max(y, placed[-1][0] + gap) if placed else y, n))
    return placed

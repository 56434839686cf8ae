"""Rotary positions: each pair of dimensions as an arrow on a dial, before and after it is turned."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.patches import Arc, Circle, FancyArrow

from engine.export.figures import letters, numerals
from engine.export.figures.sheet import Box, Sheet
from engine.pictures import Picture

MOST = {"slide": 18, "column": 8, "page": 10}
ACROSS = {"column": 4, "page": 5}
"""Dials of a figure, and how many stand side by side on paper."""


def rotation(sheet: Sheet, picture: Picture) -> None:
    """The pairs of one query or key, or some of them, evenly from first to last and with the one asked about."""
    told = picture.told
    assert told is not None
    pairs, asked = told["pairs"], told["pair"]
    chosen = _some(len(pairs), MOST[sheet.style.size], asked)
    size, line = sheet.size.small, letters.height(sheet.size.small)
    named, gap, foot = 2.3 * line, 0.5 * line, 2.8 * line
    across = min(len(chosen), ACROSS.get(sheet.style.size, 0)) or max(
        range(1, max(2, len(chosen) + 1)),
        key=lambda n: min(sheet.width / n, (sheet.most - foot) / math.ceil(len(chosen) / n) - named - gap) - 0.05 * n,
    )
    rows = math.ceil(len(chosen) / across)
    across = math.ceil(len(chosen) / rows) if chosen else 1
    wide = (sheet.width - gap * (across - 1)) / across
    box = sheet.open(rows * (wide + named + gap) + foot)
    high = min(wide, (box.height - foot) / max(1, rows) - named - gap)
    left = box.x + (box.width - across * min(wide, 1.5 * high) - gap * (across - 1)) / 2
    wide = min(wide, 1.5 * high)
    for n, i in enumerate(chosen):
        x = left + (n % across) * (wide + gap)
        top = box.top - (n // across) * (high + named + gap)
        _dial(sheet, pairs[i], Box(x + (wide - high) / 2, top - named - high, high, high), bold=i == asked)
    _key(sheet, told, len(chosen), Box(box.x, box.y, box.width, foot), size)


def _some(count: int, most: int, asked: int | None) -> list[int]:
    if count <= most:
        return list(range(count))
    found = {round(i * (count - 1) / (most - 1)) for i in range(most)}
    if asked is not None and asked not in found:
        found.discard(min(found - {0}, key=lambda i: abs(i - asked)))
        found.add(asked)
    return sorted(found)


def _dial(sheet: Sheet, pair: dict[str, Any], box: Box, *, bold: bool) -> None:
    size, line = sheet.size.least if not sheet.slide else sheet.size.small, letters.height(sheet.size.small)
    inks = sheet.inks
    before, after = pair["before"], pair["after"]
    middle = box.x + box.width / 2
    first, second = pair["dims"]
    sheet.text(middle, box.top + 1.25 * line, f"dims {first}, {second}", size, ha="center", va="bottom", bold=bold)
    turn = f"{numerals.short(pair['angle'])} rad"
    sheet.text(middle, box.top + 0.2 * line, turn, size, ha="center", va="bottom", colour=inks.muted)
    axes = sheet.axes(box)
    axes.set_xlim(-1.08, 1.08)
    axes.set_ylim(-1.08, 1.08)
    radius = math.hypot(*before), math.hypot(*after)
    limit = max((r for r in radius if math.isfinite(r)), default=0.0) or 1.0
    axes.add_patch(Circle((0, 0), 1, fill=False, color=inks.odd if bold else inks.line, linewidth=sheet.thin))
    axes.plot([-1, 1, 0, 0, 0], [0, 0, 0, -1, 1], color=inks.line, linewidth=0.5 * sheet.thin, zorder=0.5)
    if not all(map(math.isfinite, (*before, *after))):
        sheet.text(middle, box.y + box.height / 2, "not finite", size, ha="center", colour=inks.odd)
        return
    turned = math.degrees(pair["angle"]) % 360
    start = math.degrees(math.atan2(before[1], before[0]))
    axes.add_patch(
        Arc((0, 0), 0.7, 0.7, theta1=start, theta2=start + turned, color=inks.accent, linewidth=0.7 * sheet.size.line)
    )
    for (x, y), colour, wide in ((before, inks.muted, 0.7), (after, inks.lines[0], 1.2)):
        _arrow(axes, x / limit, y / limit, colour, wide * 0.013 * (1.6 if sheet.slide else 2.0))


def _arrow(axes: Any, x: float, y: float, colour: str, wide: float) -> None:
    if x or y:
        axes.add_patch(
            FancyArrow(0, 0, x, y, width=wide, head_width=6 * wide, head_length=min(8 * wide, math.hypot(x, y)),
                       length_includes_head=True, color=colour, linewidth=0)
        )  # fmt: skip


def _key(sheet: Sheet, told: dict[str, Any], count: int, box: Box, size: float) -> None:
    line, x = letters.height(size), box.x
    y = box.top - 0.9 * line
    for name, colour in (
        ("before", sheet.inks.muted),
        ("after", sheet.inks.lines[0]),
        ("turned by", sheet.inks.accent),
    ):
        sheet.line([x, x + 1.3 * line], [y, y], color=colour, linewidth=sheet.size.line)
        sheet.text(x + 1.6 * line, y, name, size, va="center_baseline")
        x += 2.6 * line + letters.width(name, size)
    words = f"{told['numbers']}; angle = position · inv_freq, {told['convention']}"
    if count < len(told["pairs"]):
        words = f"{count} of {len(told['pairs'])} pairs; {words}"
    sheet.text(box.x, y - 0.9 * line, letters.fit(words, box.width, sheet.size.least), sheet.size.least, va="top",
               colour=sheet.inks.muted)  # fmt: skip

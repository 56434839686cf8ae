"""Attention as arcs over the text, and the text itself coloured by what one query attends to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from engine.export.figures import axisnames, letters, numerals
from engine.export.figures.cells import Cells, Scale, Side, numbers, strongest, what_of
from engine.export.figures.colours import ink_on
from engine.export.figures.heatmap import bar_room, colour_bar, colour_of
from engine.export.figures.sheet import Box, Sheet
from engine.pictures import Picture
from engine.place import Axis, Place

FEW = 32
"""Tokens from which on arcs are thinner."""
POINTS = 40
"""Points of an arc."""
THICK = 3.0
"""How many times as thick as a line the heaviest arc is."""


def arcs(sheet: Sheet, picture: Picture) -> None:
    """An arc from every query to each key that it attends to, as thick as the weight."""
    place = picture.place
    assert place is not None
    query, key = place.axes
    cells = Cells.of(numbers(place), masks=place.plane.masks)
    scale = Scale.of([cells.values], whole=True)
    bar = bar_room(sheet, scale, what_of(place))
    wide = sheet.width - bar
    if query.name.startswith("src") != key.name.startswith("src"):
        _two_lines(sheet, place, cells, scale, wide)
    else:
        _one_line(sheet, place, cells, scale, wide)


def _one_line(sheet: Sheet, place: Place, cells: Cells, scale: Scale, wide: float) -> None:
    """Queries and keys are the same text: arcs above it to earlier keys, below it to later ones."""
    query, key = place.axes
    start = min(query.first, key.first)
    stop = max(query.first + query.size, key.first + key.size)
    side = Side(key.name, stop - start, start, tuple(place.token(key.name, i) for i in range(start, stop)))
    found = [(w, i + query.first - start, j + key.first - start) for w, i, j in strongest(cells)]
    up = max((i - j for _, i, j in found), default=1)
    down = max((j - i for _, i, j in found if j > i), default=0)
    left = max(0.0, axisnames.overhang(axisnames.along(sheet, side, wide), side, wide))
    wide -= left
    names = axisnames.along(sheet, side, wide)
    box = sheet.open(names.room + (0.42 if not down else 0.62) * wide).inside(left)
    room = box.height - names.room - 0.3 * letters.height(sheet.size.small)
    high = room * max(up, 1) / (max(up, 1) + down)
    base = Box(box.x, box.top - high, wide, high)
    axisnames.write_along(sheet, names, side, base)
    above = sheet.axes(base)
    above.set_xlim(0, side.cells)
    above.set_ylim(0, 1.04)
    thin = max(0.3, min(1.0, FEW / side.cells))
    _draw(sheet, above, scale, [a for a in found if a[2] < a[1]], max(up, 1), thin)
    own = [(w, i) for w, i, j in found if i == j]
    above.scatter(
        [i + 0.5 for _, i in own], [0.0] * len(own), color=[colour_of(sheet, scale, w) for w, _ in own], clip_on=False,
        s=[(2.2 * THICK * sheet.size.line) ** 2 * scale.level(w) for w, _ in own], edgecolors=sheet.inks.muted,
        linewidths=0.4 * sheet.thin, zorder=4, gid="own",
    )  # fmt: skip
    sheet.line([base.x, base.right], [base.y, base.y], color=sheet.inks.line)
    if down:
        under = sheet.axes(Box(box.x, box.y, wide, room - high))
        under.set_xlim(0, side.cells)
        under.set_ylim(1.04, 0)
        _draw(sheet, under, scale, [a for a in found if a[2] > a[1]], down, thin)
    _key(sheet, place, scale, base)


def _draw(sheet: Sheet, axes: Axes, scale: Scale, found: list[tuple[float, int, int]], most: int, thin: float) -> None:
    angles = np.linspace(0, np.pi, POINTS)
    lines = []
    for _, i, j in found:
        middle, half = (i + j + 1) / 2, abs(i - j) / 2
        lines.append(np.stack((middle + half * np.cos(angles), 2 * half / most * np.sin(angles)), axis=-1))
    axes.add_collection(
        LineCollection(
            lines, colors=[colour_of(sheet, scale, w) for w, _, _ in found], capstyle="round",
            linewidths=[thin * _thick(sheet, scale, w) for w, _, _ in found], clip_on=False, gid="arcs",
        ),
        autolim=False,
    )  # fmt: skip


def _two_lines(sheet: Sheet, place: Place, cells: Cells, scale: Scale, wide: float) -> None:
    """Queries are another text than keys: its tokens below, those of the keys above, and lines between."""
    query, key = place.axes
    lower, upper = (Side(axis.name, axis.size, axis.start, _labels(place, axis)) for axis in (query, key))
    under, over = axisnames.along(sheet, lower, wide), axisnames.along(sheet, upper, wide)
    box = sheet.open(under.room + over.room + 0.4 * wide)
    inner = Box(box.x, box.y + under.room, wide, box.height - under.room - over.room)
    axisnames.write_along(sheet, under, lower, inner)
    pitch, line = wide / max(1, upper.cells), letters.height(over.size)
    turned = bool(over.angle)
    for i, text in over.entries:
        x, y = inner.x + (i + 0.5) * pitch, inner.top + 0.3 * line
        if turned:
            sheet.text(x, y, text, over.size, ha="left", va="center_baseline", rotation=90)
        else:
            sheet.text(x, y, text, over.size, ha="center", va="bottom")
    axes = sheet.axes(inner)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    found = strongest(cells)
    axes.add_collection(
        LineCollection(
            [[((i + 0.5) / lower.cells, 0), ((j + 0.5) / upper.cells, 1)] for _, i, j in found], gid="arcs",
            colors=[colour_of(sheet, scale, w) for w, _, _ in found], capstyle="round", clip_on=False,
            linewidths=[_thick(sheet, scale, w) for w, _, _ in found],
        ),
        autolim=False,
    )  # fmt: skip
    _key(sheet, place, scale, inner)


def _labels(place: Place, axis: Axis) -> tuple[str, ...]:
    return tuple(place.label(axis, i) for i in range(axis.size))


def _thick(sheet: Sheet, scale: Scale, weight: float) -> float:
    return sheet.size.line * (0.25 + THICK * abs(weight) / scale.limit)


def _key(sheet: Sheet, place: Place, scale: Scale, box: Box) -> None:
    line = letters.height(sheet.size.small)
    colour_bar(
        sheet, Box(box.x, max(box.y, box.top - 9 * line), box.width, min(box.height, 9 * line)), scale, what_of(place)
    )


def _flow(
    tokens: Sequence[str], written: Sequence[str], sizes: tuple[float, float, float, float], room: float
) -> tuple[list[list[int]], list[float]]:
    """Which tokens stand in each row, and how wide each of them is."""
    size, least, pad, gap = sizes
    wide = [
        min(room, max(letters.width(token, size), letters.width(number, least)) + 2 * pad)
        for token, number in zip(tokens, written, strict=True)
    ]
    rows, x = [list[int]()], 0.0
    for i, each in enumerate(wide):
        if rows[-1] and x + each > room:
            rows.append([])
            x = 0.0
        rows[-1].append(i)
        x += each + gap
    return rows, wide


def weighted_text(sheet: Sheet, picture: Picture) -> None:
    """The text, each token on the colour of its weight with the number under it."""
    place = picture.place
    assert place is not None
    [axis] = place.axes
    values = Cells.of(numbers(place)[None], masks=place.plane.masks).values[0]
    scale = Scale.of([values], whole=True)
    bar = bar_room(sheet, scale, what_of(place))
    tokens = _labels(place, axis)
    room = sheet.width - bar
    written = [numerals.in_cell(float(v), 2) if np.isfinite(v) else "–" for v in values]
    for larger in (1.9, 1.5, 1.2, 1.0) if sheet.slide else (1.0,):
        size, least = larger * sheet.size.base, larger * sheet.size.least
        line = letters.height(size)
        pad, gap, high = 0.3 * line, 0.12 * line, 2.7 * line
        rows, wide = _flow(tokens, written, (size, least, pad, gap), room)
        if len(rows) * high <= sheet.most:
            break
    fitting = max(1, int(sheet.most / high))
    box = sheet.open(min(len(rows), fitting) * high + 0.5 * line)
    top = box.top
    query = next((name for name in ("query", "src_query") if name in place.fixed), "")
    own = place.fixed.get(query, -1) + place.trace.origin(place.address.site, query, place.address.at) if query else -1
    for row in rows[:fitting]:
        x = box.x
        for i in row:
            is_number = bool(np.isfinite(values[i]))
            colour = colour_of(sheet, scale, float(values[i])) if is_number else sheet.inks.ground
            ink = ink_on(colour) if is_number and not isinstance(colour, str) else sheet.inks.muted
            tile = Box(x, top - 1.55 * line, wide[i], 1.5 * line)
            here = axis.first + i == own and not axis.name.startswith("src")
            sheet.block(tile, colour, edgecolor=sheet.inks.odd if here else sheet.inks.line,
                        linewidth=sheet.size.line if here else sheet.thin)  # fmt: skip
            middle = x + wide[i] / 2
            sheet.text(middle, tile.y + tile.height / 2, letters.fit(tokens[i], wide[i] - pad, size), size, ha="center",
                       va="center", colour=ink)  # fmt: skip
            sheet.text(middle, tile.y - 0.1 * line, written[i], least, ha="center", va="top", colour=sheet.inks.muted)
            x += wide[i] + gap
        top -= high
    if len(rows) > fitting:
        left = sum(map(len, rows[fitting:]))
        sheet.text(box.x, box.y, f"… {left:,} more tokens", least, va="bottom", colour=sheet.inks.muted)
    line = letters.height(sheet.size.small)
    colour_bar(
        sheet, Box(box.x, max(box.y, box.top - 9 * line), room, min(9 * line, box.height)), scale, what_of(place)
    )

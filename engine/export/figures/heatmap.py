"""A plane of numbers as coloured cells, with names along its sides, a bar that says what the colours mean, and a
hatch where a cell is no number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.patches import Rectangle

from engine.export.figures import axisnames, letters, numerals
from engine.export.figures.cells import HATCHES, WORDS, Cells, Kind, Scale, Side
from engine.export.figures.colours import RGB, ink_on
from engine.export.figures.sheet import Box, Sheet

VECTORS = 4096
"""Cells that are drawn as rectangles; more are an image."""
SEPARATE = 48
"""Rows and columns between which there is a thin line."""
SQUARE = 2.0
"""How much wider than high a cell of a picture of tokens by tokens may be."""


@dataclass(frozen=True, slots=True)
class Map:
    """A plane to be drawn. ``words`` are one text for each cell, beside its number; ``square``: cells are about square;
    ``what`` the numbers are, over the bar."""

    cells: Cells
    rows: Side
    cols: Side
    scale: Scale
    what: str = ""
    words: Sequence[Sequence[str]] = ()
    square: bool = False

    def height(self, sheet: Sheet) -> float:
        """How high the picture is best, its names included."""
        rows, cols = self.cells.shape
        size = sheet.size.small
        line = letters.height(size)
        left = axisnames.beside(sheet, self.rows, 1e9).room + line
        wide = sheet.width - left - self._bar(sheet)
        below = axisnames.along(sheet, self.cols, wide).room + line
        row = 1.15 * line * (1 + bool(self.words))
        best = min(wide / max(1, cols), (2.9 if self.square else 1.4) * row)
        least = min(rows * row, sheet.most - below)
        return max(rows * best, least, 3 * line, sheet.size.width * 0.2) + below

    def draw(self, sheet: Sheet, box: Box, *, bar: bool = True) -> Axes:
        """Draw it, and beside it the bar and what the hatches mean; its axes."""
        line, bars = letters.height(sheet.size.small), self._bar(sheet) if bar else 0.0
        inner = box
        for _ in range(3):  # names that are turned take room, and so they may have to be turned
            below = axisnames.along(sheet, self.cols, inner.width).room + line
            left = axisnames.beside(sheet, self.rows, inner.height).room + line
            inner = self._shaped(box.inside(left, below, bars))
        names = axisnames.along(sheet, self.cols, inner.width)
        axisnames.write_along(sheet, names, self.cols, inner)
        axisnames.write_beside(sheet, axisnames.beside(sheet, self.rows, inner.height), self.rows, inner)
        self._titles(sheet, box, inner, names.room, left)
        axes = sheet.axes(inner, frame=True)
        paint(sheet, axes, self.cells, self.scale, (inner.width, inner.height))
        self._numbers(sheet, axes, inner)
        if bar:
            colour_bar(sheet, inner, self.scale, self.what)
        return axes

    def _shaped(self, box: Box) -> Box:
        """As much of a box as there are cells for, where these are to be about square."""
        rows, cols = (max(1, size) for size in self.cells.shape)
        if not self.square:
            return box
        wide = min(box.width, SQUARE * box.height / rows * cols)
        return Box(box.x, box.y, wide, box.height).inside(bottom=max(0.0, box.height - 1.25 * wide / cols * rows))

    def _titles(self, sheet: Sheet, box: Box, inner: Box, room: float, left: float) -> None:
        size, line = sheet.size.small, letters.height(sheet.size.small)
        muted = sheet.inks.muted
        x = inner.x - left + 0.5 * line
        sheet.text(x, inner.y + inner.height / 2, self.rows.name, size, ha="center", colour=muted, rotation=90)
        y = inner.y - room - 0.1 * line
        sheet.text(inner.x, y, self.cols.name, size, va="top", colour=muted)
        x = inner.x + letters.width(self.cols.name, size) + line
        legend(sheet, x, y, box.right, self.cells.there())

    def _bar(self, sheet: Sheet) -> float:
        return bar_room(sheet, self.scale, self.what)

    def _numbers(self, sheet: Sheet, axes: Axes, inner: Box) -> None:
        """The number in every cell, where there is room for all of them."""
        rows, cols = self.cells.shape
        pitch, high = inner.width / max(1, cols), inner.height / max(1, rows)
        places = numerals.decimals(self.scale.limit)
        values = self.cells.values
        if self.cells.bins != (1, 1) or (places < 0 and not self.words):
            return
        texts = [
            ["" if np.isnan(value) else numerals.in_cell(value, max(0, places)) for value in row]
            for row in values.tolist()
        ]
        lines = 1 + bool(self.words)
        for size in (sheet.size.small, (sheet.size.small + sheet.size.least) / 2, sheet.size.least):
            wide = letters.widest([text for row in texts for text in row], size)
            if wide + 0.35 * letters.height(size) <= pitch and letters.height(size, lines) * 1.05 <= high:
                break
        else:
            return
        shift = letters.height(size) * 0.5 if self.words else 0.0
        for i, row in enumerate(texts):
            for j, text in enumerate(row):
                if not text:
                    continue
                x, y = inner.x + (j + 0.5) * pitch, inner.top - (i + 0.5) * high
                colour = ink_on(colour_of(sheet, self.scale, float(values[i, j])))
                if self.words:
                    word = letters.fit(self.words[i][j], pitch * 0.94, size)
                    sheet.text(x, y + shift, word, size, ha="center", va="center_baseline", colour=colour)
                small = size * (0.88 if self.words else 1)
                sheet.text(x, y - shift, text, small, ha="center", va="center_baseline", colour=colour)


def paint(sheet: Sheet, axes: Axes, cells: Cells, scale: Scale, inches: tuple[float, float]) -> None:
    """Fill axes with cells, the first row at the top: those that are numbers in colours, the others with a hatch."""
    rows, cols = (max(1, size) for size in cells.shape)
    axes.set_xlim(0, cols)
    axes.set_ylim(rows, 0)
    fill(sheet, axes, cells, scale, Box(0, 0, cols, rows), inches)


def fill(
    sheet: Sheet, axes: Axes, cells: Cells, scale: Scale, box: Box, inches: tuple[float, float], vectors: int = VECTORS
) -> None:
    """Fill a part of axes, whose vertical axis runs down, with cells; more than so many ``vectors`` are an image."""
    rows, cols = cells.shape
    if not cells.values.size:
        return
    xs, ys = np.linspace(box.x, box.right, cols + 1), np.linspace(box.y, box.top, rows + 1)
    colours = ListedColormap(sheet.scale(signed=scale.signed))
    shade = Normalize(scale.low, scale.limit, clip=True)
    values = np.ma.masked_invalid(cells.values)
    if rows * cols <= vectors:
        apart = max(rows, cols) <= SEPARATE
        wide = min(sheet.thin, 72 * 0.06 * min(inches[0] / cols, inches[1] / rows)) if apart else 0.2
        edge = sheet.inks.ground if apart else "face"
        axes.pcolormesh(xs, ys, values, cmap=colours, norm=shade, edgecolors=edge, linewidth=wide)
    else:
        axes.imshow(values, cmap=colours, norm=shade, interpolation="none", aspect="auto",
                    extent=(box.x, box.right, box.top, box.y))  # fmt: skip
    for kind in cells.there():
        _hatched(sheet, axes, cells.kinds == kind, kind, xs, ys)


def _hatched(sheet: Sheet, axes: Axes, where: np.ndarray, kind: Kind, xs: np.ndarray, ys: np.ndarray) -> None:
    """Hatch some cells, those that touch in a row together."""
    boxes = []
    for i, row in enumerate(where):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], row.astype(np.int8), [0]))))
        top, end = ys[i], ys[i + 1]
        boxes += [((xs[a], top), (xs[b], top), (xs[b], end), (xs[a], end)) for a, b in edges.reshape(-1, 2).tolist()]
    look = hatch(sheet, kind)
    axes.add_collection(PolyCollection(boxes, linewidths=0, **look), autolim=False)  # type: ignore[arg-type]


def hatch(sheet: Sheet, kind: Kind) -> dict[str, str]:
    """How a cell of a kind is filled."""
    dense = HATCHES[kind] * (1 if sheet.slide else 2)  # a hatch is drawn in points, and a figure for paper has few
    if kind is Kind.MASKED:
        return {"facecolor": sheet.inks.ground, "edgecolor": sheet.inks.hatch, "hatch": dense}
    return {"facecolor": sheet.inks.odd, "edgecolor": sheet.inks.ground, "hatch": dense}


def legend(sheet: Sheet, x: float, y: float, right: float, kinds: Sequence[Kind]) -> None:
    """What the hatches mean, in a line that ends before ``right``."""
    size, line = sheet.size.small, letters.height(sheet.size.small)
    for kind in kinds:
        wide = letters.width(WORDS[kind], size)
        if x + 1.3 * line + wide > right:
            return
        swatch = Box(x, y - 0.8 * line, 1.0 * line, 0.68 * line)
        sheet.block(swatch, sheet.inks.ground, **hatch(sheet, kind))
        sheet.block(swatch, "none", edgecolor=sheet.inks.muted, linewidth=sheet.thin)
        sheet.text(x + 1.2 * line, y, WORDS[kind], size, va="top", colour=sheet.inks.muted)
        x += 2.0 * line + wide


def colour_of(sheet: Sheet, scale: Scale, value: float) -> RGB:
    """The colour of a number."""
    colours = sheet.scale(signed=scale.signed)
    return colours[min(len(colours) - 1, int(scale.level(value) * len(colours)))]


def ends(scale: Scale) -> list[tuple[float, str]]:
    """What is written beside the bar: (number, text)."""
    limit, more = numerals.short(scale.limit), "≥ " if scale.beyond else ""
    low = (-scale.limit, ("≤ " if scale.beyond else "") + numerals.MINUS + limit)
    return [*([low] if scale.signed else []), (0.0, "0"), (scale.limit, more + limit)]


def bar_room(sheet: Sheet, scale: Scale, what: str) -> float:
    """How wide a bar is, with what stands beside it."""
    size, line = sheet.size.small, letters.height(sheet.size.small)
    beside = 1.1 * line + letters.widest([text for _, text in ends(scale)], size)
    return line + max(beside, letters.width(what, size)) + 0.2 * line


def colour_bar(sheet: Sheet, box: Box, scale: Scale, what: str) -> None:
    """A bar to the right of a box that says what the colours mean."""
    size, line = sheet.size.small, letters.height(sheet.size.small)
    x = box.right + line
    high = min(box.height - (1.2 * line if what else 0), 18 * line)
    place = Box(x, box.top - (1.2 * line if what else 0) - high, 0.7 * line, max(0.1, high))
    colours = sheet.scale(signed=scale.signed)
    axes = sheet.axes(place, frame=True)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.imshow(np.array(colours)[::-1, None, :], aspect="auto", extent=(0, 1, 0, 1), interpolation="none")
    for value, text in ends(scale):
        y = place.y + place.height * scale.level(value)
        y = min(max(y, place.y + 0.4 * line), place.top - 0.4 * line)
        sheet.text(place.right + 0.35 * line, y, text, size, va="center")
    if what:
        sheet.text(x, box.top, what, size, va="top", colour=sheet.inks.muted)


def marked_cell(axes: Axes, sheet: Sheet, row: float, col: float) -> None:
    """A frame around one cell."""
    axes.add_patch(
        Rectangle((col, row), 1, 1, fill=False, edgecolor=sheet.inks.odd, linewidth=sheet.size.line, zorder=5)
    )

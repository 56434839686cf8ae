"""Many planes at a glance, each a small tile, all in the same colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isnan

import numpy as np
from matplotlib.patches import Rectangle

from engine.analysis.chain import stages_of
from engine.export.figures import letters
from engine.export.figures.cells import Cells, Kind, Scale
from engine.export.figures.heatmap import VECTORS, bar_room, colour_bar, fill, legend
from engine.export.figures.sheet import Box, Sheet
from engine.hidden import hidden
from engine.ops.attention import SinkSoftmax, Softmax
from engine.pictures import Picture
from engine.program import Step
from engine.sites import Address, block_of
from engine.traces import Trace

LARGE = {"column": 0.72, "page": 1.25}
"""How wide a tile is about on paper, in inches."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A plane with its title, a word at the other end of that line, and a ``short`` title for little room."""

    title: str
    cells: Cells
    word: str = ""
    short: str = ""


def thumbs(sheet: Sheet, picture: Picture) -> None:
    """Every head of a layer, or of all layers."""
    told, values = picture.told, picture.values
    assert told is not None
    assert values is not None
    masked = {site: _masked(picture.trace, picture.address, site) for site in {tile["site"] for tile in told["tiles"]}}
    tiles = []
    for tile, plane in zip(told["tiles"], values.double().numpy(), strict=True):
        where = masked[tile["site"]]
        if where is not None:
            where = Cells.of(np.where(where, -np.inf, 1.0), masks=True).shrunk(plane.shape).kinds == Kind.MASKED
            plane = np.where(where & ((plane == 0) | np.isnan(plane)), -np.inf, plane)
        entropy = tile["entropy"]
        block = block_of(tile["site"])
        short = f"L{block} h{tile['head']}" if tile["head"] is not None else ""
        word = "" if entropy is None or isnan(entropy) else f"{entropy:.1f} bits"
        tiles.append(Tile(tile["title"], Cells.of(plane, masks=True), word, short))
    step = picture.trace.program.step(picture.address.site)
    what = "weight" if step is not None and isinstance(step.op, Softmax | SinkSoftmax) else "value"
    scale = Scale.of([tile.cells.values for tile in tiles], whole=what == "weight")
    draw_tiles(sheet, tiles, scale, told["columns"], "query down, key across", what)


def draw_tiles(sheet: Sheet, tiles: Sequence[Tile], scale: Scale, columns: int, names: str, what: str) -> None:
    """Tiles in rows of so many (0: as fits best), one colour bar for all."""
    size = sheet.size.least if len(tiles) > 8 or not sheet.slide else sheet.size.small
    line, bar = letters.height(size), bar_room(sheet, scale, what)
    wide = sheet.width - bar
    columns = columns or _columns(sheet, len(tiles), wide)
    rows = ceil(len(tiles) / columns)
    gap = 0.6 * line
    named, foot = 1.25 * line, 1.5 * letters.height(sheet.size.small)
    side = (wide - gap * (columns - 1)) / columns
    side = side if sheet.slide else min(side, 1.25 * LARGE[sheet.style.size])
    high = min(side, (sheet.most - foot - rows * (named + gap)) / rows)
    box = sheet.open(rows * (high + named + gap) + foot)
    high = min(side, (box.height - foot - rows * (named + gap)) / rows)
    side = min(side, 1.6 * high)
    axes = sheet.axes(box)  # one for all of them, in inches from its left upper corner
    axes.set_xlim(0, box.width)
    axes.set_ylim(box.height, 0)
    for i, tile in enumerate(tiles):
        x, y = (i % columns) * (side + gap), (i // columns) * (high + named + gap) + named
        _title(sheet, tile, Box(box.x + x, box.top - y - high, side, high), size)
        fill(sheet, axes, tile.cells, scale, Box(x, y, side, high), (side, high), VECTORS // len(tiles))
        axes.add_patch(Rectangle((x, y), side, high, fill=False, edgecolor=sheet.inks.line, linewidth=sheet.thin))
    right = box.x + columns * side + (columns - 1) * gap
    bottom = box.top - rows * (high + named + gap)
    colour_bar(sheet, Box(box.x, bottom + gap, right - box.x, box.top - bottom - gap - named), scale, what)
    y = bottom + 0.4 * gap
    sheet.text(box.x, y, names, sheet.size.small, va="top", colour=sheet.inks.muted)
    there = [kind for kind in Kind if any(kind in tile.cells.there() for tile in tiles)]
    legend(sheet, box.x + letters.width(names, sheet.size.small) + line, y, box.right, there)


def _title(sheet: Sheet, tile: Tile, place: Box, size: float) -> None:
    y = place.top + 0.15 * letters.height(size)
    title = tile.title if letters.width(tile.title, size) <= place.width else tile.short or tile.title
    word = tile.word if letters.width(f"{title}  {tile.word}", size) <= place.width else ""
    sheet.text(place.x, y, letters.fit(title, place.width, size), size, va="bottom")
    if word:
        sheet.text(place.right, y, word, size, ha="right", va="bottom", colour=sheet.inks.muted)


def _columns(sheet: Sheet, count: int, wide: float) -> int:
    """How many tiles stand side by side: on a slide as many as make them largest, on paper as many as are no larger
    than they need be."""
    if not sheet.slide:
        fitting = max(1, round(wide / LARGE[sheet.style.size]))
        return min(count, fitting if count > fitting else max(2, fitting - 1))
    return max(range(1, count + 1), key=lambda n: _area(wide / n, sheet.most / ceil(count / n)))


def _area(wide: float, high: float) -> float:
    """What a tile fills of its room: at most as high as wide, and not much wider than high."""
    high = min(wide, 0.86 * high)
    return min(wide, 1.6 * high) * high


def _masked(trace: Trace, address: Address, site: str) -> np.ndarray | None:
    """Which cells of a site the mask hides, the same for every head; None of scores that no mask has met yet."""
    stages = stages_of(trace.program, site)
    step = trace.program.step(site)
    if not stages or step is None or not _after_mask(step):
        return None
    row = next((i for axis, i in address.index if axis in ("b", "batch") and isinstance(i, int)), 0)
    shape = trace.shape(site, address.at)
    found = hidden(trace, stages[-1].site.name, address.at, (0, shape[2]), (0, shape[3]))
    return None if found is None else found[row, 0].cpu().numpy()


def _after_mask(step: Step) -> bool:
    return step.op.hides or isinstance(step.op, Softmax | SinkSoftmax)

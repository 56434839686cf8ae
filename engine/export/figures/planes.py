"""Planes: attention of one head, matrices, grids of positions by depth, and a plane for each index of further axes."""

from __future__ import annotations

from math import prod

import numpy as np

from engine.errors import ExportError
from engine.export.figures import axisnames, letters, words
from engine.export.figures.cells import Cells, Scale, Side, numbers, scale_of, shared, what_of
from engine.export.figures.heatmap import Map
from engine.export.figures.sheet import Sheet
from engine.export.figures.tiles import Tile, draw_tiles
from engine.pictures import Picture
from engine.place import Place
from engine.sites import KEYS, QUERIES, depth_name

TILES = 64
"""Planes that a figure has at most."""
WORDED = {"slide": 0.72, "column": 0.34, "page": 0.46}
"""How wide a cell with a word is at least, in inches."""


def plane(sheet: Sheet, picture: Picture) -> None:
    """The numbers of a place over two axes."""
    place = picture.place
    assert place is not None
    map_of(place).draw(sheet, sheet.open(map_of(place).height(sheet)))


def map_of(place: Place) -> Map:
    """A place over two axes as cells."""
    down, across = place.axes
    cells = Cells.of(numbers(place), masks=place.plane.masks).shrunk()
    square = down.name in QUERIES and across.name in KEYS
    scale = scale_of(place, [cells.values])
    rows, cols = Side.of(place, down, cells.bins[0]), Side.of(place, across, cells.bins[1])
    return Map(cells, rows, cols, scale, what_of(place), square=square)


def stacked(sheet: Sheet, picture: Picture) -> None:
    """A plane for each index of the outer axes."""
    place = picture.place
    assert place is not None
    *outer, down, across = place.axes
    count = prod(axis.size for axis in outer)
    if count > TILES:
        named = ", ".join(axis.name for axis in outer)
        raise ExportError(
            f"{place.title} would be {count} planes over {named}, and a figure has at most {TILES}; fix one of them, "
            "or choose a range"
        )
    planes = numbers(place).reshape(count, down.size, across.size)
    cells = [Cells.of(one, masks=place.plane.masks).shrunk((64, 96)) for one in planes]
    places = np.ndindex(*(axis.size for axis in outer))
    names = [
        ", ".join(f"{axis.name} {axis.start + i}" for axis, i in zip(outer, index, strict=True)) for index in places
    ]
    scale = scale_of(place, [one.values for one in cells])
    tiles = [Tile(name, one) for name, one in zip(names, cells, strict=True)]
    columns = outer[-1].size if len(outer) > 1 else 0
    draw_tiles(sheet, tiles, scale, columns, f"{down.name} down, {across.name} across", what_of(place))


def grid(sheet: Sheet, picture: Picture) -> None:
    """Positions by depth: the likeliest token there and its probability, or lengths of vectors."""
    told, values = picture.told, picture.values
    assert told is not None
    assert values is not None
    sites, texts = list(told["cols"]["sites"]), told.get("texts")
    rows = Side(
        told["rows"]["axis"], told["rows"]["size"], told["rows"]["start"],
        words.labels(picture.trace, picture.address, told["rows"]),
    )  # fmt: skip
    chosen = range(len(sites))
    if texts:
        room = sheet.width - axisnames.beside(sheet, rows, 1e9).room - 5 * letters.height(sheet.size.small)
        step = next((n for n in range(1, len(sites)) if room / -(-len(sites) // n) >= WORDED[sheet.style.size]), 1)
        chosen = range((len(sites) - 1) % step, len(sites), step)  # the last one, the model's own, is always there
    array = values.double().numpy()[:, list(chosen)]
    cells = Cells.of(array, masks=False)
    if shared(cells.shape) != (1, 1):
        cells, texts = cells.shrunk(), None
    cols = Side("depth", len(chosen), labels=tuple(depth_name(sites[i]) for i in chosen), each=cells.bins[1])
    rows = Side(rows.name, rows.size, rows.start, rows.labels, cells.bins[0])
    named = [[row[i] for i in chosen] for row in texts] if texts else ()
    drawn = Map(cells, rows, cols, Scale.of([cells.values]), "probability" if texts else "length", named)
    drawn.draw(sheet, sheet.open(drawn.height(sheet)))

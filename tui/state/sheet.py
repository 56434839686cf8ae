"""A picture as a table: labels and numbers as text (`engine.csvtext`), for a spreadsheet or a script.

A masked cell is the number that it has: 0 among attention weights, ``-inf`` among masked scores.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.csvtext import cell, label
from engine.csvtext import number as number
from tui.state.answers import Ranking
from tui.state.block import Block
from tui.state.looks import Cell, Grid, Histogram, Look, Rotation, Table, Thumbs
from tui.state.trace import Token
from tui.state.views import Plane
from tui.text import foreign

Line = list[str]
LABELLED = ("lens",)
"""Looks with a label in each cell beside its number."""


def heading(plane: Plane, cols: range | None = None) -> Line:
    """The first line: the axes, then what each column is called."""
    view = plane.view
    corner = "/".join(axis for axis in (view.rows, view.cols) if axis)
    cols = range(plane.size[1]) if cols is None else cols
    names = [column_name(plane, col) for col in cols]
    if view.look in LABELLED:
        names = [name for site in names for name in (site, f"{site} probability")]
    return [corner, *names]


def lines(plane: Plane, block: Block, cols: range | None = None) -> Iterator[Line]:
    """The lines of a block that holds all of these columns of its rows; of a lens each cell has its label too."""
    cols = range(block.col, block.col + block.cols) if cols is None else cols
    told = block.told if isinstance(block.told, Grid) and plane.view.look in LABELLED else None
    for row in range(block.rows):
        start = row * block.cols - block.col
        line = [row_name(plane, block.row + row)]
        for col in cols:
            line += [label(told.text(row, col))] if told else []
            line.append(number(block.values[start + col], plane.step.whole))
        yield line


def row_name(plane: Plane, row: int) -> str:
    """What a row is called."""
    return label(plane.label(plane.view.rows, row)) if plane.view.rows else "value"


def column_name(plane: Plane, col: int) -> str:
    """What a column is called."""
    return label(plane.label(plane.view.cols, col)) if plane.view.cols else "value"


def of_tokens(plane: Plane, block: Block) -> list[Line]:
    """Whole numbers per token, with what is known of each token."""
    view, name = plane.view, label(plane.step.name)
    line, first = plane.trace.line(plane.batch, view.rows), plane.step.first(view.rows)
    found = [[view.rows, "token", name, "id", "bytes", "origin"]]
    for row in range(block.rows):
        pos = first + row
        token = line[pos] if pos < len(line) else Token(-1, "")
        about = [str(token.id), foreign(token.hex), foreign(token.origin)]
        found.append([str(pos), label(token.label), number(block.values[row], whole=True), *about])
    return found


def of_ranking(ranking: Ranking) -> list[Line]:
    """The candidates, best first."""
    drawn = ["drawn from"] if ranking.sampled else []
    found = [["rank", "token", "id", "logit", "probability", *drawn]]
    for rank, row in enumerate(ranking.rows, 1):
        more = ["" if row.drawn is None else number(row.drawn)] if drawn else []
        found.append([str(rank), label(row.label), str(row.id), number(row.logit), number(row.prob), *more])
    return found


def of_look(told: Look) -> list[Line]:
    """The table behind a picture that the engine derived and that is no plane of numbers."""
    match told:
        case Table():
            return [[label(column.name) for column in told.columns], *([cell(c) for c in row] for row in told.rows)]
        case Thumbs():
            rows = ([t.title, t.site, t.head, t.reduce, t.entropy] for t in told.tiles)
            return [
                ["title", "site", "head", "over heads", "entropy in bits"],
                *([cell(c) for c in row] for row in rows),
            ]
        case Rotation():
            names = ["pair", "dim", "with dim", "inv_freq", "angle", "cos", "sin"]
            names += [f"{when} {axis}" for when in ("before", "after") for axis in "xy"]
            turned = ([p.pair, *p.dims, p.inv_freq, p.angle, p.cos, p.sin, *p.before, *p.after] for p in told.pairs)
            return [names, *([cell(c) for c in row] for row in turned)]
        case Histogram():
            bins = [
                [number(low), number(high), str(n)]
                for low, high, n in zip(told.edges, told.edges[1:], told.counts, strict=False)
            ]
            beyond = {"-inf": told.below, "inf": told.above, "NaN": told.nan, "masked": told.masked}
            return [["from", "to", "count"], *bins, *([name, name, str(n)] for name, n in beyond.items() if n)]
    return []


def about(told: Look) -> list[Line]:
    """What a picture that the engine derived is of, a line for each thing."""
    found: list[tuple[str, Cell]] = []
    match told:
        case Table():
            found = [("rows", len(told.rows)), ("columns", ", ".join(column.name for column in told.columns))]
        case Thumbs():
            bits = [tile.entropy for tile in told.tiles if tile.entropy is not None]
            found = [("tiles", len(told.tiles)), ("least entropy in bits", min(bits, default=None))]
            found.append(("most entropy in bits", max(bits, default=None)))
        case Rotation():
            found = [("position", told.position), ("pairs", len(told.pairs)), ("dims turned", told.rotated)]
            found += [("of dims", told.of), ("theta", told.theta), ("scaling", told.scaling)]
            found.append(("convention", told.convention))
        case Histogram():
            found = [("1 %", told.q01), ("median", told.q50), ("99 %", told.q99), ("bins", len(told.counts))]
    return [[name, cell(value)] for name, value in found if value not in (None, "")]

"""Tables: one picture, or all steps of a trace, as CSV for people and Parquet for programs.

CSV is what the app exports of the same picture: rows and columns as they are drawn, with their labels. Parquet has a
row for each number, columns of their own types for its indices and tokens, and says in its metadata what it is of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch import Tensor

from engine.csvtext import as_csv, cell
from engine.export import columns, contents
from engine.export.columns import Column, Table
from engine.export.order import Order
from engine.jsontext import Json, for_anyone
from engine.pictures import Picture, find_view, picture
from engine.place import Axis, Place
from engine.runtime import Watch
from engine.shown import row_name
from engine.sites import TOKEN_AXES, Address, depth_name
from engine.traces import Trace
from engine.windows import Difference

if TYPE_CHECKING:
    import pyarrow as pa

Cell = str | int | float | list[str] | None
CSV_NUMBER = 12
"""About how many bytes a number takes in CSV."""
LABEL = 16
"""About how many bytes a label takes."""
ROWS_AT_ONCE = 4096


def size(order: Order) -> int | None:
    """About the bytes of a window of a tensor as CSV; None for what is smaller."""
    if order.at is None or order.to != "csv":
        return None
    wish, place = order.wish, Address.parse(order.at)
    view = find_view(wish, wish.view or "")
    site = order.trace.program.site(place.site)
    sizes = dict(zip(site.axes, order.trace.shape(site.name, place.at), strict=True))
    if view.look or view.kind in ("tokens", "ranked"):
        return None
    return sum(LABEL * sizes[axis] for axis in view.spread) + CSV_NUMBER * math.prod(sizes[a] for a in view.spread)


def write(order: Order, file: BinaryIO, watch: Watch | None = None) -> None:
    """Write the picture at the address that is named, or without one a row for every step."""
    if order.at is None:
        told, table = {"what": "steps"}, columns.steps(order, watch)
        if order.to == "csv":
            return _write_csv(_lines(table), file)
        return _write_parquet(_arrow(table), order, told, file)
    shown = _rounded(picture(order.wish, watch), contents.asked(order))
    if order.to == "csv":
        return _write_csv(lines(shown), file)
    told = {"what": "picture", "address": str(shown.address), "view": shown.view.name if shown.view else ""}
    return _write_parquet(_long(shown), order, told, file)


def _rounded(shown: Picture, dtype: torch.dtype | None) -> Picture:
    """The same with its tensor rounded."""
    if dtype is None or shown.place is None or not shown.place.tensor.is_floating_point():
        return shown
    return replace(shown, place=replace(shown.place, tensor=shown.place.tensor.to(dtype)))


# -- lines of cells ------------------------------------------------------------------------------------------------


def lines(shown: Picture) -> Iterator[Sequence[Cell]]:
    """A picture line by line, its heading first: labels as texts, numbers as numbers."""
    kind, place = shown.view.kind if shown.view else "", shown.place
    if place is None:
        told = shown.told or {}
        made = {"grid": _grid_lines, "histogram": _histogram_lines}.get(told["kind"])
        yield from made(shown, told) if made else _lines(columns.LOOKS[told["kind"]](told))
    elif kind == "tokens":
        yield from _lines(columns.tokens(place))
    elif kind == "ranked":
        yield from _lines(columns.ranking(place))
    elif len(place.axes) > 2:
        yield from _lines(_numbers(place))
    else:
        yield from _plane(place, *((shown.view.rows, shown.view.cols) if shown.view else _usual(place)))


def _usual(place: Place) -> tuple[str, str]:
    """The axes down and across of a place that is shown as it is."""
    down, across, *_ = (*(axis.name for axis in place.axes), "", "")
    return down, across


def _plane(place: Place, down: str, across: str) -> Iterator[Sequence[Cell]]:
    """A picture of one axis or two: labels, then numbers."""
    yield ["/".join(axis for axis in (down, across) if axis), *_heads(place, across)]
    values = place.tensor.cpu()
    if not place.axes:
        values = values.reshape(1, 1)
    elif len(place.axes) == 1:
        values = values[:, None] if down else values[None]
    elif place.axes[0].name != down:
        values = values.T
    heads = _heads(place, down)
    step = max(1, ROWS_AT_ONCE // max(1, values.shape[1]))
    for start in range(0, len(heads), step):
        for head, row in zip(heads[start : start + step], values[start : start + step].tolist(), strict=True):
            yield [head, *row]


def _heads(place: Place, name: str) -> list[str]:
    """What the rows or columns along an axis are called."""
    axis = next((axis for axis in place.axes if axis.name == name), None)
    return ["value"] if axis is None else labels(place, axis)


def labels(place: Place, axis: Axis) -> list[str]:
    """What each index along an axis is called: its token where the axis runs over those, else its number. In a
    difference both tokens, where the two sides have not the same."""
    if axis.name not in TOKEN_AXES:
        return [str(axis.start + i) for i in range(axis.size)]
    mine = [place.token(axis.name, axis.first + i) or str(axis.first + i) for i in range(axis.size)]
    if not isinstance(place.plane, Difference):
        return mine
    at, other = place.plane.axes.index(axis.name), place.plane.second
    first = axis.start + place.plane.shift[at] + other.trace.origin(other.site.name, other.axes[at], other.address.at)
    its = _tokens_of(other.trace, other.axes[at], dict(other.address.index).get("batch", 0))
    pairs = ((one, its[first + i] if first + i < len(its) else str(first + i)) for i, one in enumerate(mine))
    return [one if one == of else f"{one}|{of}" for one, of in pairs]


def _tokens_of(trace: Trace, axis: str, row: object) -> list[str]:
    line = trace.line(axis, row if isinstance(row, int) else 0)
    return [token.label for token in line]


def _histogram_lines(shown: Picture, told: Json) -> Iterator[Sequence[Cell]]:
    edges = told["edges"]
    yield ["from", "to", "count"]
    yield from ([edges[i], edges[i + 1], n] for i, n in enumerate(told["counts"]))
    beyond = {"-inf": told["below"], "inf": told["above"], "NaN": told["nan"], "masked": told["masked"]}
    yield from ([name, name, n] for name, n in beyond.items() if n)


def _grid_lines(shown: Picture, told: Json) -> Iterator[Sequence[Cell]]:
    """Positions × depth; of a lens each cell has its token beside its probability."""
    names, texts = [depth_name(site) for site in told["cols"]["sites"]], told.get("texts")
    heads = [one for name in names for one in (name, f"{name} probability")] if texts else names
    yield [f"{told['rows']['axis']}/depth", *heads]
    values = [] if shown.values is None else shown.values.tolist()
    for i, (head, row) in enumerate(zip(_grid_rows(shown, told), values, strict=True)):
        yield [head, *(one for pair in zip(texts[i], row, strict=True) for one in pair)] if texts else [head, *row]


def _grid_rows(shown: Picture, told: Json) -> list[str]:
    """The tokens of a grid's rows."""
    rows = told["rows"]
    return [row_name(shown, rows["axis"], rows["start"] + i) for i in range(rows["size"])]


def _lines(table: Table) -> Iterator[Sequence[Cell]]:
    """A table of columns as lines."""
    yield [column.name for column in table]
    yield from zip(*(column.cells for column in table), strict=True)


def _write_csv(made: Iterable[Sequence[Cell]], file: BinaryIO) -> None:
    held: list[list[str]] = []
    for line in made:
        held.append([cell(one) for one in line])
        if len(held) >= ROWS_AT_ONCE:
            file.write(as_csv(held))
            held = []
    file.write(as_csv(held))


# -- Parquet -------------------------------------------------------------------------------------------------------


def _long(shown: Picture) -> pa.Table:
    """A picture with a row for each of its numbers."""
    kind = shown.view.kind if shown.view else ""
    if shown.place is not None:
        tables = {"tokens": columns.tokens, "ranked": columns.ranking}
        return _arrow(tables[kind](shown.place)) if kind in tables else _arrow_numbers(shown.place)
    told = shown.told or {}
    if told["kind"] == "grid":
        return _arrow_grid(shown, told)
    if told["kind"] == "histogram":
        return _arrow(columns.bins(told))
    return _arrow(columns.LOOKS[told["kind"]](told))


def _numbers(place: Place) -> Table:
    """A place of any axes with a row for each number."""
    table = _arrow_numbers(place)
    kinds = {"value": "number" if place.tensor.is_floating_point() else "int"}
    return [
        Column(name, kinds.get(name, "label" if name.endswith("_token") else "int"), table[name].to_pylist())
        for name in table.column_names
    ]


def _arrow_numbers(place: Place) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    sizes = [axis.size for axis in place.axes]
    found: dict[str, Any] = {}
    for n, axis in enumerate(place.axes):
        within, before = math.prod(sizes[n + 1 :]), math.prod(sizes[:n])
        index = np.tile(np.repeat(np.arange(axis.size, dtype=np.int32), within), before)
        found[axis.name] = index + axis.start
        if axis.name in TOKEN_AXES or axis.name == "d_vocab":
            names = labels(place, axis) if axis.name in TOKEN_AXES else [place.label(axis, i) for i in range(axis.size)]
            found[f"{axis.name}_token"] = pa.DictionaryArray.from_arrays(pa.array(index), pa.array(names, pa.string()))
    found["value"] = _flat(place.tensor)
    return pa.table(found)


def _flat(values: Tensor) -> Any:
    """Numbers in order; 16-bit ones as the float32 that equal them."""
    wide = values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
    return wide.detach().cpu().contiguous().reshape(-1).numpy()


def _arrow_grid(shown: Picture, told: Json) -> pa.Table:
    import pyarrow as pa

    sites, rows, values = told["cols"]["sites"], _grid_rows(shown, told), shown.values
    axis, texts = told["rows"], told.get("texts")
    cells: dict[str, Any] = {
        axis["axis"]: [axis["start"] + i for i in range(len(rows)) for _ in sites],
        f"{axis['axis']}_token": [row for row in rows for _ in sites],
        "site": [site for _ in rows for site in sites],
    }
    cells |= {"token": [text for line in texts for text in line]} if texts else {}
    found = {name: pa.array(column, pa.int32() if name == axis["axis"] else pa.string())
             for name, column in cells.items()}  # fmt: skip
    return pa.table(found | {"value": [] if values is None else _flat(values)})


def _arrow(table: Table) -> pa.Table:
    import pyarrow as pa

    types = {"label": pa.string(), "int": pa.int64(), "number": pa.float64(), "labels": pa.list_(pa.string())}
    return pa.table({column.name: pa.array(column.cells, types[column.kind]) for column in table})


def _write_parquet(table: pa.Table, order: Order, told: Json, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = contents.about(order.trace)
    said = told | {key: about[key] for key in ("made_by", "model", "dtype", "device", "kernel", "prompt")}
    meta = {"layerstep": json.dumps(json.loads(for_anyone(said)))}
    pq.write_table(table.replace_schema_metadata(meta), pa.PythonFile(file, mode="w"))

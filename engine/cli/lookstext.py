"""Pictures that the engine derives as text: tables of positions by depth, heads, neighbours, pairs, bins."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from textwrap import wrap
from typing import Any

from torch import Tensor

from engine.cli.layout import ROWS, SKIPPED, pick, room, screen, table, to_right
from engine.cli.tables import Format
from engine.cli.viewtext import bar
from engine.jsontext import Json
from engine.sites import LETTERS, Address, depth_name
from engine.text import cells, display, fit
from engine.traces import Trace

WIDEST_CELL = 14


def lines(trace: Trace, told: Json, values: Tensor | None, full: bool) -> Iterator[str]:
    """A look: where it is of, its formula with this model's numbers, and its table."""
    yield " · ".join(part for part in (told["address"], told["title"], told["numbers"]) if part)
    if told["formula"]:
        yield told["formula"]
    yield ""
    match told["kind"]:
        case "grid":
            yield from _grid(trace, told, [] if values is None else values.tolist(), full)
        case "thumbs":
            yield from _tiles(told, values, full)
        case "list":
            yield from _list(told, full)
        case "rotation":
            yield from _rotation(told, full)
        case "chain":
            yield from _chain(told, full)
        case "histogram":
            yield from _histogram(told, full)
    yield ""
    yield from wrap(told["story"], screen())


def _grid(trace: Trace, told: Json, values: Sequence[Sequence[float]], full: bool) -> Iterator[str]:
    sites, texts = told["cols"]["sites"], told.get("texts")
    write = Format.of([value for row in values for value in row])
    named = [[_cell(value, texts[i][j] if texts else None, write) for j, value in enumerate(row)]
             for i, row in enumerate(values)]  # fmt: skip
    labels = _labels(trace, told)
    if not named or not sites:
        yield "(empty)"
        return
    down = pick(len(named), len(named) if full else ROWS)
    heads = [depth_name(site) for site in sites]
    wide = max(len(heads[-1]), *(cells(display(text)) for row in named for text in row), *map(len, heads))
    wide = min(WIDEST_CELL, wide) if room(full) else wide
    margin = min(20, screen() // 3, max(cells(display(label)) for label in labels))
    limit = len(sites)
    if width := room(full):
        wide = max(1, min(wide, (width - margin - 2) // 2 - 2))
        limit = max(2, (width - margin - 2) // (wide + 2))
    across = pick(len(sites), limit - 1 if len(sites) == limit + 1 else limit)
    put = fit if texts else to_right
    yield fit("", margin) + "".join(" …" if j == SKIPPED else "  " + put(heads[j], wide) for j in across).rstrip()
    for i in down:
        if i == SKIPPED:
            yield "…"
        else:
            cells_of = (" …" if j == SKIPPED else "  " + put(named[i][j], wide) for j in across)
            yield (fit(labels[i], margin) + "".join(cells_of)).rstrip()
    if SKIPPED in down or SKIPPED in across:
        yield f"… {len(named)} × {len(sites)} in all; --full prints all"


def _labels(trace: Trace, told: Json) -> list[str]:
    """The positions of a grid, each with its token."""
    place, rows = Address.parse(told["address"]), told["rows"]
    row = next((i for axis, i in place.index if LETTERS.get(axis, axis) == "b" and isinstance(i, int)), 0)
    line = trace.line(rows["axis"], row)
    first = trace.origin(place.site, rows["axis"], place.at)
    positions = range(rows["start"], rows["start"] + rows["size"])
    return [f"{i} {line[first + i].label}" if first + i < len(line) else str(i) for i in positions]


def _cell(value: float, text: str | None, write: Format) -> str:
    if text is None:
        return write(value)
    return f"{_number(value, 2)} {text}" if math.isfinite(value) else "nan"


def _tiles(told: Json, values: Tensor | None, full: bool) -> Iterator[str]:
    """For every tile its entropy, and the largest magnitude in it."""
    rows = []
    for i, tile in enumerate(told["tiles"]):
        part = values[i] if values is not None else None
        finite = part[part.isfinite()].abs() if part is not None else None
        largest = float(finite.max()) if finite is not None and finite.numel() else math.nan
        rows.append([tile["title"], tile["site"], _number(tile["entropy"], 3), _number(largest, 4)])
    yield from _table(["tile", "site", "entropy (bits)", "largest"], rows, (2, 3), full)


def _list(told: Json, full: bool) -> Iterator[str]:
    kinds = [column["kind"] for column in told["columns"]]
    numbers = [i for i, kind in enumerate(kinds) if kind in ("int", "number", "bar")]
    largest = {
        i: max((abs(row[i]) for row in told["rows"] if _is_finite(row[i])), default=0.0)
        for i, kind in enumerate(kinds)
        if kind == "bar"
    }
    write = {i: Format.of([float(row[i]) for row in told["rows"] if _is_finite(row[i])]) for i in numbers}
    heads = [column["name"] for column in told["columns"]] + [""] * bool(largest)
    rows = []
    for row in told["rows"] if full else told["rows"][:ROWS]:  # best first: the middle of a ranking is its best part
        texts = [
            "" if cell is None else write[i](cell) if i in write else " ".join(cell) if kind == "labels" else str(cell)
            for i, (cell, kind) in enumerate(zip(row, kinds, strict=True))
        ]
        drawn = [bar(row[i], most, 20) for i, most in largest.items() if row[i] is not None][:1]
        rows.append(texts + (drawn or [""]) * bool(largest))
    mostly = [i for i in numbers if kinds[i] == "number"][:-1]  # a list is sorted by the last of its numbers
    yield from _table(heads, rows, numbers, full, len(rows), [{len(kinds)}, *({i} for i in reversed(mostly))])
    if len(rows) < len(told["rows"]):
        yield f"… {len(told['rows']) - len(rows)} more; --full prints all"


def _rotation(told: Json, full: bool) -> Iterator[str]:
    yield from wrap(told["convention"], screen())
    yield ""
    heads = ["pair", "dims", "inv_freq", "angle", "cos", "sin", "before", "after", ""]
    rows = [
        [
            str(pair["pair"]),
            "{}, {}".format(*pair["dims"]),
            *(_number(pair[key], 5) for key in ("inv_freq", "angle", "cos", "sin")),
            *("({}, {})".format(*(_number(x, 4) for x in pair[key])) for key in ("before", "after")),
            "◂" if pair["pair"] == told["pair"] else "",
        ]
        for pair in told["pairs"]
    ]
    yield from _table(heads, rows, (0, 2, 3, 4, 5), full, less=[{2}, {4, 5}])


def _chain(told: Json, full: bool) -> Iterator[str]:
    rows = [
        [stage["label"], stage["state"] or _number(stage["value"], 6), stage["words"], stage["site"]]
        for stage in told["stages"]
    ]
    yield from _table(["stage", "value", "what it did", "site"], rows, (1,), full, len(rows))


def _histogram(told: Json, full: bool) -> Iterator[str]:
    edges, counts = told["edges"], told["counts"]
    write, most = Format.of(edges), max(counts, default=0)
    rows = [[write(edges[i]), write(edges[i + 1]), str(n), bar(n, most, screen() - 40)] for i, n in enumerate(counts)]
    yield from _table(["from", "to", "count", ""], rows, (0, 1, 2), full, len(rows))
    yield ""
    parts = [f"{name} {_number(told[key], 4)}" for name, key in (("1 %", "q01"), ("median", "q50"), ("99 %", "q99"))]
    kinds = (("masked", "masked"), ("NaN", "nan"), ("+inf", "above"), ("-inf", "below"))
    yield " · ".join([*parts, *(f"{told[key]} {name}" for name, key in kinds if told[key])])


def _table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[int],
    full: bool,
    most: int = ROWS,
    less: Sequence[Collection[int]] = (),
) -> Iterator[str]:
    if not rows:
        yield "(empty)"
        return
    shown = pick(len(rows), len(rows) if full else most)
    kept = [["…", *[""] * (len(heads) - 1)] if i == SKIPPED else rows[i] for i in shown]
    yield from table(heads, kept, numbers, full=full, less=less)
    if SKIPPED in shown:
        yield f"… {len(rows)} in all; --full prints all"


def _is_finite(cell: Any) -> bool:
    return isinstance(cell, int | float) and math.isfinite(cell)


def _number(value: float | None, digits: int) -> str:
    """A number with so many digits; – where there is none."""
    return "–" if value is None else f"{value:.{digits}g}"

"""Lists as a table with a bar in each row: candidates, neighbours, neurons, tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.export.figures import letters, numerals
from engine.export.figures.cells import numbers
from engine.export.figures.sheet import Box, Sheet
from engine.pictures import Picture
from engine.text import ORIGIN_WORDS

MOST = {"slide": 12, "column": 12, "page": 16}
"""Rows of a table."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name and the texts in it; or numbers as ``bars``, from zero, or from a middle where some are
    below it."""

    name: str
    texts: Sequence[str] = ()
    ha: Literal["left", "right"] = "left"
    bars: Sequence[float] | None = None
    optional: bool = False


def ranked(sheet: Sheet, picture: Picture) -> None:
    """The largest of the vocabulary; of all logits with the probabilities that they come to."""
    place = picture.place
    assert place is not None
    [axis], trace = place.axes, place.trace
    most = MOST[sheet.style.size]
    whole = place.title == str(place.address) and place.address.site == "logits" and axis.size == trace.config.d_vocab
    if whole:
        pos = place.fixed.get("pos", 0) + trace.origin("logits", "pos", place.address.at)
        top = trace.top(most, pos=pos, row=place.row)
        ids, labels = [c.id for c in top], [c.label for c in top]
        first, second = [c.logit for c in top], [c.prob for c in top]
    else:
        values = numbers(place)
        best = [] if any(map(math.isnan, values.tolist())) else (-values).argsort(kind="stable")[:most].tolist()
        ids, labels = [axis.start + i for i in best], [place.label(axis, i) for i in best]
        first = second = [float(values[i]) for i in best]
    if not ids:
        _nothing(sheet, "no ranking: it holds NaN")
        return
    columns = [Column("token", labels), Column("id", [str(i) for i in ids], "right", optional=True)]
    if whole:
        columns.append(Column("logit", [numerals.short(v, 4) for v in first], "right"))
    name = "probability" if whole else "value"
    columns += [Column(name, [numerals.short(v, 3) for v in second], "right"), Column("", bars=second)]
    _table(sheet, columns, axis.size)


def listed(sheet: Sheet, picture: Picture) -> None:
    """What a look found, the best first."""
    told = picture.told
    assert told is not None
    rows = told["rows"][: MOST[sheet.style.size]]
    columns = []
    for j, column in enumerate(told["columns"]):
        kind, values = column["kind"], [row[j] for row in rows]
        texts = [_text(value, kind) for value in values]
        numeric = kind in ("int", "number", "bar")
        optional = kind == "labels" or (kind == "number" and j < len(told["columns"]) - 1)
        columns.append(Column(column["name"], texts, "right" if numeric else "left", optional=optional))
        if kind == "bar":
            columns.append(Column("", bars=[math.nan if value is None else float(value) for value in values]))
    if not rows:
        _nothing(sheet, "nothing to list")
        return
    _table(sheet, columns, len(told["rows"]))


def tokens(sheet: Sheet, picture: Picture) -> None:
    """Each token's position, number, label, bytes and origin."""
    place = picture.place
    assert place is not None
    [axis] = place.axes
    line = place.trace.line(axis.name, place.row)
    values = numbers(place)
    shown = range(min(axis.size, MOST[sheet.style.size] + 4))
    found = [line[axis.first + i] if axis.first + i < len(line) else None for i in shown]
    columns = [
        Column(axis.name, [str(axis.start + i) for i in shown], "right"),
        Column("token", [token.label if token else "" for token in found]),
        Column(
            "id" if place.address.site.endswith("tokens") else "value", [f"{values[i]:.0f}" for i in shown], "right"
        ),
        Column("bytes", [token.bytes.hex(" ") if token else "" for token in found], optional=True),
    ]
    origins = [ORIGIN_WORDS[token.origin] if token else "" for token in found]
    if any(origins):
        columns.append(Column("", origins, optional=True))
    _table(sheet, columns, axis.size)


def number(sheet: Sheet, picture: Picture) -> None:
    """One number, large."""
    place = picture.place
    assert place is not None
    size = 2.2 * sheet.size.title
    box = sheet.open(1.6 * letters.height(size))
    value = float(numbers(place))
    whole = not place.tensor.is_floating_point()
    sheet.text(box.x, box.y + box.height / 2, f"{value:.0f}" if whole else numerals.short(value, 6), size, va="center")


def empty(sheet: Sheet, picture: Picture) -> None:
    """A place without any number."""
    _nothing(sheet, "(empty)")


def _nothing(sheet: Sheet, words: str) -> None:
    box = sheet.open(3 * letters.height(sheet.size.base))
    sheet.text(box.x, box.y + box.height / 2, words, sheet.size.base, va="center", colour=sheet.inks.muted)


def _text(value: Any, kind: str) -> str:
    if value is None:
        return ""
    if kind == "labels":
        return "  ".join(map(str, value))
    if kind in ("number", "bar"):
        return numerals.short(float(value), 3)
    return str(value)


def _table(sheet: Sheet, columns: Sequence[Column], of: int) -> None:
    """Draw columns side by side, those that are ``optional`` only where there is room for them."""
    count = max(len(column.texts) for column in columns)
    size = sheet.size.base
    line = letters.height(size)
    wanted = (count + 1) * 1.3 * line + (1.2 * line if count < of else 0)
    if wanted > sheet.most:
        size = max(sheet.size.least, size * sheet.most / wanted)
        line = letters.height(size)
        wanted = (count + 1) * 1.3 * line + (1.2 * line if count < of else 0)
    gap, least = 1.0 * line, 5 * line
    limit = 0.4 * sheet.width

    def wide(column: Column) -> float:
        found = letters.widest([column.name, *column.texts], size)
        return least if column.bars is not None else min(limit, found)

    columns = list(columns)
    while sum(map(wide, columns)) + gap * (len(columns) - 1) > sheet.width:
        extra = [column for column in columns if column.optional]
        if not extra:
            break
        columns.remove(extra[-1])
    box = sheet.open(wanted)
    fitting = max(1, int((box.height - (1.2 * line if count < of else 0)) / (1.3 * line)) - 1)
    spare = sheet.width - sum(map(wide, columns)) - gap * (len(columns) - 1)
    bars = [column for column in columns if column.bars is not None]
    x = box.x
    for column in columns:
        here = wide(column) + (min(spare, 0.45 * sheet.width) / len(bars) if column.bars is not None else 0)
        _column(sheet, column, x, box.top, here, size, fitting)
        x += here + gap
    top = box.top - 1.25 * line
    sheet.line([box.x, min(box.right, x - gap)], [top, top], color=sheet.inks.line)
    if fitting < of or count < of:
        shown = min(count, fitting)
        y = box.top - (shown + 1.15) * 1.3 * line
        sheet.text(box.x, y, f"{shown} of {of:,}", sheet.size.least, va="top", colour=sheet.inks.muted)


def _column(sheet: Sheet, column: Column, x: float, top: float, wide: float, size: float, rows: int) -> None:
    line = letters.height(size)
    at = x + wide if column.ha == "right" else x
    head = letters.fit(column.name, wide, size)
    sheet.text(at, top, head, size, ha=column.ha, va="top", colour=sheet.inks.muted)
    for i, text in enumerate(column.texts[:rows]):
        y = top - (i + 1.55) * 1.3 * line
        sheet.text(at, y, letters.fit(text, wide, size), size, ha=column.ha, va="center_baseline")
    if column.bars is None:
        return
    shown = column.bars[:rows]
    finite = [value for value in shown if math.isfinite(value)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    span = (high - low) or 1.0
    for i, value in enumerate(shown):
        if math.isfinite(value):
            y = top - (i + 1.55) * 1.3 * line
            left, right = (min(0.0, value) - low) / span * wide, (max(0.0, value) - low) / span * wide
            colour = sheet.inks.lines[1 if value >= 0 else 0]
            sheet.block(Box(x + left, y - 0.38 * line, right - left, 0.76 * line), colour, gid="bar")

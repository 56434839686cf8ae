"""Windows of a tensor as text: bars, arcs, weighted text, curves, token tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import wrap

from engine.cli.layout import ROWS, SKIPPED, pick, screen, table
from engine.cli.tables import RANKED, Format, head_lines, tensor_lines
from engine.place import Axis, Place
from engine.summary import numbers
from engine.text import ORIGIN_WORDS, cells, display

STRONGEST, CURVES, WIDEST_BAR = 3, 4, 40


def lines(place: Place, view: str, full: bool) -> Iterator[str]:
    """A window in the form of a view: its address and figures first, at the end what the step does."""
    yield from head_lines(place)
    if any(not axis.size for axis in place.axes):
        yield "(empty)"
        return
    yield from (lister(place, full) if (lister := LISTERS.get(view)) else tensor_lines(place, full))
    line, story = place.explained()
    if line:
        own = place.title == str(place.address)
        sizes = numbers(place.trace, place.trace.program.site(place.address.site), place.address.at) if own else ""
        yield ""
        yield " · ".join(part for part in (line, sizes) if part)
        yield from wrap(story, screen())


def bar(value: float, largest: float, room: int) -> str:
    """A bar of plain characters: # for what is above 0, - for what is below."""
    if not math.isfinite(value) or not largest:
        return ""
    return ("#" if value > 0 else "-") * round(abs(value) / largest * max(1, min(WIDEST_BAR, room)))


def name(place: Place, axis: Axis, i: int) -> list[str]:
    """The index along an axis, and what stands there where it has a name."""
    number = str(axis.start + i)
    return [number, place.label(axis, i)] if place.labelled(axis) or axis.name == "d_vocab" else [number]


def bars(place: Place, full: bool) -> Iterator[str]:
    """One line for each number, with a bar."""
    [axis], row = place.axes, place.tensor.tolist()
    write, largest = Format.of(row), _largest(row)
    shown = pick(axis.size, axis.size if full else ROWS)
    heads = [["…"] if i == SKIPPED else [*name(place, axis, i), write(row[i])] for i in shown]
    count = max((len(head) for head in heads), default=1)
    heads = [[*head, *[""] * (count - len(head))] for head in heads]
    room = screen() - sum(max(cells(display(head[c])) for head in heads) + 2 for c in range(count)) if heads else 0
    rows = [[*head, "" if i == SKIPPED else bar(row[i], largest, room)] for i, head in zip(shown, heads, strict=True)]
    yield from table([axis.name, *[""] * count], rows, (0, count - 1), full=full)
    if SKIPPED in shown:
        yield f"… {axis.size} in all; --full prints all"


def arcs(place: Place, full: bool) -> Iterator[str]:
    """For each query the keys of the largest weights, the largest first."""
    query, key = place.axes
    shown = pick(query.size, query.size if full else ROWS)
    rows = []
    for i in shown:
        if i == SKIPPED:
            rows.append(["…", "", "", *[""] * (2 * STRONGEST)])
            continue
        weights = place.tensor[i].tolist()
        write = Format.of(weights)
        best = sorted((j for j in range(key.size) if _counts(weights[j])), key=lambda j: -abs(weights[j]))[:STRONGEST]
        found = [text for j in best for text in (f"{key.start + j} {place.label(key, j)}", write(weights[j]))]
        rows.append([str(query.start + i), place.label(query, i), "→", *found, *[""] * (2 * STRONGEST - len(found))])
    heads = ["query", "", "", "strongest key", "weight", *["key", "weight"] * (STRONGEST - 1)]
    yield from table(heads, rows, (0, *range(4, 4 + 2 * STRONGEST, 2)), full=full, less=[{7, 8}, {5, 6}])
    if SKIPPED in shown:
        yield f"… {query.size} queries in all; --full prints all"


def weighted_text(place: Place, full: bool) -> Iterator[str]:
    """The tokens one after the other, each with its weight; the query's own words come with the address."""
    [axis], row = place.axes, place.tensor.tolist()
    query = next((axis for axis in ("query", "src_query") if axis in place.fixed), "")
    if query:
        yield f"{query} {place.fixed[query]} {place.fixed_label(query)}"
    write = Format.of(row)
    line = ""
    for i, number in enumerate(row):
        word = f"{display(place.label(axis, i))} {write(number)}"
        if line and cells(line) + 3 + cells(word) > screen():
            yield line
            line = ""
        line = f"{line} | {word}" if line else word
    yield line or "(empty)"


def curves(place: Place, full: bool) -> Iterator[str]:
    """Some of the dims, each along the positions."""
    rows, dims = place.axes
    count = dims.size if full else min(CURVES, dims.size)
    for i in (round(i * (dims.size - 1) / max(1, count - 1)) for i in range(count)):
        yield f"{dims.name} {dims.start + i}"
        yield from bars(replace(place, tensor=place.tensor[:, i], axes=(rows,)), full)
        yield ""
    if count < dims.size:
        yield f"… {dims.size} along {dims.name} in all; --full prints all"


def token_table(place: Place, full: bool) -> Iterator[str]:
    """Each token's number, label, bytes and origin."""
    [axis], row = place.axes, place.tensor.tolist()
    line = place.trace.line(axis.name, place.row)
    shown = pick(axis.size, axis.size if full else ROWS)
    rows = []
    for i in shown:
        token = line[axis.first + i] if i != SKIPPED and axis.first + i < len(line) else None
        words = [token.label, token.bytes.hex(" "), ORIGIN_WORDS[token.origin]] if token else ["", "", ""]
        rows.append(["…", "", *words] if i == SKIPPED else [str(axis.start + i), str(row[i]), *words])
    yield from table([axis.name, "value", "token", "bytes", ""], rows, (0, 1), full=full)
    if SKIPPED in shown:
        yield f"… {axis.size} in all; --full prints all"


def ranked(place: Place, full: bool) -> Iterator[str]:
    """The largest of the vocabulary; of all logits with the probabilities that they come to."""
    [axis], trace = place.axes, place.trace
    plain = place.title == str(place.address) and place.address.site == "logits" and axis.size == trace.config.d_vocab
    pos = place.fixed.get("pos", 0) + trace.origin("logits", "pos", place.address.at)
    top = trace.top(axis.size if full else RANKED, pos=pos, row=place.row) if plain else []
    if not top:
        yield from tensor_lines(place, full)
        return
    write, share = Format.of([c.logit for c in top]), Format.of([c.prob for c in top])
    rows = [[str(c.id), c.label, write(c.logit), share(c.prob), bar(c.prob, top[0].prob, screen() - 50)] for c in top]
    yield from table(["id", "token", "value", "prob", ""], rows, (0, 2, 3), full=full)
    if len(rows) < axis.size:
        yield f"… {axis.size - len(rows)} more; --full prints all"


LISTERS = {
    "row": bars, "arcs": arcs, "text": weighted_text, "curves": curves, "tokens": token_table, "ranked": ranked,
}  # fmt: skip
"""The views that are more than the table of their numbers."""


def _counts(weight: float) -> bool:
    """Whether a key has a weight at all: 0 among weights, and −∞, is masked."""
    return weight != 0 and weight != -math.inf


def _largest(numbers: Sequence[float]) -> float:
    return max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)

"""Tensors and records as plain text, lined up by terminal cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.cli.layout import ROWS, SKIPPED, columns, pick, room, screen, to_right
from engine.place import Axis, Place, exact, figures
from engine.text import cells, fit

SLICES, RANKED, SHORTEST_LABEL, WIDEST_LABEL = 4, 10, 5, 12
"""How much is printed unless everything is asked for."""


@dataclass(frozen=True, slots=True)
class Format:
    """How the numbers of one table are written: with the same decimals, and never as zero what is not zero."""

    decimals: int | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Format:
        largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
        if largest == 0:
            return cls(0)
        if not 1e-4 <= largest < 1e6:
            return cls(None)
        return cls(max(0, 3 - math.floor(math.log10(largest))))

    def __call__(self, value: float) -> str:
        if isinstance(value, int) or not math.isfinite(value):
            return str(value)
        if value == 0:
            return "0"
        if self.decimals is None:
            return f"{value:.3e}"
        text = f"{value:.{self.decimals}f}"
        return text if float(text) else f"{value:.0e}"


def place_lines(place: Place, full: bool) -> list[str]:
    """An address with its op, its statistics and its numbers."""
    if not place.axes:
        where = [f"{axis} {i} {place.fixed_label(axis)}".strip() for axis, i in place.fixed.items() if axis != "batch"]
        lines = [*tensor_lines(place, full), " · ".join([*where, place.dtype])]
    else:
        lines = [*head_lines(place), *tensor_lines(place, full), ""]
    if words := place.explained()[0]:
        lines.append(words)
    return lines


def head_lines(place: Place) -> Iterator[str]:
    """What a tensor is called, its shape and dtype; its figures; an empty line."""
    shape = " × ".join(f"{axis.name} {axis.size}" for axis in place.axes)
    yield from (f"{place.title} · {shape} · {place.dtype}", stats_line(place), "")


def stats_line(place: Place) -> str:
    """How the numbers are spread, and how many are masked or not finite."""
    return figures(place.stats())


def tensor_lines(place: Place, full: bool) -> Iterator[str]:
    """A tensor as text: a number, a list, a table, or one table for each index of its outer axes."""
    if any(not axis.size for axis in place.axes):
        yield "(empty)"
    elif not place.axes:
        yield f"{place.address} = {exact(place.tensor)}"
    elif len(place.axes) == 1 and place.axes[0].name == "d_vocab":
        yield from _ranking(place, full)
    elif len(place.axes) == 1 and place.labelled(place.axes[0]):
        yield from _list(place, full)
    elif len(place.axes) == 1:
        yield from _vector(place, full)
    elif len(place.axes) == 2 and place.axes[0].name != "batch":
        yield from _matrix(place, full)
    else:
        yield from _slices(place, full)


def _slices(place: Place, full: bool) -> Iterator[str]:
    axis = place.axes[0]
    if axis.size == 1 and axis.name == "batch":
        yield from tensor_lines(place.along(0), full)
        return
    shown = axis.size if full else min(axis.size, SLICES)
    for i in range(shown):
        yield f"{axis.name} {axis.start + i}"
        yield from tensor_lines(place.along(i), full)
        yield ""
    if shown < axis.size:
        yield f"… {axis.size - shown} more along {axis.name}; --full prints all"


def _ranking(place: Place, full: bool) -> Iterator[str]:
    axis, values = place.axes[0], place.tensor.double()
    if bool(values.isnan().any()):
        yield "no ranking: it holds NaN"
        return
    best = values.topk(axis.size if full else min(RANKED, axis.size))
    write = Format.of(best.values.tolist())
    rows = [
        [str(axis.start + i), place.label(axis, i), write(value)]
        for value, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
    yield from columns([["id", "token", "value"], *rows], numbers=(0, 2))
    if len(rows) < axis.size:
        yield f"… {axis.size - len(rows)} more; --full prints all"


def _list(place: Place, full: bool) -> Iterator[str]:
    axis = place.axes[0]
    chosen = pick(axis.size, axis.size if full else ROWS)
    values = place.tensor.tolist()
    write = Format.of(values)
    rows = [
        ["…", "", ""] if i == SKIPPED else [str(axis.start + i), place.label(axis, i), write(values[i])] for i in chosen
    ]
    yield from columns([[axis.name, "", ""], *rows], numbers=(0, 2))


def _vector(place: Place, full: bool) -> Iterator[str]:
    """Values without labels, as many on a line as fit, each line begun by the index of its first."""
    axis, values = place.axes[0], place.tensor.tolist()
    write = Format.of(values)
    texts = [write(v) for v in values]
    wide = max(map(len, texts))
    margin = max(len(axis.name), len(str(axis.start + axis.size)))
    each = max(1, (screen() - margin) // (wide + 2))
    each = next((n for n in (32, 16, 8, 4, 2, 1) if n <= each), 1)
    lines = range(0, axis.size, each)
    for line in pick(len(lines), len(lines) if full else ROWS):
        if line == SKIPPED:
            yield "…".rjust(margin)
        else:
            at = lines[line]
            yield str(axis.start + at).rjust(margin) + "".join("  " + t.rjust(wide) for t in texts[at : at + each])


def _matrix(place: Place, full: bool) -> Iterator[str]:
    down, across = place.axes
    rows = pick(down.size, down.size if full else ROWS)
    heads = [_head(place, down, i) for i in rows]
    corner = f"{down.name} \\ {across.name}"
    margin = max(map(cells, (corner, *heads)))
    shown, texts, wide = _columns_that_fit(place, rows, max(1, width - margin) if (width := room(full)) else 0)

    def line(head: str, entries: Sequence[str]) -> str:
        texts = iter(entries)
        put = (" …" if j == SKIPPED else "  " + to_right(next(texts), wide) for j in shown)
        return (fit(head, margin) + "".join(put)).rstrip()

    taken = [j for j in shown if j != SKIPPED]
    yield line(corner, [str(across.start + j) for j in taken])
    if place.labelled(across):
        yield line("", [place.label(across, j) for j in taken])
    numbers = iter(texts)
    for i, head in zip(rows, heads, strict=True):
        yield "…" if i == SKIPPED else line(head, next(numbers))
    if SKIPPED in rows or SKIPPED in shown:
        yield f"… {down.size} × {across.size} in all; --full prints all"


def _head(place: Place, axis: Axis, i: int) -> str:
    if i == SKIPPED:
        return ""
    number = str(axis.start + i).rjust(len(str(axis.start + axis.size - 1)))
    return f"{number} {fit(label, min(WIDEST_LABEL, cells(label)))}" if (label := place.label(axis, i)) else number


def _columns_that_fit(place: Place, rows: Sequence[int], width: int) -> tuple[list[int], list[list[str]], int]:
    """The columns that fit, the middle left out (all of them for no ``width``); their numbers; the width of each."""
    across = place.axes[1]
    kept = place.tensor[[i for i in rows if i != SKIPPED]]
    limit = max(2, width // 4) if width else across.size
    while True:
        shown = pick(across.size, limit - 1 if across.size == limit + 1 else limit)
        taken = [j for j in shown if j != SKIPPED]
        values = kept[:, taken].tolist()
        write = Format.of([value for line in values for value in line])
        texts = [[write(value) for value in line] for line in values]
        label = max(cells(place.label(across, j)) for j in taken)
        least = max(
            len(str(across.start + across.size)), min(label, SHORTEST_LABEL), *(len(t) for x in texts for t in x)
        )
        if not width:
            return shown, texts, max(least, label)
        room = (width - 2 * (SKIPPED in shown)) // len(taken) - 2
        if room >= least or len(taken) <= 2:
            return shown, texts, max(least, min(label, WIDEST_LABEL, room))
        limit = max(2, min(limit - 1, (width - 2) // (least + 2)))

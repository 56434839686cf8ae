"""Texts in columns, lined up by terminal cells."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from textwrap import wrap

from engine.text import cells, display, fit

ROWS = 24
"""So many of a table are printed unless everything is asked for."""
SKIPPED = -1
"""Stands in a list of indices for those that are left out."""


def screen() -> int:
    """How many cells wide the terminal is."""
    return max(20, shutil.get_terminal_size().columns)


def room(full: bool) -> int:
    """How wide a table may be; 0 is as wide as it is: where everything is asked for, and for a file or a pipe.

    The variable COLUMNS gives those a width too.
    """
    narrow = (sys.stdout is not None and sys.stdout.isatty()) or os.environ.get("COLUMNS", "")
    return screen() if narrow and not full else 0


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[int] = (),
    *,
    full: bool,
    less: Sequence[Collection[int]] = (),
) -> Iterator[str]:
    """Rows under their heads, in the columns that the room has; a last line names those that it has not.

    Columns are left out whole: first the groups ``less``, in order, then from the right.
    """
    rows, width = [heads, *rows], room(full)
    widths = [max(cells(display(row[i])) for row in rows) for i in range(len(heads))]
    out: set[int] = set()
    for group in (*less, *({i} for i in range(len(heads) - 1, 1, -1))):
        if width and sum(wide + 2 for i, wide in enumerate(widths) if i not in out) - 2 > width:
            out |= {*group}
    kept = [i for i in range(len(heads)) if i not in out]
    lines = columns([[row[i] for i in kept] for row in rows], [n for n, i in enumerate(kept) if i in numbers])
    yield from (fit(line, width).rstrip() if width and cells(line) > width else line for line in lines)
    if named := [heads[i] for i in sorted(out) if heads[i]]:
        yield from wrap(f"… without {', '.join(named)}; --full prints all", width)


def columns(rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> Iterator[str]:
    """Rows of texts, each column as wide as its widest text; the columns of ``numbers`` end in line."""
    shown = [[display(text) for text in row] for row in rows]
    widths = [max(cells(row[i]) for row in shown) for i in range(len(shown[0]))]
    for row in shown:
        aligned = (to_right if i in numbers else fit for i in range(len(row)))
        yield "  ".join(put(text, width) for put, text, width in zip(aligned, row, widths, strict=True)).rstrip()


def to_right(text: str, width: int) -> str:
    """Text at the right end of exactly ``width`` cells."""
    shown = display(text)
    return fit(shown, width) if cells(shown) > width else " " * (width - cells(shown)) + shown


def pick(size: int, limit: int) -> list[int]:
    """Indices 0…size−1, or the first and the last of them around SKIPPED where there are more than ``limit``.

    SKIPPED takes the place of one, so it never stands for one alone.
    """
    if size <= max(limit + 1, 2):
        return list(range(size))
    first = (limit + 1) // 2
    return [*range(first), SKIPPED, *range(size - (limit - first), size)]

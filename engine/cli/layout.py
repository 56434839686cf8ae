"""Texts in columns, lined up by terminal cells."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from engine.text import cells, display, fit

ROWS = 24
"""So many of a table are printed unless everything is asked for."""
SKIPPED = -1
"""Stands in a list of indices for those that are left out."""


def screen() -> int:
    """How many cells wide the terminal is."""
    return max(20, shutil.get_terminal_size().columns)


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

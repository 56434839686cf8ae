"""Tables as text, for a spreadsheet or a script: what the app exports, and the engine without it.

A number is the shortest text that is read back as the same float32; what is not finite is ``NaN``, ``inf`` or
``-inf``. A label that a spreadsheet would take for a formula (``=``, ``+``, ``-`` or ``@`` first) has a ``'`` before
it. Nothing here imports torch.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from ctypes import c_float

from engine.text import display

FORMULA = ("=", "+", "-", "@")


def number(value: float, whole: bool = False) -> str:
    """A value with all of its digits and no more."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    if whole:
        return f"{value:.0f}"
    for form in (".7g", ".8g", ".9g"):
        if c_float(float(text := format(value, form))).value == value:
            return text
    return repr(float(value))  # more than a float32: a statistic


def label(text: str) -> str:
    """A label from outside: printable, and no formula."""
    shown = display(text)
    return f"'{shown}" if shown.startswith(FORMULA) else shown


def cell(value: str | float | Sequence[str] | None) -> str:
    """What stands in one cell of a table; nothing where there is nothing."""
    if value is None:
        return ""
    if isinstance(value, str):
        return label(value)
    if isinstance(value, Sequence):
        return label(" ".join(value))
    return number(value, isinstance(value, int))


def as_csv(rows: Iterable[Sequence[str]]) -> bytes:
    """Lines of RFC 4180, in UTF-8."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()

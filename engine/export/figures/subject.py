"""What a figure is of: its words, and how it is drawn on a sheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.traces import Trace

if TYPE_CHECKING:
    from engine.export.figures.sheet import Sheet


@dataclass(frozen=True, slots=True)
class Subject:
    """A figure to be: ``facts`` are the sentences of its caption after title and formula, ``latex`` the formula for
    LaTeX, and ``paint`` puts it on a sheet."""

    trace: Trace
    title: str
    formula: str
    facts: tuple[str, ...]
    latex: str
    paint: Callable[[Sheet], None]

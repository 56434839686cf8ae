"""How cells are drawn: what a person chose of it, the same for all pictures."""

from __future__ import annotations

from dataclasses import dataclass

MODES = ("auto", "row", "symmetric", "log", "clipped", "fixed")
"""Colour scales. ``auto``: up to the largest magnitude, or four times the root mean square if that is smaller."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """``shades`` in place of filled cells, the width of a cell (0: automatic), the scale, where a fixed one ends."""

    shades: bool = False
    zoom: int = 0
    mode: str = "auto"
    fixed: float = 0.0

"""How cells are drawn: what a person chose of it, the same for all pictures."""

from __future__ import annotations

from dataclasses import dataclass

SCALES = {
    "auto": "automatic, robust against single large values",
    "row": "each row up to its own largest magnitude",
    "symmetric": "symmetric about zero, up to the largest magnitude",
    "log": "logarithmic",
    "clipped": "clipped at twice the root mean square",
    "fixed": "fixed as the automatic one is here, for all pictures",
}
"""Colour scales, in words. The automatic one ends as ``Stats.limit`` says."""
MODES = tuple(SCALES)


@dataclass(frozen=True, slots=True)
class Drawing:
    """``shades`` in place of filled cells, the width of a cell (0: automatic), the scale, where a fixed one ends."""

    shades: bool = False
    zoom: int = 0
    mode: str = "auto"
    fixed: float = 0.0

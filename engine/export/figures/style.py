"""What a figure may look like: its sizes, and the names that can be chosen from. Nothing here imports torch or
matplotlib: the command line and the app list these names."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import ExportError
from engine.export.formats import CAPTIONS, SIZES, THEMES, FigureStyle
from engine.text import display

PALETTES = ("teal", "viridis", "cividis", "magma", "grey")
"""Colours of cells, the usual ones first. Each is of one order of lightness, so that it can be read without hue."""
OF_A_TRACE = ("kv-growth", "cost", "roofline")
"""Figures of a whole trace, by the name that an order has for its view; they are of no address."""
FONTS = ("outlined", "text")
"""How letters stand in an SVG: as outlines, the same everywhere; or as text, which can be searched and edited. A PDF
always has its font embedded, and is both."""


@dataclass(frozen=True, slots=True)
class Size:
    """A figure's size in inches, of its letters in points, and of a pixel.

    ``height`` is None where a figure is as high as it needs, ``most`` inches at most. ``small`` is for tick labels, and
    ``least`` what numbers in cells are never smaller than. ``line`` is the width of a line.
    """

    width: float
    height: float | None
    most: float
    title: float
    base: float
    small: float
    least: float
    line: float
    margin: float
    label: float
    dpi: int


SHEETS = {
    "slide": Size(40 / 3, 7.5, 7.5, 26, 17, 15, 10, 2.0, 0.5, 1.6, 144),
    "column": Size(3.3, None, 4.6, 8, 7.5, 6.5, 5, 0.9, 0.04, 0.62, 300),
    "page": Size(6.9, None, 6.4, 9.5, 8.5, 7.5, 5.5, 1.1, 0.05, 0.85, 300),
}
"""By name: a 16:9 slide (1920 × 1080 pixels), a column of a two-column paper, and the width of a page's text."""


def checked(style: FigureStyle) -> FigureStyle:
    """The same, where every name in it is known. Raises ExportError with those there are."""
    for what, name, known in (
        ("size", style.size, SIZES),
        ("palette", style.palette or PALETTES[0], PALETTES),
        ("theme", style.theme, THEMES),
        ("caption", style.caption, CAPTIONS),
        ("font", style.font, FONTS),
    ):
        if name not in known:
            there = ", ".join(word or "none" for word in known)
            raise ExportError(f"a figure has no {what} {display(str(name))[:40]!r}; there is {there}")
    return style

"""The colours of figures: scales for cells, lines, and what is no number. Nothing here imports matplotlib.

Every scale is of one order of lightness from its one end to the other, also for values on both sides of zero: printed
in grey, or seen by people who do not tell red from green, it says the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from engine.export.figures.style import PALETTES

RGB = tuple[float, float, float]
"""Red, green and blue, each from 0 to 1, as sRGB has them."""
LEVELS = 256

_SEQUENTIAL = {  # from dark to light
    "teal": "#06262e #0b3f4a #1e7a78 #63b5a8 #c3e3da #f3f8f5",
    "viridis": "#440154 #472d7b #3b528b #2c728e #21918c #28ae80 #5ec962 #addc30 #fde725",
    "cividis": "#00224e #123570 #3b496c #575d6d #707173 #8a8678 #a59c74 #c3b369 #e1cc55 #fee838",
    "magma": "#0b0724 #1c1044 #4f127b #812581 #b5367a #e55964 #fb8761 #fec287 #fcfdbf",
    "grey": "#141414 #f7f7f7",
}
_IN_THE_DARK = {"teal": "#171d29 #15454f #1e8a86 #7ce0b8 #e2ffd6", "grey": "#1c212b #f7f7f7"}
_SIGNED = {
    "cividis": _SEQUENTIAL["cividis"],
    "grey": "#141414 #8a8a8a #f7f7f7",
}
_BLUE_TO_AMBER = "#0b2a6f #2b57ad #5f7fb8 #93969b #c79b54 #ecb02f #ffd34d"


@dataclass(frozen=True, slots=True)
class Inks:
    """The colours of everything but cells, on one ground; ``lines`` are told apart by their lightness as well."""

    ground: str
    ink: str
    muted: str
    line: str
    hatch: str
    odd: str
    accent: str
    lines: tuple[str, ...]


INKS = {
    "light": Inks("#ffffff", "#1b212b", "#59616f", "#c9ced6", "#aab2be", "#b3202c", "#94500a",
                  ("#1d4fb8", "#d9730d", "#0b7a6b", "#a23b8f", "#5b9bd5", "#6b717d")),
    "dark": Inks("#0e1118", "#e2e6ee", "#9aa4b8", "#39445a", "#4d5a74", "#ff7b85", "#ffb454",
                 ("#7aa2f7", "#ffb454", "#63d0b8", "#e39bd0", "#c3d9ff", "#8d97ab")),
}  # fmt: skip


@lru_cache(maxsize=32)
def scale(palette: str, theme: str, *, signed: bool) -> tuple[RGB, ...]:
    """The colours of a scale, LEVELS of them: from what is like the ground to what stands out most; where ``signed``
    from below zero over zero, the middle one, to above."""
    name = palette or PALETTES[0]
    if signed:
        return _ramp(_SIGNED.get(name, _BLUE_TO_AMBER))
    dark = theme == "dark"
    found = _ramp(_IN_THE_DARK.get(name, _SEQUENTIAL[name]) if dark else _SEQUENTIAL[name])
    return found if dark else found[::-1]


def rgb(colour: str) -> RGB:
    """The parts of #rrggbb."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def luminance(colour: RGB) -> float:
    """How light a colour is, from 0 to 1 (WCAG 2's relative luminance)."""
    parts = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def ink_on(colour: RGB) -> str:
    """Black or white, whichever is easier to read on a colour."""
    return "#000000" if luminance(colour) > 0.179 else "#ffffff"


def _ramp(stops: str) -> tuple[RGB, ...]:
    colours = [rgb(stop) for stop in stops.split()]
    last = len(colours) - 1
    found = []
    for level in range(LEVELS):
        at = level / (LEVELS - 1) * last
        low = min(int(at), last - 1)
        red, green, blue = (a + (b - a) * (at - low) for a, b in zip(colours[low], colours[low + 1], strict=True))
        found.append((red, green, blue))
    return tuple(found)

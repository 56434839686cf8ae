"""The colours of cells, bars and text on each theme, as prebuilt styles.

A scale runs from the neutral colour to one hue for positive and one for negative values; the text on a colour is
black or white, whichever has more contrast, so it is never below 4.5:1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rich.color import Color
from rich.style import Style

from tui.themes import DARK, LIGHT, THEMES

RGB = tuple[int, int, int]
LEVELS = 12
"""Steps of a scale on either side of zero."""

_NEUTRAL: dict[bool, RGB] = {True: (0x1A, 0x20, 0x2D), False: (0xF1, 0xEF, 0xE8)}
_POSITIVE: dict[bool, list[RGB]] = {
    True: [(0x6B, 0x43, 0x1E), (0xC4, 0x74, 0x23), (0xFF, 0xC4, 0x6B)],
    False: [(0xF5, 0xD3, 0x9E), (0xDE, 0x8B, 0x2E), (0x9A, 0x4B, 0x06)],
}
_NEGATIVE: dict[bool, list[RGB]] = {
    True: [(0x23, 0x44, 0x74), (0x35, 0x76, 0xC9), (0x8C, 0xC4, 0xFF)],
    False: [(0xB4, 0xCF, 0xF2), (0x4E, 0x8A, 0xDB), (0x16, 0x43, 0x96)],
}
_WEIGHT: dict[bool, list[RGB]] = {
    True: [(0x15, 0x45, 0x4F), (0x1E, 0x8A, 0x86), (0x7C, 0xE0, 0xB8), (0xE2, 0xFF, 0xD6)],
    False: [(0xC3, 0xE3, 0xDA), (0x63, 0xB5, 0xA8), (0x1E, 0x7A, 0x78), (0x0B, 0x3F, 0x4A)],
}


@dataclass(frozen=True)
class Palette:
    """Prebuilt styles of cells: ``scale[level]`` for −LEVELS … LEVELS, and the special cells."""

    dark: bool
    fills: tuple[Style, ...]
    inks: tuple[Style, ...]
    weights: tuple[Style, ...]
    weight_inks: tuple[Style, ...]
    masked: Style
    missing: Style
    odd: Style
    cursor: Style

    def style(self, level: int, weight: bool, fill: bool) -> Style:
        """The style of a level: filled, or only its ink (for shade glyphs)."""
        if weight:
            return (self.weights if fill else self.weight_inks)[max(0, level)]
        return (self.fills if fill else self.inks)[level + LEVELS]


@cache
def palette(dark: bool, name: str = "") -> Palette:
    """The heatmap's styles on a dark or a light theme; ``name`` is which of them, if not the usual one."""
    neutral, theme = _NEUTRAL[dark], THEMES.get(name, DARK if dark else LIGHT)
    up, down, weight = ([neutral, *side[dark]] for side in (_POSITIVE, _NEGATIVE, _WEIGHT))
    signed = [_ramp(down, -level / LEVELS) for level in range(-LEVELS, 0)] + [
        _ramp(up, level / LEVELS) for level in range(LEVELS + 1)
    ]
    weights = [_ramp(weight, level / LEVELS) for level in range(LEVELS + 1)]
    quiet = Style(color=theme.variables["faint"], bgcolor=theme.background)
    ground = _hex(theme.background or "#000000")
    return Palette(
        dark,
        fills=tuple(_fill(colour) for colour in signed),
        inks=tuple(_ink(colour, ground) for colour in signed),
        weights=tuple(_fill(colour) for colour in weights),
        weight_inks=tuple(_ink(colour, ground) for colour in weights),
        masked=quiet,
        missing=quiet,
        odd=Style(color=_rich((0, 0, 0)), bgcolor=_rich((0xFF, 0x7B, 0x85)), bold=True)
        if dark
        else Style(color=_rich((0xFF, 0xFF, 0xFF)), bgcolor=_rich((0xB3, 0x20, 0x2C)), bold=True),
        cursor=Style(color=_rich(ground), bgcolor=_rich((0xFF, 0xFF, 0xFF) if dark else (0x10, 0x14, 0x1C)), bold=True),
    )


def contrast(one: RGB, other: RGB) -> float:
    """WCAG's contrast ratio."""
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: RGB) -> float:
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def _ramp(stops: list[RGB], at: float) -> RGB:
    place = at * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    part = place - low
    a, b = stops[low], stops[low + 1]
    return (round(a[0] + (b[0] - a[0]) * part), round(a[1] + (b[1] - a[1]) * part), round(a[2] + (b[2] - a[2]) * part))


def _fill(colour: RGB) -> Style:
    dark, light = (0, 0, 0), (0xFF, 0xFF, 0xFF)  # together never below 4.58:1
    ink = dark if contrast(colour, dark) > contrast(colour, light) else light
    return Style(color=_rich(ink), bgcolor=_rich(colour))


def _ink(colour: RGB, ground: RGB) -> Style:
    """A colour as ink, moved away from the ground until it can be read."""
    target: RGB = (0xFF, 0xFF, 0xFF) if _luminance(ground) < 0.2 else (0, 0, 0)
    share = 0.0
    while contrast(_ramp([colour, target], share), ground) < 4.5 and share < 1:
        share = min(1.0, share + 0.05)
    return Style(color=_rich(_ramp([colour, target], share)), bgcolor=_rich(ground))


def _rich(colour: RGB) -> Color:
    return Color.from_rgb(*colour)


def _hex(colour: str) -> RGB:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


@dataclass(frozen=True)
class Inks:
    """Styles of text in the panes, all on the theme's background."""

    text: Style
    strong: Style
    muted: Style
    faint: Style
    primary: Style
    accent: Style
    success: Style
    error: Style
    cursor: Style
    cursor_muted: Style
    bar_up: Style
    bar_weight: Style
    bar_down: Style
    bar_track: Style


@cache
def inks(name: str) -> Inks:
    """The text styles of one of our themes."""
    theme = THEMES.get(name, DARK)
    ground, chosen = theme.background, theme.variables["cursor"]

    def ink(colour: str | None, back: str | None = ground, bold: bool = False) -> Style:
        return Style(color=colour, bgcolor=back, bold=bold)

    up, down = _POSITIVE[theme.dark], _NEGATIVE[theme.dark]
    return Inks(
        text=ink(theme.foreground),
        strong=ink(theme.foreground, bold=True),
        muted=ink(theme.variables["muted"]),
        faint=ink(theme.variables["faint"]),
        primary=ink(theme.primary),
        accent=ink(theme.accent),
        success=ink(theme.success),
        error=ink(theme.error),
        cursor=ink(theme.foreground, chosen, bold=True),
        cursor_muted=ink(theme.foreground, chosen),
        bar_up=Style(color=_rich(up[1]), bgcolor=ground),
        bar_weight=Style(color=_rich(_WEIGHT[theme.dark][1]), bgcolor=ground),
        bar_down=Style(color=_rich(down[1]), bgcolor=ground),
        bar_track=ink(theme.variables["line"]),
    )

"""Small pictures: two cells of a plane in one of the terminal, by half blocks, in few prebuilt styles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from tui.render.cells import DOWN, MASKED, UP, Scale
from tui.render.palette import LEVELS, palette

STEPS = 7
"""Colours of a small picture; with that of masked cells 8, and 64 pairs of an upper and a lower one."""
NOTHING = STEPS


@cache
def pairs(dark: bool, weight: bool, ground: Color | None) -> tuple[tuple[Style, ...], ...]:
    """The style of an upper and a lower colour, for weights from 0 or for signed values; ``ground`` is a masked one."""
    colours = palette(dark)
    levels = [round(n * LEVELS / (STEPS - 1)) for n in range(STEPS)]
    if not weight:
        levels = [round((n - STEPS // 2) * LEVELS / (STEPS // 2)) for n in range(STEPS)]
    found: list[Color | None] = [colours.style(level, weight, fill=True).bgcolor for level in levels]
    found.append(ground)
    return tuple(tuple(Style(color=upper, bgcolor=lower) for lower in found) for upper in found)


def shade(scale: Scale, value: float, limit: float = 0.0) -> int:
    """Which of the colours a value has."""
    if math.isnan(value) or (value == 0 and scale.weight):
        return NOTHING
    level = scale.level(value, limit)
    if scale.warm:
        return round(level * (STEPS - 1) / LEVELS)
    return STEPS // 2 + round(level * (STEPS // 2) / LEVELS)


def halves(upper: Sequence[float], lower: Sequence[float], scale: Scale, limit: float = 0.0) -> list[Segment]:
    """Two lines of a picture as one of the terminal, neighbours of one style merged."""
    if scale.shades:
        return _glyphs(upper, lower, scale, limit)
    styles = pairs(scale.palette.dark, scale.warm, scale.palette.masked.bgcolor)
    known: dict[float, int] = {}
    merged: list[Segment] = []
    texts: list[str] = []
    last: Style | None = None
    for above, below in zip(upper, lower, strict=True):
        for value in (above, below):
            if value not in known:
                known[value] = shade(scale, value, limit)
        one, other = known[above], known[below]
        style = styles[one][other]
        if style is not last and texts:
            merged.append(Segment("".join(texts), last))
            texts.clear()
        last = style
        texts.append(" " if one == other else "▀")
    return [*merged, Segment("".join(texts), last)] if texts else merged


def _glyphs(upper: Sequence[float], lower: Sequence[float], scale: Scale, limit: float) -> list[Segment]:
    """The same without colours: the larger of the two as a shade."""
    texts = []
    for above, below in zip(upper, lower, strict=True):
        value = max((v for v in (above, below) if not math.isnan(v)), key=abs, default=math.nan)
        if shade(scale, value, limit) == NOTHING:
            texts.append(MASKED)
        else:
            level = scale.level(value, limit)
            texts.append((UP if level > 0 else DOWN)[math.ceil(abs(level) * 4 / LEVELS)])
    return [Segment("".join(texts), scale.palette.style(LEVELS, scale.warm, fill=False))]

"""Horizontal bars with eighths of a cell."""

from __future__ import annotations

import math

from rich.segment import Segment
from rich.style import Style

EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(value: float, limit: float, width: int, signed: bool, up: Style, down: Style, track: Style) -> list[Segment]:
    """A bar of ``width`` cells; with ``signed`` zero is in the middle and negative values go left."""
    if width <= 0:
        return []
    if not math.isfinite(value) or limit <= 0:
        return [Segment(" " * width, track)]
    half = width // 2 if signed else 0
    room = width - half - 1 if signed else width
    share = min(1.0, abs(value) / limit)
    if value >= 0 or not signed:
        full = _filled(share, room)
        rest = Segment(" " * (room - _length(share, room)), track)
        zero = [Segment(" " * half + "│", track)] if signed else []
        return [*zero, Segment(full, up), rest]
    whole, part = divmod(round(share * half * 2), 2)  # there is no glyph for an eighth at the right of a cell
    left = Segment(" " * (half - whole - part), track)
    return [left, Segment("▐" * part + "█" * whole, down), Segment("│" + " " * room, track)]


def _length(share: float, room: int) -> int:
    eighths = round(share * room * 8)
    return eighths // 8 + bool(eighths % 8)


def _filled(share: float, room: int) -> str:
    whole, part = divmod(round(share * room * 8), 8)
    return "█" * whole + (EIGHTHS[part] if part else "")

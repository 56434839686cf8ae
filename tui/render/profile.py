"""A row of a heatmap as upright bars under its columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

BLOCKS = " ▁▂▃▄▅▆▇█"


def profile(
    values: Sequence[float | None],
    low: float,
    high: float,
    size: tuple[int, int],
    styles: tuple[Style, Style, Style, Style],
    cursor: int = -1,
) -> list[list[Segment]]:
    """``size`` is the width of a column and the height; ``styles`` are for up, down, the zero line and the cursor.

    The scale runs from ``low`` (at most 0) to ``high`` (at least 0), and zero has its place between them.
    """
    width, height = size
    up, down, track, chosen = styles
    span = (high - low) or 1.0
    above = height if low >= 0 else max(1, min(height - 1, round(high / span * height)))
    below = height - above
    gap = " " if width >= 3 else ""
    lines: list[list[Segment]] = []
    for y in range(height):
        segments: list[Segment] = []
        for column, value in enumerate(values):
            known = value is not None and math.isfinite(value)
            number = value if known and value is not None else 0.0
            if y < above:
                share = max(0.0, number) / high * above if high > 0 else 0.0
                glyph = BLOCKS[max(0, min(8, round((share - (above - 1 - y)) * 8)))]
                style = up
            else:
                share = max(0.0, -number) / -low * below if low < 0 else 0.0
                halves = max(0, min(2, round((share - (y - above)) * 2)))
                glyph, style = " ▀█"[halves], down
            if glyph == " ":
                glyph, style = ("_" if y == above - 1 and known and not gap else " "), track
            text = glyph * (width - len(gap)) + gap
            segments.append(Segment(text, chosen if column == cursor and glyph not in " _" else style))
        lines.append(segments)
    return lines

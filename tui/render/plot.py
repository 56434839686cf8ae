"""Lines and circles in braille dots. Dots are about square, so a circle is one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from tui.render.braille import Canvas

Dot = tuple[float, float]
DASHES: tuple[tuple[int, int], ...] = ((1, 0), (5, 3), (1, 2), (9, 6), (2, 5))
"""Dots on and off along a line: solid, dashed, dotted, long dashes, sparse."""


def line(
    canvas: Canvas, start: Dot, stop: Dot, style: Style, rank: float, dash: tuple[int, int] = (1, 0), thick: int = 1
) -> None:
    """A straight line, ``thick`` dots high. Dashes are counted along its longer side, from the edge of the canvas."""
    (x0, y0), (x1, y1) = (start, stop) if start[0] <= stop[0] else (stop, start)
    first, last = round(x0), round(x1)
    slope, on, period = (y1 - y0) / ((x1 - x0) or 1.0), dash[0], sum(dash)
    steep = abs(y1 - y0) > max(1.0, x1 - x0)
    for x in range(first, last + 1):
        if steep:  # the dots between the neighbouring columns belong to this one
            ends = (
                [y0 + slope * (min(x1, max(x0, x + side)) - x0) for side in (-0.5, 0.5)] if first < last else [y0, y1]
            )
            canvas.run(x, round(min(ends)), round(max(ends)) + thick - 1, style, rank, dash)
        elif x % period < on:
            y = round(y0 + slope * (x - x0))
            canvas.run(x, y, y + thick - 1, style, rank)


def polyline(
    canvas: Canvas,
    dots: Sequence[Dot | None],
    style: Style,
    rank: float,
    dash: tuple[int, int] = (1, 0),
    thick: int = 1,
) -> None:
    """A line through the dots in order; it breaks where there is none."""
    before: Dot | None = None
    for here in dots:
        if here is not None:
            line(canvas, before or here, here, style, rank, dash, thick)
        before = here


def arc(
    canvas: Canvas,
    centre: Dot,
    radius: float,
    start: float,
    turn: float,
    style: Style,
    rank: float,
    dash: tuple[int, int] = (1, 0),
) -> None:
    """Part of a circle from the angle ``start`` by ``turn``, against the clock; a full one by 2π."""
    count = max(1, math.ceil(abs(turn) * radius))
    on, off = dash
    for step in range(count + 1):
        if step % (on + off) < on:
            angle = start + turn * step / count
            canvas.dot(
                round(centre[0] + radius * math.cos(angle)), round(centre[1] - radius * math.sin(angle)), style, rank
            )


def overlaid(segments: Sequence[Segment], at: int, glyph: str, style: Style) -> list[Segment]:
    """A line of single cells with another glyph in one of them."""
    out: list[Segment] = []
    place = 0
    for segment in segments:
        size = len(segment.text)
        if place <= at < place + size:
            inside = at - place
            new = Segment(glyph, style)
            out += [
                Segment(segment.text[:inside], segment.style),
                new,
                Segment(segment.text[inside + 1 :], segment.style),
            ]
        else:
            out.append(segment)
        place += size
    return [segment for segment in out if segment.text]

"""Names along the sides of a picture: as many as fit, turned where they are wide, never one over another."""

from __future__ import annotations

from dataclasses import dataclass

from engine.export.figures import letters
from engine.export.figures.cells import Side
from engine.export.figures.sheet import Box, Sheet

STEPS: tuple[int, ...] = tuple(step * 10**power for power in range(8) for step in (1, 2, 5))


@dataclass(frozen=True, slots=True)
class Names:
    """What is written along a side: (which cell, text), in letters of ``size`` points, turned by ``angle``; the room
    that it takes away from the picture."""

    entries: tuple[tuple[int, str], ...]
    size: float
    angle: float
    room: float


def along(sheet: Sheet, side: Side, length: float, size: float | None = None) -> Names:
    """Names below a picture that is so wide: level where all of them fit, else turned."""
    size = size or sheet.size.small
    pitch, line = length / max(1, side.cells), letters.height(size)
    gap = 0.5 * letters.height(size)
    every = _entries(side, 1, sheet.size.label, size)
    if letters.widest([text for _, text in every], size) + 0.4 * gap <= pitch:
        return Names(every, size, 0.0, line + 0.5 * gap)
    if not side.labels:
        step = next(s for s in STEPS if letters.width(str(side.start + side.size), size) + gap <= pitch * s / side.each)
        return Names(_numbers(side, step), size, 0.0, line + 0.5 * gap)
    angle = 45.0 if pitch >= 1.45 * line else 90.0
    step = _step(side, pitch, line)
    entries = _entries(side, step, sheet.size.label, size)
    wide = letters.widest([text for _, text in entries], size)
    return Names(entries, size, angle, (wide * 0.71 + line * 0.6 if angle == 45.0 else wide) + gap)


def overhang(names: Names, side: Side, length: float) -> float:
    """How far the names below a picture reach out to its left."""
    pitch = length / max(1, side.cells)
    share = {0.0: 0.5, 45.0: 0.71}.get(names.angle, 0.0)
    return max((letters.width(text, names.size) * share - (i + 0.5) * pitch for i, text in names.entries), default=0.0)


def beside(sheet: Sheet, side: Side, length: float, size: float | None = None) -> Names:
    """Names to the left of a picture that is so high."""
    size = size or sheet.size.small
    pitch, line = length / max(1, side.cells), letters.height(size)
    step = _step(side, pitch, line)
    entries = _entries(side, step, sheet.size.label, size) if side.labels else _numbers(side, step * side.each)
    return Names(entries, size, 0.0, letters.widest([text for _, text in entries], size) + 0.5 * line)


def write_along(sheet: Sheet, names: Names, side: Side, box: Box) -> None:
    """Write names under a box."""
    pitch, line = box.width / max(1, side.cells), letters.height(names.size)
    for i, text in names.entries:
        x = box.x + (i + 0.5) * pitch
        if not names.angle:
            sheet.text(x, box.y - 0.3 * line, text, names.size, ha="center", va="top")
        elif names.angle == 90.0:
            sheet.text(x, box.y - 0.3 * line, text, names.size, ha="right", va="center_baseline", rotation=90)
        else:
            sheet.text(x + 0.25 * line, box.y - 0.35 * line, text, names.size, ha="right", va="top", rotation=45)


def write_beside(sheet: Sheet, names: Names, side: Side, box: Box) -> None:
    """Write names to the left of a box."""
    pitch, line = box.height / max(1, side.cells), letters.height(names.size)
    for i, text in names.entries:
        y = box.top - (i + 0.5) * pitch
        sheet.text(box.x - 0.3 * line, y, text, names.size, ha="right", va="center_baseline")


def _step(side: Side, pitch: float, line: float) -> int:
    """Every how manieth cell has a name, so that they do not touch."""
    return next(step for step in STEPS if pitch * step >= 1.02 * line or step >= side.cells)


def _entries(side: Side, step: int, room: float, size: float) -> tuple[tuple[int, str], ...]:
    """The names of every so manieth cell: the labels, with their index where some are left out."""
    thinned = step > 1 or side.each > 1
    found = []
    for cell in range(0, side.cells, step):
        i = cell * side.each
        number = str(side.start + i)
        if side.labels:
            text = letters.fit(f"{number} {side.labels[i]}" if thinned else side.labels[i] or number, room, size)
        else:
            text = number
        found.append((cell, text))
    return tuple(found)


def _numbers(side: Side, step: int) -> tuple[tuple[int, str], ...]:
    """The indices that are multiples of a step, where they stand."""
    first = -(-side.start // step) * step
    return tuple(
        ((i - side.start) // side.each, str(i)) for i in range(first, side.start + side.size, max(step, side.each))
    )

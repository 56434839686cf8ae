"""Which panes are shown at a width."""

from __future__ import annotations

from dataclasses import dataclass

WIDE, NARROW = 100, 80
SMALLEST = (40, 10)


@dataclass(frozen=True, slots=True)
class Panes:
    """What is shown."""

    tree: bool
    stage: bool
    why: bool


def panes(width: int, tree: bool | None, why: bool | None) -> Panes:
    """The panes for a width; ``tree`` and ``why`` are what the person asked for, None is for the app to choose."""
    if width >= WIDE:
        return Panes(tree is not False, True, why is not False)
    if width >= NARROW:
        return Panes(tree is not False and not why, True, bool(why))
    return Panes(bool(tree) and not why, not why, bool(why))

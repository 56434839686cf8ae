"""Which panes are shown at a width."""

from __future__ import annotations

from dataclasses import dataclass

WIDE, NARROW = 100, 80
SMALLEST = (40, 10)
LOW, FLAT = 24, 16
"""Below these heights lines around the picture are left out."""
STACKED = 72
"""Below this width two pictures stand one above the other."""
ROOMY = 180
"""From this width on there is room for two pictures and the explanation."""


STAGES = ("stage", "beside")


@dataclass(frozen=True, slots=True)
class Panes:
    """What is shown."""

    tree: bool
    stage: bool
    why: bool


def panes(width: int, tree: bool | None, why: bool | None, two: bool = False, only: str = "") -> Panes:
    """The panes for a width; ``tree`` and ``why`` are what the person asked for, None is for the app to choose.

    ``two``: there are two pictures, so that the explanation and then the tree leave their room to them.
    ``only`` is the pane that is maximised.
    """
    if only:
        return Panes(only == "tree", only in STAGES, only == "why")
    if two:
        return Panes(bool(tree) or (tree is None and width >= ROOMY - 40), True, bool(why) or width >= ROOMY)
    if width >= WIDE:
        return Panes(tree is not False, True, why is not False)
    if width >= NARROW:
        return Panes(tree is not False and not why, True, bool(why))
    return Panes(bool(tree) and not why, not why, bool(why))

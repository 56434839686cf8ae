"""Foreign text on its way to a widget: always printable, never markup."""

from __future__ import annotations

from functools import lru_cache

from engine.text import cells as _cells
from engine.text import display
from engine.text import fit as _fit

LONGEST = 4000
"""Characters of one foreign string that are ever drawn."""


def foreign(text: object) -> str:
    """Any text from outside, printable, on one line."""
    return display(str(text)[:LONGEST])


@lru_cache(maxsize=16384)
def fit(text: str, width: int, cut: str = "…") -> str:
    """Exactly ``width`` cells, cut with … or padded."""
    return _fit(text[: max(LONGEST, width)], width, cut) if width > 0 else ""


@lru_cache(maxsize=16384)
def right(text: str, width: int) -> str:
    """Exactly ``width`` cells, the text at the right end."""
    room = width - cells(text)
    return " " * room + display(text) if room >= 0 else fit(text, width)


@lru_cache(maxsize=16384)
def centred(text: str, width: int) -> str:
    """Exactly ``width`` cells, the text in the middle."""
    room = width - cells(text)
    return " " * (room // 2) + display(text) + " " * (room - room // 2) if room >= 0 else fit(text, width)


@lru_cache(maxsize=256)
def middle(text: str, width: int) -> str:
    """Exactly ``width`` cells: cut in the middle, so that the end of the text stays to be seen, or padded."""
    text = foreign(text if len(text) <= 4 * width else text[: 2 * width] + text[-2 * width :])
    if width < 8 or cells(text) <= width:
        return fit(text, width)
    head, tail = fit(text, width // 3).rstrip(" "), text[-width:]
    while cells(tail) > width - cells(head):
        tail = tail[1:]
    return fit(head + tail, width)


def cells(text: str) -> int:
    """Terminal cells of a foreign text once it is shown."""
    return _cells(display(text))


def one_to_one(text: str) -> str:
    """Printable with one mark for each character, for an input whose cursor counts characters."""
    return "".join(shown if len(shown := display(char)) == 1 else "�" for char in text)

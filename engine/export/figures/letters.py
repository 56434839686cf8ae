"""Letters in figures: one font, the same on every machine, and how wide a text is in it.

The font is DejaVu Sans, which comes with matplotlib. It has the letters of most alphabets, but no Chinese or Japanese
and few emoji: what it lacks is written as the code point that it is, never as an empty box.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import matplotlib
from matplotlib.font_manager import FontProperties, get_font
from matplotlib.textpath import text_to_path

from engine.text import display

POINTS = 72
"""Points in an inch."""
LEADING = 1.25
"""From one line to the next, in heights of the letters."""
CUT = "…"


@lru_cache(maxsize=64)
def font(size: float, *, bold: bool = False) -> FontProperties:
    """The font in a size of so many points."""
    return FontProperties(fname=_file(bold=bold), size=size)


@lru_cache(maxsize=8192)
def plain(text: str) -> str:
    """A text as it is drawn: printable, on one line, and of letters that the font has."""
    there = _letters()
    return "".join(char if ord(char) in there else f"‹U+{_meant(ord(char)):04X}›" for char in display(text))


def _meant(code: int) -> int:
    """The control character that a control picture stands for: ␛ is how U+001B is shown, but the font lacks it."""
    return 0x7F if code == 0x2421 else code - 0x2400 if 0x2400 <= code < 0x2420 else code


@lru_cache(maxsize=16384)
def width(text: str, size: float, *, bold: bool = False) -> float:
    """How wide a text is, in inches."""
    wide, _, _ = text_to_path.get_text_width_height_descent(plain(text), font(size, bold=bold), ismath=False)
    return float(wide) / POINTS


def widest(texts: Sequence[str], size: float) -> float:
    """How wide the widest of some texts is; 0 for none."""
    return max((width(text, size) for text in texts), default=0.0)


def height(size: float, lines: int = 1) -> float:
    """How high so many lines are, in inches."""
    return lines * size * LEADING / POINTS


def fit(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """A text that is no wider than ``room``: its beginning and … where it is."""
    shown = plain(text)
    if width(shown, size, bold=bold) <= room:
        return shown
    low, high = 0, len(shown)  # so many characters fit, and so many do not
    while high - low > 1:
        middle = (low + high) // 2
        if width(shown[:middle] + CUT, size, bold=bold) <= room:
            low = middle
        else:
            high = middle
    return shown[:low] + CUT


def size_for(text: str, room: float, size: float, least: float, *, bold: bool = False) -> float:
    """The size of at most ``size`` points in which a text is no wider than ``room``; at least ``least``."""
    wide = width(text, size, bold=bold)
    return size if wide <= room else max(least, size * room / wide * 0.995)


def wrap(text: str, room: float, size: float) -> list[str]:
    """A text in lines no wider than ``room``, broken between words, and within one that is wider itself."""
    lines, line = list[str](), ""
    for word in plain(text).split(" "):
        longer = f"{line} {word}" if line else word
        if width(longer, size) <= room:
            line = longer
            continue
        if line:
            lines.append(line)
        while width(word, size) > room and len(word) > 1:
            part = fit(word, room, size).removesuffix(CUT) or word[:1]
            lines.append(part)
            word = word[len(part) :]
        line = word
    return [*lines, line] if line or not lines else lines


@lru_cache(maxsize=2)
def _file(*, bold: bool) -> str:
    return str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"DejaVuSans{'-Bold' if bold else ''}.ttf")


@lru_cache(maxsize=1)
def _letters() -> frozenset[int]:
    """The code points of which both the upright and the bold font have a picture."""
    upright, bold = (set(get_font(_file(bold=bold)).get_charmap()) for bold in (False, True))
    return frozenset(upright & bold)

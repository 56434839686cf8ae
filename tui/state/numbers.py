"""Numbers as text, in as many cells as there are."""

from __future__ import annotations

import math


def special(value: float) -> str:
    """NaN and the infinities by name; '' for a finite value."""
    if math.isnan(value):
        return "NaN"
    return "" if math.isfinite(value) else ("∞" if value > 0 else "-∞")


def exact(value: float, whole: bool = False) -> str:
    """A value for a readout: six significant digits, or all of a whole number."""
    return special(value) or (f"{value:.0f}" if whole else f"{value:.6g}")


def share(probability: float) -> str:
    """A probability with two decimals; one that would be 0.00 is said to be less."""
    return f"{probability:.2f}" if probability >= 0.005 or not probability else "<.01"


def short(value: float, width: int = 7) -> str:
    """The value in at most ``width`` cells, with as many digits as fit."""
    if name := special(value):
        return name[:width]
    for digits in range(5, 0, -1):
        text = f"{value:.{digits}g}"
        if "e" in text:
            mantissa, power = text.split("e")
            text = f"{mantissa}e{int(power)}"
        if len(text) <= width:
            return text
        if len(bare := text.replace("0.", ".", 1)) <= width and "e" not in text and abs(value) < 1:
            return bare
    return ("-▸" if value < 0 else "▸")[: max(0, width)]


LARGE = 9.94
"""The largest magnitude whose decimals are worth their room; beyond it a number may be whole."""


def decimals(low: float, high: float, room: int, most: int = 3) -> int:
    """How many decimals let each number from ``low`` to ``high`` fit in ``room`` cells; -1 if not even one does.

    Numbers of 10 and more may lose theirs: where only those are too long, 0 decimals are enough.
    """
    for places in range(most, 0, -1):
        if all(len(cell(max(-LARGE, min(end, LARGE)), places)) <= room for end in (low, high)):
            return places
    whole = max(abs(low), abs(high)) > LARGE and all(len(cell(end, 0)) <= room for end in (low, high))
    return 0 if whole else -1


def wanted(limit: float) -> int:
    """The decimals that tell values of a scale up to ``limit`` apart: one, more where it is short; -1: too short."""
    return next((places for places in (1, 2, 3, 4) if limit * 10**places >= 5), -1)


def cell(value: float, places: int) -> str:
    """A value with a fixed number of decimals and no zero before the point."""
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    if text.startswith("0."):
        return text[1:]
    return "-" + text[2:] if text.startswith("-0.") else text


def count(number: int) -> str:
    """With separators: 65,536."""
    return f"{number:,}"


def rounded(number: int) -> str:
    """A large number to two digits: 5.8 million; one below 10,000 as it is."""
    if number < 10_000:
        return count(number)
    number = round(number, 2 - len(str(number)))
    for unit, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if number >= unit:
            return f"{number / unit:g} {name}"
    return count(number)


def size(number: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return ""

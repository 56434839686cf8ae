"""Numbers as a figure writes them: few digits, a real minus, large ones with a letter for their power of ten."""

from __future__ import annotations

import math

MINUS = "−"


def short(value: float, digits: int = 3) -> str:
    """A number with so many digits that mean something."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:.{digits}g}"
    if "e" in text:
        mantissa, power = text.split("e")
        text = f"{mantissa}e{int(power)}"
    return text.replace("-", MINUS)


def in_cell(value: float, decimals: int) -> str:
    """A number with a fixed number of decimals, and no zero before the point."""
    text = f"{value:.{decimals}f}"
    if float(text) == 0:
        return f"{0:.{decimals}f}".removeprefix("0") or "0"
    return text.replace("0.", ".", 1).replace("-", MINUS) if abs(value) < 1 else text.replace("-", MINUS)


def decimals(limit: float) -> int:
    """The decimals that tell numbers of up to this size apart; −1 where they are too small or large for a cell."""
    if not 0.005 <= limit < 10_000:
        return -1
    return 0 if limit >= 1000 else 1 if limit >= 10 else 2


def amount(value: float) -> str:
    """A count in thousands, millions and so on: 1.2 M."""
    for unit, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g}"

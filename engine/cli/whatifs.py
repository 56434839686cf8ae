"""Drift, a quantised cache and a cache in pages as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.cli.layout import ROWS, SKIPPED, columns, pick
from engine.text import human

if TYPE_CHECKING:
    from engine.analysis.drift import Drift
    from engine.analysis.pages import Pages
    from engine.analysis.quantised import Quantised

WIDEST = len("1.2e-123")
"""Of a gap."""


def drift_lines(found: Drift, width: int) -> Iterator[str]:
    """What was found, and the largest gap of each pass and layer, as many of them as fit."""
    yield found.text
    if not found.gaps:
        return
    layers = len(found.gaps[0])
    shown = pick(layers, max(2, (width - WIDEST) // (WIDEST + 2) - 2))
    heads = ["…" if i == SKIPPED else f"layer {i}" for i in shown]
    rows = [
        [str(at), *("…" if i == SKIPPED else _gap(gaps[i]) for i in shown), _gap(last)]
        for at, (gaps, last) in enumerate(zip(found.gaps, found.logits, strict=True))
    ]
    yield "the largest |cached − uncached| of each pass and layer, and of what the pass comes to:"
    yield from _table(["pass", *heads, "outcome"], rows, "passes")
    if SKIPPED in shown:
        yield f"… {layers} layers in all; --json has all"


def quantised_lines(found: Quantised) -> Iterator[str]:
    """What becomes of the next tokens, and the error at each site."""
    yield found.text
    rows = [[row.site, _gap(row.error), _gap(row.relative)] for row in found.rows]
    yield from _table(["site", "max |Δ|", "‖Δ‖ / ‖x‖"], rows, "sites", numbers=(1, 2))


def page_lines(found: Pages) -> Iterator[str]:
    """What the pages take, and those of each layer."""
    yield found.text
    rows = [[str(row.layer), f"{row.pages:,}", f"{row.used:,}", human(row.waste_bytes)] for row in found.layers]
    yield from _table(["layer", "pages", "rows used", "waste"], rows, "layers")


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], what: str, numbers: Sequence[int] | None = None
) -> Iterator[str]:
    """A table of the first and the last rows, and how many there are where some are left out."""
    shown = pick(len(rows), ROWS)
    kept = [["…", *[""] * (len(heads) - 1)] if i == SKIPPED else rows[i] for i in shown]
    yield from columns([heads, *kept], numbers=range(len(heads)) if numbers is None else numbers)
    if SKIPPED in shown:
        yield f"… {len(rows)} {what} in all; --json has all"


def _gap(gap: float) -> str:
    return f"{gap:.2g}"

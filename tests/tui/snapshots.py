"""Screens as small SVG pictures: a line of the screen is a line of the file, so that a change can be read in a diff.

The colours of cells are one path per colour; nothing depends on ids, clocks or the order of dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI

PICTURES = Path(__file__).parent / "pictures"
WIDTH, HEIGHT = 8, 16
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def svg(lines: Sequence[Sequence[Segment]], width: int, ground: str) -> str:
    """The screen, ``width`` cells wide; what has the colour ``ground`` behind it is not drawn."""
    names: dict[str, str] = {}
    boxes: dict[str, list[str]] = {}
    texts = []
    for y, line in enumerate(lines):
        for x, cells, colour in _boxes(line, ground):
            boxes.setdefault(colour, []).append(f"M{x} {y}h{cells}")
        texts.append(f'<text y="{y * HEIGHT + 12}">{_spans(line, names)}</text>')
    wide, high = width * WIDTH, len(lines) * HEIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}">',
            "<style>text{font:13.29px monospace;white-space:pre}",
            *(f".{name}{{{rules}}}" for rules, name in names.items()),
            "</style>",
            f'<path fill="{ground}" d="M0 0h{wide}v{high}H0z"/>',
            f'<g transform="scale({WIDTH} {HEIGHT}) translate(0 .5)" shape-rendering="crispEdges">',
            *(f'<path stroke="{colour}" d="{"".join(paths)}"/>' for colour, paths in boxes.items()),
            "</g>",
            *texts,
            "</svg>",
            "",
        ]
    )


def difference(old: str, new: str) -> str:
    """Where two pictures part, in words."""
    before, after = old.splitlines(), new.splitlines()
    for n, (was, now) in enumerate(zip(before, after, strict=False), 1):
        if was != now:
            at = next((at for at, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now)))
            start = max(0, at - 40)
            return f"line {n} was …{was[start : at + 60]}…\n    and is now …{now[start : at + 60]}…"
    return f"{len(before)} lines became {len(after)}"


def _spans(line: Sequence[Segment], names: dict[str, str]) -> str:
    """The text of a line; where it may come from another font, which may be wider, what follows has its place told."""
    spans, x, off = [], 0, False
    for text, style in _texts(line):
        place = f' x="{x * WIDTH}"' if off else ""
        name = names.setdefault(_css(style), _name(len(names)))
        spans.append(f'<tspan class="{name}"{place}>{escape(text, quote=False)}</tspan>')
        x, off = x + cell_len(text), any(char > "~" and not "─" <= char <= "▟" for char in text)
    return "".join(spans)


def _name(number: int) -> str:
    return LETTERS[number] if number < len(LETTERS) else f"{LETTERS[number % len(LETTERS)]}{number // len(LETTERS)}"


def _boxes(line: Sequence[Segment], ground: str) -> Iterator[tuple[int, int, str]]:
    x, start, last = 0, 0, ground
    for segment in [*line, Segment("")]:
        colour = _colours(segment.style)[1] if segment.text else ground
        if colour != last:
            if last != ground and x > start:
                yield start, x - start, last
            start, last = x, colour
        x += segment.cell_length


def _texts(line: Sequence[Segment]) -> Iterator[tuple[str, Style]]:
    text, last = "", Style()
    for segment in line:
        style = segment.style or Style()
        if text and segment.text.strip() and _css(style) != _css(last):
            yield text, last
            text = ""
        last = style if segment.text.strip() or not text else last
        text += segment.text
    yield text.rstrip(" "), last


def _css(style: Style) -> str:
    rules = [f"fill:{_colours(style)[0]}"]
    rules += ["font-weight:700"] if style.bold else []
    rules += ["font-style:italic"] if style.italic else []
    rules += ["opacity:.6"] if style.dim else []
    rules += ["text-decoration:underline"] if style.underline else []
    return ";".join(rules)


def _colours(style: Style | None) -> tuple[str, str]:
    """The colours of the glyphs and of what is behind them."""
    front, behind = (
        "none" if colour is None or colour.is_default else colour.get_truecolor(DIMMED_MONOKAI, foreground=ink).hex
        for colour, ink in (((style or Style()).color, True), ((style or Style()).bgcolor, False))
    )
    return (behind, front) if style and style.reverse else (front, behind)

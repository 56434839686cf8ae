"""A screen as an SVG picture: one file that needs nothing else, as wide as the terminal's cells are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI

from tui.text import foreign

WIDTH, HEIGHT, SIZE, MARGIN = 8.4, 16, 14, 10
BLOCK = re.compile("([\u2581-\u258f])\\1*")
"""Eighths of a cell, from below and from the left. As glyphs they would have seams between them."""
FONTS = "Fira Code, DejaVu Sans Mono, Menlo, Consolas, monospace"


def svg(lines: Sequence[Sequence[Segment]], width: int, title: str, ground: str, ink: str) -> str:
    """The picture of ``lines``, each ``width`` cells; ``ground`` and ``ink`` where a cell has no colour of its own."""
    names: dict[str, str] = {}
    boxes, texts = [], []
    for y, line in enumerate(lines):
        for x, cells, fill in _boxes(line, ground, ink):
            boxes.append(f'<rect fill="{fill}" x="{x * WIDTH:g}" y="{y * HEIGHT}" width="{cells * WIDTH:g}"/>')
        for x, cells, text, style in _texts(line):
            name = names.setdefault(_css(style, ground, ink), f"c{len(names)}")
            if BLOCK.fullmatch(text):
                boxes.append(f'<path class="{name}" d="{_block(text, x, y)}"/>')
                continue
            place = f'x="{x * WIDTH:g}" y="{y * HEIGHT + SIZE - 1}" textLength="{cells * WIDTH:g}"'
            texts.append(f'<text class="{name}" {place} lengthAdjust="spacingAndGlyphs">{escape(text)}</text>')
    wide, high = width * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" role="img">',
            f"<title>{escape(printable(title))}</title>",
            f"<style>text{{font:{SIZE}px {FONTS};white-space:pre}}rect{{height:{HEIGHT}px}}",
            *(f".{name}{{{rules}}}" for rules, name in names.items()),
            "</style>",
            f'<path fill="{ground}" d="M0 0h{wide:g}v{high:g}H0z"/>',
            f'<g transform="translate({MARGIN} {MARGIN})" xml:space="preserve">',
            '<g shape-rendering="crispEdges">',
            *boxes,
            "</g>",
            *texts,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _boxes(line: Sequence[Segment], ground: str, ink: str) -> Iterator[tuple[int, int, str]]:
    """Runs of cells of one ground: where they begin, how many they are, the colour."""
    x, start, fill = 0, 0, ground
    for segment in line:
        colour = _colours(segment.style or Style(), ground, ink)[1]
        if colour != fill:
            if fill != ground:
                yield start, x - start, fill
            start, fill = x, colour
        x += segment.cell_length
    if fill != ground and x > start:
        yield start, x - start, fill


def _texts(line: Sequence[Segment]) -> Iterator[tuple[int, int, str, Style]]:
    """What is written: where, in how many cells, the text, its style. A wide glyph stands alone: fonts differ on it."""
    x = 0
    for segment in line:
        for text in _runs(printable(segment.text)):
            cells = cell_len(text)
            if bare := text.strip(" "):
                yield x + len(text) - len(text.lstrip(" ")), cell_len(bare), bare, segment.style or Style()
            x += cells


def _runs(text: str) -> Iterator[str]:
    """The text in pieces: blocks of one kind, one wide glyph, or anything else."""
    if text.isascii():
        yield text
        return
    start = 0
    for block in BLOCK.finditer(text):
        yield from _narrow(text[start : block.start()])
        yield block[0]
        start = block.end()
    yield from _narrow(text[start:])


def _narrow(text: str) -> Iterator[str]:
    run = ""
    for char in text:
        size = cell_len(char)
        if run and size and (size > 1 or cell_len(run[0]) > 1):
            yield run
            run = ""
        run += char
    if run:
        yield run


def _block(text: str, x: int, y: int) -> str:
    """The outline of equal blocks side by side."""
    eighths, cells = ord(text[0]) - 0x2580, len(text)
    if eighths <= 8:
        high = HEIGHT * eighths / 8
        return f"M{x * WIDTH:g} {(y + 1) * HEIGHT - high:g}h{cells * WIDTH:g}v{high:g}h{-cells * WIDTH:g}z"
    wide = WIDTH * (16 - eighths) / 8
    return "".join(f"M{(x + n) * WIDTH:g} {y * HEIGHT}h{wide:g}v{HEIGHT}h{-wide:g}z" for n in range(cells))


def printable(text: str) -> str:
    """Whatever came this far, nothing that a terminal obeys or XML has no place for."""
    return text if text.isprintable() else foreign(text)


def _css(style: Style, ground: str, ink: str) -> str:
    rules = [f"fill:{_colours(style, ground, ink)[0]}"]
    rules += ["font-weight:bold"] if style.bold else []
    rules += ["font-style:italic"] if style.italic else []
    rules += ["opacity:.6"] if style.dim else []
    lines = [name for name, on in (("underline", style.underline), ("line-through", style.strike)) if on]
    return ";".join([*rules, f"text-decoration:{' '.join(lines)}"] if lines else rules)


def _colours(style: Style, ground: str, ink: str) -> tuple[str, str]:
    """The colours of the glyphs and of what is behind them."""
    front, behind = (
        usual if colour is None or colour.is_default else colour.get_truecolor(DIMMED_MONOKAI, foreground=front).hex
        for colour, usual, front in ((style.color, ink, True), (style.bgcolor, ground, False))
    )
    return (behind, front) if style.reverse else (front, behind)

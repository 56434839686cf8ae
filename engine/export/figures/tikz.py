"""A small picture as pgf code for LaTeX, to be \\input into a document: cells, arcs, bars, the chain of one head.

The code needs ``\\usepackage{tikz}`` and, for masked cells, ``\\usetikzlibrary{patterns}``. All text from outside is
escaped letter by letter, so nothing in it is a command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from engine.errors import ExportError
from engine.export.figures import captions
from engine.export.figures.cells import WORDS, Cells, Kind, Scale, Side, numbers, scale_of, strongest
from engine.export.figures.colours import INKS, LEVELS, RGB, ink_on, rgb, scale
from engine.export.figures.draw import ordered, subject_of
from engine.export.figures.latex import escaped
from engine.export.figures.numerals import decimals, in_cell, short
from engine.export.figures.style import checked
from engine.export.formats import FigureStyle
from engine.pictures import Picture, picture
from engine.place import Place
from engine.runtime import Watch
from engine.sites import Address
from engine.windows import Plane

if TYPE_CHECKING:
    from engine.export.order import Order

MOST, LONGEST = 32, 24
"""Cells along a side, and characters of a label, that pgf code has at most."""
CELL = {"slide": 0.7, "column": 0.42, "page": 0.55}
"""The side of a cell in centimetres."""
HEAD = (
    "% needs \\usepackage{tikz} and \\usetikzlibrary{patterns}",
    "% made by layerstep; \\input it where the figure stands",
)
PATTERNS = {Kind.MASKED: "north east lines", Kind.NAN: "crosshatch", Kind.ABOVE: "grid", Kind.BELOW: "horizontal lines"}
"""How a cell that is no number is filled."""


def size(order: Order) -> int | None:
    """Small: a picture of many cells is refused."""
    return None


def write(order: Order, file: BinaryIO, watch: Watch | None = None) -> None:
    """Write what is ordered as pgf code. Raises ExportError for a picture that is too large or has no such form."""
    if order.at is None:
        ordered(order, watch)  # raises for a name that there is not
        raise ExportError(f"{order.view} has no pgf form; export it as pdf and \\includegraphics it")
    file.write(code(picture(order.wish, watch), order.style, order.title).encode())


def code(shown: Picture, style: FigureStyle | None = None, title: str = "") -> str:
    """A picture as pgf code; inside a figure with its caption where the style says so."""
    style = checked(style or FigureStyle())
    kind = "chain" if shown.view is not None and shown.view.kind == "chain" else _kind(shown)
    drawn = [f"\\begin{{tikzpicture}}[x={CELL[style.size]}cm, y={CELL[style.size]}cm, font=\\{_font(style)}]"]
    drawn += [f"  {line}" for line in DRAWERS[kind](shown, style)]
    drawn.append("\\end{tikzpicture}")
    if style.caption:
        told = captions.said(subject_of(shown, title=title), "latex")
        drawn = ["\\begin{figure}", "\\centering", *drawn, f"\\caption{{{told}}}", "\\end{figure}"]
    return "\n".join([*HEAD, *drawn, ""])


def _kind(shown: Picture) -> str:
    """Which drawer a picture has. Raises ExportError where it has none, or is too large."""
    place, view = shown.place, shown.view
    if place is None or (view is not None and view.kind in ("ranked", "text", "curves", "tokens")):
        name = "this picture" if view is None else f"the view {view.name}"
        raise ExportError(f"{name} has no pgf form (there is heatmap, row, arcs, chain); export it as pdf")
    sizes = [axis.size for axis in place.axes]
    if not 1 <= len(sizes) <= 2 or not all(sizes):
        raise ExportError(f"{place.title} is no plane and no row, so it has no pgf form; name a part of it, as [h=0]")
    _refuse_if_large(place)
    return "bars" if len(sizes) == 1 else "arcs" if view is not None and view.kind == "arcs" else "cells"


def _refuse_if_large(place: Place) -> None:
    for axis in place.axes:
        if axis.size > MOST:
            raise ExportError(
                f"{place.title} has {axis.size} along {axis.name}, and pgf code at most {MOST}; choose a range, or "
                "export it as pdf and \\includegraphics it"
            )


def _font(style: FigureStyle) -> str:
    return "small" if style.size == "slide" else "scriptsize"


# -- cells ---------------------------------------------------------------------------------------------------------


def _cells(shown: Picture, style: FigureStyle) -> Iterator[str]:
    place = shown.place
    assert place is not None
    down, across = place.axes
    cells = Cells.of(numbers(place), masks=place.plane.masks)
    limits = scale_of(place, [cells.values])
    yield from _plane(cells, limits, style, 0.0, 0.0, numbered=True)
    yield from _names(Side.of(place, down), Side.of(place, across), 0.0, 0.0)
    yield from _bar(limits, cells, style, across.size + 0.6)


def _plane(cells: Cells, limits: Scale, style: FigureStyle, x: float, y: float, *, numbered: bool) -> Iterator[str]:
    """One rectangle for each cell, the first row at the top, and its number in it."""
    rows, cols = cells.shape
    places = decimals(limits.limit)
    for i in range(rows):
        for j in range(cols):
            kind = Kind(int(cells.kinds[i, j]))
            corner = f"({_n(x + j)},{_n(y - i - 1)}) rectangle +(1,1)"
            if kind is not Kind.NUMBER:
                yield f"\\path[pattern={PATTERNS[kind]}, pattern color={_colour(_mark(kind, style))}] {corner};"
                continue
            value = float(cells.values[i, j])
            colour = _shade(limits, value, style)
            yield f"\\fill[fill={_colour(colour)}] {corner};"
            if numbered and places >= 0 and max(rows, cols) <= 16:
                ink = _colour(rgb(ink_on(colour)))
                yield _node(x + j + 0.5, y - i - 0.5, in_cell(value, places), f"text={ink}, scale=0.8")
    yield f"\\draw[gray!60] ({_n(x)},{_n(y - rows)}) rectangle +({cols},{rows});"


def _names(down: Side, across: Side, x: float, y: float, *, rows: bool = True) -> Iterator[str]:
    """The names of rows and of columns, and what they are."""
    longest = 0
    for i in range(down.size if rows else 0):
        yield _node(x - 0.15, y - i - 0.5, _name(down, i), "anchor=east")
    for j in range(across.size):
        longest = max(longest, len(_name(across, j)))
        yield _node(x + j + 0.5, y - down.size - 0.15, _name(across, j), "anchor=east, rotate=90")
    if rows:
        widest = max((len(_name(down, i)) for i in range(down.size)), default=0)
        yield _node(x - 0.6 - 0.42 * widest, y - down.size / 2, down.name, "rotate=90, text=gray")
    yield _node(x + across.size / 2, y - down.size - 0.6 - 0.42 * longest, across.name, "anchor=north, text=gray")


def _bar(limits: Scale, cells: Cells, style: FigureStyle, x: float) -> Iterator[str]:
    """What the colours mean: five steps of them with the numbers at the ends, and the hatches."""
    steps = 8
    high = min(4.0, float(cells.shape[0]))
    for i in range(steps):
        value = limits.low + (limits.limit - limits.low) * (i + 0.5) / steps
        corner = f"({_n(x)},{_n(-high + i * high / steps)}) rectangle +(0.4,{_n(high / steps)})"
        yield f"\\fill[fill={_colour(_shade(limits, value, style))}] {corner};"
    yield _node(x + 0.5, -high, short(limits.low), "anchor=west")
    yield _node(x + 0.5, 0.0, ("≥ " if limits.beyond else "") + short(limits.limit), "anchor=west")
    for n, kind in enumerate(cells.there()):
        y = -high - 1.0 - n
        pattern = f"pattern={PATTERNS[kind]}, pattern color={_colour(_mark(kind, style))}"
        yield f"\\path[{pattern}, draw=gray] ({_n(x)},{_n(y)}) rectangle +(0.6,0.6);"
        yield _node(x + 0.75, y + 0.3, WORDS[kind], "anchor=west")


# -- bars, arcs, the chain -----------------------------------------------------------------------------------------


def _bars(shown: Picture, style: FigureStyle) -> Iterator[str]:
    place = shown.place
    assert place is not None
    [axis] = place.axes
    cells = Cells.of(numbers(place)[None], masks=place.plane.masks)
    limits, inks = scale_of(place, [cells.values]), INKS[style.theme]
    high = 6.0
    side = Side.of(place, axis)
    low = high if limits.signed else 0.0
    for j in range(axis.size):
        kind, value = Kind(int(cells.kinds[0, j])), float(cells.values[0, j])
        if kind is not Kind.NUMBER:
            pattern = f"pattern={PATTERNS[kind]}, pattern color={_colour(_mark(kind, style))}"
            yield f"\\path[{pattern}] ({_n(j + 0.1)},0) rectangle +(0.8,{_n(high)});"
            continue
        tall = max(-1.0, min(1.0, value / limits.limit)) * high
        yield f"\\fill[fill={_colour(rgb(inks.lines[value >= 0]))}] ({_n(j + 0.1)},0) rectangle +(0.8,{_n(tall)});"
        if axis.size <= 20:
            anchor = "south" if value >= 0 else "north"
            yield _node(j + 0.5, tall, short(value, 2), f"anchor={anchor}, scale=0.8")
        yield _node(j + 0.5, -low - 0.2, _name(side, j), "anchor=east, rotate=90")
    yield f"\\draw (0,0) -- ({axis.size},0);"


def _arcs(shown: Picture, style: FigureStyle) -> Iterator[str]:
    place = shown.place
    assert place is not None
    query, key = place.axes
    if query.name.startswith("src") != key.name.startswith("src"):
        raise ExportError(f"{place.title} is of two texts, and arcs in pgf are of one; export it as pdf")
    start = min(query.first, key.first)
    stop = max(query.first + query.size, key.first + key.size)
    cells = Cells.of(numbers(place), masks=place.plane.masks)
    limits = scale_of(place, [cells.values])
    for weight, i, j in strongest(cells):
        a, b = i + query.first - start + 0.5, j + key.first - start + 0.5
        colour, thick = _colour(_shade(limits, weight, style)), _n(0.3 + 2.2 * limits.level(weight))
        if a == b:
            yield f"\\fill[fill={colour}] ({_n(a)},0) circle[radius=0.16];"
        else:
            turn = f"arc[start angle=180, end angle={0 if a > b else 360}, radius={_n(abs(a - b) / 2)}]"
            yield f"\\path[draw={colour}, line width={thick}pt] ({_n(min(a, b))},0) {turn};"
    for i in range(start, stop):
        label = place.token(key.name, i)
        yield _node(i - start + 0.5, -0.3, _short(label), "anchor=east, rotate=90")


def _chain(shown: Picture, style: FigureStyle) -> Iterator[str]:
    told, trace = shown.told, shown.trace
    assert told is not None
    site = trace.program.site(shown.address.site)
    index = shown.address.resolve(site.axes, trace.shape(site.name, shown.address.at))
    query, key = (index[axis] for axis in site.axes[2:])
    x = 0.0
    for n, stage in enumerate(told["stages"]):
        plane = Address(stage["site"], tuple((axis, index[axis]) for axis in site.axes[:2]), shown.address.at)
        place = Place.of(Plane.find(trace, str(plane)))
        _refuse_if_large(place)
        down, across = place.axes
        cells = Cells.of(numbers(place), masks=place.plane.masks)
        yield from _plane(cells, scale_of(place, [cells.values]), style, x, 0.0, numbered=False)
        yield from _names(Side.of(place, down), Side.of(place, across), x, 0.0, rows=not n)
        number = short(stage["value"], 4) if stage["value"] is not None else WORDS.get(Kind.MASKED, "")
        yield _node(x, 0.2, f"{'→ ' if n else ''}{stage['label']} {number}", "anchor=south west")
        red = _colour(rgb(INKS[style.theme].odd))
        corner = f"({_n(x + int(str(key)))},{_n(-int(str(query)) - 1)})"
        yield f"\\draw[draw={red}, line width=1pt] {corner} rectangle +(1,1);"
        x += across.size + 1.0


DRAWERS: dict[str, Callable[[Picture, FigureStyle], Iterator[str]]] = {
    "cells": _cells, "bars": _bars, "arcs": _arcs, "chain": _chain,
}  # fmt: skip


# -- words of pgf --------------------------------------------------------------------------------------------------


def _node(x: float, y: float, text: str, options: str) -> str:
    return f"\\node[{options}] at ({_n(x)},{_n(y)}) {{{escaped(text)}}};"


def _name(side: Side, i: int) -> str:
    return _short(side.labels[i]) if side.labels else str(side.start + i)


def _short(label: str) -> str:
    return label if len(label) <= LONGEST else label[: LONGEST - 1] + "…"


def _n(number: float) -> str:
    """A number as pgf reads it."""
    return f"{number:.3f}".rstrip("0").rstrip(".") if number else "0"


def _shade(limits: Scale, value: float, style: FigureStyle) -> RGB:
    colours: Sequence[RGB] = scale(style.palette, style.theme, signed=limits.signed)
    return colours[min(LEVELS - 1, int(limits.level(value) * LEVELS))]


def _mark(kind: Kind, style: FigureStyle) -> RGB:
    return rgb(INKS[style.theme].hatch if kind is Kind.MASKED else INKS[style.theme].odd)


def _colour(colour: RGB) -> str:
    red, green, blue = (round(255 * part) for part in colour)
    return f"{{rgb,255:red,{red}; green,{green}; blue,{blue}}}"

"""A picture as a figure: drawn with matplotlib, written as SVG, PDF or PNG, and told in a caption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from engine.errors import ExportError
from engine.export.figures import captions
from engine.export.figures.style import OF_A_TRACE, checked
from engine.export.figures.subject import Subject
from engine.export.formats import FigureStyle
from engine.export.order import Order
from engine.pictures import Picture, TooManyError, Wish
from engine.pictures import picture as picture_of
from engine.runtime import Watch
from engine.text import display

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from engine.export.figures.sheet import Sheet

MOST_NUMBERS = 4096 * 8192
"""A picture of more numbers is not drawn."""
Drawn = Picture | Wish | Order | Subject
"""What a figure can be drawn of."""


def size(order: Order) -> int | None:
    """Figures are small."""
    return None


def cheaper(order: Order, limit: int) -> str:
    """What makes the file smaller."""
    return "choose a smaller --size or another format"


def write(order: Order, file: BinaryIO, watch: Watch | None = None, dpi: int | None = None) -> None:
    """Draw what is ordered into a file, a PNG in so many dots an inch (None: as is usual for its size). The same order
    gives the same bytes. Raises ExportError for what cannot be drawn, and what a picture raises."""
    from engine.export.figures.sheet import drawing

    subject = ordered(order, watch)
    style = checked(order.style)
    with drawing(style.font):
        how: dict[str, Any] = {
            "format": order.to,
            "metadata": _metadata(subject, style, order.to),
            "dpi": dpi or "figure",
        }
        _sheet(subject, style).figure.savefig(file, **how)


def figure(of: Drawn, style: FigureStyle | None = None) -> Figure:
    """A picture as a matplotlib figure, for a notebook or to be drawn on; of an order in its own style by default."""
    from engine.export.figures.sheet import drawing

    style = checked(style or (of.style if isinstance(of, Order) else FigureStyle()))
    with drawing(style.font):
        return _sheet(subject_of(of), style).figure


def caption(of: Drawn, form: str = "text") -> str:
    """What a figure shows, in sentences, as "text" or "latex": site, what is fixed, formula, model, prompt, and what
    was chosen or left out."""
    subject = subject_of(of)
    return captions.said(subject, form)


def ordered(order: Order, watch: Watch | None = None) -> Subject:
    """What is ordered: a picture of an address, or a figure of the whole trace by its name."""
    if order.at is None:
        return _of_trace(order)
    return subject_of(order.wish, watch, title=order.title)


def subject_of(of: Drawn, watch: Watch | None = None, *, title: str = "") -> Subject:
    """What a figure is of. Raises ExportError for a picture of too many numbers."""
    if isinstance(of, Subject):
        return of
    if isinstance(of, Order):
        return ordered(of, watch)
    if isinstance(of, Wish):
        try:
            of = picture_of(of, watch, most=MOST_NUMBERS)
        except TooManyError as error:
            raise ExportError(str(error)) from None
    found = of
    facts = captions.made_of(found)

    def paint(sheet: Sheet) -> None:
        painter(found)(sheet, found)

    return Subject(of.trace, title or captions.title(of), captions.formula(of), facts, captions.latex_of(of), paint)


def painter(picture: Picture) -> Callable[[Sheet, Picture], None]:
    """What draws a picture: by its kind, and where it has none by how many axes it has."""
    from engine.export.figures import arcs, bars, chain, dials, lines, planes, table, tiles

    place = picture.place
    if place is not None and any(not axis.size for axis in place.axes):
        return table.empty
    by_kind: dict[str, Any] = {
        "attention": planes.plane, "matrix": planes.plane, "bars": bars.bars, "ranked": table.ranked,
        "tokens": table.tokens, "arcs": arcs.arcs, "text": arcs.weighted_text, "curves": lines.curves,
        "grid": planes.grid, "thumbs": tiles.thumbs, "list": table.listed, "rotation": dials.rotation,
        "chain": chain.chain, "histogram": bars.histogram,
    }  # fmt: skip
    if picture.view is not None and picture.view.kind in by_kind:
        found: Callable[[Sheet, Picture], None] = by_kind[picture.view.kind]
        return found
    assert place is not None
    if len(place.axes) == 1 and place.axes[0].name == "d_vocab":
        return table.ranked
    return (table.number, bars.bars, planes.plane, planes.stacked)[min(3, len(place.axes))]


def _of_trace(order: Order) -> Subject:
    from engine.export.figures import costs, growth

    name = (order.view or "").replace(" ", "-")
    if name not in OF_A_TRACE:
        there = ", ".join(OF_A_TRACE)
        asked = f"there is no figure {display(name)[:40]!r} of a whole trace; there is {there}" if name else ""
        raise ExportError(asked or f"a figure is of one place, named with --at, or one of these of the trace: {there}")
    maker = dict(zip(OF_A_TRACE, (growth.growth, costs.cost, costs.roofline), strict=True))[name]
    return maker(order.trace, order.style, order.title)


def _sheet(subject: Subject, style: FigureStyle) -> Sheet:
    from engine.export.figures.sheet import Sheet

    told = captions.said(subject, "text") if style.caption == "text" else ""
    sheet = Sheet(style, subject.title, subject.formula, captions.source(subject.trace), told)
    subject.paint(sheet)
    return sheet


def _metadata(subject: Subject, style: FigureStyle, to: str) -> dict[str, Any]:
    """What stands in the file beside the figure: title and caption, and no date, which would make each file another."""
    title, told = display(subject.title), captions.said(subject, style.caption or "text")
    if to == "pdf":
        return {"Title": title, "Subject": told, "Creator": "layerstep", "CreationDate": None}
    if to == "svg":
        return {"Title": title, "Description": told, "Creator": "layerstep", "Date": None}
    return {"Title": title, "Description": told, "Software": None}

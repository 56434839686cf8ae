"""What a handout and a notebook go through: the stops of a tour, or without one the steps of one layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from engine.export.order import Order
from engine.export.selection import parts
from engine.markdown import Tree, markdown
from engine.pictures import CHAIN, Wish, views_of
from engine.sites import ENCODER
from engine.touring import TourRun
from engine.tours import Stop


@dataclass(frozen=True, slots=True)
class Stage:
    """A place to look at: its picture (and another one beside it), and what is said of it, in Markdown that is safe."""

    title: str
    wish: Wish
    beside: Wish | None = None
    narration: str = ""
    question: str = ""
    answer: str = ""
    notes: str = ""


def stages(order: Order) -> Iterator[Stage]:
    """The places in order. Raises AddressError for one that the trace does not have."""
    if order.tour is not None:
        run = TourRun(order.tour, order.trace, order.beside)
        yield from (_stop(run, stop) for stop in order.tour.stops)
    else:
        yield from _steps(order)


def wishes(order: Order) -> Iterator[Wish]:
    """The pictures of all places. Raises as `stages` does."""
    if order.tour is None:
        yield from (stage.wish for stage in _steps(order))
        return
    run = TourRun(order.tour, order.trace, order.beside)
    for stop in order.tour.stops:
        yield from filter(None, (run.wish(stop), run.beside(stop)))


def count(order: Order) -> int:
    """How many places there are."""
    return len(order.tour.stops) if order.tour is not None else sum(1 for _ in _steps(order))


def title_of(order: Order) -> str:
    """What the file is called."""
    if order.title:
        return order.title
    if order.tour is not None:
        return order.tour.title
    return f"One pass through {order.trace.config.name}"


def plain(text: str) -> str:
    """A text in Markdown in which nothing is markup."""
    return markdown([["p", [["text", text]]]]) if text else ""


def _stop(run: TourRun, stop: Stop) -> Stage:
    words: Callable[[str], Tree] = run.words
    texts = {key: markdown(words(getattr(stop, key))) for key in ("narration", "question", "answer", "notes")}
    return Stage(stop.title, run.wish(stop), run.beside(stop), **texts)


def _steps(order: Order) -> Iterator[Stage]:
    """The steps of one layer, and those before the first and after the last one, each in the first of its pictures."""
    trace, selection = order.trace, order.selection
    if selection.layers is None and selection.keep == ("all",):
        selection = replace(selection, layers=(trace.config.n_layers // 2,))
    heads = selection.heads
    for part in parts(trace, selection):
        site, step = part.site, trace.program.step(part.site.name)
        if step is None or not part.numel:
            continue
        views = [view for view in views_of(trace, site) if view is not CHAIN]
        axis = next((axis for axis in ("head", "kv_head") if axis in site.axes), None)
        chosen = part.index.get(axis or "", ())
        fixed = bool(heads and chosen and axis not in views[0].spread)
        at = f"{site.name}[{axis}={chosen[0]}]" if fixed else site.name
        stack = "Encoder block" if site.name.startswith(ENCODER) else "Block"
        where = "" if site.block is None else f"{stack} {site.block}: "
        yield Stage(f"{where}{step.op.text.title}", Wish(trace, at, views[0].name), narration=plain(step.op.text.story))

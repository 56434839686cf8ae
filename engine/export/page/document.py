"""All that a page knows: what the app is told of a trace (`engine.summary`), its tensors, and what is derived of them.

The page computes what it draws from the tensors, as the app does. What only the engine can tell is told here: looks
along depth, the candidates, the checks, and looks at the places where a tour stops.

| key | |
| --- | --- |
| ``format``, ``version``, ``made_by``, ``title`` | |
| ``dtype``, ``rounded``, ``left_out`` | what numbers were rounded to; sentences on that, and on what is not here |
| ``mathml``, ``look_words`` | trees by LaTeX; what is said of looks that the page makes itself |
| ``traces`` | of each what `engine.export.page.entry` has |
| ``tour`` | None, or title, about and stops: texts as trees of `engine.markdown`, places as trace, address, view |

A tensor's ``block`` is the id of an element that holds its numbers: base64, little-endian, in the order of its axes.
NaN and infinities are words in JSON. Everything that is shown has passed `engine.text.display`; what has not, as a
summary's prompt, is there to be read by programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from textwrap import shorten

from engine.analysis import chain, histogram
from engine.analysis import heads as thumbs
from engine.export.contents import made_by
from engine.export.order import Order
from engine.export.page import mathml, stops
from engine.export.page.blocks import Blocks
from engine.export.page.entry import entry
from engine.export.selection import Part, left_out, parts
from engine.jsontext import Json
from engine.ops.base import Text
from engine.ops.rotary import Rotate
from engine.runtime import Watch, as_part
from engine.text import display
from engine.touring import TourRun
from engine.traces import Trace

LOOK_WORDS: Mapping[str, Text] = {
    "heads": thumbs.HEADS,
    "layers": thumbs.LAYERS,
    "histogram": histogram.TEXT,
    "rotation": Rotate.TEXT,
    "chain": chain.TEXT,
}
"""How people are told of the looks that the page draws itself."""


def document(order: Order, blocks: Blocks, watch: Watch | None = None) -> Json:
    """The page's document; the tensors go to ``blocks`` on the way. Floats in it may be NaN or infinite.

    Raises ExportError where a tour stops at what is not in it, or a number does not fit the dtype; NotKeptError where
    nothing of what is chosen can be had.
    """
    traces = traces_of(order)
    chosen = [parts(trace, order.selection) for trace in traces]
    run = None if order.tour is None else TourRun(order.tour, order.trace, order.beside)
    tour = None if run is None else stops.tour(run, chosen, notes=order.notes)
    told = [[] if run is None else stops.looks(run, i, watch) for i in range(len(traces))]
    entries = [
        entry(trace, chosen[i], told[i], blocks, as_part(watch, i, len(traces))) for i, trace in enumerate(traces)
    ]
    return {
        "format": "layerstep-page",
        "version": 1,
        "title": title(order),
        "made_by": made_by(),
        "dtype": order.dtype,
        "rounded": blocks.rounded,
        "left_out": missing(order, chosen),
        "mathml": mathml.trees(_formulas(entries)),
        "look_words": {name: asdict(text) for name, text in LOOK_WORDS.items()},
        "traces": entries,
        "tour": tour,
    }


def traces_of(order: Order) -> tuple[Trace, ...]:
    """The traces of a page: the main one, and a tour's other."""
    return (order.trace,) if order.beside is None else (order.trace, order.beside)


def title(order: Order) -> str:
    """What the page is called."""
    trace = order.trace
    prompt = shorten(display(trace.prompt), 80, placeholder="…")
    return display(order.title or (order.tour.title if order.tour else f"{prompt} · {trace.config.name}"))


def missing(order: Order, chosen: Sequence[Sequence[Part]]) -> list[str]:
    """What is not in the page, and how it would be, in sentences."""
    found, layers, heads = list[str](), order.selection.layers, order.selection.heads
    for trace, mine in zip(traces_of(order), chosen, strict=True):
        cannot, there = set(left_out(trace)), {part.site.name for part in mine}
        sites = [site for site in trace.program.sites if "past" not in site.axes]
        if names := _kinds(site.name for site in sites if site.name in cannot):
            found.append(f"Deriving these needs the model's weights (--model): {names}.")
        sites = [site for site in sites if layers is None or site.block is None or site.block in layers]
        if names := _kinds(site.name for site in sites if site.name not in cannot and site.name not in there):
            found.append(f"Not chosen for this file (--keep): {names}.")
        if trace.weights is None:
            found.append("This is of a trace file without its model (--model): no logit lens, and no neurons.")
    if layers is not None:
        found.append(f"Only these layers were chosen for this file (--layers): {', '.join(map(str, layers))}.")
    if heads is not None:
        found.append(f"Only these heads were chosen for this file (--heads): {', '.join(map(str, heads))}.")
    return list(dict.fromkeys(found))


def _kinds(names: Iterator[str]) -> str:
    """Names of sites, those of all layers as one."""
    short = dict.fromkeys(".".join("*" if part.isdecimal() else part for part in name.split(".")) for name in names)
    return ", ".join(short)


def _formulas(entries: Sequence[Json]) -> Iterator[str]:
    yield from (text.latex for text in LOOK_WORDS.values())
    for one in entries:
        yield from (said["latex"] for said in one["step_words"])
        yield from (told["latex"] for every in one["looks"].values() for told in every)
        yield from (told["latex"] for told in one["told"])

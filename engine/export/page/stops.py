"""A tour in a page: its texts with the model's own numbers in them, and looks at the places where it stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.analysis import looks as engine_looks
from engine.errors import AddressError, ExportError
from engine.export.selection import Part
from engine.jsontext import Json
from engine.markdown import parse
from engine.pictures import views_of
from engine.runtime import Watch
from engine.sites import Address
from engine.text import display
from engine.touring import TourRun
from engine.tours import SPOKEN, Stop
from engine.traces import Trace
from engine.views import View

TOLD = ("neighbours", "neurons")
"""Looks at one place that need the weights, so that the page cannot draw them of its tensors."""


class Place(NamedTuple):
    """What a stop shows: an address of the trace ``of``, in a view; ``where`` is said in an error."""

    of: int
    trace: Trace
    address: Address
    view: View
    where: str

    def to_json(self) -> Json:
        return {"trace": self.of, "address": str(self.address), "view": self.view.name}


def tour(run: TourRun, chosen: Sequence[Sequence[Part]], *, notes: bool) -> Json:
    """The tour as the page has it, with the speaker's ``notes`` or without.

    Raises ExportError for a stop at what the trace or the page does not have.
    """
    texts = SPOKEN if notes else [text for text in SPOKEN if text != "notes"]
    return {
        "title": display(run.tour.title),
        "about": parse(run.tour.about),
        "stops": [_stop(run, chosen, texts, number, stop) for number, stop in enumerate(run.tour.stops, 1)],
    }


def looks(run: TourRun, of: int, watch: Watch | None = None) -> list[Json]:
    """What is told of the places of one trace where the tour stops."""
    found: dict[tuple[str, str], Json] = {}
    for place in (one for number, stop in enumerate(run.tour.stops, 1) for one in _places(run, number, stop)):
        key = place.view.name, str(place.address)
        if place.of == of and place.view.name in TOLD and key not in found:
            site = place.trace.program.site(place.address.site)
            index = place.address.resolve(site.axes, place.trace.shape(site.name, place.address.at))
            told, _ = engine_looks.look(place.trace, place.view.name, place.address, watch=watch)
            found[key] = told | {"view": key[0], "address": key[1], "site": site.name, "index": index}
    return list(found.values())


def _stop(run: TourRun, chosen: Sequence[Sequence[Part]], texts: Sequence[str], number: int, stop: Stop) -> Json:
    places = _places(run, number, stop)
    for place in places:
        _check(place, chosen[place.of])
    said = {text: run.words(getattr(stop, text)) for text in texts if getattr(stop, text)}
    return {
        "title": display(stop.title),
        **places[0].to_json(),
        **{text: said.get(text) for text in SPOKEN},
        "beside": places[1].to_json() if len(places) > 1 else None,
    }


def _places(run: TourRun, number: int, stop: Stop) -> list[Place]:
    """Where a stop is, then what is beside it, in the same view where that is there."""
    where = f"stop {number}, {display(stop.title)}"
    asked = [(0, run.main, stop.address, True)]
    if stop.beside is not None:
        asked.append((0, run.main, stop.beside, False) if run.other is None else (1, run.other, stop.beside, False))
    places = []
    for of, trace, address, strict in asked:
        try:
            site = trace.program.site(address.site)
            address.resolve(site.axes, trace.shape(site.name, address.at))
        except AddressError as error:
            raise ExportError(f"{where}: {error}") from None
        views = views_of(trace, site, address.at)
        view = next((view for view in views if view.name == stop.view), None if strict else views[0])
        if view is None:
            names = ", ".join(one.name for one in views)
            more = "" if trace.weights is not None else ", and with its model (--model) more"
            raise ExportError(f"{where}: {site.name} has no view {display(stop.view)[:40]!r}; it has {names}{more}")
        places.append(Place(of, trace, address, view, where))
    return places


def _check(place: Place, chosen: Sequence[Part]) -> None:
    """Refuse a place that is drawn of a tensor that the page does not have."""
    if place.view.kind == "grid" or place.view.name in TOLD:
        return
    step = place.trace.program.step(place.address.site)
    beneath = step.reads if step is not None and place.view.look == "rotation" else ()
    for name in (place.address.site, *beneath):
        part = next((part for part in chosen if part.site.name == name), None)
        if part is None:
            can = place.trace.can_have(name, len(place.trace.passes) - 1)
            instead = (
                f"add {name} to --keep, and its layer to --layers where these are named"
                if can
                else f"open the trace with its model (--model), or record it with {name} in --keep"
            )
            raise ExportError(f"{place.where}: it shows {name}, which would not be in the page; {instead}")
        shape = place.trace.shape(name, place.address.at)
        if name == place.address.site and part.index:
            _check_heads(place, part, shape)


def _check_heads(place: Place, part: Part, shape: tuple[int, ...]) -> None:
    index = place.address.resolve(part.site.axes, shape)
    for axis, there in part.index.items():
        if place.view.over or (i := index.get(axis, 0)) not in there:
            what = f"all heads of {part.site.name}" if place.view.over else f"{axis} {i} of {part.site.name}"
            raise ExportError(f"{place.where}: it shows {what}, which would not be in the page; add it to --heads")

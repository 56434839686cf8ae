"""What of a tour is the app's: reading one with its actions, and whether the traces that are open have the places."""

from __future__ import annotations

from pathlib import Path

from engine import tours
from engine.errors import AddressError, TourError
from engine.sites import TOKEN_AXES, Address
from engine.text import display
from engine.tours import Mark, Tour
from tui.actions import DEFAULT
from tui.state.trace import Trace
from tui.state.views import views_of

RANKED = ("logits", "probs")
"""Sites at which a likeliest token is quoted."""
TOKENS = ("tokens", "source_tokens")
"""Sites at which a token is quoted."""


def read_tour(name: Path | str) -> Tour:
    """A tour from a file, or by its name. Raises TourError."""
    return tours.read_tour(name, DEFAULT.by_id)


def offered() -> list[tuple[Path, str, str]]:
    """The tours that come along: the file, the title, and how long it is; of one that cannot be read, why."""
    found = []
    for name, path in tours.shipped().items():
        try:
            tour = read_tour(path)
        except TourError as error:
            found.append((path, name, str(error)))
        else:
            found.append((path, tour.title, f"{len(tour.stops)} stops"))
    return found


def trouble(tour: Tour, trace: Trace, other: Trace | None = None) -> str:
    """What of a tour its traces do not have, in one line; '' where it can be walked."""
    for number, stop in enumerate(tour.stops, 1):
        places = [(stop.address, "", trace)] + ([(stop.beside, "", other or trace)] if stop.beside else [])
        places += [(mark.address, mark.kind, _of(mark, trace, other)) for mark in stop.marks if mark.kind != "key"]
        wrong = next(filter(None, (_misplaced(*place) for place in places)), "")
        names = [] if wrong else [view.name for view in views_of(trace.by_site[stop.address.site])]
        if not wrong and stop.view not in names:
            wrong = f"{stop.address} has no view {display(stop.view)}; it has {', '.join(names)}"
        if wrong:
            return f"stop {number}, {display(stop.title)}: {wrong}"
    return ""


def token_at(place: Address, trace: Trace) -> str:
    """The label of the token at a place of token ids."""
    step = trace.step(trace.by_site[place.site].index, place.at)
    index = place.resolve(step.axes, step.shape)
    axis = next((axis for axis in step.axes if axis in TOKEN_AXES), "")
    batch, pos = index.get("batch", 0), index.get(axis, 0)
    return trace.label(batch, step.first(axis) + pos, axis) if isinstance(batch, int) and isinstance(pos, int) else "?"


def _of(mark: Mark, trace: Trace, other: Trace | None) -> Trace:
    return other if mark.kind == "other" and other is not None else trace


def _misplaced(place: Address, kind: str, trace: Trace) -> str:
    """What is wrong with a place in a trace; ``kind``: of the mark that quotes it, '' where it is only looked at."""
    if place.site not in trace.by_site:
        return f"there is no site {display(place.site)}"
    if place.at is not None and place.at >= len(trace.passes):
        return f"{place}: there is no pass {place.at}"
    step = trace.step(trace.by_site[place.site].index, place.at)
    try:
        index = place.resolve(step.axes, step.shape)
    except AddressError as error:
        return str(error)
    sizes = zip(step.axes, step.shape, strict=True)
    free = [axis for axis, size in sizes if size != 1 and not isinstance(index.get(axis), int)]
    if kind == "top" and (place.site not in RANKED or free != ["d_vocab"]):
        return f"{place}: tokens are ranked at one position of {' or '.join(RANKED)}"
    if kind == "token" and (free or place.site not in TOKENS):
        return f"{place} is no token"
    if kind in ("value", "other") and free:
        return f"{place} is not one number; give an index for each of {', '.join(step.axes)}"
    return ""

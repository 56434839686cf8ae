"""One description of every picture: what a view shows at an address, whoever draws it afterwards.

Text, figures, tables, handouts and notebooks are all drawn from a `Picture`. Which views a site has is said in
`engine.views`, for the app too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from engine import views, windows
from engine.analysis import looks
from engine.analysis.chain import stages_of
from engine.analysis.places import ALONG
from engine.errors import AddressError
from engine.jsontext import Json
from engine.place import Place
from engine.runtime import Watch
from engine.sites import LETTERS, TOKEN_AXES, Address, Index, Site, Span
from engine.summary import dtype_of
from engine.text import display
from engine.traces import Trace
from engine.views import View
from engine.windows import Difference, Plane

CHAIN = View("chain", name="chain", look="chain")
"""One cell from its score to its weight, which the app shows beside the picture."""


class TooManyError(AddressError):
    """More numbers than were asked for at most."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for: an address in a trace, a view (None: as it is), an axis to reduce, a place to take away."""

    trace: Trace
    address: str
    view: str | None = None
    over: Mapping[str, str] = field(default_factory=dict)
    other: Trace | None = None
    minus: str | None = None

    @property
    def differs(self) -> bool:
        """Whether something is taken away."""
        return self.minus is not None or self.other is not None

    def plane(self) -> Plane | Difference:
        """The window that is asked for, as it is."""
        if not self.differs:
            return windows.find(self.trace, self.address, self.over)
        other = Plane.find(self.other or self.trace, self.minus or self.address, self.over)
        return windows.find(self.trace, self.address, self.over, other)


def views_of(trace: Trace, site: Site, at: int | None = None) -> tuple[View, ...]:
    """The views that a site has, those of the app and how one cell came about."""
    sizes = dict(zip(site.axes, trace.shape(site.name, at), strict=True))
    derived = looks.looks_in(trace).get(site.name, ())
    found = views.views_of(sizes, derived, dtype_of(trace, site).startswith("int"))
    return (*found, CHAIN) if stages_of(trace.program, site.name) else found


@dataclass(frozen=True, slots=True)
class Taken:
    """An index that nobody named, of so many along its axis."""

    axis: str
    index: int
    size: int

    def __str__(self) -> str:
        return f"{self.axis} {self.index} of {self.size}"


@dataclass(frozen=True, slots=True)
class Picture:
    """What a view shows of a trace, with nothing said of how it is drawn.

    Of a window of a tensor ``place`` has the numbers, their axes and a label for each index; of a look ``told`` is what
    the engine derived (`engine.analysis.looks`), with its numbers in ``values`` where it has many. ``view`` is None
    where an address is asked for as it is. ``taken`` are the indices along axes that the address does not
    name.
    """

    trace: Trace
    address: Address
    view: View | None
    place: Place | None = None
    told: Json | None = None
    values: Tensor | None = None
    taken: tuple[Taken, ...] = ()

    def to_json(self) -> Json:
        """Everything in it; floats may be NaN or infinite."""
        name = {} if self.view is None else {"view": self.view.name}
        if self.place is not None:
            return name | self.place.to_json()
        return name | (self.told or {}) | ({} if self.values is None else {"values": self.values.tolist()})


def picture(wish: Wish, watch: Watch | None = None, *, most: int | None = None) -> Picture:
    """What is asked for. Raises TooManyError for more than ``most`` numbers, and what ``watch`` raises."""
    if wish.view is None:
        return Picture(wish.trace, Address.parse(wish.address), None, _place(wish.plane(), most, watch))
    view = find_view(wish, wish.view)
    if view.look:
        told, tensor = looks.look(wish.trace, view.name, _address_of_look(wish, view), watch=watch)
        taken = _taken(wish.trace, wish.address, told["address"])
        return Picture(wish.trace, Address.parse(told["address"]), view, told=told, values=tensor, taken=taken)
    if view.over:
        if wish.over:
            raise AddressError(f"the view {view.name} takes the {view.name} over heads itself; leave --over out")
        wish = replace(wish, over={"head": view.name})
    spread = _spread(wish, view)
    place, taken = _place(spread.plane(), most, watch), _taken(wish.trace, wish.address, spread.address)
    return Picture(wish.trace, Address.parse(spread.address), view, place, taken=taken)


def find_view(wish: Wish, asked: str) -> View:
    """The view of this name. Raises AddressError with those there are where the site has none."""
    place = Address.parse(wish.address)
    site = wish.trace.program.site(place.site)
    there = views_of(wish.trace, site, place.at)
    name = asked.replace("-", " ")
    view = next((view for view in there if view.name == name), None)
    if view is None:
        names = ", ".join(view.name for view in there)
        more = "" if wish.trace.weights is not None else ", and with its model (--model) more"
        raise AddressError(f"{site.name} has no view {display(asked)[:40]!r}; it has {names}{more}")
    if view.look and (wish.differs or wish.over):
        raise AddressError(f"the view {name} is derived from the trace, so nothing can be reduced or taken away in it")
    return view


def _place(plane: Plane | Difference, most: int | None, watch: Watch | None) -> Place:
    size = math.prod(windows.shape_of(plane.asked))
    if most is not None and size > most:
        raise TooManyError(f"{plane.title} has {size:,} values; name a part of it")
    return Place.of(plane, watch)


def _spread(wish: Wish, view: View) -> Wish:
    """The same with every axis that the view does not spread out, and that is not reduced, fixed at one index: where
    none is named at the last position, and at 0 else; in what is taken away as in the main place."""
    address, chosen = _fixed(wish.trace, wish.address, view, wish.over, {})
    if not wish.differs:
        return replace(wish, address=address)
    minus, _ = _fixed(wish.other or wish.trace, wish.minus or wish.address, view, wish.over, chosen)
    return replace(wish, address=address, minus=minus)


def _fixed(
    trace: Trace, address: str, view: View, over: Mapping[str, str], usual: Mapping[str, int]
) -> tuple[str, dict[str, int]]:
    place = Address.parse(address)
    site = trace.program.site(place.site)
    shape = trace.shape(site.name, place.at)
    index = place.resolve(site.axes, shape)
    chosen: dict[str, Index] = {}
    for axis, size in zip(site.axes, shape, strict=True):
        i, letter, reduced = index.get(axis), LETTERS[axis], axis in over or LETTERS[axis] in over
        if axis in view.spread:
            if reduced:
                raise AddressError(f"{place}: the view {view.name} is over {axis}, so that cannot be reduced as well")
            if isinstance(i, int):
                raise AddressError(f"{place}: the view {view.name} is over {axis}; leave {letter} out, or give a range")
        elif isinstance(i, Span):
            raise AddressError(f"{place}: the view {view.name} is of one {axis}; write one index, e.g. {letter}=0")
        elif i is None and not reduced:
            if not size:
                raise AddressError(f"{place} has no {axis}, so there is nothing to see in the view {view.name}")
            i = max(0, min(size - 1, usual.get(axis, size - 1 if axis in ALONG else 0)))
        if i is not None:
            chosen[axis] = i
    found = str(Address(site.name, tuple(chosen.items()), place.at))
    return found, {axis: i for axis, i in chosen.items() if isinstance(i, int)}


def _address_of_look(wish: Wish, view: View) -> str:
    """The address that a look is asked for at: only what it is of, with the index that is usual where none is named."""
    name, kind = view.name, view.kind
    if kind == "histogram":
        return wish.address
    place = Address.parse(wish.address)
    site = wish.trace.program.site(place.site)
    shape = dict(zip(site.axes, wish.trace.shape(site.name, place.at), strict=True))
    index = place.resolve(site.axes, tuple(shape.values()))
    token = next((axis for axis in site.axes if axis in TOKEN_AXES), None)
    if kind == "thumbs":
        wanted: tuple[str | None, ...] = ("batch",)
    elif kind in ("grid", "list"):
        wanted = ("batch", token)
    else:
        wanted = site.axes
    if extra := next((axis for axis in index if axis not in wanted and axis != "choice"), None):
        raise AddressError(f"{place}: the view {name} is of every {extra}; leave {LETTERS[extra]} out")
    chosen: dict[str, Any] = {"choice": index["choice"]} if kind == "list" and "choice" in index else {}
    for axis in (axis for axis in site.axes if axis in wanted):
        i = index.get(axis)
        if kind == "grid" and axis == token:
            chosen[axis] = Span(i, i + 1) if isinstance(i, int) else i
        else:
            if isinstance(i, Span):
                letter = LETTERS[axis]
                raise AddressError(f"{place}: the view {name} is of one {axis}; write one index, e.g. {letter}=0")
            chosen[axis] = i if i is not None else max(0, shape[axis] - 1) if axis in TOKEN_AXES else 0
    return str(Address(site.name, tuple((a, i) for a, i in chosen.items() if i is not None), place.at))


def _taken(trace: Trace, asked: str, shown: str) -> tuple[Taken, ...]:
    """Which index was taken of each axis that an address does not name and that had a choice."""
    place = Address.parse(asked)
    site = trace.program.site(place.site)
    shape = trace.shape(site.name, place.at)
    sizes, named = dict(zip(site.axes, shape, strict=True)), place.resolve(site.axes, shape)
    found = Address.parse(shown).resolve(site.axes, shape)
    return tuple(
        Taken(axis, i, sizes[axis])
        for axis, i in found.items()
        if isinstance(i, int) and axis not in named and sizes[axis] > 1
    )

"""A tour on its traces: recorded as it says, its numbers read, and each stop checked against them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from engine.appkeys import usual_key
from engine.continuing import Branches
from engine.editing import refuse_nowhere
from engine.errors import AddressError, Cancelled, LayerstepError, TourError
from engine.markdown import Tree, parse, texts
from engine.model import Model, load_model
from engine.pictures import CHAIN, Wish, picture, views_of
from engine.recording import trace
from engine.runtime import Watch
from engine.sites import LETTERS, SOURCE_AXES, TOKEN_AXES, Address, Site
from engine.text import display
from engine.tours import SPOKEN, Mark, Other, Stop, Tour, Value, filled
from engine.traces import Trace
from engine.views import View

_DECIMAL = re.compile(r"(?<![\w.])(?<![A-Za-z]-)\d*\.\d+(?![\w]|\.\d)", re.ASCII)
"""A number with a decimal point in prose; GPT-3.5 is a name, and 1.2.3 a version."""


def open_tour(
    tour: Tour,
    watch: Watch | None = None,
    *,
    loading: Watch | None = None,
    models: dict[str, Model] | None = None,
    device: str = "auto",
) -> TourRun:
    """Record the trace of a tour, and the other one where it has one.

    ``loading`` is told of models that are loaded, and ``watch`` of the steps that run. ``models`` are those that are
    loaded already, by name; what is loaded here is added to them. Raises what loading a model and recording raise.
    """
    models = {} if models is None else models

    def recorded(run: Tour | Other) -> Trace:
        if run.model not in models:
            models[run.model] = load_model(run.model, device=device, watch=loading or watch)
        model = models[run.model]
        made = trace(model, run.prompt, edits=run.edits, goes_on=bool(run.generate), watch=watch)
        if not run.generate:
            return made
        branches = Branches(made)
        told = branches.generate(model, {"n": run.generate}, watch or (lambda *_: None))["generated"]
        if told["stopped"] == "cancelled":  # what was generated until then is not the tour's trace
            raise Cancelled("cancelled")
        refuse_nowhere(made.program, 1, branches.trace.length, made.source_length)
        return branches.trace

    return TourRun(tour, recorded(tour), None if tour.other is None else recorded(tour.other))


@dataclass(frozen=True)
class TourRun:
    """A tour with its trace, and the other one where it has one. Raises TourError where that is not given."""

    tour: Tour
    main: Trace
    other: Trace | None = None

    def __post_init__(self) -> None:
        if self.tour.other is not None and self.other is None:
            raise TourError("this tour is of two traces; give the other one as well (beside=…)")

    @cached_property
    def values(self) -> dict[Mark, Value]:
        """What stands at every mark of the tour; None where there is nothing that can be said."""
        found: dict[Mark, Value] = {}
        for mark in (mark for stop in self.tour.stops for mark in stop.marks if mark.kind != "key"):
            try:
                found[mark] = self.value(mark)
            except LayerstepError:
                found[mark] = None
        return found

    def value(self, mark: Mark) -> float | str:
        """What stands at a mark. Raises AddressError where that is not one number or one token of the trace."""
        trace, address = self._of(mark), mark.address
        site = trace.program.site(address.site)
        shape = trace.shape(site.name, address.at)
        index = address.resolve(site.axes, shape)
        sizes = zip(site.axes, shape, strict=True)
        free = [axis for axis, size in sizes if size != 1 and not isinstance(index.get(axis), int)]
        if mark.kind == "token":
            return _token(trace, address, site, free)
        if mark.kind == "top":
            return _likeliest(trace, address, site, free)
        if free:
            raise AddressError(f"{address} is not one number; give an index for each of {', '.join(site.axes)}")
        return float(trace[address])  # of one number, whatever its axes

    def _of(self, mark: Mark) -> Trace:
        """The trace that a mark is about."""
        return self.other if mark.kind == "other" and self.other is not None else self.main

    def words(self, text: str) -> Tree:
        """A text of the tour with what its marks quote, and the keys that the app has without settings."""
        return filled(text, self.values, usual_key)

    def wish(self, stop: Stop) -> Wish:
        """The picture of a stop. Its cell is at ``stop.address``; axes that the view spreads out are whole here.

        Raises AddressError where there is no such place or view.
        """
        return _wish(self.main, stop.address, stop.view)

    def beside(self, stop: Stop) -> Wish | None:
        """The picture beside it, in the same view where its site has that."""
        if stop.beside is None:
            return None
        trace = self.other or self.main
        site = trace.program.site(stop.beside.site)
        names = [view.name for view in _views(trace, site, stop.beside)]
        return _wish(trace, stop.beside, stop.view if stop.view in names else names[0])


def _views(trace: Trace, site: Site, address: Address) -> list[View]:
    return [view for view in views_of(trace, site, address.at) if view is not CHAIN]


def _wish(trace: Trace, address: Address, name: str) -> Wish:
    site = trace.program.site(address.site)
    views = _views(trace, site, address)
    view = next((view for view in views if view.name == name), None)
    if view is None:
        names = ", ".join(view.name for view in views)
        raise AddressError(f"{address} has no view {display(name)[:40]!r}; it has {names}")
    index = address.resolve(site.axes, trace.shape(site.name, address.at))
    fixed = tuple((LETTERS[axis], index[axis]) for axis in view.fixed(site.axes) if axis in index)
    return Wish(trace, str(Address(site.name, fixed, address.at)), name)


def _token(trace: Trace, address: Address, site: Site, free: list[str]) -> str:
    """The label of the token at a place of ``tokens`` or ``source_tokens``."""
    if site.name not in ("tokens", "source_tokens") or free:
        raise AddressError(f"{address} is not one token; write e.g. tokens[b=0,p=2]")
    index = address.resolve(site.axes, trace.shape(site.name, address.at))
    axis = next(axis for axis in site.axes if axis in TOKEN_AXES)
    rows, row, pos = trace.tokens, index.get("batch", 0), index.get(axis, 0)
    assert isinstance(row, int)
    assert isinstance(pos, int)
    if axis in SOURCE_AXES.values():
        return trace.source_tokens[row][pos].label
    return rows[row][pos + trace.origin(site.name, axis, address.at)].label


def _likeliest(trace: Trace, address: Address, site: Site, free: list[str]) -> str:
    """The label of the token with the largest number at a place over the vocabulary."""
    if free != ["d_vocab"]:
        raise AddressError(f"{address} is not over the vocabulary at one position; write e.g. logits[b=0,p=2]")
    numbers = trace[address].flatten()  # [d_vocab]
    if not bool(numbers.isfinite().all()):
        raise AddressError(f"{address} holds numbers that are not finite, so none is the likeliest")
    return trace.label(int(numbers.argmax()))


# --- checking ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checked:
    """A stop, and what is wrong with it, each in a line; nothing where it holds."""

    number: int
    stop: Stop
    troubles: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether it holds."""
        return not self.troubles


def check(run: TourRun, watch: Watch | None = None) -> Iterator[Checked]:
    """Each stop: its place and its view are there and can be drawn, what is beside it too, every mark is one finite
    number or one token, and no number with a decimal point is written that the model has not said."""
    for number, stop in enumerate(run.tour.stops, 1):
        yield Checked(number, stop, tuple(_troubles(run, stop, watch)))


def _troubles(run: TourRun, stop: Stop, watch: Watch | None) -> Iterator[str]:
    for what, wish in (("", run.wish), ("beside: ", run.beside)):
        try:
            if (wanted := wish(stop)) is not None:
                picture(wanted, watch)
        except LayerstepError as error:
            yield f"{what}{error}"
    for mark in stop.marks:
        if mark.kind == "key":
            continue
        try:
            value = run.value(mark)
        except LayerstepError as error:
            yield f"{{{mark.kind}:{mark.what}}}: {error}"
        else:
            if (isinstance(value, float) and abs(value) == float("inf")) or value != value:
                yield f"{{{mark.kind}:{mark.what}}}: {mark.what} is {value}, no finite number"
    for key in SPOKEN:
        for found in _DECIMAL.findall("\n".join(texts(parse(getattr(stop, key))))):
            words = f"{found} is written and not quoted; write {{value:ADDRESS}}, or `{found}` if it is not the model's"
            yield f"{key}: {words}"

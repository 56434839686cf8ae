"""Tours: a small TOML file with places in a trace and words about each, read strictly and checked against a trace.

Whatever in the file is not known is an error, so that nothing in it is without effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import AddressError, LayerstepError
from engine.sites import Address
from engine.text import display
from tui.actions import DEFAULT, Keymap
from tui.settings import LARGEST
from tui.state.numbers import special
from tui.state.trace import Trace
from tui.state.views import views_of
from tui.strict_toml import Unreadable, decoded, loads

ROOTS = (Path(__file__).parent / "sample_tours", Path(__file__).parent.parent / "samples" / "tours")
"""Where the tours that come along lie: inside an installed package, or beside it in a checkout."""
TEXTS = {"title": True, "about": False, "model": True, "prompt": True}
"""The keys of a tour beside its stops, and whether they must be there."""
STOP_TEXTS = {"title": True, "address": True, "view": True, "narration": True, "question": False, "answer": False}
"""The keys of a stop, and whether they must be there."""

_MARK = re.compile(r"\{(\w*):([^{}]*)\}")


class TourError(LayerstepError):
    """A tour that cannot be walked: one line with the file, the stop and the key, and what is known."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A place with words about it. ``answer`` stays hidden until it is asked for; both may be ''."""

    title: str
    address: Address
    view: str
    narration: str
    question: str = ""
    answer: str = ""

    @property
    def values(self) -> tuple[Address, ...]:
        """The places whose numbers are quoted."""
        texts = f"{self.narration}\n{self.question}\n{self.answer}"
        return tuple(dict.fromkeys(Address.parse(found[2]) for found in _MARK.finditer(texts) if found[1] == "value"))


@dataclass(frozen=True, slots=True)
class Tour:
    """What is walked: a prompt for a model, and stops in order."""

    title: str
    model: str
    prompt: str
    stops: tuple[Stop, ...]
    about: str = ""

    @property
    def request(self) -> dict[str, str]:
        """What the engine is asked to open for it."""
        return {"model": self.model, "prompt": self.prompt}

    def trouble(self, trace: Trace) -> str:
        """What of it a trace does not have, in one line; '' where it can be walked."""
        for number, stop in enumerate(self.stops, 1):
            for place in (stop.address, *stop.values):
                if wrong := _misplaced(place, trace, single=place is not stop.address):
                    return f"stop {number}, {display(stop.title)}: {wrong}"
            names = [view.name for view in views_of(trace.by_site[stop.address.site])]
            if stop.view not in names:
                words = f"{stop.address} has no view {display(stop.view)}; it has {', '.join(names)}"
                return f"stop {number}, {display(stop.title)}: {words}"
        return ""


def _misplaced(place: Address, trace: Trace, single: bool) -> str:
    if place.site not in trace.by_site:
        return f"there is no site {display(place.site)}"
    if place.at is not None and place.at >= len(trace.passes):
        return f"{place}: there is no pass {place.at}"
    step = trace.step(trace.by_site[place.site].index, place.at)
    try:
        index = place.resolve(step.axes, step.shape)
    except AddressError as error:
        return str(error)
    if single and not all(isinstance(index.get(axis), int) for axis in step.axes):
        return f"{place} is not one number; give an index for each of {', '.join(step.axes)}"
    return ""


def filled(text: str, values: Mapping[Address, float | None], keymap: Keymap = DEFAULT) -> str:
    """A text with the numbers and keys where they belong: … while a number is not here, ? where there is none."""

    def put(found: re.Match[str]) -> str:
        if found[1] == "key":
            return f"**{keymap.key(found[2])}**"
        address = Address.parse(found[2])
        return quoted(values[address]) if address in values else "…"

    return _MARK.sub(put, text)


def quoted(value: float | None) -> str:
    """A number as it is written in a sentence: three digits, a whole number in full."""
    if value is None:
        return "?"
    if name := special(value):
        return name
    return f"{value:.0f}" if value == int(value) else f"{value:#.3g}".rstrip(".")


def first_tour() -> Tour:
    """The walk for who is here for the first time. Raises TourError."""
    return read_tour(next((root for root in ROOTS if root.is_dir()), ROOTS[0]) / "first.toml")


def read_tour(path: Path) -> Tour:
    """A tour from a file. Raises TourError."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise TourError(f"{display(str(path))}: {display((error.strerror or str(error)).lower())}") from None
    return _Reader(path.name, data).tour()


class _Reader:
    """One file on its way to a tour."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        try:
            self.found = loads(decoded(data, "tour"), "tour")
        except Unreadable as error:
            raise self.wrong(f"{error}{f' (at line {error.line})' if error.line else ''}") from None

    def wrong(self, words: str, where: str = "") -> TourError:
        return TourError(display(f"{self.name}: {f'{where}: ' if where else ''}{words}"))

    def tour(self) -> Tour:
        stops = self.found.pop("stop", None)
        texts = self.texts(self.found, TEXTS, "", others=("stop",))
        if not isinstance(stops, list) or not stops or not all(isinstance(stop, dict) for stop in stops):
            raise self.wrong("has no stops; write each under [[stop]]")
        return Tour(stops=tuple(self.stop(n, stop) for n, stop in enumerate(stops, 1)), **texts)

    def stop(self, number: int, found: Mapping[str, Any]) -> Stop:
        where = f"stop {number}"
        texts = self.texts(found, STOP_TEXTS, where)
        if bool(texts["question"]) != bool(texts["answer"]):
            raise self.wrong("a question and its answer come together", where)
        address = self.address(texts.pop("address"), f"{where}: address")
        for key in ("narration", "question", "answer"):
            for mark in _MARK.finditer(texts[key]):
                self.mark(mark[1], mark[2], f"{where}: {key}")
        return Stop(address=address, **texts)

    def texts(
        self, found: Mapping[str, Any], keys: Mapping[str, bool], where: str, others: tuple[str, ...] = ()
    ) -> dict[str, str]:
        """The texts of a table, '' where one need not be there and is not."""
        for key, value in found.items():
            if key not in keys:
                raise self.wrong(f"{key!r} is not known; known are {', '.join((*keys, *others))}", where)
            if not isinstance(value, str):
                raise self.wrong(f"{key} is no text; write it in quotes", where)
        for key, needed in keys.items():
            if needed and not found.get(key, "").strip():
                raise self.wrong(f"{key} is missing", where)
        return {key: found.get(key, "").strip() if key != "prompt" else found["prompt"] for key in keys}

    def mark(self, name: str, what: str, where: str) -> None:
        if name == "value":
            self.address(what, where)
        elif name != "key":
            words = f"{{{name}:{what}}} is not known; write {{value:ADDRESS}} for a number, {{key:ACTION}} for a key"
            raise self.wrong(words, where)
        elif what not in DEFAULT.by_id:
            raise self.wrong(f"{what!r} is no action; the help lists all", where)

    def address(self, text: str, where: str) -> Address:
        try:
            return Address.parse(text)
        except AddressError as error:
            raise self.wrong(str(error), where) from None

"""Tours: a prompt for a model, and places in its trace with words about each; read strictly from a small file.

Whatever in a file is not known is an error, so that nothing in it is without effect. `engine.tourfile` has the two
forms of a file, `engine.touring` records a tour and checks it. Nothing here imports torch.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from engine import tourfile
from engine.edits import edits_of
from engine.errors import AddressError, EditError
from engine.errors import TourError as TourError
from engine.markdown import Inline, Tree, marks, parse, replaced
from engine.sites import Address
from engine.text import display
from engine.tomltext import LARGEST, Unreadable

ROOTS = (Path(__file__).parent / "sample_tours", Path(__file__).parent.parent / "samples" / "tours")
"""Where the tours that come along lie: inside an installed package, or beside it in a checkout."""
FIRST = "first"
"""The walk for who is here for the first time."""
LECTURES = (FIRST, "vectors", "order", "attention", "heads", "ffn", "cache", "flash")
"""The tours that come along as they build on each other; others are listed after them."""
MOST_NEW = 1000
"""Tokens that a tour may generate."""

TEXTS = {"title": True, "about": False, "model": True, "prompt": True}
"""The texts of a tour beside its stops, and whether they must be there."""
STOP_TEXTS = {
    "title": True, "address": True, "view": True, "narration": True, "question": False, "answer": False,
    "notes": False, "beside": False,
}  # fmt: skip
"""The keys of a stop, and whether they must be there."""
SPOKEN = ("narration", "question", "answer", "notes")
"""Texts of a stop in Markdown, in which numbers are quoted."""
PLACES = ("value", "other", "top", "token")
"""Marks that quote something of a trace, at an address."""
KNOWN_MARKS = (
    "write {value:ADDRESS} for a number, {other:ADDRESS} for one of the other trace, {top:ADDRESS} for the likeliest "
    "token, {token:ADDRESS} for a token, {key:ACTION} for a key"
)

Value = float | str | None
"""What stands at a mark: a number, the label of a token; None where there is neither."""


class Mark(NamedTuple):
    """``{kind:what}`` in a text. ``what`` is an address as `Address` prints it, or the action of a key."""

    kind: str
    what: str

    @classmethod
    def read(cls, kind: str, what: str) -> Mark:
        """A mark as it is written. Raises AddressError where its address is none."""
        return cls(kind, str(Address.parse(what)) if kind in PLACES else what.strip())

    @property
    def address(self) -> Address:
        """Its place."""
        return Address.parse(self.what)


@dataclass(frozen=True)
class Stop:
    """A place with words about it, in Markdown. ``answer`` stays hidden until it is asked for, ``notes`` are for the
    speaker alone, and ``beside`` is a place of the other trace (or of this one where a tour has no other) that is shown
    too. '' and None where there is none."""

    title: str
    address: Address
    view: str
    narration: str
    question: str = ""
    answer: str = ""
    notes: str = ""
    beside: Address | None = None

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """What its texts quote, each once."""
        found = (Mark.read(*mark) for key in SPOKEN for mark in marks(parse(getattr(self, key))))
        return tuple(dict.fromkeys(found))

    @property
    def values(self) -> tuple[Address, ...]:
        """The places of the main trace whose numbers are quoted."""
        return tuple(mark.address for mark in self.marks if mark.kind == "value")


@dataclass(frozen=True, slots=True)
class Other:
    """The second trace of a tour, whole: what its file leaves out is as in the main one."""

    model: str
    prompt: str
    edits: tuple[str, ...] = ()
    generate: int = 0

    @property
    def request(self) -> dict[str, Any]:
        """What the engine is asked to open for it."""
        return _request(self)


@dataclass(frozen=True, slots=True)
class Tour:
    """What is walked: a prompt for a model, edited and gone on with as the tour says, and stops in order.

    ``edits`` are what-ifs as text, ``generate`` is how many greedy tokens follow the prompt.
    """

    title: str
    model: str
    prompt: str
    stops: tuple[Stop, ...]
    about: str = ""
    edits: tuple[str, ...] = ()
    generate: int = 0
    other: Other | None = None

    @property
    def request(self) -> dict[str, Any]:
        """What the engine is asked to open for it: model and prompt; edits and generate only where there are some."""
        return _request(self)


def _request(run: Tour | Other) -> dict[str, Any]:
    more = {"edits": list(run.edits)} if run.edits else {}
    return {"model": run.model, "prompt": run.prompt, **more} | ({"generate": run.generate} if run.generate else {})


# --- words ------------------------------------------------------------------------------------------------


def filled(text: str, values: Mapping[Mark, Value], keys: Callable[[str], str]) -> Tree:
    """A text as a tree (`engine.markdown`) with what its marks quote: … where that is not here yet, ? where there is
    nothing. ``keys`` names the key of an action."""

    def put(kind: str, what: str) -> Inline:
        mark = Mark.read(kind, what)
        if kind == "key":
            return ["strong", [["text", display(keys(mark.what))]]]
        value = values.get(mark)
        if isinstance(value, str):
            return ["code", display(value)]
        return ["text", quoted(value) if mark in values else "…"]

    return replaced(parse(text), put)


def quoted(value: float | None) -> str:
    """A number as it is written in a sentence: three digits, a whole number in full."""
    if value is None:
        return "?"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    return f"{value:.0f}" if value == int(value) else f"{value:#.3g}".rstrip(".")


# --- files ------------------------------------------------------------------------------------------------


def shipped() -> dict[str, Path]:
    """The tours that come along: name and file, as they build on each other, then others by name."""
    files = {
        path.stem: path
        for root in ROOTS
        if root.is_dir()
        for path in sorted(root.iterdir())
        if path.suffix in tourfile.SUFFIXES
    }
    return {name: files[name] for name in (*LECTURES, *sorted(files)) if name in files}


def find_tour(name: str) -> Path:
    """The file of a tour: one that comes along, by its name, or a file. Raises TourError, with what is near."""
    known = shipped()
    if name in known:
        return known[name]
    path = Path(name)
    try:
        is_path = path.exists() or path.suffix in tourfile.SUFFIXES or len(path.parts) > 1
    except (OSError, ValueError):
        is_path = False
    if is_path:
        return path
    near = difflib.get_close_matches(name, known, 3) or list(known)
    raise TourError(f"there is no tour {display(name)[:80]!r}; there is {', '.join(near) or 'none'}")


def read_tour(path: Path | str, actions: Collection[str] | None = None) -> Tour:
    """A tour from a file, or by the name of one that comes along. Raises TourError.

    ``actions`` are those of the app, for the keys that it names; None: any is taken.
    """
    path = find_tour(path) if isinstance(path, str) else path
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise TourError(f"{display(str(path))}: {display((error.strerror or str(error)).lower())}") from None
    return parse_tour(data, path.name, actions)


def parse_tour(data: bytes, name: str, actions: Collection[str] | None = None) -> Tour:
    """A tour from the bytes of a file called ``name``. Raises TourError."""
    try:
        tables = tourfile.read(data, name)
    except Unreadable as error:
        where = f":{error.line}" if error.line else ""
        raise TourError(display(f"{name}{where}: {error}")) from None
    return _Reader(name, tables, actions).tour()


def to_toml(tour: Tour) -> str:
    """The file of a tour, of which `read_tour` makes an equal one where its texts have no blanks around them."""
    head: dict[str, Any] = {"title": tour.title} | ({"about": tour.about} if tour.about else {}) | tour.request
    mine, its = ({"edits": [], "generate": 0} | run.request for run in (tour, tour.other or tour))
    other = {key: value for key, value in its.items() if value != mine[key]}
    stops = []
    for stop in tour.stops:
        given = {key: getattr(stop, key) for key in STOP_TEXTS}
        stops.append({key: str(value) for key, value in given.items() if value not in ("", None)})
    return tourfile.to_toml(head, other, stops)


class _Reader:
    """One file on its way to a tour."""

    def __init__(self, name: str, tables: tourfile.Tables, actions: Collection[str] | None) -> None:
        self.name, self.found, self.lines, self.actions = name, tables.found, tables.lines, actions
        self.has_other = tourfile.OTHER in self.found

    def wrong(self, words: str, table: str | int = tourfile.HEAD, key: str = "") -> TourError:
        """The error about a key, with its line where that is known."""
        line = self.lines.get((table, key)) or self.lines.get((table, ""))
        where = f"stop {table}: " if isinstance(table, int) else f"[{table}]: " if table else ""
        return TourError(display(f"{self.name}{f':{line}' if line else ''}: {where}{words}"))

    def tour(self) -> Tour:
        stops, other = self.found.pop("stop", None), self.found.pop(tourfile.OTHER, None)
        edits, generate = self.edits(self.found), self.generate(self.found)
        texts = self.texts(self.found, TEXTS, others=("edits", "generate", tourfile.OTHER, "stop"))
        if any(marks(parse(texts["about"]))):
            raise self.wrong("about quotes nothing: it is read before the model has run", key="about")
        if not isinstance(stops, list) or not stops or not all(isinstance(stop, dict) for stop in stops):
            raise self.wrong("has no stops; write each under [[stop]], or in Markdown under ## Title")
        main = Other(texts["model"], texts["prompt"], edits, generate)
        beside = None if other is None else self.other(other, main)
        made = tuple(self.stop(n, stop) for n, stop in enumerate(stops, 1))
        return Tour(stops=made, edits=edits, generate=generate, other=beside, **texts)

    def other(self, found: Any, main: Other) -> Other:
        table = tourfile.OTHER
        if not isinstance(found, dict):
            raise self.wrong("other is a table: write [other] on a line of its own", key=table)
        edits = self.edits(found, table) if "edits" in found else main.edits
        generate = self.generate(found, table) if "generate" in found else main.generate
        texts = self.texts(found, {"model": False, "prompt": False}, table, ("edits", "generate"))
        other = Other(texts["model"] or main.model, texts["prompt"] or main.prompt, edits, generate)
        if other == main:
            raise self.wrong("is as the main trace; say what of model, prompt, edits and generate differs", table)
        return other

    def edits(self, found: dict[str, Any], table: str = tourfile.HEAD) -> tuple[str, ...]:
        edits = found.pop("edits", [])
        if not isinstance(edits, list) or not all(isinstance(edit, str) and edit.strip() for edit in edits):
            raise self.wrong('edits is a list of texts, e.g. ["blocks.2.attn.z[h=3] = 0"]', table, "edits")
        try:
            edits_of(edits)
        except (EditError, AddressError) as error:
            raise self.wrong(f"edits: {error}", table, "edits") from None
        return tuple(edit.strip() for edit in edits)

    def generate(self, found: dict[str, Any], table: str = tourfile.HEAD) -> int:
        new = found.pop("generate", 0)
        if isinstance(new, bool) or not isinstance(new, int) or not 0 <= new <= MOST_NEW:
            raise self.wrong(f"generate is a number of tokens, 0 to {MOST_NEW}", table, "generate")
        return new

    def stop(self, number: int, found: Mapping[str, Any]) -> Stop:
        texts = self.texts(found, STOP_TEXTS, number)
        if bool(texts["question"]) != bool(texts["answer"]):
            raise self.wrong("a question and its answer come together", number, "answer")
        address = self.address(texts.pop("address"), number, "address")
        beside = texts.pop("beside")
        for key in SPOKEN:
            for mark in marks(parse(texts[key])):
                self.mark(*mark, number, key)
        return Stop(address=address, beside=self.address(beside, number, "beside") if beside else None, **texts)

    def texts(
        self,
        found: Mapping[str, Any],
        keys: Mapping[str, bool],
        table: str | int = tourfile.HEAD,
        others: tuple[str, ...] = (),
    ) -> dict[str, str]:
        """The texts of a table, '' where one need not be there and is not."""
        for key, value in found.items():
            if key not in keys:
                near = f"known are {', '.join((*keys, *others))}"
                raise self.wrong(f"{key[:80]!r} is not known; {near}", table, key)
            if not isinstance(value, str):
                raise self.wrong(f"{key} is no text; write it in quotes", table, key)
        for key, needed in keys.items():
            if needed and not found.get(key, "").strip():
                raise self.wrong(f"{key} is missing", table, key)
        return {key: found.get(key, "").strip() if key != "prompt" else found.get(key, "") for key in keys}

    def mark(self, kind: str, what: str, number: int, key: str) -> None:
        if kind == "key":
            if self.actions is not None and what not in self.actions:
                near = difflib.get_close_matches(what, self.actions, 3)
                words = f"; near are {', '.join(near)}" if near else ""
                raise self.wrong(f"{key}: {what[:80]!r} is no action{words}; the help lists all", number, key)
        elif kind not in PLACES:
            raise self.wrong(f"{key}: {{{kind}:{what}}} is not known; {KNOWN_MARKS}", number, key)
        elif kind == "other" and not self.has_other:
            raise self.wrong(f"{key}: {{other:{what}}} needs another trace; say which under [other]", number, key)
        else:
            self.address(what, number, key)

    def address(self, text: str, number: int, key: str) -> Address:
        try:
            return Address.parse(text)
        except AddressError as error:
            raise self.wrong(f"{key}: {error}", number, key) from None

"""A tour on its way: what it is of, its stops so far, and a draft of it on the disk, so that nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import AddressError, TourError
from engine.markdown import marks, parse
from engine.sites import Address
from engine.tours import PLACES, Mark, Other, Stop, Tour, read_tour, to_toml
from engine.wholefile import replacing
from tui.state.presented import lives

NAME = "recording-{}.toml"
TITLE = "A recorded walk"


class Unrecordable(Exception):
    """Why something cannot be a stop of a tour, in one line."""


def begun(request: Mapping[str, Any]) -> Tour:
    """A tour without stops of what a request opened. Raises Unrecordable."""
    run = run_of(request)
    return Tour(TITLE, run.model, run.prompt, (), "", run.edits)


def run_of(request: Mapping[str, Any]) -> Other:
    """What a tour opens to have the same again, without generated tokens. Raises Unrecordable."""
    for key, what in (("file", "a saved trace"), ("chat", "a chat"), ("target", "a target of its own")):
        if request.get(key):
            raise Unrecordable(f"a tour opens a prompt anew; this is {what}, which a tour cannot say")
    return Other(str(request["model"]), str(request["prompt"]), tuple(request.get("edits") or ()))


def fits(tour: Tour, request: Mapping[str, Any]) -> bool:
    """Whether what a request opened is what a tour is of."""
    with suppress(Unrecordable, KeyError):
        run = run_of(request)
        return (run.model, run.prompt, run.edits) == (tour.model, tour.prompt, tour.edits)
    return False


def added(tour: Tour, stop: Stop, generated: int, other: Other | None) -> Tour:
    """The tour with one stop more. ``generated``: the tokens after its prompt; ``other``: what is beside, from another
    trace. Raises Unrecordable where the tour has another trace already, and not this one."""
    one = other is None or (other.model, other.prompt, other.edits) == (tour.model, tour.prompt, tour.edits)
    mixed = tour.other is not None if one else tour.other is None and any(known.beside for known in tour.stops)
    if stop.beside is not None and mixed:
        raise Unrecordable("what is beside in a tour is always of the same trace, and that of this one is another")
    tour = replace(tour, stops=(*tour.stops, stop), generate=max(tour.generate, generated))
    if other is None or one:
        return tour
    if tour.other is not None and (tour.other.model, tour.other.prompt, tour.other.edits) != (
        other.model, other.prompt, other.edits,
    ):  # fmt: skip
        known = f"“{tour.other.prompt}” in {tour.other.model}"
        raise Unrecordable(f"a tour has one other trace, and that is {known} already")
    return replace(tour, other=replace(other, generate=max(other.generate, tour.other.generate if tour.other else 0)))


def finished(tour: Tour, title: str) -> Tour:
    """The tour as it is written: of one pass there is no need to say which."""
    return replace(tour, title=title, stops=tuple(map(_plain, tour.stops)) if not tour.generate else tour.stops)


def _plain(stop: Stop) -> Stop:
    beside = replace(stop.beside, at=None) if stop.beside else None
    return replace(stop, address=replace(stop.address, at=None), beside=beside)


def said(text: str, here: Address) -> str:
    """A typed text with the place that is looked at in its ``{value}``."""
    return text.replace("{value}", f"{{value:{here}}}")


def trouble(text: str) -> str:
    """What is wrong with a typed text; '' where nothing is."""
    for kind, what in marks(parse(text)):
        if kind not in (*PLACES, "key"):
            return f"{{{kind}:{what}}} is not known; write {{value}} for the number at the cursor"
        try:
            Mark.read(kind, what)
        except AddressError as error:
            return str(error)
    return ""


# --- the draft --------------------------------------------------------------------------------------------


def keep(folder: Path, tour: Tour) -> None:
    """Write the draft of this process, for nobody else to read. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME.format(os.getpid())
    with replacing(path, mode=0o600) as fd, open(fd, "w", encoding="utf-8", closefd=False) as file:
        file.write(to_toml(tour))


def forget(folder: Path, draft: Path | None = None) -> None:
    """Remove a draft; by default that of this process."""
    with suppress(OSError):
        (draft or folder / NAME.format(os.getpid())).unlink()


def left(folder: Path | None) -> list[tuple[Path, Tour]]:
    """The drafts of processes that have ended, the newest first."""
    found = []
    for path in folder.glob(NAME.format("*")) if folder is not None else ():
        with suppress(OSError, TourError, ValueError):
            if not lives(int(path.stem.partition("-")[2])):
                found.append((path.stat().st_mtime_ns, path, read_tour(path)))
    return [(path, tour) for _, path, tour in sorted(found, key=lambda one: -one[0])]

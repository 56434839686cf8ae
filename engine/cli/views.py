"""The pictures of the app as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.cli import lookstext, viewtext
from engine.cli.tables import place_lines
from engine.jsontext import Json
from engine.pictures import Picture, Taken, TooManyError, Wish, picture
from engine.runtime import Watch
from engine.sites import LETTERS


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture, to be had as JSON or as lines of text."""

    to_json: Callable[[], Json]
    lines: Callable[[], Iterable[str]]


def shown(wish: Wish, watch: Watch | None = None, *, full: bool = False, most: int | None = None) -> Shown:
    """What is asked for. Raises TooManyError for more than ``most`` numbers, and what ``watch`` raises."""
    try:
        found = picture(wish, watch, most=most)
    except TooManyError as error:
        raise TooManyError(f"{error}, or print all of them with --full") from None
    return Shown(found.to_json, lambda: _lines(found, full))


def _lines(found: Picture, full: bool) -> Iterable[str]:
    if found.place is None:
        return _saying(found.taken, lookstext.lines(found.trace, found.told or {}, found.values, full))
    if found.view is None:
        return place_lines(found.place, full)
    return _saying(found.taken, viewtext.lines(found.place, found.view.name, full))


def _saying(taken: Sequence[Taken], lines: Iterable[str]) -> Iterator[str]:
    """Lines of a picture, with what was taken below the first one."""
    rest = iter(lines)
    yield next(rest)
    if taken:
        words = (f"{one} ({LETTERS[one.axis]}= for another)" for one in taken)
        yield f"taken: {', '.join(words)}"
    yield from rest


def over_of(text: str | None) -> dict[str, str]:
    """head=mean as the engine takes it."""
    if text is None:
        return {}
    axis, _, how = text.partition("=")
    return {axis.strip(): how.strip()}

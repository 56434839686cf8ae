"""A tour's two forms on disk, TOML and Markdown, as the same plain tables; and the line that each key is on.

In Markdown the head is TOML between two lines of ``+++``, and each stop a section:

    +++
    title = "Order"
    model = "modern"
    prompt = "dog bites man"
    +++
    What the tour is about.

    ## Who bites

    `blocks.0.attn.pattern[h=1,q=3,k=1]` · heatmap · beside `blocks.1.attn.pattern[h=1]`

    The narration, of as many paragraphs as it needs.

    **Question:** Who bites?

    **Answer:** The dog.

    **Notes:** For the speaker alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.tomltext import Unreadable, decoded, loads, written, written_lines

HEAD, OTHER = "", "other"
"""Tables of a tour; a stop's is its number, from 1."""
FENCE = "+++"
SUFFIXES = (".toml", ".md", ".markdown")

_HEADING = re.compile(r"##\s+(.*)")
_CODE, _BESIDE = re.compile(r"`([^`]*)`"), re.compile(r"beside\s+`([^`]*)`")
_PART = re.compile(r"\*\*(Question|Answer|Notes):\*\*(?:\s+|$)")
_MULTILINE = ('"""', "'''")


@dataclass(frozen=True, slots=True)
class Tables:
    """What a file says: ``found`` as TOML has it, and ``lines`` by (table, key); the key '' is the table itself."""

    found: dict[str, Any]
    lines: Mapping[tuple[str | int, str], int] = field(default_factory=dict)


def read(data: bytes, name: str) -> Tables:
    """The tables in a file of this name. Raises Unreadable."""
    text = decoded(data, "tour").replace("\r\n", "\n")
    if name.lower().endswith(SUFFIXES[1:]) or text.lstrip().startswith(FENCE):
        return _from_markdown(text)
    return Tables(loads(text, "tour"), dict(_lines_of(text)))


# --- TOML -------------------------------------------------------------------------------------------------


def _lines_of(text: str, first: int = 1) -> Iterator[tuple[tuple[str | int, str], int]]:
    """Where the keys of a TOML text are, as far as they are written plainly."""
    table: str | int = HEAD
    stops, until = 0, ""
    for number, line in enumerate(text.split("\n"), first):
        if until:
            until = "" if until in line else until
            continue
        if re.match(r"\s*\[\[\s*stop\s*\]\]", line):
            stops += 1
            table = stops
            yield (table, ""), number
        elif heading := re.match(r"\s*\[\s*(\w+)\s*\]", line):
            table = heading[1]
            yield (table, ""), number
        elif key := re.match(r"""\s*(["']?)([\w-]+)\1\s*=""", line):
            yield (table, key[2]), number
        until = next((quotes for quotes in _MULTILINE if line.count(quotes) % 2), "")


def to_toml(head: Mapping[str, Any], other: Mapping[str, Any], stops: list[dict[str, str]]) -> str:
    """A tour as TOML, of which `read` makes the same tables but for blanks around a text."""
    parts = ["\n".join(_entry(key, value) for key, value in head.items())]
    if other:
        parts.append("\n".join(["[other]", *(_entry(key, value) for key, value in other.items())]))
    parts += ["\n".join(["[[stop]]", *(_entry(key, value) for key, value in stop.items())]) for stop in stops]
    return "\n\n".join(parts) + "\n"


def _entry(key: str, value: Any) -> str:
    if isinstance(value, int):
        return f"{key} = {value}"
    if not isinstance(value, str):
        return f"{key} = [{', '.join(map(written, value))}]"
    long = key != "prompt" and ("\n" in value or len(value) > 90)
    return f"{key} = {written_lines(value) if long else written(value)}"


# --- Markdown ---------------------------------------------------------------------------------------------


def _from_markdown(text: str) -> Tables:
    lines = text.split("\n")
    begin = _first(lines)
    end = next((n for n in range(begin + 1, len(lines)) if lines[n].rstrip() == FENCE), 0)
    if lines[begin].rstrip() != FENCE or not end:
        raise Unreadable(f"has no head: title, model and prompt stand in TOML between two lines of {FENCE}", begin + 1)
    head = "\n".join(lines[begin + 1 : end])
    try:
        found = loads(head, "tour")
    except Unreadable as error:
        raise Unreadable(str(error), error.line and error.line + begin + 1) from None
    if "stop" in found:
        raise Unreadable("has stops in its head; in Markdown each stop is a section, ## Title")
    where = dict(_lines_of(head, begin + 2))
    sections = list(_sections(lines[end + 1 :], end + 2))
    _, line, body = sections[0]
    if about := "\n".join(body).strip():
        line += _first(body)
        if "about" in found:
            raise Unreadable("is about two things: in its head, and in front of its first stop", line)
        found["about"], where[HEAD, "about"] = about, line
    stops = []
    for number, (title, line, body) in enumerate(sections[1:], 1):
        stop, keys = _stop(title, line, body)
        stops.append(stop)
        where |= {(number, key): at for key, at in keys.items()}
    return Tables(found | ({"stop": stops} if stops else {}), where)


def _first(lines: list[str]) -> int:
    """The first line that is not blank."""
    return next((n for n, line in enumerate(lines) if line.strip()), 0)


def _sections(lines: list[str], first: int) -> Iterator[tuple[str, int, list[str]]]:
    """(title, line, lines of it): what stands in front of the first heading, then one for each."""
    title, at = "", first
    body: list[str] = []
    for number, line in enumerate(lines, first):
        if heading := _HEADING.match(line):
            yield title, at, body
            title, at, body = heading[1].strip(), number, []
        else:
            body.append(line)
    yield title, at, body


def _stop(title: str, line: int, body: list[str]) -> tuple[dict[str, str], dict[str, int]]:
    """A stop, and the lines of its parts. Raises Unreadable."""
    stop, where = {"title": title}, {"": line, "title": line}
    at = _first(body)
    code, *words = [part.strip() for part in body[at].split("·")] if body else [""]
    address, beside = _CODE.fullmatch(code), _BESIDE.fullmatch(words[1]) if len(words) > 1 else None
    if not address or len(words) != (1 if beside is None else 2):
        raise Unreadable("a stop begins with its place: `ADDRESS` · VIEW", line + 1 + at)
    stop |= {"address": address[1], "view": words[0]} | ({"beside": beside[1]} if beside else {})
    where |= dict.fromkeys(("address", "view", "beside"), line + 1 + at)
    key, parts = "narration", {"narration": [""]}
    for number, said in enumerate(body[at + 1 :], line + 2 + at):
        if part := _PART.match(said):
            key, said = part[1].lower(), said[part.end() :]
            if key in parts:
                raise Unreadable(f"a stop has one {part[1].lower()}", number)
            parts[key] = []
        if said.strip():
            where.setdefault(key, number)
        parts[key].append(said)
    return stop | {key: "\n".join(said).strip() for key, said in parts.items()}, where

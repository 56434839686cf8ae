"""What a figure says of its picture in words: its title, its formula, and where it comes from."""

from __future__ import annotations

from engine.jsontext import Json
from engine.pictures import Picture
from engine.sites import ENCODER, Address, block_of, within_block
from engine.traces import Trace
from engine.views import DEPTH
from engine.windows import Difference

QUOTED, EDITS = 60, 3
"""Characters of a prompt, and edits, that are quoted at most."""


def title(picture: Picture) -> str:
    """What a picture is of: its site and block, and what is fixed."""
    if picture.place is None:
        assert picture.told is not None
        return ", ".join(part for part in (str(picture.told["title"]), *_of_look(picture)) if part)
    if isinstance(picture.place.plane, Difference):
        return _difference(picture.place.plane, len(picture.trace.tokens) > 1)
    over = picture.place.plane.over
    taken = [] if over is None else [f"{over[1]} over {over[0]}"]
    return ", ".join((_named(picture.address), *taken, *fixed(picture)))


def _difference(plane: Difference, batched: bool) -> str:
    """The first place, and what is other in the one that is taken away."""
    first, second = plane.first, plane.second
    (site, one), (minus, other) = (_parts(part.place, batched) for part in (first, second))
    trace = " of the other trace" if first.trace is not second.trace else ""
    if site != minus:
        return f"{', '.join((site, *one))} − {', '.join((minus, *other))}{trace}"
    rest = ", ".join(word for word in other if word not in one) or ("" if trace else site)
    return f"{', '.join((site, *one))} − {rest or 'the same'}{trace}"


def _parts(address: Address, batched: bool) -> tuple[str, list[str]]:
    index = [(axis, i) for axis, i in address.index if batched or axis not in ("b", "batch")]
    return _named(address), [f"{axis.replace('_', ' ')} {i}" for axis, i in index]


def formula(picture: Picture) -> str:
    """The step's title and its formula; of a look its formula with this model's numbers."""
    if picture.place is not None:
        return picture.place.explained()[0]
    told = picture.told or {}
    return " · ".join(str(part) for part in (told.get("formula"), told.get("numbers")) if part)


def source(trace: Trace) -> str:
    """Which model ran, and on which text."""
    edits = edited(trace)
    parts = (trace.config.name, quoted(trace) if trace.prompt else "", f"edited: {edits}" if edits else "")
    return " · ".join(part for part in parts if part)


def edited(trace: Trace) -> str:
    """The what-ifs that it ran with, the later ones left out where they are many."""
    edits = [str(edit) for edit in trace.edits]
    return "; ".join(edits[:EDITS]) + (f"; {len(edits) - EDITS} more" if len(edits) > EDITS else "")


def quoted(trace: Trace) -> str:
    """The prompt in quotation marks, its end left out where it is long."""
    prompt = " ".join(trace.prompt.split())
    return f"“{prompt if len(prompt) <= QUOTED else prompt[: QUOTED - 1] + '…'}”"


def fixed(picture: Picture) -> list[str]:
    """Each index that is fixed, with the token that stands there: head 3, query 8 ␣full."""
    place = picture.place
    if place is None:
        return []
    one = len(place.trace.tokens) == 1
    return [
        f"{axis.replace('_', ' ')} {i} {place.fixed_label(axis)}".strip()
        for axis, i in place.fixed.items()
        if not (axis == "batch" and one)
    ]


def labels(trace: Trace, address: Address, rows: Json) -> tuple[str, ...]:
    """The tokens along the rows of a look."""
    row = next((i for axis, i in address.index if axis in ("b", "batch") and isinstance(i, int)), 0)
    line = trace.line(rows["axis"], row)
    first = trace.origin(address.site, rows["axis"], address.at) + rows["start"]
    return tuple(line[i].label if i < len(line) else "" for i in range(first, first + rows["size"]))


def _of_look(picture: Picture) -> list[str]:
    """Where a look is of, unless it is of the whole pass."""
    view, trace, address = picture.view, picture.trace, picture.address
    if view is not None and (view.cols == DEPTH or view.look == "layers"):
        return [within_block(address.site)] if view.look == "layers" else []
    site = trace.program.site(address.site)
    index = address.resolve(site.axes, trace.shape(site.name, address.at))
    one = len(trace.tokens) == 1
    chosen = [
        f"{axis.replace('_', ' ')} {i}"
        for axis, i in index.items()
        if isinstance(i, int) and not (axis == "batch" and one)
    ]
    return [_named(address), *chosen]


def _named(address: Address) -> str:
    """``attn.pattern of block 2``; the name itself outside the blocks."""
    block, inner = block_of(address.site), within_block(address.site)
    name = inner if block is None else f"{inner} of block {block}"
    beside = "encoder " if address.site.startswith(ENCODER) and block is not None else ""
    at = "" if address.at is None else f", pass {address.at}"
    return f"{beside}{name}{at}"

"""What a picture is called, and what it says of itself where it is not the step's own tensor."""

from __future__ import annotations

import re
from typing import NamedTuple

from engine.sites import LETTERS
from engine.views import DEPTH, DIFFERENCE, HEAD_AXES, WHOLE_PASS, together
from tui.state.block import Block
from tui.state.trace import Trace
from tui.state.views import Plane
from tui.text import cells, fit

NAME = 24
"""So much of a prompt names its trace."""


class Words(NamedTuple):
    """The explanation of a picture. ``own``: it is the step's own tensor, and so are the checks."""

    title: str
    formula: str
    numbers: str
    story: str
    own: bool


def explained(plane: Plane, block: Block | None) -> Words:
    """What a picture shows: a derived one in the engine's words, a difference and heads together in ours."""
    step, told = plane.step, block.told if block else None
    if plane.minus is not None:
        mine, its = sides(plane)
        return Words(f"Difference of {step.name}: {mine} − {its}", f"{mine} − {its}", "", _difference(plane), own=False)
    if plane.view.over:
        return _over(plane)
    if told is not None:
        return Words(told.title or step.label, told.formula, told.numbers, told.story, own=False)
    return Words(step.title or step.label, step.formula, step.numbers, step.story, own=not plane.view.look)


def _over(plane: Plane) -> Words:
    step, left = plane.step, (plane.view.rows, plane.view.cols)
    weights = "arcs" in step.looks
    told = together(plane.view.over, "head", step.size("head"), step.name, left, weights=weights)
    return Words(told.title, told.formula, "", told.story, own=False)


def _difference(plane: Plane) -> str:
    assert plane.minus is not None
    both, view = plane.size, plane.view
    own = plane.without(None).size
    short = [f"{n} of {of} on {axis}" for n, of, axis in zip(both, own, (view.rows, view.cols), strict=True) if n < of]
    return f"{DIFFERENCE} Only what both have is compared: {', '.join(short)}." if short else DIFFERENCE


def sides(plane: Plane) -> tuple[str, str]:
    """What the two sides of a difference are called: how they differ, each in its own words."""
    other = plane.minus
    assert other is not None
    if plane.trace is not other.trace:
        return name_of(plane.trace, other.trace), name_of(other.trace, plane.trace)
    return _own(plane, other), _own(other, plane)


def _own(plane: Plane, other: Plane) -> str:
    parts = [f"layer {plane.step.block}"] if plane.step.block != other.step.block else []
    parts += [f"{axis} {n}" for axis, n in plane.place if axis in HEAD_AXES and (axis, n) not in other.place]
    parts += [f"pass @{plane.at}"] if plane.at != other.at and plane.at is not None else []
    return " · ".join(parts) or "all passes"


def name_of(one: Trace, other: Trace) -> str:
    """What tells a trace from another one: its model, else its prompt in quotes, else what is edited in it."""
    if one.model != other.model:
        return one.model
    if one.prompt == other.prompt and one.edits != other.edits:
        return _edits(one.edits)
    if one.prompt == other.prompt:
        return "this trace" if other.run > one.run else "the other trace"
    return f"“{fit(one.prompt, min(NAME, cells(one.prompt)))}”"


def _edits(edits: tuple[str, ...]) -> str:
    """``blocks.1.attn.z[h=5] = 0``; of several that are too long how many there are."""
    words = "; ".join(edits) or "not edited"
    if len(edits) > 1 and cells(words) > NAME:
        return f"{len(edits)} edits"
    return fit(words, min(NAME, cells(words)))


def titles(plane: Plane) -> tuple[str, str]:
    """Where a picture is, in full and short: a step's place, or the stream or the layers that it is of as a whole."""
    step, view = plane.step, plane.view
    if view.look in WHOLE_PASS:
        stack = "encoder · " if step.site.startswith("encoder.") else ""
        whole = "residual stream" if DEPTH in (view.rows, view.cols) else step.place_inside
        return f"{stack}{whole} · {view.name}", f"{stack}{whole} · {view.name}"
    if plane.minus is not None and plane.minus.step.block != step.block:
        return step.place_inside, step.place_inside
    return step.where, step.where_short


def file_of_picture(plane: Plane) -> str:
    """A name for a file, without its end, from the place that is looked at."""
    place = [f"{LETTERS.get(axis, axis)}{index}" for axis, index in plane.place if axis != "batch" or index]
    at = [] if plane.at is None or len(plane.trace.passes) == 1 else [f"pass{plane.at}"]
    named = [plane.view.name] if plane.view.look or plane.view.over else []
    words = [plane.step.site, *place, *named, *(["difference"] if plane.minus else []), *at]
    return re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(words)).strip("-.")[:120] or "layerstep"


def file_of_words(text: str, usual: str) -> str:
    """A name for a file, without its end, from the first words of a text; ``usual`` where it has none."""
    words = "".join(char if char.isalnum() and char.isascii() else " " for char in text[:80]).split()[:5]
    return "-".join(word.lower() for word in words) or usual

"""The cursor: where in the trace the person is. One frozen value, and pure functions from one to the next.

A token stays chosen from step to step, whatever the axis is called there (``pos`` or ``query``); so do the head, the
key and the dim. An index that is too large for the step at hand is clamped when it is read, not forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.errors import AddressError
from engine.sites import LETTERS, Address, Span
from tui.state.trace import Step, Trace

FIELD = {
    "batch": "batch",
    "pos": "pos",
    "query": "pos",
    "key": "key",
    "kv_pos": "key",
    "src": "src",
    "src_query": "src",
    "src_key": "key",
    "head": "head",
    "choice": "choice",
    "d_vocab": "vocab",
}
"""Axis -> the cursor's field for it; every other axis is ``dim``, and ``kv_head`` follows ``head``."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place: the step, and an index for each kind of axis."""

    step: int = 0
    batch: int = 0
    head: int = 0
    pos: int = 0
    src: int = 0
    key: int = 0
    dim: int = 0
    choice: int = 0
    vocab: int = -1  # of no token: the likeliest
    at: int | None = 0
    """The pass, None for all of them stitched together; places in the text are counted from its beginning anyway."""

    def index(self, trace: Trace, axis: str) -> int:
        """The index along an axis of the cursor's step, inside its size."""
        step = trace.step(self.step, self.at)
        wish = self.head // trace.heads_per_kv if axis == "kv_head" else getattr(self, FIELD.get(axis, "dim"))
        return int(max(0, min(wish - step.first(axis), step.size(axis) - 1)))

    def token_axis(self, trace: Trace) -> str:
        """Which line of tokens the cursor's step is about: ``src``, what the encoder reads, or ``pos``."""
        axes = trace.steps[self.step].axes if trace.steps else ()
        return "src" if ("src" in axes or "src_query" in axes) and "pos" not in axes else "pos"

    def put(self, trace: Trace, axis: str, value: int) -> Cursor:
        """The same place with another index along an axis of the step; stays inside."""
        step = trace.step(self.step, self.at)
        if not (size := step.size(axis)):
            return self
        value = max(0, min(value, size - 1)) + step.first(axis)
        if axis == "kv_head":
            per = trace.heads_per_kv
            return replace(self, head=value * per + self.head % per)
        return replace(self, **{FIELD.get(axis, "dim"): value})

    def move(self, trace: Trace, axis: str, by: int) -> Cursor:
        """Along an axis by some places; stays inside."""
        return self.put(trace, axis, self.index(trace, axis) + by)

    def step_by(self, trace: Trace, by: int) -> Cursor:
        """Some steps on or back."""
        return replace(self, step=max(0, min(self.step + by, len(trace.steps) - 1)))

    def layer_by(self, trace: Trace, by: int) -> Cursor:
        """The same kind of step some blocks on or back; from outside the blocks, into the nearest one."""
        here = trace.steps[self.step]
        if not trace.blocks:
            return self
        if here.block is None:
            before = any(step.block is not None for step in trace.steps[self.step :])
            if before != (by > 0):
                return self
            target = trace.blocks[0] if before else trace.blocks[-1]
            return replace(self, step=next(step.index for step in trace.steps if step.block == target))
        places = trace.blocks
        target = places[max(0, min(places.index(here.block) + by, len(places) - 1))]
        there = [step for step in trace.steps if step.block == target]
        return replace(self, step=next((step for step in there if step.inner == here.inner), there[0]).index)

    def pass_by(self, trace: Trace, by: int) -> Cursor:
        """Some passes on or back; after the last one come all of them together."""
        last = len(trace.passes)
        place = max(0, min((last if self.at is None else self.at) + by, last))
        return self.in_pass(trace, None if place == last else place)

    def in_pass(self, trace: Trace, at: int | None) -> Cursor:
        """The same step in another pass, at a position that was run in it."""
        if len(trace.passes) == 1:
            return self
        if at is None or trace.passes[at].holds(self.pos):
            return replace(self, at=at)
        return replace(self, at=at, pos=trace.passes[at].start + trace.passes[at].length - 1)

    def to_pos(self, trace: Trace, pos: int) -> Cursor:
        """Another position; its pass comes along where one pass is looked at."""
        moved = replace(self, pos=pos)
        return moved if self.at is None else moved.in_pass(trace, trace.pass_of(pos))

    def address(self, trace: Trace) -> Address:
        """The place as an address, every axis of the step named."""
        step = trace.steps[self.step]
        index = tuple((LETTERS.get(axis, axis), self.index(trace, axis)) for axis in step.axes)
        return Address(step.site, index, self.at)


def start(trace: Trace) -> Cursor:
    """Where a fresh trace is looked at first: the first step, the last token, or the first that is to be filled in."""
    last, last_src = (max(0, len(trace.line(0, axis)) - 1) for axis in ("pos", "src"))
    masked = trace.masked[0] if trace.masked and trace.predicts != "next token" else ()
    pos = masked[0] if masked else last
    return Cursor(pos=pos, src=last_src, key=max(last, last_src), at=trace.usual_at)


def goto(trace: Trace, cursor: Cursor, address: Address) -> Cursor:
    """The cursor at an address; without a pass it is that of all passes. Raises KeyError, AddressError.

    Axes it does not name keep their index, but a query without a key is looked at where it sees itself.
    """
    last = len(trace.passes) - 1
    if address.at is not None and address.at > last:
        raise AddressError(f"{address}: there is no pass {address.at}; write {'@0' if last == 0 else f'@0 … @{last}'}")
    moved = replace(cursor, step=trace.by_site[address.site].index)
    moved = moved.in_pass(trace, address.at)
    step = trace.step(moved.step, moved.at)
    named = address.resolve(step.axes, step.shape)
    for axis, index in named.items():
        moved = moved.put(trace, axis, (index.start or 0) if isinstance(index, Span) else index)
    for query, key in (("query", "key"), ("src_query", "src_key")):
        if query in named and key in step.axes and key not in named:
            moved = replace(moved, key=step.first(query) + moved.index(trace, query))
    return moved


def carry(old: Trace | None, cursor: Cursor | None, new: Trace) -> Cursor:
    """The cursor for a new trace: the same site where it has one, else the start."""
    fresh = start(new)
    if old is None or cursor is None or cursor.step >= len(old.steps):
        return fresh
    step = new.by_site.get(old.steps[cursor.step].site)
    if old.prompt == new.prompt and step is not None:
        one = cursor.at is not None and cursor.at < len(new.passes) > 1
        return replace(cursor, step=step.index, at=cursor.at if one else new.usual_at)
    return replace(fresh, step=step.index if step else 0, head=cursor.head, dim=cursor.dim)


def follow(old: Trace, cursor: Cursor, new: Trace) -> Cursor:
    """The cursor once the trace has grown, shrunk or branched: the same step at the new last position.

    Who looked at one pass looks at the newest now. A key stays unless it was the last one as well.
    """
    step = new.by_site.get(old.steps[cursor.step].site)
    last, was = len(new.line(cursor.batch)) - 1, len(old.line(cursor.batch)) - 1
    at = new.usual_at if cursor.at is None or len(old.passes) == 1 else len(new.passes) - 1
    key = last if cursor.key >= was else min(cursor.key, last)
    return replace(cursor, step=step.index if step else 0, pos=last, key=key, vocab=-1, at=at)


def sites_like(trace: Trace, words: Iterable[str]) -> list[Step]:
    """The steps whose site, label, part or title has all the words."""
    wanted = [word.casefold() for word in words]
    return [
        step
        for step in trace.steps
        if all(word in f"{step.site} {step.where} {step.title}".casefold() for word in wanted)
    ]

"""The cursor: where in the trace the person is. One frozen value, and pure functions from one to the next.

A token stays chosen from step to step, whatever the axis is called there (``pos`` or ``query``); so do the head, the
key and the dim. An index that is too large for the step at hand is clamped when it is read, not forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

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
    vocab: int = 0
    at: int = 0

    def index(self, trace: Trace, axis: str) -> int:
        """The index along an axis of the cursor's step, inside its size."""
        step = trace.steps[self.step]
        wish = self.head // trace.heads_per_kv if axis == "kv_head" else getattr(self, FIELD.get(axis, "dim"))
        return int(max(0, min(wish, step.size(axis) - 1)))

    def token_axis(self, trace: Trace) -> str:
        """Which line of tokens the cursor's step is about: ``src``, what the encoder reads, or ``pos``."""
        axes = trace.steps[self.step].axes if trace.steps else ()
        return "src" if ("src" in axes or "src_query" in axes) and "pos" not in axes else "pos"

    def put(self, trace: Trace, axis: str, value: int) -> Cursor:
        """The same place with another index along an axis of the step; stays inside."""
        size = trace.steps[self.step].size(axis)
        if not size:
            return self
        value = max(0, min(value, size - 1))
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

    def address(self, trace: Trace) -> Address:
        """The place as an address, every axis of the step named."""
        step = trace.steps[self.step]
        index = tuple((LETTERS.get(axis, axis), self.index(trace, axis)) for axis in step.axes)
        return Address(step.site, index, self.at)


def start(trace: Trace) -> Cursor:
    """Where a fresh trace is looked at first: the first step, the last token, or the first that is to be filled in."""
    last, last_src = (max(0, len(trace.line(0, axis)) - 1) for axis in ("pos", "src"))
    masked = trace.masked[0] if trace.masked and trace.predicts != "next token" else ()
    return Cursor(pos=masked[0] if masked else last, src=last_src, key=max(last, last_src))


def goto(trace: Trace, cursor: Cursor, address: Address) -> Cursor:
    """The cursor at an address. Raises KeyError, AddressError.

    Axes it does not name keep their index, but a query without a key is looked at where it sees itself.
    """
    step = trace.by_site[address.site]
    moved = replace(cursor, step=step.index, at=cursor.at if address.at is None else address.at)
    named = address.resolve(step.axes, step.shape)
    for axis, index in named.items():
        moved = moved.put(trace, axis, (index.start or 0) if isinstance(index, Span) else index)
    for query, key in (("query", "key"), ("src_query", "src_key")):
        if query in named and key in step.axes and key not in named:
            earlier = trace.passes[moved.at][0] if query == "query" and moved.at < len(trace.passes) else 0
            moved = moved.put(trace, key, earlier + moved.index(trace, query))
    return moved


def carry(old: Trace | None, cursor: Cursor | None, new: Trace) -> Cursor:
    """The cursor for a new trace: the same site where it has one, else the start."""
    fresh = start(new)
    if old is None or cursor is None or cursor.step >= len(old.steps):
        return fresh
    step = new.by_site.get(old.steps[cursor.step].site)
    if old.prompt == new.prompt and step is not None:
        return replace(cursor, step=step.index)
    return replace(fresh, step=step.index if step else 0, head=cursor.head, dim=cursor.dim)


def sites_like(trace: Trace, words: Iterable[str]) -> list[Step]:
    """The steps whose site, label, part or title has all the words."""
    wanted = [word.casefold() for word in words]
    return [
        step
        for step in trace.steps
        if all(word in f"{step.site} {step.where} {step.title}".casefold() for word in wanted)
    ]

"""One cell of attention from its score to its weight: what every stage made of it, in numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from engine.analysis.heads import has_heads
from engine.analysis.places import one, pass_of, resolved
from engine.errors import AddressError
from engine.ops.attention import Mask, Scale, Scores, SinkSoftmax, SoftCap, Softmax
from engine.ops.base import Text, counted
from engine.ops.position_bias import AddBias
from engine.program import Program, Step
from engine.sites import Address
from engine.traces import Trace

State = Literal["", "masked", "nan", "+inf", "-inf"]

TEXT = Text(
    "From score to weight",
    "score → scaled → masked → pattern",
    r"q \cdot k \to \frac{q \cdot k}{\sqrt{d}} \to M \to P",
    "One cell, the same query, key and head, through all stages of attention. A score says how well the two fit; "
    "scaling keeps it small, the mask hides what may not be seen, and softmax makes it a share of 1.",
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A cell at one step: ``value`` is None where it is no number, and ``state`` says what it is instead.

    ``words`` say what the step did. A masked cell of a pattern is 0 and masked.
    """

    site: str
    label: str
    value: float | None
    state: State
    words: str

    @property
    def number(self) -> str:
        """The value as people write it."""
        if self.value is not None:
            return f"{self.value:.4g}"
        return {"nan": "NaN", "+inf": "+∞"}.get(self.state, "−∞")


@dataclass(frozen=True, slots=True)
class _Cell:
    """Where a cell is: with ``at`` and ``query`` of the pass that the query ran in, and ``key`` among its keys, which
    is outside of 0…``keys`` − 1 where the pass did not have it."""

    trace: Trace
    at: int
    row: int
    head: int
    query: int
    key: int
    keys: int

    @property
    def there(self) -> bool:
        return 0 <= self.key < self.keys

    def line(self, site: str) -> torch.Tensor:
        """The cells of all keys. [key]"""
        axes = self.trace.program.site(site).axes
        window = dict(zip(axes[:3], ((i, i + 1) for i in (self.row, self.head, self.query)), strict=True))
        return self.trace.part(site, self.at, window)[0, 0, 0].double().cpu()

    def value(self, site: str) -> float:
        return float(self.line(site)[self.key])


def stages_of(program: Program, site: str) -> tuple[Step, ...]:
    """The steps from the scores to the pattern that a site of queries and keys is one of; none where it is none."""
    readers = {step.reads[0]: step for step in program.steps if has_heads(step) and not step.on_path and step.reads}
    for first in program.steps:
        if isinstance(first.op, Scores):
            steps = [first]
            while (after := readers.get(steps[-1].site.name)) is not None:
                steps.append(after)
            if site in (step.site.name for step in steps):
                return tuple(steps)
    return ()


def chain(trace: Trace, place: Address) -> list[Stage]:
    """One cell in every stage: ``blocks.2.attn.pattern[b=0,h=3,q=8,k=2]``.

    With the passes stitched together a key may be one that the query's pass did not have: that is told. Raises
    AddressError for a site that is no stage of attention, and where an axis is not named.
    """
    name = trace.program.site(place.site).name
    steps = stages_of(trace.program, name)
    if not steps:
        raise AddressError(f"{name} is no stage of attention; name one, as blocks.0.attn.scores[h=0,q=3,k=1]")
    axes, index = resolved(trace, place)
    row, head, query, key = one(place, index, axes[0], 0), *(one(place, index, axis) for axis in axes[1:])
    encoder = axes[2].startswith("src")
    at, query = (0, query) if encoder else pass_of(trace, place.at, query)
    if place.at is None and axes[3] == "key":
        key -= trace.first_key(name, at)
    cell = _Cell(trace, at, row, head, query, key, trace.shape(name, 0 if encoder else at)[-1])
    found: list[Stage] = []
    for step in steps:
        found.append(_stage(cell, step, found[-1].state if found else ""))
    return found


def _stage(cell: _Cell, step: Step, before: State) -> Stage:
    site, label = step.site.name, step.site.name.rsplit(".", 1)[-1]
    if not cell.there:
        gone = "a window has let go of this key before" if cell.key < 0 else "this key came after the query's pass"
        weighs = isinstance(step.op, Softmax | SinkSoftmax)
        return Stage(site, label, 0.0 if weighs else None, "masked", gone if isinstance(step.op, Scores) else "")
    value = cell.value(site)
    state, words = _state(value), _words(cell, step, value)
    if isinstance(step.op, Mask):
        why = _hidden(cell, step)
        state, words = ("masked", f"−∞: {why}") if why else (state, "may be attended to: left as it is")
    elif before == "masked":
        state = "masked"
    return Stage(site, label, value if math.isfinite(value) else None, state, words)


def _state(value: float) -> State:
    if math.isfinite(value):
        return ""
    return "nan" if math.isnan(value) else "+inf" if value > 0 else "-inf"


def _words(cell: _Cell, step: Step, value: float) -> str:
    """What a step did to the cell."""
    op = step.op
    if isinstance(op, Scores):
        return f"q · k, a dot product of {counted(cell.trace.config.d_head, 'number')}"
    if isinstance(op, Scale):
        if op.usual:
            return f"× {op.factor:.4g} = 1/√{op.d_head}"
        return "× 1: this model takes scores as they are" if op.factor == 1 else f"× {op.factor:.4g}, the model's scale"
    if isinstance(op, SoftCap):
        return f"{op.cap:g} · tanh(x / {op.cap:g})"
    if isinstance(op, AddBias):
        bias = cell.line(step.reads[1])
        return f"+ {_signed(float(bias[cell.key - cell.keys]))}, the bias of these two positions"
    if isinstance(op, Softmax | SinkSoftmax):
        return _share(cell, step)
    return ""


def _share(cell: _Cell, step: Step) -> str:
    """eˢ over the sum of all, both taken relative to the largest, so that no power overflows."""
    line = cell.line(step.reads[0])
    if bool((line == -torch.inf).all()):
        return "0: this query may attend to nothing"
    sink = None
    if isinstance(step.op, SinkSoftmax):
        sink = float(cell.trace.site(step.reads[1], cell.at)[cell.head])
    most = max(float(line.max()), -math.inf if sink is None else sink)
    total = float((line - most).exp().sum()) + (0 if sink is None else math.exp(sink - most))
    among = counted(int((line > -torch.inf).sum()), "key") + ("" if sink is None else " and the sink")
    own = float((line[cell.key] - most).exp())
    return f"e^(s − {_signed(most)}) / Σ = {own:.4g} / {total:.4g}, over {among}"


def _hidden(cell: _Cell, step: Step) -> str:
    """Why the mask hides the cell; empty where it does not."""
    op, trace = step.op, cell.trace
    assert isinstance(op, Mask)
    places, key_places = (trace.site(name, cell.at) for name in step.reads[1:])
    keys = op.of_held(key_places, cell.keys)
    query, key = int(places[cell.row, cell.query]), int(keys[cell.row, cell.key])
    if bool(op.allowed(places[:, cell.query, None], keys[:, cell.key, None])[cell.row, 0, 0]):
        return ""
    if min(query, key) < 0:
        return f"the {'query' if query < 0 else 'key'} is padding"
    if op.causal and key > query:
        return f"key {key} comes after query {query}"
    return f"key {key} is {abs(query - key)} away from query {query}, and the window is {op.window}"


def _signed(value: float) -> str:
    return f"{value:.4g}" if value >= 0 else f"(−{-value:.4g})"

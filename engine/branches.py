"""Continuations of one prompt beside each other: where they part, as a tree, and how far apart they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engine.errors import PromptError
from engine.ops.base import at_least_float32
from engine.text import display
from engine.traces import Trace


@dataclass(frozen=True, slots=True)
class Branch:
    """One trace in a tree of them: it goes with its ``parent`` up to position ``pos`` and parts from it there.

    The parent is the earliest trace that it shares most with; None for the first one. A trace that is the beginning of
    its parent parts at its own end.
    """

    trace: Trace
    parent: int | None
    pos: int

    @property
    def logprob(self) -> float | None:
        """log p of its tokens from ``pos`` on, each given those before it; None where it has no logits or no token."""
        if self.pos >= self.trace.length or self.pos < 1 or self.trace.config.predicts != "next token":
            return None
        rows = self.trace[f"logits[p={self.pos - 1}:{self.trace.length - 1}]"][0]  # [pos d_vocab]
        taken = [token.id for token in self.trace.tokens[0][self.pos :]]
        return float(at_least_float32(rows).log_softmax(-1)[range(len(taken)), taken].sum())


def tree(traces: Sequence[Trace]) -> tuple[Branch, ...]:
    """Traces of one prompt each as a tree, in their order: it follows from their tokens alone. Raises PromptError."""
    if not isinstance(traces, Iterable):
        raise PromptError(f"a tree is of a list of traces, and not of {display(repr(traces))[:60]}")
    branches: list[Branch] = []
    traces = [_as_trace(trace) for trace in traces]
    for i, trace in enumerate(traces):
        shared = [common(trace, earlier) for earlier in traces[:i]]
        pos = max(shared, default=0)
        branches.append(Branch(trace, shared.index(pos) if shared else None, pos))
    return tuple(branches)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two traces of one architecture: from which position on their tokens differ, and for each site of the path the
    largest difference over the positions that they share and over those that both have beyond."""

    parts_at: int
    shared: dict[str, float]
    beyond: dict[str, float]

    @property
    def text(self) -> str:
        """The comparison in one line."""
        near = max(self.shared.values(), default=0.0)
        if not any(self.beyond.values()):
            up_to = f", up to {near:.2g} at any site" if near else ""
            return f"the same for {self.parts_at} positions{up_to}, and no position beyond is in both"
        site = max(self.beyond, key=self.beyond.__getitem__)
        return (
            f"the same for {self.parts_at} positions, up to {near:.2g} at any site; beyond they differ most in {site}, "
            f"by {self.beyond[site]:.3g}"
        )

    def __str__(self) -> str:
        return self.text


def compare(a: Trace, b: Trace) -> Comparison:
    """Two continuations site by site, over positions. Raises PromptError where they are not of one architecture."""
    a, b = _as_trace(a), _as_trace(b)
    if replace(a.config, name="") != replace(b.config, name=""):
        raise PromptError(f"{a.config.name} and {b.config.name} are two architectures; compare traces of one")
    pos, both = common(a, b), min(a.length, b.length)
    shared, beyond = {}, {}
    for name in a.program.path():
        axes = a.program.site(name).axes
        if "pos" in axes and name not in a.program.once and b.program.step(name):
            x, y = (t[name].narrow(axes.index("pos"), 0, both) for t in (a, b))
            if x.is_floating_point():
                gap = (at_least_float32(x) - at_least_float32(y)).abs().transpose(0, axes.index("pos")).flatten(1)
                shared[name] = float(gap[:pos].max()) if pos else 0.0
                beyond[name] = float(gap[pos:].max()) if both > pos else 0.0
    return Comparison(pos, shared, beyond)


def _as_trace(trace: object) -> Trace:
    """Raises PromptError for anything else."""
    if not isinstance(trace, Trace):
        raise PromptError(f"a branch is a trace, and not {display(repr(trace))[:60]}")
    return trace


def common(a: Trace, b: Trace) -> int:
    """How many of their first tokens are the same; none where an encoder read different texts."""
    if any(len(trace.tokens) != 1 for trace in (a, b)):
        raise PromptError("a trace of a batch is no branch; trace each prompt alone")
    ids, others = ([token.id for token in trace.tokens[0]] for trace in (a, b))
    if [[t.id for t in row] for row in a.source_tokens] != [[t.id for t in row] for row in b.source_tokens]:
        return 0
    return next((i for i, (x, y) in enumerate(zip(ids, others, strict=False)) if x != y), min(len(ids), len(others)))

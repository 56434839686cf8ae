"""What is shown beside: the same place with another head, layer or pass, or in another trace."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.views import View
from tui.state.cursor import Cursor
from tui.state.naming import name_of
from tui.state.trace import Trace


@dataclass(frozen=True, slots=True)
class Beside:
    """Where the second picture is, as it differs from the cursor; None: it does not. ``of``: in another trace."""

    of: Trace | None = None
    head: int | None = None
    block: int | None = None
    at: int | None = None

    def cursor(self, trace: Trace, cursor: Cursor) -> tuple[Trace, Cursor] | None:
        """The place beside the cursor's, and the trace that it is in; None where there is none."""
        there = self.of or trace
        step = trace.steps[cursor.step]
        site = step.site
        if self.block is not None and step.block is not None:
            alike = (one.site for one in there.steps if one.block == self.block and one.inner == step.inner)
            site = next(alike, "")
        found = there.by_site.get(site)
        if found is None:
            return None
        at = cursor.at if self.at is None else self.at
        if self.of is not None:
            at = there.usual_at if len(there.passes) == 1 or at is None else min(at, len(there.passes) - 1)
        elif self.at is not None and self.at >= len(there.passes):
            return None
        head = cursor.head if self.head is None else self.head
        if self.head is not None and 0 < there.heads(found) <= self.head:
            return None
        return there, replace(cursor, step=found.index, head=head, at=at)

    def words(self, trace: Trace, cursor: Cursor) -> str:
        """How it differs from the cursor, in few words."""
        parts = [f"layer {self.block}"] if self.block is not None else []
        parts += [f"head {self.head}"] if self.head is not None else []
        parts += [f"pass @{self.at}"] if self.at is not None else []
        if self.of is not None:
            parts.append(name_of(self.of, trace))
        return " · ".join(parts)

    def flipped(self, trace: Trace, cursor: Cursor) -> tuple[Beside, Cursor] | None:
        """The two sides changed: what was the cursor's is beside. None where the sides are two traces."""
        place = self.cursor(trace, cursor)
        if self.of is not None or place is None:
            return None
        other = Beside(
            head=None if self.head is None else min(cursor.head, max(0, trace.heads(trace.steps[cursor.step]) - 1)),
            block=None if self.block is None else trace.steps[cursor.step].block,
            at=None if self.at is None else cursor.at,
        )
        return other, place[1]


def usual(trace: Trace, cursor: Cursor) -> Beside | None:
    """What is shown beside if nothing was chosen: the next head, else the next layer; None where there is neither."""
    step = trace.steps[cursor.step]
    heads, by = trace.heads(step), 1 if step.size("head") else trace.heads_per_kv
    if heads > by:
        return Beside(head=(min(cursor.head, heads - 1) + by) % heads)
    layers = trace.blocks_with(step.inner) if step.block is not None else ()
    if len(layers) > 1:
        return Beside(block=layers[(layers.index(step.block) + 1) % len(layers)])
    return None


def subtracts(view: View) -> bool:
    """Whether one such picture can be taken from another: ids cannot, nor can what the engine derived."""
    return not view.look and view.kind not in ("ranked", "tokens")

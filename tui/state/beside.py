"""What is shown beside: the same place with another head, layer, site or pass, or in another trace."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.sites import Address
from engine.views import View
from tui.state.cursor import Cursor, goto
from tui.state.naming import name_of
from tui.state.trace import Trace

PLACES = ("batch", "pos", "src", "key", "dim", "choice", "vocab")
"""Fields of a cursor that may be fixed beside."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Where the second picture is, as it differs from the cursor; None: it does not. ``of``: in another trace.

    ``inner`` is another site inside a block, '' the same; ``places`` are fields of a cursor that stay there.
    """

    of: Trace | None = None
    head: int | None = None
    block: int | None = None
    at: int | None = None
    inner: str = ""
    places: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of_address(cls, trace: Trace, cursor: Cursor, address: Address, of: Trace | None = None) -> Beside:
        """What shows an address beside the cursor's place. Raises KeyError, AddressError."""
        there = of or trace
        step = trace.steps[cursor.step]
        alike = there.by_site.get(step.site)
        place = goto(there, replace(cursor, step=alike.index if alike else 0, at=there.usual_at), address)
        other = there.steps[place.step]
        return cls(
            of,
            place.head if place.head != cursor.head else None,
            other.block if other.block != step.block else None,
            place.at if address.at is not None and place.at != cursor.at else None,
            other.inner if other.inner != step.inner else "",
            tuple((name, getattr(place, name)) for name in PLACES if getattr(place, name) != getattr(cursor, name)),
        )

    def cursor(self, trace: Trace, cursor: Cursor) -> tuple[Trace, Cursor] | None:
        """The place beside the cursor's, and the trace that it is in; None where there is none."""
        there = self.of or trace
        step = trace.steps[cursor.step]
        site = step.site
        if self.inner or (self.block is not None and step.block is not None):
            block, inner = step.block if self.block is None else self.block, self.inner or step.inner
            alike = (one.site for one in there.steps if one.block in (block, None) and one.inner == inner)
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
        return there, replace(cursor, step=found.index, head=head, at=at, **dict(self.places))

    def words(self, trace: Trace, cursor: Cursor) -> str:
        """How it differs from the cursor, in few words."""
        parts = [f"layer {self.block}"] if self.block is not None else []
        parts += [self.inner] if self.inner else []
        parts += [f"head {self.head}"] if self.head is not None else []
        parts += [f"position {pos}" for name, pos in self.places if name in ("pos", "src")]
        parts += [f"pass @{self.at}"] if self.at is not None else []
        if self.of is not None:
            parts.append(name_of(self.of, trace))
        return " · ".join(parts)

    def flipped(self, trace: Trace, cursor: Cursor) -> tuple[Beside, Cursor] | None:
        """The two sides changed: what was the cursor's is beside. None where the sides are two traces."""
        place = self.cursor(trace, cursor)
        if self.of is not None or place is None or self.inner or self.places:
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

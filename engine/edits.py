"""What-ifs as text: a place, and what is done to the numbers there.

    blocks.2.attn.z[h=3] = 0         a head's numbers are set to 0
    blocks.1.mlp.post[d=182] *= 2    a neuron counts twice
    blocks.0.resid_pre[p=2:5] += 1   1 is added at three positions

Positions are those of the text, whichever pass they lie in. What an edit becomes in a program is known where programs
are edited (`engine.editing`); nothing here imports torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, TypeGuard, get_args

from engine.errors import EditError
from engine.sites import Address, Index, Span
from engine.text import display

How = Literal["=", "*=", "+="]

UNEDITED = "_unedited"
"""What the name of a site ends with that holds what an edited one would have been."""
MOST_EDITS = 1000
"""More than anybody writes; a file may ask for as many."""

_EDIT = re.compile(r"(?P<place>[^\s\[\]=*+]{1,200}(?:\[[^\[\]]{0,200}\])?)\s*(?P<how>\*=|\+=|=)\s*(?P<value>\S{1,60})")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Edit:
    """A what-if: the numbers at ``place`` are set to ``value``, multiplied by it, or it is added to them.

    Raises EditError for a number that is not finite, and for a place in one pass alone.
    """

    place: Address
    how: How
    value: float

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise EditError(f"an edit is =, *= or +=, and not {display(repr(self.how))[:40]}")
        number = isinstance(self.value, Real) and not isinstance(self.value, bool)
        if not number or not _is_finite(self.value):
            raise EditError(f"{self.place}: an edit takes a finite number, and not {display(repr(self.value))[:40]}")
        object.__setattr__(self, "value", float(self.value))
        if self.place.at is not None:
            raise EditError(f"{self.place}: positions say where an edit is, in all passes alike; leave @ out")

    @classmethod
    def parse(cls, text: str) -> Edit:
        """Read an edit. Raises EditError where the text is none, AddressError where its place is none."""
        found = _EDIT.fullmatch(text.strip())
        if not found:
            raise EditError(
                f"{display(repr(text.strip()))[:120]} is no edit; write a place, =, *= or +=, and a number, e.g. "
                "blocks.2.attn.z[h=3] = 0"
            )
        if not _NUMBER.fullmatch(found["value"]):
            raise EditError(f"{display(text.strip())[:120]}: an edit takes a finite number, e.g. 0 or -1.5")
        how: How = "*=" if found["how"] == "*=" else "+=" if found["how"] == "+=" else "="
        return cls(Address.parse(found["place"]), how, float(found["value"]))

    def __str__(self) -> str:
        return f"{self.place} {self.how} {self.number}"

    @property
    def number(self) -> str:
        """The value as people write it; it reads back as the same one."""
        return repr(self.value).removesuffix(".0")


def ablate(site: str, **index: int | slice) -> Edit:
    """Set the numbers of a site to 0, or those at an index by axis: ``ablate("blocks.2.attn.z", head=3)``.

    A range is a slice: ``pos=slice(2, 5)``. Raises AddressError and EditError.
    """
    return Edit(_place(site, index), "=", 0.0)


def scale(site: str, by: float, **index: int | slice) -> Edit:
    """Multiply the numbers of a site, or those at an index by axis, as `ablate` has it."""
    return Edit(_place(site, index), "*=", by)


def edits_of(edits: Iterable[Edit | str]) -> tuple[Edit, ...]:
    """Edits as they are or as text. Raises EditError and AddressError."""
    if isinstance(edits, str | Edit) or not isinstance(edits, Iterable):
        raise EditError(f'edits are a list, as ["blocks.2.attn.z[h=3] = 0"], and not {display(repr(edits))[:60]}')
    found = []
    for edit in edits:
        if not isinstance(edit, str | Edit):
            raise EditError(f"an edit is an Edit or its text, and not {display(repr(edit))[:60]}")
        found.append(Edit.parse(edit) if isinstance(edit, str) else edit)
        if len(found) > MOST_EDITS:
            raise EditError(f"there are more than {MOST_EDITS} edits; a range of an axis is one edit")
    return tuple(found)


def said(edit: Edit) -> str:
    """What the user is told of a trace with this edit."""
    return f"edited: {edit}"


def _place(site: str, index: dict[str, int | slice]) -> Address:
    terms = "".join(f"{axis}={_term(axis, value)}," for axis, value in index.items())
    return Address.parse(f"{site}[{terms}]" if terms else site)


def _term(axis: str, value: object) -> Index:
    if _is_whole(value):
        return int(value)
    if isinstance(value, slice) and value.step is None and all(map(_is_end, (value.start, value.stop))):
        return Span(value.start, value.stop)
    raise EditError(f"{display(axis)[:40]}={display(repr(value))[:40]} is no index; give a number or a slice")


def _is_whole(value: object) -> TypeGuard[Integral]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_end(value: object) -> bool:
    return value is None or _is_whole(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False

"""A what-if as a step: what the step before it wrote, with some numbers changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from engine.edits import Edit
from engine.ops.base import Op, PassInfo, Shape, Text, times
from engine.sites import HELD_AXES, LETTERS, PASS_AXES, TOKEN_AXES, Address, Index, Site, Span


@dataclass(frozen=True, slots=True)
class Edited(Op):
    """y = x, but for the numbers that somebody changed: the ``edits`` of one site, in order.

    Their indices are not negative, and count along the axes of tokens from the first position of the text. ``of`` is
    the op that made x.
    """

    site: Site
    of: Op
    edits: tuple[Edit, ...]

    @property
    def float32(self) -> bool:  # type: ignore[override]  # of each op its own
        return self.of.float32

    @property
    def unseen(self) -> float:  # type: ignore[override]
        return self.of.unseen

    @property
    def hides(self) -> bool:  # type: ignore[override]
        return self.of.hides

    @property
    def by_position(self) -> bool:
        """Whether it depends on where in the text a pass stands."""
        return any(axis in TOKEN_AXES for edit in self.edits for axis in by_axis(edit.place, self.site))

    @property
    def text(self) -> Text:
        done = [_told(edit) for edit in self.edits]
        return Text(
            "Edited",
            f"y = {'; then '.join(plain for plain, _ in done)}",
            "y = " + r"\text{; then }".join(latex for _, latex in done),
            "A what-if: the model did not compute these numbers, somebody changed them: "
            f"{', then '.join(map(str, self.edits))}. All that depends on them follows; the step before shows them as "
            "they were.",
        )

    def run(self, info: PassInfo, x: Float[Tensor, ...]) -> Float[Tensor, ...]:
        y = x.clone(memory_format=torch.contiguous_format)
        for edit in self.edits:
            part, by = y[self._where(edit, info.start)], edit.value
            if edit.how == "=":
                part.fill_(by)
            elif edit.how == "*=":
                part.mul_(by)
            else:
                part.add_(by)
        return y

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        return sum(self._cells(edit, out) for edit in self.edits if edit.how != "=")

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        cells = max(self._cells(edit, out) for edit in self.edits)
        return f"{cells:,} of [{times(*out)}]"

    def _where(self, edit: Edit, start: int) -> tuple[slice, ...]:
        """The part of the tensor of a pass after ``start`` positions."""
        index, found = by_axis(edit.place, self.site), []
        for axis in self.site.axes:
            first = start if axis in PASS_AXES else start - self.site.held(start) if axis in HELD_AXES else 0
            low, high = ends(index.get(axis, Span()))
            found.append(slice(max(0, low - first), None if high is None else max(0, high - first)))
        return tuple(found)

    def _cells(self, edit: Edit, out: Shape) -> int:
        """How many numbers it changes in a tensor of this shape that begins with the text."""
        return prod(len(range(size)[part]) for part, size in zip(self._where(edit, 0), out, strict=True))


def by_axis(place: Address, site: Site) -> dict[str, Index]:
    """A place's indices, by the axes of its site."""
    by_letter = {LETTERS.get(key, key): value for key, value in place.index}
    return {axis: by_letter[LETTERS[axis]] for axis in site.axes if LETTERS[axis] in by_letter}


def ends(index: Index) -> tuple[int, int | None]:
    """The half-open range that an index names."""
    return (index.start or 0, index.stop) if isinstance(index, Span) else (index, index + 1)


def _told(edit: Edit) -> tuple[str, str]:
    """What an edit does, as a formula and in LaTeX."""
    index = str(edit.place).removeprefix(edit.place.site).strip("[]")
    where, latex_where = (f" at {index}", rf"\text{{ at }} {index}") if index else ("", "")
    by = edit.number
    if edit.how == "=":
        return (f"x, but {by}{where}", rf"x, \text{{ but }} {by}{latex_where}") if index else (by, by)
    sign, latex_sign = ("·", r"\cdot") if edit.how == "*=" else ("+", "+")
    by, latex_by = (f"({by})", f"({by})") if by.startswith("-") else (by, by)
    return f"x {sign} {by}{where}", rf"x {latex_sign} {latex_by}{latex_where}"

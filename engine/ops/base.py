"""What every kind of arithmetic has in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """How people are told of an op: a title, its formula (plain and LaTeX) and a story in two or three sentences."""

    title: str
    formula: str
    latex: str
    story: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of one step: floating-point operations, and bytes read and written when every tensor is touched once."""

    flops: int
    bytes: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


@dataclass(slots=True)
class PassInfo:
    """What the host knows of a pass; no tensor, so that nothing waits for the device.

    ``dense``: no padding, and positions count up from the first key without a gap, so that "may attend" is decided
    by lengths alone. ``extents``: for each row of the batch one more than its largest position. ``kernel``: the
    attention kernel that is asked for. ``ran``: the kernels that ran, and ``choices``: which one for which shapes,
    noted by the attention op. ``start``: how many tokens ran before. ``append`` puts new keys or values behind those
    of earlier passes where they are held with room (`engine.cache`); None: by copying both. ``finite``: in how many
    attention layers all keys were found finite, noted by the attention op; ``past_finite``: they were in all layers of
    the pass before, so that keys of earlier passes need not be looked at again. ``static``: the pass is traced to be
    compiled, so no op may look at a number on the host.
    """

    dtype: torch.dtype
    dense: bool = True
    kernel: str = "auto"
    ran: set[str] = field(default_factory=set)
    choices: dict[object, tuple[str, bool]] = field(default_factory=dict)
    extents: tuple[int, ...] = ()
    start: int = 0
    finite: int = 0
    past_finite: bool = False
    append: Callable[[Tensor, Tensor], Tensor] | None = None
    static: bool = False

    def again(self) -> PassInfo:
        """For running steps of the pass once more: what ran then stays as it was noted."""
        return replace(self, ran=set(), choices={}, finite=0, append=None)


class Op:
    """One kind of arithmetic, and the only place where that arithmetic is known.

    ``run`` takes the tensors that the step reads and then its weights, and returns a new tensor; it writes into
    none of them. ``along`` names the output axes that can be computed for a part alone, and for each the axis of
    each read that has to be narrowed (None: that read is needed whole); ``along_weight`` the weight's dimension that
    runs over such an axis, where one does. ``float32`` says that the result is float32 whatever the model's dtype,
    ``int64`` that it is whole numbers, ``unseen`` what a cell holds for a key that a pass did not have yet, and
    ``hides`` that −∞ there means "not to be attended to" and not that something went wrong.
    """

    TEXT: ClassVar[Text]
    along: ClassVar[Mapping[str, tuple[str | None, ...]]] = {}
    along_weight: ClassVar[Mapping[str, int]] = {}
    float32: ClassVar[bool] = False
    int64: ClassVar[bool] = False
    unseen: ClassVar[float] = -torch.inf
    hides: ClassVar[bool] = False

    @property
    def text(self) -> Text:
        """How people are told of it; ``TEXT`` where it is the same for every op of the kind."""
        return self.TEXT

    def run(self, info: PassInfo, *args: Any, **kwargs: Any) -> Tensor:
        raise NotImplementedError

    def alias(self, reads: Sequence[Shape]) -> int | None:
        """Which read the result is the same tensor as; None where it is a new one."""
        return None

    def flops(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        """Floating-point operations; one per output element unless the op knows better."""
        return prod(out)

    def cost(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape, itemsize: int) -> Cost:
        """FLOPs and bytes moved for these shapes at ``itemsize`` bytes a number."""
        return Cost(self.flops(reads, params, out), self.touched(reads, params, out) * itemsize)

    def touched(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> int:
        """Numbers read and written; none where the result is a tensor that is there already."""
        return 0 if self.alias(reads) is not None else sum(prod(shape) for shape in (*reads, *params, out))

    def scratch(self, reads: Sequence[Shape], out: Shape, itemsize: int) -> int:
        """Bytes that it needs while it runs, beside what it reads and writes."""
        return 0

    def numbers(self, reads: Sequence[Shape], params: Sequence[Shape], out: Shape) -> str:
        """The formula's symbols with this model's numbers, as text."""
        return ""


def at_least_float32(x: Tensor) -> Tensor:
    """16-bit tensors as float32; the others as they are. What people look at is computed no coarser."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: 1 row, 9 rows; ``many`` where that is not ``one`` with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def times(*sizes: int) -> str:
    """Sizes as people write them: 11 × 128."""
    return " × ".join(str(size) for size in sizes)

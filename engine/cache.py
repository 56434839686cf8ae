"""The KV cache: keys and values of earlier passes, each layer's in a buffer with room for more.

A pass appends its rows where the buffer has room, so a decoded token copies no earlier row. Nothing that is written
is ever overwritten: records look into the same memory, and a second continuation of one text copies what they share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

import torch
from jaxtyping import Shaped
from torch import Tensor

BLOCK = 256
"""Positions by which a buffer grows at least."""
ALIGN = 32
"""A position lies in its buffer where it lies modulo this many: products know in their last bits how memory is aligned,
and what is derived later must not differ in them."""


_claim = Lock()


class _Buffer:
    """Memory for positions [batch room …], the first of which is ``origin``; those before ``filled`` are written."""

    __slots__ = ("end", "filled", "origin", "rows")

    def __init__(self, rows: Shaped[Tensor, "batch room *rest"], origin: int, filled: int) -> None:
        self.rows = rows
        self.origin = origin
        self.end = origin + rows.shape[1]
        self.filled = filled

    @classmethod
    def of(cls, start: int, room: int, like: Shaped[Tensor, "batch n *rest"]) -> _Buffer:
        """An empty one for ``room`` positions from ``start``, for rows like these.

        The positions of one head lie side by side, as kernels read them.
        """
        origin = start - start % ALIGN
        room = -(-(start - origin + room) // BLOCK) * BLOCK
        batch, _, *rest = like.shape
        if len(rest) == 2:
            memory = torch.empty(batch, rest[0], room, rest[1], dtype=like.dtype, device=like.device)
            return cls(memory.transpose(1, 2), origin, start)  # [batch room kv_head d_head]
        return cls(torch.empty(batch, room, *rest, dtype=like.dtype, device=like.device), origin, start)


class Held:
    """What is held for one site after a pass: the positions ``start`` to ``stop`` of the text, in a buffer.

    ``rows`` are they, [batch n …], no copy. It does not change.
    """

    __slots__ = ("buffer", "rows", "start", "stop")

    def __init__(self, buffer: _Buffer, start: int, stop: int) -> None:
        self.buffer = buffer
        self.start = start
        self.stop = stop
        self.rows = buffer.rows.narrow(1, start - buffer.origin, stop - start)

    @classmethod
    def of(cls, rows: Shaped[Tensor, "batch n *rest"], start: int = 0) -> Held:
        """Rows that are there already, with no room behind them."""
        stop = start + rows.shape[1]
        return cls(_Buffer(rows, start, stop), start, stop)

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def allocated(self) -> int:
        """Bytes of the whole buffer."""
        return self.buffer.rows.nbytes

    def last(self, n: int) -> Held:
        """The last ``n`` of them, or all where there are fewer."""
        return self if len(self) <= n else Held(self.buffer, self.stop - n, self.stop)

    def append(self, new: Shaped[Tensor, "batch n *rest"], room: int | None = 0) -> Held:
        """With ``new`` rows behind, in place where the buffer has room and nobody else has gone on from here.

        Else in a new buffer, with ``room`` for more rows; None: for half as many again.
        """
        buffer, more = self.buffer, new.shape[1]
        stop = self.stop + more
        with _claim:  # another thread may go on from here as well
            if in_place := buffer.filled == self.stop and stop <= buffer.end:
                buffer.filled = stop
        if not in_place:
            size = stop - self.start
            buffer = _Buffer.of(self.start, size + (size // 2 if room is None else room), new)
            buffer.rows.narrow(1, self.start - buffer.origin, len(self)).copy_(self.rows)
            buffer.filled = stop
        buffer.rows.narrow(1, self.stop - buffer.origin, more).copy_(new)
        return Held(buffer, self.start, stop)


@dataclass(frozen=True, slots=True, eq=False)
class KVCache:
    """What is held after a pass, by the input that the next one reads it as (``blocks.0.attn.past_k``)."""

    held: Mapping[str, Held]

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values that the next pass reads."""
        return sum(held.rows.nbytes for held in self.held.values())

    @property
    def allocated(self) -> int:
        """Bytes of the buffers that they lie in, with their room."""
        return sum(held.allocated for held in self.held.values())


@dataclass(slots=True)
class Appending:
    """A pass that puts its new rows into a cache: called by the op that appends.

    ``past`` is what the pass is given. After it ``held`` holds, by the same names, what it attended to. New buffers get
    ``room`` as in `Held.append`; where a layer has a window (``windows``, by name), never more than it is wide.
    """

    before: Mapping[str, Held]
    room: int | None = None
    windows: Mapping[str, int] = field(default_factory=dict)
    past: dict[str, Tensor] = field(init=False)
    held: dict[str, Held] = field(init=False, default_factory=dict)
    _names: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        self.past = {name: held.rows for name, held in self.before.items()}
        self._names = {id(rows): name for name, rows in self.past.items()}

    def __call__(
        self, past: Shaped[Tensor, "batch past *rest"], new: Shaped[Tensor, "batch n *rest"]
    ) -> Shaped[Tensor, "batch past+n *rest"]:
        name = self._names[id(past)]
        room = self.room if self.room is None else min(self.room, self.windows.get(name, self.room))
        held = self.held[name] = self.before[name].append(new, room)
        return held.rows

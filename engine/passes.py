"""A pass, and what it holds of those before it: their keys and values, laid out as they were when it ran."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.cache import Held, KVCache
from engine.ops.base import PassInfo
from engine.program import Program
from engine.runner import unasked
from engine.runtime import Stopwatch
from engine.traceformat import ALIGN

JOINED_BYTES = 256 * 1024 * 1024
"""How much of earlier passes' rows is held side by side, the longest untouched going first."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One run of the program: ``length`` new tokens after ``start`` earlier ones.

    ``given`` holds the program's inputs, ``kept`` what was recorded; ``took`` tells the seconds.
    """

    start: int
    length: int
    info: PassInfo
    given: Mapping[str, Tensor]
    kept: Mapping[str, Tensor]
    took: float | Stopwatch = 0.0

    @property
    def stop(self) -> int:
        """Positions after it."""
        return self.start + self.length

    @property
    def seconds(self) -> float:
        """How long it ran. On CUDA this waits until it has."""
        return float(self.took)


class Passes(Protocol):
    """What is asked of a trace here. ``joined``: rows of full layers side by side, for as many passes as were asked."""

    program: Program
    passes: tuple[Pass, ...]
    cache: KVCache | None
    joined: dict[str, Held]

    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def sizes(self, at: int) -> dict[str, int]: ...
    def kept(self, name: str, at: int) -> bool: ...
    def site(self, name: str, at: int) -> Tensor: ...
    def sites(self, names: Iterable[str], at: int) -> dict[str, Tensor]: ...
    def remember(self, name: str, at: int, tensor: Tensor) -> None: ...


def cache_before(trace: Passes, at: int) -> KVCache:
    """What a pass ``at`` reads of those before it; ``at`` may be one more than there are."""
    if at:
        _derive_new_rows(trace, at)
    return KVCache({past: earlier(trace, past, at) for past in trace.program.caches})


def earlier(trace: Passes, past: str, at: int) -> Held:
    """Keys or values that a pass ``at`` reads of those before it."""
    site, cache = trace.program.site(past), trace.program.caches[past]
    if at == 0:
        return Held.of(torch.empty(site.shape(trace.sizes(0)), device=trace.device, dtype=trace.dtype))
    start = trace.passes[at - 1].stop
    n = site.held(start)
    if _is_live(trace, past):
        assert trace.cache is not None
        return Held(trace.cache.held[past].buffer, 0, start)
    if trace.kept(cache, at - 1):
        rows = trace.site(cache, at - 1)
        return Held.of(rows.narrow(1, rows.shape[1] - n, n), start - n)
    if site.window is None:
        return _joined(trace, past, at)
    rows = _new_rows(trace, past, min(_since(trace, start - n), at - 1), at)
    return Held.of(rows.narrow(1, rows.shape[1] - n, n), start - n)


def as_run(trace: Passes, name: str, at: int) -> Tensor:
    """A tensor with its memory laid out as in a run: a file has it otherwise, and a product's last bits know it."""
    tensor, start = trace.site(name, at), trace.passes[at].start
    n = trace.program.site(name).held(start)
    if n and name in trace.program.caches.values():
        past, new = tensor.split((n, tensor.shape[1] - n), dim=1)
        return Held.of(past, start - n).append(new).rows
    return tensor.clone() if tensor.is_cpu and tensor.data_ptr() % ALIGN else tensor  # torch's own begin there


def _is_live(trace: Passes, past: str) -> bool:
    """Whether the cache that the trace goes on with holds all that any of its passes read."""
    return trace.cache is not None and trace.program.site(past).window is None


def _joined(trace: Passes, past: str, at: int) -> Held:
    """The rows of all passes before ``at``. Each is copied once, however many passes ask, one after the other."""
    stop, joined = trace.passes[at - 1].stop, trace.joined.get(past)
    if joined is not None and joined.stop >= stop:
        return Held(joined.buffer, 0, stop)
    more = _new_rows(trace, past, _since(trace, _joined_stop(trace, past)), at)
    with unasked():
        longer = joined.append(more, None) if joined else Held.of(more)
    by_age = [*((name, held) for name, held in trace.joined.items() if name != past), (past, longer)]
    while sum(held.allocated for _, held in by_age) > JOINED_BYTES:
        del by_age[0]
    trace.joined = dict(by_age)  # a new one, as another thread may be reading the old
    return longer


def _joined_stop(trace: Passes, past: str) -> int:
    """How many positions' rows are side by side already."""
    joined = trace.joined.get(past)
    return joined.stop if joined is not None else 0


def _new_rows(trace: Passes, past: str, first: int, at: int) -> Tensor:
    """What the passes ``first`` to ``at`` appended; deriving it needs no earlier pass. [batch new kv_head d_head]"""
    new = _appended(trace, past)
    rows = [trace.site(new, i) for i in range(first, at)]
    with unasked():
        return torch.cat(rows, dim=1)


def _derive_new_rows(trace: Passes, at: int) -> None:
    """Derive what passes before ``at`` appended and is not there, of each pass in one go."""
    start, needed = trace.passes[at - 1].stop, {}
    for past, cache in trace.program.caches.items():
        if not _is_live(trace, past) and not trace.kept(cache, at - 1):
            seen = start - trace.program.site(past).held(start)
            needed[_appended(trace, past)] = max(seen, _joined_stop(trace, past))
    for i in range(_since(trace, min(needed.values(), default=start)), at):
        missing = [new for new, since in needed.items() if trace.passes[i].stop > since and not trace.kept(new, i)]
        for name, tensor in trace.sites(missing, i).items():
            trace.remember(name, i, tensor)


def _appended(trace: Passes, past: str) -> str:
    """The site that a pass puts behind those of the passes before."""
    step = trace.program.step(trace.program.caches[past])
    assert step is not None
    return step.reads[1]


def _since(trace: Passes, position: int) -> int:
    """The pass that a position lies in."""
    return bisect_right(trace.passes, position, key=lambda p: p.stop)

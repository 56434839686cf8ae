"""The KV cache of a trace: what it holds and takes, measured; and the time that it saves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import Any

import torch

from engine.analysis.cachecost import CacheReport, NoCache, check_tokens, count, layer_cache, no_cache, row_bytes
from engine.decoding import Decoder
from engine.dtypes import dtype_name
from engine.model import Model
from engine.recording import trace as record
from engine.runtime import Watch, available_memory
from engine.traces import Trace

CACHED_RUNS, UNCACHED_RUNS, LONG_ENOUGH = 7, 3, 2.0
"""How often a token is timed, and the seconds after which it is not timed once more."""


def cache_report(trace: Trace, tokens: int | None = None) -> CacheReport | NoCache:
    """What the cache of a trace costs after its last pass, measured from its tensors; ``tokens`` is one more length.

    A trace that holds no cache (one from a file) is measured by what its last pass attended to.
    """
    config, batch = trace.config, len(trace.tokens)
    if (why := no_cache(config)) is not None:
        return why
    row = batch * row_bytes(config.d_head, dtype_name(trace.dtype))
    return CacheReport(
        config,
        dtype_name(trace.dtype),
        str(trace.device),
        trace.length,
        batch,
        trace.source_length,
        tuple(layer_cache(config, i, trace.length, row, *_measured(trace, i)) for i in range(config.n_layers)),
        _cross_bytes(trace),
        tuple((p.start, p.length) for p in trace.passes),
        available_memory(trace.device),
        None if tokens is None else check_tokens(tokens),
    )


def _measured(trace: Trace, layer: int) -> tuple[int, int]:
    """Bytes of a layer's keys and values, and of the buffers that they lie in."""
    names = [f"blocks.{layer}.attn.past_{x}" for x in "kv"]
    if (cache := trace.cache) is not None:
        both = [cache.held[name] for name in names]
        return sum(held.rows.nbytes for held in both), sum(held.allocated for held in both)
    size = allocated = 0
    for name in names:  # what the last pass attended to, of which a window keeps less
        shape = trace.shape(trace.program.caches[name], len(trace.passes) - 1)  # [batch kv_pos kv_head d_head]
        row = prod(shape) // shape[1] * trace.dtype.itemsize
        size += row * trace.program.site(name).held(shape[1])
        allocated += row * shape[1]
    return size, allocated


def _cross_bytes(trace: Trace) -> int | None:
    """Bytes of the keys and values of the source, which the first pass made; None of a model without one."""
    if not trace.source_tokens:
        return None
    names = [s.site.name for s in trace.program.steps if s.site.axes == ("batch", "src", "kv_head", "d_head")]
    names = [name for name in names if name in trace.program.handed_on]
    return sum(prod(trace.shape(name, 0)) for name in names) * trace.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one more token after ``tokens`` positions: on the cache, and with all positions run anew."""

    cached: float
    uncached: float
    tokens: int

    @property
    def text(self) -> str:
        return (
            f"one more token after {count(self.tokens, 'position')} takes {_ms(self.cached)} on the cache, and "
            f"{_ms(self.uncached)} where all {self.tokens + 1:,} are run anew: {self.uncached / self.cached:.3g} times "
            "as long"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "cached_ms": 1000 * self.cached,
            "uncached_ms": 1000 * self.uncached,
            "tokens": self.tokens,
            "text": self.text,
        }


def time_per_token(model: Model, trace: Trace, *, watch: Watch | None = None) -> Timing:
    """Time, here and now, of the token after a trace: on its cache, and by running all of its positions anew.

    Medians of a few runs that record the logits alone; the trace's last token stands for the one to come. Raises
    PromptError where the trace cannot be gone on from, MemoryLimitError, and Cancelled where ``watch`` does.
    """
    outcome = [model.program.path()[-1]]
    decoder = Decoder(model, trace, keep=outcome, room=CACHED_RUNS)
    ids = [token.id for token in trace.tokens[0]]
    token = ids[-1]
    cached = _timed(lambda: decoder.feed([token], watch), model.device, CACHED_RUNS, lambda: decoder.full)

    last = trace.passes[-1]
    source = [token.id for token in trace.source_tokens[0]] if trace.source_tokens else None
    places = None if last.info.dense or source else last.given["key_positions"][0].tolist()

    def anew() -> object:
        kernel = last.info.kernel
        if source:
            return record(model, source, target=[*ids[1:], token], keep=outcome, kernel=kernel, watch=watch)
        positions = None if places is None else [*places, max(places) + 1]
        return record(model, [*ids, token], positions=positions, keep=outcome, kernel=kernel, watch=watch)

    return Timing(cached, _timed(anew, model.device, UNCACHED_RUNS), trace.length)


def _timed(
    work: Callable[[], object], device: torch.device, runs: int, over: Callable[[], bool] = lambda: False
) -> float:
    """The median of so many runs after a first that warms up; fewer where they take long, or where it is ``over``."""
    times: list[float] = []
    while not times or (len(times) <= runs and sum(times) < LONG_ENOUGH and not over()):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return median(times[1:] or times)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"

"""A pass run a block at a time, so that two of them can be compared without holding either whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from torch import Tensor

from engine.analysis.cachecost import no_cache
from engine.config import ModelConfig
from engine.errors import NotKeptError, PromptError
from engine.ops.base import PassInfo
from engine.plan import plan_pass, refuse_if_too_much
from engine.program import Program
from engine.runner import run
from engine.runtime import Watch
from engine.sites import ENCODER, block_of
from engine.traces import Trace

Blocks = tuple[tuple[str, ...], ...]
"""Sites in the order of the program, those of one block together."""


def blocks(names: Sequence[str]) -> Blocks:
    """Sites, given in the order of the program, by the block that they belong to; outside the blocks by neighbours."""
    return tuple(tuple(group) for _, group in groupby(names, lambda n: (n.startswith(ENCODER), block_of(n))))


def in_turn(
    program: Program,
    weights: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    wanted: Blocks,
    info: PassInfo,
    watch: Watch | None = None,
) -> Iterator[dict[str, Tensor]]:
    """The ``wanted`` sites of a pass, one block's after the other's; what no later one reads is let go."""
    reads = [reads_of(program, names) for names in wanted]
    values, done, every = dict(given), 0, sum(map(len, wanted))
    for i, names in enumerate(wanted):
        made = run(program, weights, values, names, info, watch and partial(_within, watch, done, every))
        done += len(names)
        later = set().union(*reads[i + 1 :])
        values = {name: tensor for name, tensor in (values | made).items() if name in later}
        yield made


def _within(watch: Watch, before: int, every: int, done: int, of: int, what: str) -> None:
    """Tell of a block's step as one of all."""
    watch(min(before + done, every), every, what)


def reads_of(program: Program, names: Iterable[str]) -> set[str]:
    """What the steps that write these sites read."""
    return {read for name in names if (step := program.step(name)) for read in step.reads}


def check_has_cache(config: ModelConfig, batch: int) -> None:
    """Raise PromptError for a model that has no KV cache, and for more than one prompt."""
    if (none := no_cache(config)) is not None:
        raise PromptError(none.text)
    if batch != 1:
        raise PromptError(f"this is told of one prompt, but the trace is a batch of {batch}; trace each prompt alone")


def weights_of(trace: Trace, what: str) -> Mapping[str, Tensor]:
    """The weights of a trace. Raises NotKeptError where it was opened without them."""
    if trace.weights is None:
        raise NotKeptError(f"{what} needs the weights, which a trace file does not hold; open it with its model")
    return trace.weights


def refuse_beyond(
    trace: Trace,
    wanted: Blocks,
    length: int,
    past: int,
    what: str,
    max_memory: int | None,
    *,
    beside: int = 0,
    passes: int = 1,
) -> None:
    """Raise MemoryLimitError where running so many ``passes`` side by side takes more than ``max_memory`` bytes, by
    default what is free, and PromptError where that is no number.

    Counted are passes that hold a block's sites, as much again for those of the trace, which may have to be derived,
    and ``beside``.
    """
    sizes = trace.config.axis_sizes(len(trace.tokens), length, past, trace.source_length)
    plans = [plan_pass(trace.program, sizes, trace.dtype.itemsize, list(names)) for names in wanted]
    peak = beside + (1 + passes) * max(plan.peak for plan in plans)
    refuse_if_too_much(peak, what, trace.device, max_memory, advice="crop the trace first")

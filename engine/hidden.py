"""Which attention weights are masked. Such a weight is exactly 0, and so may one be that is only very small: the values
cannot tell, the mask can that the program itself builds."""

from __future__ import annotations

from jaxtyping import Bool
from torch import Tensor

from engine.ops.attention import Mask, SinkSoftmax, Softmax
from engine.program import Program, Step
from engine.sites import Address
from engine.traces import Trace


def mask_of(program: Program, site: str) -> Step | None:
    """The step that masks the scores of these attention weights; None where a site holds no attention weights."""
    step = program.step(site)
    if step is None or not isinstance(step.op, Softmax | SinkSoftmax):
        return None
    masked = program.step(step.reads[0])
    return masked if masked is not None and isinstance(masked.op, Mask) else None


def hidden(
    trace: Trace, site: str, at: int | None, queries: tuple[int, int], keys: tuple[int, int]
) -> Bool[Tensor, "batch 1 query key"] | None:
    """True where the mask lets no weight be, in a half-open range of queries and of keys of one pass or of all
    (``at=None``), the same for every head; None where a site holds no attention weights."""
    masked = mask_of(trace.program, site)
    if masked is None:
        return None
    mask = masked.op
    assert isinstance(mask, Mask)
    positions, key_positions = (trace[Address(read, (), at)] for read in masked.reads[1:])
    held = mask.of_held(key_positions, trace.shape(site, at)[-1])
    return ~mask.allowed(positions[:, slice(*queries)], held[:, slice(*keys)])[:, None]

"""The residual stream along depth: the points at which it can be looked at, its size there, and what was added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from engine.analysis.places import Rows
from engine.ops.base import Text
from engine.ops.edited import Edited
from engine.ops.norm import LayerNorm, RMSNorm
from engine.ops.residual import Add, Carry
from engine.program import Program
from engine.runner import computing
from engine.runtime import Watch, as_part
from engine.sites import ENCODER
from engine.traces import Trace

NORMS = Text(
    "Norms along depth",
    "‖x‖ = √(Σ x²)",
    r"\lVert x \rVert = \sqrt{\textstyle\sum_i x_i^2}",
    "The residual stream is a running sum, and here is its length at every token (rows) and every depth (columns). It "
    "usually grows, since each sub-layer adds to it; a norm after each addition, in a post-norm model, keeps it from "
    "growing. A token far larger than all others often serves attention as a place to rest on.",
)
ADDED = Text(
    "What each sub-layer added",
    "‖f(x)‖ = √(Σ f(x)²)",
    r"\lVert f(x) \rVert = \sqrt{\textstyle\sum_i f(x)_i^2}",
    "The length of what each sub-layer added to the residual stream, for every token. A long one changed the stream "
    "much there, a short one hardly did. Where the vector points is not told here.",
)


@dataclass(frozen=True, slots=True)
class Stream:
    """The residual stream of one stack of blocks.

    ``points`` are what enters the first block and what each addition, or edit, leaves, in order; ``added`` what is
    added, in order; ``sites`` the points and the other names that they have; ``end`` what leaves the last block.
    ``norms`` are the norms that stand on the stream itself, by the point that they read: those of a post-norm model.
    """

    points: tuple[str, ...]
    added: tuple[str, ...]
    sites: frozenset[str]
    end: str
    norms: Mapping[str, str]


@lru_cache(maxsize=16)
def streams(program: Program) -> tuple[Stream, ...]:
    """The stream of the decoder (or of the only stack), then that of an encoder beside it."""
    ends = [name for name in program.edges if program.site(name).axes[-1] == "d_model"]
    stacks = [[name for name in ends if name.startswith(ENCODER) == beside] for beside in (False, True)]
    return tuple(_stream(program, names[0], names[-1]) for names in stacks if names)


def stream_of(program: Program, site: str) -> Stream | None:
    """The stream that a site lies on, or is added to."""
    return next((s for s in streams(program) if site in s.sites or site in s.added), None)


def _stream(program: Program, first: str, end: str) -> Stream:
    """Follow what is added to, from the last block back to what entered the first."""
    points, added, others, name = [first], list[str](), list[str](), end
    norms: dict[str, str] = {}
    while name != first and (step := program.step(name)) is not None:
        before = step.reads[0]
        if isinstance(step.op, Add):
            points.insert(1, name)
            added[:0] = step.reads[1:]
        elif isinstance(step.op, LayerNorm | RMSNorm):
            norms[before] = name
        elif isinstance(step.op, Edited):
            points.insert(1, name)
        elif isinstance(step.op, Carry):
            others.append(name)
        name = before
    return Stream(tuple(points), tuple(added), frozenset((*points, *others)), end, norms)


def norms(trace: Trace, sites: Sequence[str], rows: Rows, watch: Watch | None = None) -> Float[Tensor, "pos site"]:
    """The lengths of the vectors of some sites [batch pos d_model] at some positions."""
    columns = []
    for i, site in enumerate(sites):
        tell, column = as_part(watch, i, len(sites)), []
        for j, (at, start, stop) in enumerate(rows.parts):
            if tell is not None:
                tell(j, len(rows.parts), site)
            column.append(lengths(trace, site, at)[rows.row, start:stop])
        columns.append(torch.cat(column))
    return torch.stack(columns, dim=-1)


def lengths(trace: Trace, site: str, at: int) -> Float[Tensor, "batch pos"]:
    """The length of every vector of a site in one pass, summed up in float64; the trace holds them for next time."""
    if (known := trace.remembered(name := f"‖{site}‖", at)) is not None:
        return known
    wide = torch.float32 if trace.device.type == "mps" else torch.float64
    with computing(trace.program):
        found: Tensor = torch.linalg.vector_norm(trace.site(site, at), dim=-1, dtype=wide).float().cpu()
    trace.remember(name, at, found)
    return found

"""The logit lens: what the model would predict if the residual stream ended here. (nostalgebraist 2020)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from engine.analysis.blockwise import weights_of
from engine.analysis.places import Part, Rows, rows_of
from engine.analysis.residual import Stream, streams
from engine.errors import AddressError
from engine.ops.attention import SoftCap
from engine.ops.base import Text, at_least_float32
from engine.ops.edited import Edited
from engine.ops.norm import LayerNorm, RMSNorm
from engine.ops.projection import Project
from engine.ops.residual import Multiply
from engine.ops.unembed import Unembed
from engine.program import Program, Step
from engine.runner import run
from engine.runtime import Watch
from engine.sites import Address
from engine.traces import Trace

CELLS_AT_ONCE = 2 * 1024 * 1024
"""Positions times tokens of the vocabulary that are scored in one go."""

TEXT = Text(
    "Logit lens",
    "lens(x) = softmax(unembed(norm(x)))",
    r"\mathrm{lens}(x) = \mathrm{softmax}\left(W_U\,\mathrm{norm}(x)\right)",
    "The end of the model is put on the residual stream at every depth (columns): its final norm, computed anew from "
    "the stream there (in a post-norm model the norm that follows that place), and its unembedding. Each cell shows "
    "the token that would be most probable if the model stopped there, and its probability. In the last column these "
    "are the model's own.",
)


@dataclass(frozen=True, slots=True)
class Lens:
    """The most probable token at each position and each of the ``sites``, and its probability.

    Where logits hold NaN or +∞ the id is −1 and the probability NaN.
    """

    sites: tuple[str, ...]
    ids: Int[Tensor, "pos site"]
    probs: Float[Tensor, "pos site"]


def lens(trace: Trace, rows: Rows | None = None, sites: tuple[str, ...] = (), watch: Watch | None = None) -> Lens:
    """The lens at some positions (`rows_of` an address) and ``sites`` of the residual stream.

    Without them it is at all positions of the first prompt, and at all points of the stream. Works a block of positions
    at a time, each announced to ``watch``, which may raise Cancelled. Raises AddressError where the model has no head
    that fits the stream, and NotKeptError in a trace without weights.
    """
    sites = sites or stream_with_head(trace.program).points
    rows = rows or rows_of(trace, Address(sites[0]))
    blocks = _blocks(rows, max(1, CELLS_AT_ONCE // trace.config.d_vocab))
    shape = (rows.stop - rows.start, len(sites))
    ids, probs = torch.full(shape, -1), torch.full(shape, torch.nan)
    for column, site in enumerate(sites):
        done = 0
        for i, block in enumerate(blocks):
            if watch is not None:
                watch(column * len(blocks) + i, len(sites) * len(blocks), site)
            logits = lens_logits(trace, site, rows, block)
            prob, best = (found.cpu() for found in at_least_float32(logits).softmax(-1).max(-1))  # [pos], [pos]
            here = slice(done, done := done + len(prob))
            probs[here, column], ids[here, column] = prob, best.where(~prob.isnan(), -1)
    return Lens(sites, ids, probs)


def _blocks(rows: Rows, most: int) -> list[list[Part]]:
    """The positions in blocks of at most so many, across passes: one position of many is no work for a product."""
    blocks: list[list[Part]] = []
    room = 0
    for at, start, stop in rows.parts:
        while start < stop:
            if not room:
                blocks.append([])
                room = most
            taken = min(room, stop - start)
            blocks[-1].append(Part(at, start, start + taken))
            start, room = start + taken, room - taken
    return blocks


def lens_logits(
    trace: Trace, site: str, rows: Rows, parts: Sequence[Part] | None = None
) -> Float[Tensor, "pos d_vocab"]:
    """The logits that the model's last steps make of the residual stream at one of its points.

    These are the program's own steps, on another vector: in a post-norm model the norm that follows the point, else
    the final norm, then the unembedding with its scale and cap. At the last point they are the logits, and where those
    were recorded just these. Bits depend on how many positions are computed together, as everywhere. ``parts``: those
    of the rows that are asked for, all of them by default.
    """
    program, weights = trace.program, weights_of(trace, "the lens")
    stream = stream_with_head(program)
    if site not in stream.sites:
        raise AddressError(f"the lens looks at the residual stream, as {stream.points[-1]}, and not at {site}")
    parts = rows.parts if parts is None else parts
    if site == stream.points[-1] and all(trace.kept("logits", part.at) for part in parts):
        return rows.read(trace, "logits", parts)[0]
    info, x = trace.passes[-1].info.again(), rows.read(trace, site, parts)  # [1 pos d_model]
    if (norm := stream.norms.get(site)) is not None:
        x = run(program, weights, {site: x}, (norm,), info)[norm]
    return run(program, weights, {stream.end: x}, ("logits",), info)["logits"][0]


def stream_with_head(program: Program) -> Stream:
    """The stream that the head reads. Raises AddressError where a lens would not mean anything."""
    if why := no_lens(program):
        raise AddressError(why)
    return streams(program)[0]


@lru_cache(maxsize=16)
def no_lens(program: Program) -> str:
    """Why the lens is not defined; empty where it is.

    The head must be a norm and a linear map, as it is for what leaves the last block: one with layers of its own was
    trained on that alone.
    """
    if program.step("logits") is None or not streams(program):
        return "the lens needs an output head, and this model has none: it predicts no token"
    for step in head(program):
        if isinstance(step.op, Project) and step.op.role == "head":
            return (
                f"the lens is not defined here: the head has a layer of its own ({step.site.name}) between the stream "
                "and the unembedding, which was trained on the last stream alone"
            )
        if isinstance(step.op, Edited):
            return f"the lens is not defined here: {step.site.name}, which comes after the stream, was edited"
        if not isinstance(step.op, LayerNorm | RMSNorm | Project | Unembed | Multiply | SoftCap):
            return f"the lens is not defined here: {step.site.name} stands between the stream and the logits"
    return ""


@lru_cache(maxsize=16)
def head(program: Program) -> tuple[Step, ...]:
    """The steps from what leaves the last block to the logits, in order."""
    end, steps, name = streams(program)[0].end, [], "logits"
    while name != end and (step := program.step(name)) is not None:
        steps.append(step)
        name = step.reads[0]
    return tuple(reversed(steps))


def numbers(program: Program) -> str:
    """The steps of the head with this model's numbers."""
    stream, told = stream_with_head(program), []
    end = program.step(stream.end)
    for step in ((end,) if end is not None and stream.norms else ()) + head(program):
        if isinstance(step.op, LayerNorm | RMSNorm):
            told.append(f"{step.op.text.title}, ε = {step.op.eps:g}")
        elif isinstance(step.op, Unembed | Project):
            d_out, d_in = program.params[step.params[0]]
            told.append(f"[{d_in}] · [{d_in} × {d_out}]")
        if isinstance(step.op, Multiply):
            told.append(f"times {step.op.factor:.6g}")
        elif isinstance(step.op, SoftCap):
            told.append(f"cap = {step.op.cap:g}")
    return " → ".join(told)

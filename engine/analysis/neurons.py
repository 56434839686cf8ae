"""The neurons of an FFN that did most for one token, and the tokens that each of them makes more probable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from engine.analysis.lens import head, no_lens
from engine.analysis.places import Part, Rows
from engine.edits import UNEDITED
from engine.errors import AddressError
from engine.ops.base import Text, at_least_float32
from engine.ops.experts import ExpertProject, MixExperts
from engine.ops.projection import Project
from engine.ops.unembed import Unembed
from engine.program import Program, Step
from engine.runner import computing
from engine.sites import ENCODER
from engine.traces import Trace

PROMOTED = 3
"""Tokens that are named for a neuron."""

TEXT = Text(
    "Top neurons",
    "contribution = |post| · ‖w_out‖",
    r"|\mathrm{post}_n| \cdot \lVert w^{\mathrm{out}}_n \rVert",
    "Every neuron adds its own vector w_out, weighted by its activation. Here are those that added most at this "
    "token: how long what they added is, and the tokens towards which it points in the unembedding. A negative "
    "activation adds the opposite of the neuron's vector, and the tokens named are those that this promotes.",
)
EXPERTS = (
    " The neurons are those of the experts that were chosen for this token, and what each adds counts with its "
    "expert's weight."
)


@dataclass(frozen=True, slots=True)
class Neuron:
    """A neuron at one token. ``expert``: which it belongs to, and the expert's ``weight``, where there are experts.

    ``post`` is its activation, ``pre`` what it was made of, ``pre_linear`` what it is multiplied with where it is
    gated. ``contribution`` is |post| · ‖w_out‖, times the expert's weight. ``promotes`` are token ids, the first the
    most; empty where nothing can be told.
    """

    index: int
    post: float
    pre: float
    pre_linear: float | None
    out_norm: float
    contribution: float
    promotes: tuple[int, ...]
    expert: int | None = None
    weight: float | None = None


@lru_cache(maxsize=16)
def outputs(program: Program) -> dict[str, Step]:
    """The sites of an FFN's neurons, each with the projection back to d_model that reads it."""
    return {
        step.reads[0]: step
        for step in program.steps
        if isinstance(step.op, Project | ExpertProject) and step.op.role in ("down", "expert_out")
    }


def promotes(program: Program, site: str) -> bool:
    """Whether what a neuron adds can be compared with the unembedding."""
    return not no_lens(program) and not site.startswith(ENCODER)


def neurons(trace: Trace, site: str, rows: Rows, part: Part, k: int = 50, choice: int | None = None) -> list[Neuron]:
    """The ``k`` neurons that contribute most at one token, the first the most.

    Of a mixture of experts they are those of all chosen experts, or of one ``choice``. Norms that follow the
    projection (in sandwich and output-norm models) are not applied. Raises AddressError for a site that holds no
    neurons, and NotKeptError without weights.
    """
    step, out = trace.program.computing(site), outputs(trace.program).get(site)
    if step is None or out is None:
        raise AddressError(f"neurons are those of an FFN, as in blocks.0.mlp.post, and not of {site}")
    window = rows.window(part)

    def at_token(name: str) -> Tensor:
        found: Tensor = trace.part(name, part.at, window)[0, 0]
        return found

    post, ins = at_token(site), [at_token(name) for name in step.reads]  # [d_mlp] or [choice d_expert]
    if isinstance(out.op, ExpertProject):
        experts, shares = _shares(trace.program, out)
        chosen, weight = at_token(experts).tolist(), at_token(shares).tolist()
        wanted = range(len(chosen)) if choice is None else (choice,)
    else:
        post, ins, chosen, weight, wanted = post[None], [x[None] for x in ins], [None], [None], range(1)
    found: list[tuple[Neuron, Float[Tensor, " d_model"]]] = []  # each with the direction that it adds to
    for c in wanted:
        matrix = trace.weight(out.params[0 if chosen[c] is None else chosen[c]])  # [d_model d_mlp]
        norms = torch.linalg.vector_norm(at_least_float32(matrix), dim=0)  # [d_mlp]
        size = at_least_float32(post[c]).abs() * norms * abs(1 if weight[c] is None else weight[c])
        for n in size.nan_to_num(torch.inf).topk(min(max(0, k), len(size))).indices.tolist():
            gate = float(ins[1][c, n]) if len(ins) > 1 else None
            told = (float(post[c, n]), float(ins[0][c, n]), gate, float(norms[n]), float(size[n]))
            found.append((Neuron(n, *told, (), chosen[c], weight[c]), matrix[:, n] * post[c, n].sign()))
    found = sorted(found, key=lambda each: _rank(each[0]))[: max(0, k)]
    if not found or not promotes(trace.program, site):
        return [neuron for neuron, _ in found]
    named = _promoted(trace, torch.stack([direction for _, direction in found]))
    return [replace(neuron, promotes=ids) for (neuron, _), ids in zip(found, named, strict=True)]


def _rank(neuron: Neuron) -> float:
    """The largest contribution first, before it what is NaN."""
    return -torch.inf if neuron.contribution != neuron.contribution else -neuron.contribution


def _shares(program: Program, out: Step) -> tuple[str, str]:
    """The sites of the chosen experts and of their weights."""
    mixed = {out.site.name, out.site.name.removesuffix(UNEDITED)}
    mix = next(s for s in program.steps if isinstance(s.op, MixExperts) and s.reads[0] in mixed)
    return out.reads[1], mix.reads[1]


def _promoted(trace: Trace, vectors: Float[Tensor, "neuron d_model"]) -> list[tuple[int, ...]]:
    """The tokens whose rows of the unembedding each vector agrees with most, by the linear steps of the head."""
    info, x = trace.passes[0].info.again(), vectors[None]  # [1 neuron d_model]
    with computing(trace.program):
        for step in head(trace.program):
            if isinstance(step.op, Project | Unembed):  # a bias is the same whatever the neuron does
                x = step.op.run(info, x, trace.weight(step.params[0]))
    return [tuple(ids) for ids in x[0].topk(min(PROMOTED, x.shape[-1])).indices.tolist()]

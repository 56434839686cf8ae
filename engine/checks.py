"""The invariants of a forward pass, each with its figure and its tolerance: shown equals computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.ops.attention import Attention, Mask, SinkSoftmax, Softmax, per_query_head
from engine.ops.base import Op, at_least_float32
from engine.ops.edited import Edited
from engine.ops.projection import HeadResult, ProjectFromHeads
from engine.ops.residual import Add
from engine.program import Program, Step

CELLS_AT_ONCE = 4 * 1024 * 1024
"""Attention cells looked at in one go, so that a check needs O(N) memory and not O(N²)."""


@dataclass(frozen=True, slots=True)
class Check:
    """One invariant: ``figure`` must not exceed ``tolerance``. A figure that is NaN or infinite fails."""

    name: str
    site: str
    at: int
    figure: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return isfinite(self.figure) and self.figure <= self.tolerance

    @property
    def text(self) -> str:
        sign = "≤" if self.ok else "exceeds"
        return f"{self.name}: {self.figure:.1e} {sign} {self.tolerance:.1e}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.ok, "text": self.text}


class Readable(Protocol):
    """What a check asks of a trace."""

    program: Program

    def site(self, name: str, at: int) -> Tensor: ...
    def part(self, name: str, at: int, window: Mapping[str, tuple[int, int]]) -> Tensor: ...
    def shape(self, name: str, at: int | None = None) -> tuple[int, ...]: ...
    def weight(self, name: str) -> Tensor: ...


def check_step(trace: Readable, step: Step, at: int) -> Iterator[Check]:
    """The checks that concern one step of one pass."""
    name = step.site.name
    if isinstance(step.op, Softmax | SinkSoftmax):
        yield from _pattern(trace, step, at)
    elif isinstance(step.op, Attention):
        yield _mixture(trace, step, at)
    elif isinstance(step.op, Add):
        terms = [trace.site(read, at) for read in step.reads]
        total = trace.site(name, at)
        gap = _gap(sum(terms[1:], terms[0]), total)
        yield Check(f"{' + '.join(step.reads)} = {name}", name, at, gap, (len(terms) - 1) * _eps(total) * _size(total))
        stem, middles = name.removesuffix("resid_post"), ("resid_mid", "resid_mid_cross")
        whole = not any(isinstance(_op(trace, stem + middle), Edited) for middle in middles)
        if name.endswith("resid_post") and step.reads[0].endswith(middles) and whole:
            yield _stream(trace, name, at)
    elif isinstance(step.op, HeadResult):
        yield _shares(trace, step, at)
    if step.on_path:
        bad = int((~torch.isfinite(trace.site(name, at))).sum())
        if bad:
            yield Check(f"all of {name} is finite", name, at, float(bad), 0.0)


def _op(trace: Readable, name: str) -> Op | None:
    step = trace.program.step(name)
    return None if step is None else step.op


def _beside(trace: Readable, step: Step, *kind: type[Op]) -> Step:
    """The step of one of these kinds of op in the same attention."""
    stem = step.site.name.rpartition(".")[0]
    return next(s for s in trace.program.steps if isinstance(s.op, kind) and s.site.name.rpartition(".")[0] == stem)


def _pattern(trace: Readable, step: Step, at: int) -> Iterator[Check]:
    """Rows sum to 1, with the sink's share where there is one (where nothing may be attended to, to 0); no weight lies
    where none may."""
    name, masked, sinks = step.site.name, _beside(trace, step, Mask), isinstance(step.op, SinkSoftmax)
    mask = masked.op
    assert isinstance(mask, Mask)
    positions, keys = (trace.site(read, at) for read in masked.reads[1:])
    keys = mask.of_held(keys, trace.shape(name, at)[-1])
    worst, hidden, eps = 0.0, 0.0, torch.finfo(torch.float32).eps
    for start, stop in _row_blocks(trace, step, at):
        pattern = trace.part(name, at, {step.site.axes[2]: (start, stop)})  # [batch head rows key]
        allowed = mask.allowed(positions[:, start:stop], keys)[:, None]  # [batch 1 rows key]
        sums, ought = pattern.sum(-1), allowed.any(-1).to(pattern.dtype).expand(pattern.shape[:3])  # [batch head rows]
        if sinks:
            scores = trace.part(masked.site.name, at, {step.site.axes[2]: (start, stop)}).logsumexp(-1)
            sink = trace.site(step.reads[1], at).to(scores.dtype)[:, None]  # [head 1]
            sums, ought = sums + torch.sigmoid(sink - scores), torch.ones_like(sums)  # sigmoid: the sink's share
        worst = _larger(worst, _gap(sums, ought))
        hidden = _larger(hidden, float(pattern.masked_fill(allowed, 0).abs().max()) if pattern.numel() else 0.0)
        eps = torch.finfo(pattern.dtype).eps
    said = "rows and the sink sum to 1" if sinks else "rows sum to 1"
    yield Check(said, name, at, worst, eps * (8 + keys.shape[1] ** 0.5))
    yield Check("nothing where none may attend", name, at, hidden, 0.0)


def _mixture(trace: Readable, step: Step, at: int) -> Check:
    """The pattern, derived, times the values equals z, from the fused kernel."""
    pattern = _beside(trace, step, Softmax, SinkSoftmax).site
    z = trace.site(step.site.name, at)
    v = per_query_head(at_least_float32(trace.site(step.reads[2], at)), z.shape[2])  # [batch key head d_head]
    v = v.transpose(1, 2)  # [batch head key d_head]
    worst = 0.0
    for start, stop in _row_blocks(trace, step, at):
        mixed = trace.part(pattern.name, at, {pattern.axes[2]: (start, stop)}) @ v  # [batch head rows d_head]
        worst = _larger(worst, _gap(mixed.transpose(1, 2), z[:, start:stop]))
    # z and, in some kernels, the weights are rounded to its dtype; scores of this size lose the rest.
    assert isinstance(step.op, Attention)
    q, k = (float(trace.site(read, at).double().norm(dim=-1).max()) for read in step.reads[:2])
    bias = 0.0 if step.op.bias is None else max(step.op.bias.slopes) * abs(step.op.bias.scale) * v.shape[2]
    if step.op.biased:
        bias = float(trace.site(step.reads[-1], at).abs().max())
    rounding = 2 * _eps(z) + _eps(v) * (8 + q * k * step.op.scale.factor + bias)
    return Check("pattern @ v = z", step.site.name, at, worst, rounding * _size(v))


def _stream(trace: Readable, name: str, at: int) -> Check:
    """resid_pre + attn_out + mlp_out = resid_post, in a block that adds all to one stream."""
    block = name.removesuffix("resid_post")
    names = ["resid_pre", "attn_out", "cross_attn_out", "mlp_out"]
    names = [part for part in names if trace.program.step(block + part)]
    post = trace.site(name, at)
    parts = [at_least_float32(trace.site(block + part, at)) for part in names]
    gap = _gap(sum(parts[1:], parts[0]), post)
    tolerance = (len(parts) - 1) * _eps(post) * max(map(_size, (*parts, post)))
    return Check(f"{' + '.join(names)} = resid_post", name, at, gap, tolerance)


def _shares(trace: Readable, step: Step, at: int) -> Check:
    """The heads' shares, and the bias, add up to attn_out."""
    name, z = step.site.name, step.reads[0]
    out = next(s for s in trace.program.steps if isinstance(s.op, ProjectFromHeads) and s.reads[0] == z)
    shares = trace.site(name, at)  # [batch pos head d_model]
    total = shares.sum(2)  # [batch pos d_model]
    whole = trace.site(out.site.name, at)
    for bias in out.params[1:]:
        total = total + trace.weight(bias)
    rounding = 2 * _eps(whole) + 32 * _eps(shares)
    tolerance = rounding * max(_size(whole), _size(shares))
    return Check("Σ heads (+ bias) = attn_out", name, at, _gap(total, whole), tolerance)


def _row_blocks(trace: Readable, step: Step, at: int) -> Iterator[tuple[int, int]]:
    """Ranges of query rows, each of at most CELLS_AT_ONCE cells over all heads and keys."""
    batch, rows, heads, _ = trace.shape(_beside(trace, step, Attention).reads[0], at)
    keys = trace.shape(_beside(trace, step, Mask).site.name, at)[-1]
    at_once = max(1, CELLS_AT_ONCE // max(1, batch * heads * keys))
    for start in range(0, rows, at_once):
        yield start, min(rows, start + at_once)


def _gap(a: Tensor, b: Tensor) -> float:
    """max |a − b|; NaN where either holds one."""
    if not a.numel():
        return 0.0
    wide = torch.float64 if torch.float64 in (a.dtype, b.dtype) else torch.float32
    return float((a.to(wide) - b.to(wide)).abs().max())


def _larger(a: float, b: float) -> float:
    """The larger of the two; NaN where either is one."""
    return b if b != b or b > a else a


def _eps(x: Tensor) -> float:
    return torch.finfo(x.dtype).eps


def _size(x: Tensor) -> float:
    return max(1.0, float(x.abs().max())) if x.numel() else 1.0


def worst(checks: Iterable[Check]) -> list[Check]:
    """Of each invariant of a site the one that holds worst, in the order in which they came."""
    found: dict[tuple[str, str], Check] = {}
    for check in checks:
        known = found.setdefault((check.site, check.name), check)
        if _badness(check) > _badness(known):
            found[check.site, check.name] = check
    return list(found.values())


def _badness(check: Check) -> tuple[bool, float]:
    """How near an invariant is to not holding."""
    return not check.ok, check.figure / check.tolerance if check.tolerance else check.figure

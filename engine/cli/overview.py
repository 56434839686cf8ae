"""A trace at a glance: its model, tokens, sites and next-token candidates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.cli.layout import columns
from engine.dtypes import dtype_name
from engine.errors import NotKeptError
from engine.text import tokens_to_json
from engine.traces import Candidate, Trace

CANDIDATES = 5


def lines(trace: Trace) -> Iterator[str]:
    """The overview as text."""
    c = trace.config
    kernels = f" · sdpa:{'+'.join(trace.kernels)}" if trace.kernels else ""
    yield f"{c.name} · {c.summary} · {trace.device} {dtype_name(trace.dtype)}{kernels}"
    for row in trace.tokens:
        yield ""
        table = [[str(i), str(t.id), t.label, "" if t.origin == "text" else t.origin] for i, t in enumerate(row)]
        yield from columns([["pos", "id", "token", ""], *table], numbers=(0, 1))
    yield ""
    yield from columns([["site", "axes", "shape", "step", ""], *_sites(trace)])
    for row_at in range(len(trace.tokens)):
        yield ""
        yield from _next(trace, row_at)


def to_json(trace: Trace) -> dict[str, Any]:
    """The overview as JSON."""
    tokens = [
        [data | {"label": token.label} for data, token in zip(tokens_to_json(row), row, strict=True)]
        for row in trace.tokens
    ]
    last = len(trace.passes) - 1
    return {
        "model": trace.config.to_json(),
        "device": str(trace.device),
        "dtype": dtype_name(trace.dtype),
        "kernels": list(trace.kernels),
        "prompt": trace.prompt,
        "notices": list(trace.notices),
        "tokens": tokens,
        "passes": [{"start": p.start, "length": p.length, "seconds": p.seconds} for p in trace.passes],
        "sites": [
            {
                "name": site.name,
                "axes": list(site.axes),
                "shape": list(trace.shape(site.name)),
                "kept": trace.kept(site.name, last),
                "on_path": (step := trace.program.step(site.name)) is None or step.on_path,
                "title": "" if step is None else step.op.text.title,
            }
            for site in trace.program.sites
        ],
        "top": [[_candidate(c) for c in _top(trace, row)[0]] for row in range(len(trace.tokens))],
    }


def _sites(trace: Trace) -> list[list[str]]:
    """One line per site, blocks that are alike on one line."""
    alike: dict[tuple[str, ...], list[int]] = {}
    last = len(trace.passes) - 1
    for site in trace.program.sites:
        step = trace.program.step(site.name)
        name = site.name if site.block is None else "blocks.*." + site.name.split(".", 2)[2]
        axes, shape = " ".join(site.axes), "×".join(map(str, trace.shape(site.name)))
        title = "given" if step is None else step.op.text.title
        how = "" if step is None or trace.kept(site.name, last) else "derived"
        alike.setdefault((name, axes, shape, title, how), []).append(site.block or 0)
    rows = []
    for (name, *rest), blocks in alike.items():
        span = str(blocks[0]) if len(blocks) == 1 else f"{blocks[0]}…{blocks[-1]}"
        rows.append([name.replace("*", span), *rest])
    return rows


def _next(trace: Trace, row: int) -> Iterator[str]:
    top, why_not = _top(trace, row)
    if not top:
        yield f"no next token: {why_not}"
        return
    table = [[str(c.id), c.label, f"{c.prob:.4f}" if c.prob >= 5e-5 else "<0.0001", f"{c.logit:.4f}"] for c in top]
    yield from columns([["id", "next token", "prob", "logit"], *table], numbers=(0, 2, 3))


def _top(trace: Trace, row: int) -> tuple[list[Candidate], str]:
    """The candidates, or none and why."""
    try:
        if top := trace.top(CANDIDATES, row=row):
            return top, ""
        found = trace.first_nonfinite()
    except NotKeptError as error:
        return [], str(error)
    if found is None:
        return [], "the logits hold NaN"
    return [], f"the logits hold NaN; the first tensor that is not finite is {found[0]}@{found[1]} ({found[2]} values)"


def _candidate(c: Candidate) -> dict[str, Any]:
    return {"id": c.id, "label": c.label, "prob": c.prob, "logit": c.logit}

"""A trace at a glance: its model, tokens, sites, and candidates for the next token or for masked ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.cli.layout import columns
from engine.dtypes import dtype_name
from engine.errors import AddressError, NotKeptError
from engine.text import ORIGIN_WORDS, Token, tokens_to_json
from engine.traces import Candidate, Trace

CANDIDATES = 5


def lines(trace: Trace) -> Iterator[str]:
    """The overview as text."""
    c = trace.config
    kernels = f" · sdpa:{'+'.join(trace.kernels)}" if trace.kernels else ""
    yield f"{c.name} · {c.summary} · {trace.device} {dtype_name(trace.dtype)}{kernels}"
    for title, rows in (("source", trace.source_tokens), ("token", trace.tokens)):
        for row in rows:
            yield ""
            table = [[str(i), str(t.id), t.label, ORIGIN_WORDS[t.origin]] for i, t in enumerate(row)]
            yield from columns([["pos", "id", title, ""], *table], numbers=(0, 1))
    yield ""
    yield from columns([["site", "axes", "shape", "step", ""], *_sites(trace)])
    for row_at in range(len(trace.tokens)):
        yield ""
        yield from _predicted(trace, row_at)


def to_json(trace: Trace) -> dict[str, Any]:
    """The overview as JSON."""
    last, rows = len(trace.passes) - 1, range(len(trace.tokens))
    return {
        "model": trace.config.to_json(),
        "device": str(trace.device),
        "dtype": dtype_name(trace.dtype),
        "kernels": list(trace.kernels),
        "prompt": trace.prompt,
        "notices": list(trace.notices),
        "tokens": _tokens(trace.tokens),
        **({"source_tokens": _tokens(trace.source_tokens)} if trace.source_tokens else {}),
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
        "predicts": trace.config.predicts,
        "top": [_json_top(trace, row, -1) if trace.config.predicts == "next token" else [] for row in rows],
        "masked": [[{"pos": pos, "top": _json_top(trace, row, pos)} for pos in _masked(trace, row)] for row in rows],
    }


def _tokens(rows: Sequence[Sequence[Token]]) -> list[list[dict[str, Any]]]:
    return [
        [data | {"label": token.label} for data, token in zip(tokens_to_json(row), row, strict=True)] for row in rows
    ]


def _sites(trace: Trace) -> list[list[str]]:
    """One line per site, blocks that are alike on one line."""
    alike: dict[tuple[str, ...], list[int]] = {}
    last = len(trace.passes) - 1
    for site in trace.program.sites:
        step = trace.program.step(site.name)
        name = site.name if site.block is None else site.name.replace(f"blocks.{site.block}.", "blocks.*.", 1)
        axes, shape = " ".join(site.axes), "×".join(map(str, trace.shape(site.name)))
        title = "given" if step is None else step.op.text.title
        how = "" if step is None or trace.kept(site.name, last) else "derived"
        alike.setdefault((name, axes, shape, title, how), []).append(site.block or 0)
    rows = []
    for (name, *rest), blocks in alike.items():
        span = str(blocks[0]) if len(blocks) == 1 else f"{blocks[0]}…{blocks[-1]}"
        rows.append([name.replace("*", span), *rest])
    return rows


def _predicted(trace: Trace, row: int) -> Iterator[str]:
    """Candidates for the next token; of an encoder, for its masked tokens."""
    if trace.config.predicts != "masked token":
        yield from _table(trace, row, -1, "next token")
        return
    masked = _masked(trace, row)
    if not masked:
        yield "an encoder has no next token; put its mask token ([MASK], <mask>) into the prompt, and it says what fits"
    for i, pos in enumerate(masked):
        if i:
            yield ""
        yield from _table(trace, row, pos, f"token at {pos}")


def _masked(trace: Trace, row: int) -> list[int]:
    return trace.masked(row) if trace.config.predicts == "masked token" else []


def _table(trace: Trace, row: int, pos: int, title: str) -> Iterator[str]:
    top, why_not = _top(trace, row, pos)
    if not top:
        yield f"no {title}: {why_not}"
        return
    table = [[str(c.id), c.label, f"{c.prob:.4f}" if c.prob >= 5e-5 else "<0.0001", f"{c.logit:.4f}"] for c in top]
    yield from columns([["id", title, "prob", "logit"], *table], numbers=(0, 2, 3))


def _top(trace: Trace, row: int, pos: int) -> tuple[list[Candidate], str]:
    """The candidates, or none and why."""
    try:
        if top := trace.top(CANDIDATES, pos=pos, row=row):
            return top, ""
        found = trace.first_nonfinite()
    except (AddressError, NotKeptError) as error:
        return [], str(error)
    if found is None:
        return [], "the logits hold NaN"
    return [], f"the logits hold NaN; the first tensor that is not finite is {found[0]}@{found[1]} ({found[2]} values)"


def _json_top(trace: Trace, row: int, pos: int) -> list[dict[str, Any]]:
    return [{"id": c.id, "label": c.label, "prob": c.prob, "logit": c.logit} for c in _top(trace, row, pos)[0]]

"""A trace as a notebook shows it: what ran, its tokens, what comes next, and the sites that can be looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol
from xml.etree.ElementTree import Element

from engine import htmltext as html
from engine.config import ModelConfig
from engine.dtypes import dtype_name
from engine.errors import LayerstepError
from engine.htmltext import Inside
from engine.program import Program
from engine.text import Token
from engine.told import traits

TOKENS, ROWS, CANDIDATES = 200, 8, 5
"""How many tokens, rows of a batch and candidates are shown."""
GROUNDS = ("rgba(128,128,128,.16)", "rgba(128,128,128,.32)")


class Candidate(Protocol):
    """A token that may come next."""

    @property
    def id(self) -> int: ...
    @property
    def label(self) -> str: ...
    @property
    def prob(self) -> float: ...
    @property
    def logit(self) -> float: ...


class Readable(Protocol):
    """What is asked of a trace here."""

    config: ModelConfig
    program: Program
    tokens: tuple[tuple[Token, ...], ...]
    source_tokens: tuple[tuple[Token, ...], ...]
    notices: tuple[str, ...]

    @property
    def length(self) -> int: ...
    @property
    def passes(self) -> Sequence[object]: ...
    @property
    def kernels(self) -> tuple[str, ...]: ...
    @property
    def device(self) -> object: ...
    @property
    def dtype(self) -> object: ...
    def shape(self, name: str, at: int | None = None) -> tuple[int, ...]: ...
    def kept(self, name: str, at: int) -> bool: ...
    def can_have(self, name: str, at: int) -> bool: ...
    def top(self, k: int = 5, *, pos: int = -1, row: int = 0) -> Sequence[Candidate]: ...


def trace_html(trace: Readable) -> str:
    """A trace as HTML."""
    return html.page(*_lines(trace))


def _lines(trace: Readable) -> Iterator[Element]:
    batch, passes = len(trace.tokens), len(trace.passes)
    size = [f"{batch} × {trace.length} tokens" if batch > 1 else f"{trace.length} tokens"]
    size += [f"{passes} passes"] if passes > 1 else []
    ran = [str(trace.device), dtype_name(trace.dtype), "+".join(trace.kernels)]
    yield html.title(f"trace · {trace.config.name}", " · ".join((*size, *filter(None, ran))))
    yield html.line(traits(trace.config), faint=True)
    for row in trace.source_tokens[:ROWS]:
        yield _tokens(row, "source")
    for row in trace.tokens[:ROWS]:
        yield _tokens(row, "target" if trace.source_tokens else "")
    if batch > ROWS:
        yield html.line(f"… {batch - ROWS} more rows", faint=True)
    for notice in trace.notices:
        yield html.line(f"note: {notice}", faint=True)
    if trace.config.predicts == "next token":
        yield from _candidates(trace)
    yield html.folded(f"{len(trace.program.sites)} sites", _sites(trace))


def _tokens(row: Sequence[Token], name: str) -> Element:
    shown = [
        html.el(
            "span", token.label, style=f"background:{GROUNDS[i % 2]};padding:1px 3px;margin:0 1px 2px 0;"
            "border-radius:3px;display:inline-block", title=f"position {i}, id {token.id}",
        )
        for i, token in enumerate(row[:TOKENS])
    ]  # fmt: skip
    more = [f" … {len(row) - TOKENS} more"] if len(row) > TOKENS else []
    return html.line(*([f"{name} "] if name else []), *shown, *more)


def _candidates(trace: Readable) -> Iterator[Element]:
    try:
        found = trace.top(CANDIDATES)
    except LayerstepError as error:
        yield html.line(f"next token: {error}", faint=True)
        return
    if not found:
        yield html.line("no next token: the logits there are not finite", faint=True)
        return
    rows: list[list[Inside]] = [
        [c.label, f"{c.id}", f"{c.prob:.4f}", f"{c.logit:.4f}", html.bar(c.prob, 1.0)] for c in found
    ]
    yield html.table(["next token", "id", "probability", "logit", ""], rows, left=(0,))


def _sites(trace: Readable) -> Element:
    last = len(trace.passes) - 1
    rows = []
    for site in trace.program.sites:
        step = trace.program.step(site.name)
        how = "kept" if trace.kept(site.name, last) else "derived" if trace.can_have(site.name, last) else "not kept"
        shape = " × ".join(f"{axis} {n}" for axis, n in zip(site.axes, trace.shape(site.name), strict=True))
        rows.append([site.name, shape, how, "given" if step is None else step.op.text.title])
    return html.table(["site", "axes", "", "what it is"], rows, left=(0, 1, 2, 3))

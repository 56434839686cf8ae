"""What a KV cache holds and costs, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engine.cli.layout import ROWS, SKIPPED, columns, pick
from engine.text import human

if TYPE_CHECKING:
    from engine.analysis.cachecost import CacheReport

STORED, ADDED, DROPPED = "█", "▒", "·"


def lines(report: CacheReport, width: int) -> Iterator[str]:
    """A report as text."""
    c = report.config
    measured = "" if report.bytes is not None else " · by the formula, nothing was run"
    yield f"{c.name} · {c.summary} · {report.device} {report.dtype}{measured}"
    yield report.text
    yield report.formula_text
    yield ""
    yield from _layers(report)
    yield ""
    yield from grid(report, width)
    if len(report.passes) > 1:
        yield ""
        yield from _table(["pass", "new", "positions", "bytes"], _growth(report))
    if c.group > 1:
        yield ""
        shares = [[str(share["kv_head"]), f"{share['heads'][0]}…{share['heads'][-1]}"] for share in report.sharing()]
        yield from columns([["kv head", "read by heads"], *_short(shares)], numbers=(0,))
    yield ""
    yield from _what_ifs(report)
    yield ""
    yield report.fits()["text"]


def _layers(report: CacheReport) -> Iterator[str]:
    rows = [
        [str(layer.layer), _kind(layer.window), f"{layer.stored:,}", f"{layer.dropped:,}", _size(layer.bytes),
         _size(layer.allocated), _size(layer.formula)]
        for layer in report.layers
    ]  # fmt: skip
    total = ["all", "", f"{report.stored:,}", f"{sum(layer.dropped for layer in report.layers):,}",
             _size(report.bytes), _size(report.allocated), _size(report.formula)]  # fmt: skip
    source = []
    if report.source:
        size = _size(report.cross_formula)
        source.append(["source", "cross", f"{report.source:,}", "0", _size(report.cross), _size(report.cross), size])
    heads = ["layer", "", "stored", "dropped", "measured", "allocated", "formula"]
    table = [heads, *_short(rows), *source, total]
    if report.bytes is None:
        table = [[*row[:4], row[-1]] for row in table]
    yield from columns(table, numbers=(0, *range(2, len(table[0]))))


def grid(report: CacheReport, width: int) -> Iterator[str]:
    """Layers × positions: what each layer holds, what the last pass put there, and what a window has dropped."""
    heads = [f"{layer.layer} {_kind(layer.window)}" for layer in report.layers]
    margin = max(map(len, heads)) + 2
    across = max(1, min(report.tokens, width - margin))
    last = report.passes[-1][0] if report.passes else 0
    marks = [f"{STORED} stored"]
    if len(report.passes) > 1:
        marks.append(f"{ADDED} added by the last pass")
    if any(layer.dropped for layer in report.layers):
        marks.append(f"{DROPPED} dropped")
    each = "" if across == report.tokens else f", {report.tokens / across:.3g} to a column"
    yield f"positions 0…{report.tokens - 1:,}{each}: {', '.join(marks)}"
    rows = []
    for head, layer in zip(heads, report.layers, strict=True):
        ends = [(i + 1) * report.tokens // across for i in range(across)]  # a column shows what is newest in it
        new = last if len(report.passes) > 1 else report.tokens
        row = "".join(DROPPED if end <= layer.dropped else ADDED if end > new else STORED for end in ends)
        rows.append([head, row])
    yield from columns(_short(rows))


def _growth(report: CacheReport) -> list[list[str]]:
    return [
        [str(row["at"]), f"{row['new']:,}", f"{row['positions']:,}", _size(row["bytes"])] for row in report.growth()
    ]


def _what_ifs(report: CacheReport) -> Iterator[str]:
    """The same cache of another kind of heads, in other numbers, at other lengths."""
    kinds = [
        [row["name"], str(row["kv_heads"]), _size(row["per_token"]), _size(row["bytes"]), _this(row)]
        for row in report.as_kinds()
    ]
    yield from columns([["heads", "kv heads", "a token", "bytes", ""], *kinds], numbers=(1, 2, 3))
    yield ""
    dtypes = [[row["name"], _size(row["bytes"]), _this(row) or row["counted"]] for row in report.as_dtypes()]
    yield from columns([["numbers", "bytes", ""], *dtypes], numbers=(1,))
    yield ""
    lengths = [
        [
            f"{row['tokens']:,}",
            _size(row["bytes"]),
            ", ".join(filter(None, [_this(row), row["beyond"] and "beyond n_ctx"])),
        ]
        for row in report.at_lengths()
    ]
    yield from columns([["tokens", "bytes", ""], *lengths], numbers=(0, 1))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of numbers."""
    yield from columns([heads, *_short(rows)], numbers=range(len(heads)))


def _short(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The rows, or the first and the last of them."""
    return [["…"] + [""] * (len(rows[0]) - 1) if i == SKIPPED else rows[i] for i in pick(len(rows), ROWS)]


def _kind(window: int | None) -> str:
    return "full" if window is None else f"window {window}"


def _size(size: int | None) -> str:
    return "" if size is None else human(size)


def _this(row: dict[str, Any]) -> str:
    return "this" if row["this"] else ""

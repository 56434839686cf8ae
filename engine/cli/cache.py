"""``layerstep cache``: what the KV cache of a run holds and costs, or would cost."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from engine.cli.interrupt import prompt_interrupts
from engine.cli.layout import columns
from engine.cli.options import DEFAULT_MODEL, ONLY_FOR_PROMPTS, json_option, keep_of, model_option, recording_options
from engine.cli.options import command as make_command
from engine.cli.progress import Progress
from engine.cli.source import open_source
from engine.cli.streams import say, say_json, say_notices
from engine.errors import LayerstepError
from engine.text import human

if TYPE_CHECKING:
    from engine.analysis.cachecost import CacheReport, NoCache
    from engine.analysis.kvcache import Timing
    from engine.traces import Trace

ROWS = 24
"""So many layers or passes are printed."""
STORED, ADDED, DROPPED = "█", "▒", "·"
MOST = 999_999
"""One token less than the engine goes on for, since the last one does not run; a test holds it so."""


@make_command(
    name="cache",
    help=(
        "Print what the KV cache holds after a run of PROMPT or in a saved trace (FILE): bytes measured from the "
        "tensors and by the formula, which positions each layer holds, and what it would cost otherwise.\n\n"
        "With --tokens and neither PROMPT nor FILE nothing runs: the cost of N tokens follows from the model's config."
    ),
)
@click.argument("source", metavar="[FILE|PROMPT]", required=False)
@click.option("-n", "more", type=click.IntRange(1, MOST), metavar="N", help="Go on greedily for N tokens first.")
@click.option("--tokens", type=click.IntRange(1, 2**31), metavar="N", help="What N tokens cost.")
@click.option("--time", "timed", is_flag=True, help="Time one more token, with the cache and without it.")
@model_option
@recording_options
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    source: str | None,
    more: int | None,
    tokens: int | None,
    timed: bool,
    as_json: bool,
    **options: Any,
) -> int:
    timing = None
    if source is None and tokens is not None:
        if more is not None or timed:
            raise click.UsageError("-n and --time run the model; give a PROMPT (- reads it from stdin)")
        report = _planned(context, tokens, options)
    else:
        from engine.analysis.kvcache import cache_report

        trace = open_source(context, source, options)
        with Progress() as progress, prompt_interrupts():
            if more is not None:
                trace = _longer(trace, more, progress, keep_of(options["keep"]), options["max_memory"])
            report = cache_report(trace, tokens)
            if timed:
                timing = _timed(trace, progress)
    if as_json:
        say_json(report.to_json() | ({"timing": timing.to_json()} if timing else {}))
    else:
        say(*lines(report, timing, max(20, shutil.get_terminal_size().columns)))
    return 0


def _planned(context: click.Context, tokens: int, options: dict[str, Any]) -> CacheReport | NoCache:
    """The report of a model that is not run; no weight is read."""
    for name in ONLY_FOR_PROMPTS:
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in ("device", "dtype"):
            raise click.UsageError(f"--{name.replace('_', '-')} is for a PROMPT; with --tokens alone nothing runs")
    from engine.checkpoints.lookup import find

    with Progress() as progress:
        folder = find(options["model"] or DEFAULT_MODEL, progress.loading, options["allow_pickle"])
    from engine.analysis.cachecost import plan_cache
    from engine.dtypes import dtype_name
    from engine.errors import PromptError
    from engine.model import own_dtype, pick_device
    from engine.prompts import check_length

    device, dtype = str(pick_device(options["device"])), options["dtype"]
    if dtype == "auto":
        dtype = dtype_name(own_dtype(folder, device, allow_pickle=options["allow_pickle"]))
    try:
        say_notices(*check_length(folder.config, tokens))
    except PromptError as error:
        say_notices(f"a run would be refused: {error}")
    return plan_cache(folder.config, tokens, dtype, device, source=tokens if folder.config.encoder_layers else 0)


def _longer(trace: Trace, more: int, progress: Progress, keep: str | list[str], max_memory: int | None) -> Trace:
    """The trace after as many more tokens, the likeliest each time, one pass each; fewer where the text ends."""
    from engine.generating import generate

    steps = generate(
        _model_of(trace), trace, max_new_tokens=more + 1, keep=keep, max_memory=max_memory, watch=progress.watch
    )
    [last] = deque(steps, maxlen=1)
    return last.trace  # the token that the last step chose has not run


def _timed(trace: Trace, progress: Progress) -> Timing:
    from engine.analysis.kvcache import time_per_token

    return time_per_token(_model_of(trace), trace, watch=progress.watch)


def _model_of(trace: Trace) -> Any:
    """The model that a trace was recorded with, as far as running it goes: token ids need no tokenizer."""
    from engine.model import Model

    if trace.weights is None:
        raise LayerstepError("-n and --time run the model, and FILE holds no weights; name its model (--model M)")
    return Model(trace.config, trace.program, trace.weights, None, trace.device, trace.dtype, trace.source)


def lines(report: CacheReport | NoCache, timing: Timing | None, width: int) -> Iterator[str]:
    """A report as text."""
    from engine.analysis.cachecost import NoCache

    if isinstance(report, NoCache):
        yield report.text
        return
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
    if timing is not None:
        yield timing.text


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
    from engine.cli.tables import SKIPPED, pick

    return [["…"] + [""] * (len(rows[0]) - 1) if i == SKIPPED else rows[i] for i in pick(len(rows), ROWS)]


def _kind(window: int | None) -> str:
    return "full" if window is None else f"window {window}"


def _size(size: int | None) -> str:
    return "" if size is None else human(size)


def _this(row: dict[str, Any]) -> str:
    return "this" if row["this"] else ""

"""``layerstep cache``: what the KV cache of a run holds and costs, or would cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from engine.analysis.cachecost import CacheReport, NoCache
from engine.analysis.pages import MOST_POSITIONS, Pages, plan_pages
from engine.cli.cachetext import lines
from engine.cli.interrupt import prompt_interrupts
from engine.cli.layout import screen
from engine.cli.options import DEFAULT_MODEL, ONLY_FOR_PROMPTS, keep_of, run_options, source_command
from engine.cli.progress import Progress
from engine.cli.source import open_source
from engine.cli.streams import say, say_json, say_notices
from engine.cli.whatifs import drift_lines, page_lines, quantised_lines
from engine.errors import LayerstepError

if TYPE_CHECKING:
    from engine.analysis.drift import Drift
    from engine.analysis.kvcache import Timing
    from engine.analysis.quantised import Quantised
    from engine.traces import Trace

MOST = 999_999
"""One token less than the engine goes on for, since the last one does not run; a test holds it so."""
NEED_MODEL = "-n, --time, --drift and --bits"


@dataclass(slots=True)
class Beside:
    """What is told beside the report."""

    timing: Timing | None = None
    drift: Drift | None = None
    quantised: Quantised | None = None
    pages: Pages | None = None

    def to_json(self) -> dict[str, Any]:
        told = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: it.to_json() for name, it in told if it is not None}

    def lines(self, width: int) -> Iterator[str]:
        if self.timing is not None:
            yield self.timing.text
        if self.drift is not None:
            yield ""
            yield from drift_lines(self.drift, width)
        if self.quantised is not None:
            yield ""
            yield from quantised_lines(self.quantised)
        if self.pages is not None:
            yield ""
            yield from page_lines(self.pages)


@source_command(
    "cache",
    "Print what the KV cache holds after a run of PROMPT or in a saved trace (FILE): bytes measured from the "
    "tensors and by the formula, which positions each layer holds, and what it would cost otherwise.\n\n"
    "With --tokens and neither PROMPT nor FILE nothing runs: the cost of N tokens follows from the model's config.",
)
@click.option("-n", "more", type=click.IntRange(1, MOST), metavar="N", help="Go on greedily for N tokens first.")
@click.option("--tokens", type=click.IntRange(1, 2**31), metavar="N", help="What N tokens cost.")
@click.option("--time", "timed", is_flag=True, help="Time one more token, with the cache and without it.")
@click.option("--drift", "drifts", is_flag=True, help="Compare all passes with one uncached pass over the whole text.")
@click.option("--bits", type=click.Choice(["8", "4"]), help="What if keys and values were stored as int8 or int4.")
@click.option(
    "--pages",
    "page",
    type=click.IntRange(1, MOST_POSITIONS),
    metavar="SIZE",
    help="What if they lay in pages of so many positions.",
)
@run_options
def command(
    context: click.Context,
    /,
    source: str | None,
    more: int | None,
    tokens: int | None,
    timed: bool,
    drifts: bool,
    bits: str | None,
    page: int | None,
    as_json: bool,
    **options: Any,
) -> int:
    beside = Beside()
    if source is None and tokens is not None:
        if more is not None or timed or drifts or bits:
            raise click.UsageError(f"{NEED_MODEL} run the model; give a PROMPT (- reads it from stdin)")
        report = _planned(context, tokens, options)
        if page is not None and isinstance(report, CacheReport):
            beside.pages = plan_pages(report.config, [tokens], report.itemsize, page)
    else:
        from engine.analysis.kvcache import cache_report

        trace = open_source(context, source, options)
        with Progress() as progress, prompt_interrupts():
            if more is not None:
                trace = _longer(trace, more, progress, keep_of(options["keep"]), options["max_memory"])
            report = cache_report(trace, tokens)
            if isinstance(report, CacheReport):
                beside = _beside(trace, timed, drifts, bits, page, progress, options["max_memory"])
    if as_json:
        say_json(report.to_json() | beside.to_json())
    elif isinstance(report, NoCache):
        say(report.text)
    else:
        say(*lines(report, screen()), *beside.lines(screen()))
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


def _beside(
    trace: Trace,
    timed: bool,
    drifts: bool,
    bits: str | None,
    page: int | None,
    progress: Progress,
    max_memory: int | None,
) -> Beside:
    """What was asked for beside the report."""
    from engine.analysis.drift import drift
    from engine.analysis.kvcache import time_per_token
    from engine.analysis.pages import pages
    from engine.analysis.quantised import quantised

    if bits or (drifts and len(trace.passes) > 1):
        _refuse_without_weights(trace)
    watch = progress.watch
    return Beside(
        time_per_token(_model_of(trace), trace, watch=watch) if timed else None,
        drift(trace, watch, max_memory=max_memory) if drifts else None,
        quantised(trace, int(bits), watch=watch, max_memory=max_memory) if bits else None,
        pages(trace, page) if page is not None else None,
    )


def _model_of(trace: Trace) -> Any:
    """The model that a trace was recorded with, as far as running it goes: token ids need no tokenizer."""
    from engine.model import Model

    _refuse_without_weights(trace)
    assert trace.weights is not None
    return Model(trace.config, trace.program, trace.weights, None, trace.device, trace.dtype, trace.source)


def _refuse_without_weights(trace: Trace) -> None:
    if trace.weights is None:
        raise LayerstepError(f"{NEED_MODEL} run the model, and FILE holds no weights; name its model (--model M)")

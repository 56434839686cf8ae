"""``layerstep show``: a tensor, a row, a cell, or an overview, as text or JSON."""

from __future__ import annotations

from typing import Any

import click

from engine.cli.interrupt import prompt_interrupts
from engine.cli.options import run_options, source_command
from engine.cli.progress import Progress
from engine.cli.source import Held, open_other, open_source
from engine.cli.streams import say, say_error, say_json
from engine.sites import Address

MOST_VALUES = 4_000_000
"""More numbers than this are printed as JSON, which has no "…", only with --full."""


@source_command(
    "show",
    "Print what is at ADDRESS in a saved trace (FILE) or in a run of PROMPT: one tensor, a row, a cell. "
    "Without --at: tokens, sites and candidates for the next token, or an encoder's for masked ones.\n\n"
    "--view prints what the app shows: heatmap, row, all-heads, arcs, text, heads, layers, mean, max, curves, ranked, "
    "tokens, lens, norms, added, neighbours, neurons, rotation, chain or histogram. A site has those that fit it; "
    "another name is answered with them. An axis that a view does not spread out and ADDRESS does not choose is at its "
    "first index, of positions at the last, and the text says which was taken.\n\n"
    "On a terminal whole columns are left out where there is no room for all, and a line says so; a file or a pipe "
    "gets all of them.",
)
@click.option("--at", "address", metavar="ADDRESS", help="E.g. blocks.2.attn.pattern[h=3,q=8,k=2]@0.")
@click.option("--view", metavar="NAME", help="A picture of ADDRESS as the app has it.")
@click.option("--over", metavar="AXIS=HOW", help="Take an axis together: head=mean or head=max.")
@click.option("--minus", metavar="ADDRESS", help="Print the difference to another place, over the part both have.")
@click.option("--other", metavar="PROMPT|FILE", help="Where --minus is: another trace; the same ADDRESS unless given.")
@click.option("--other-model", metavar="M", help="The other trace's model; of the same PROMPT unless --other is given.")
@click.option("--full", is_flag=True, help="Print every row and column, however wide.")
@click.option("--checks", is_flag=True, help="Print the invariants and their figures; exit 1 if one does not hold.")
@run_options
def command(
    context: click.Context,
    /,
    source: str | None,
    address: str | None,
    view: str | None,
    over: str | None,
    minus: str | None,
    other: str | None,
    other_model: str | None,
    full: bool,
    checks: bool,
    as_json: bool,
    **options: Any,
) -> int:
    pictures = {"--view": view, "--over": over, "--minus": minus, "--other": other, "--other-model": other_model}
    named = [name for name, value in pictures.items() if value is not None]
    if address is None and named:
        raise click.UsageError(f"{named[0]} is about a place; name it with --at")
    for where in (address, minus):
        if where is not None:
            Address.parse(where)  # before anything is loaded
    models: Held = {}
    trace = open_source(context, source, options, models)
    beside = None if other is None and other_model is None else open_other(other, source, other_model, options, models)
    with prompt_interrupts():
        data: dict[str, Any] = {}
        lines: list[str] = []
        if address is None:
            from engine.cli import overview

            data = overview.to_json(trace) if as_json else {}
            lines = [] if as_json or checks else list(overview.lines(trace))
        else:
            if Address.parse(address).site in ("logits", "probs"):
                trace.refuse_without_head()
            from engine.cli.views import over_of, shown
            from engine.pictures import Wish

            wish = Wish(trace, address, view, over_of(over), beside, minus)
            with Progress() as progress:
                picture = shown(wish, progress.watch, full=full, most=MOST_VALUES if as_json and not full else None)
            data = picture.to_json() if as_json else {}
            lines = [] if as_json else list(picture.lines())
        held = trace.checks(Address.parse(address).site if address else None) if checks else []
    if as_json:
        say_json(data | ({"checks": [check.to_json() for check in held]} if checks else {}))
    else:
        say(*lines, *(f"{'✓' if check.ok else '✗'} {check.site}@{check.at}  {check.text}" for check in held))
    failed = sum(not check.ok for check in held)
    if failed:
        say_error(f"{failed} of {len(held)} checks do not hold")
    return 1 if failed else 0

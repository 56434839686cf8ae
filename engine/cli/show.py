"""``layerstep show``: a tensor, a row, a cell, or an overview, as text or JSON."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.cli.heavy import load_torch
from engine.cli.options import DEFAULT_MODEL, ONLY_FOR_PROMPTS, json_option, read_prompt, recording_options
from engine.cli.options import command as make_command
from engine.cli.streams import say, say_error, say_json, say_notices
from engine.errors import LayerstepError
from engine.sites import Address

if TYPE_CHECKING:
    from engine.cli.place import Place
    from engine.traces import Trace

MOST_VALUES = 4_000_000
"""More numbers than this are printed only with --full."""
SUFFIX = ".safetensors"


@make_command(
    name="show",
    help=(
        "Print what is at ADDRESS in a saved trace (FILE) or in a run of PROMPT: one tensor, a row, a cell. "
        "Without --at: tokens, sites and next-token candidates.\n\n"
        "An argument that names a file, or ends with .safetensors, is a FILE; - is a PROMPT from stdin."
    ),
)
@click.argument("source", metavar="[FILE|PROMPT]", required=False)
@click.option("--at", "address", metavar="ADDRESS", help="E.g. blocks.2.attn.pattern[h=3,q=9,k=5]@0.")
@click.option("--full", is_flag=True, help="Print every row and column.")
@click.option("--checks", is_flag=True, help="Print the invariants and their figures; exit 1 if one does not hold.")
@click.option("--model", metavar="M", help=f"A sample's name or a model folder.  [for a PROMPT: {DEFAULT_MODEL}]")
@recording_options
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    source: str | None,
    address: str | None,
    full: bool,
    checks: bool,
    as_json: bool,
    **options: Any,
) -> int:
    if address is not None:
        Address.parse(address)  # before anything is loaded
    trace = open_source(context, source, options)
    if address is not None:
        from engine.cli.place import Place

        place = Place.find(trace, address)
        if as_json and not full:
            refuse_if_huge(place)
        data = place.to_json() if as_json else {}
        lines = [] if as_json else place_lines(place, full)
    else:
        from engine.cli import overview

        data = overview.to_json(trace) if as_json else {}
        lines = [] if as_json else list(overview.lines(trace))
    held = trace.checks(Address.parse(address).site if address else None) if checks else []
    if as_json:
        say_json(data | ({"checks": [check.to_json() for check in held]} if checks else {}))
    else:
        say(*lines, *(f"{'✓' if check.ok else '✗'} {check.site}@{check.at}  {check.text}" for check in held))
    failed = sum(not check.ok for check in held)
    if failed:
        say_error(f"{failed} of {len(held)} checks do not hold")
    return 1 if failed else 0


def open_source(context: click.Context, source: str | None, options: dict[str, Any]) -> Trace:
    """The trace in a file, or of a prompt."""
    if source is None or source == "-" or not (os.path.isfile(source) or source.endswith(SUFFIX)):
        from engine.cli.trace import record

        text, notices = read_prompt(source)
        return record(text, notices, **options)
    for name in ONLY_FOR_PROMPTS:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} is for a PROMPT; what is in FILE was recorded already")
    load_torch()
    from engine import open_trace

    trace = open_trace(Path(source), options["model"])
    say_notices(*trace.notices)
    return trace


def refuse_if_huge(place: Place) -> None:
    """JSON has no "…", so a tensor too large to be meant is refused."""
    if place.tensor.numel() > MOST_VALUES:
        raise LayerstepError(
            f"{place.address} has {place.tensor.numel()} values; name a part of it, or print all of them with --full"
        )


def place_lines(place: Place, full: bool) -> list[str]:
    """An address with its op, its statistics and its numbers."""
    from engine.cli.tables import tensor_lines

    trace = place.trace
    if not place.axes:
        where = [f"{axis} {i}{_label(place, axis, i)}" for axis, i in place.fixed.items() if axis != "batch"]
        lines = [*tensor_lines(place, 0, full), " · ".join([*where, place.dtype])]
    else:
        shape = " × ".join(f"{axis.name} {axis.size}" for axis in place.axes)
        width = max(20, shutil.get_terminal_size().columns)
        lines = [f"{place.address} · {shape} · {place.dtype}", _stats(place.stats()), ""]
        lines += [*tensor_lines(place, width, full), ""]
    step = trace.program.step(place.address.site)
    if step is not None:
        lines.append(f"{step.op.text.title}: {step.op.text.formula}")
    return lines


def _label(place: Place, axis: str, i: int) -> str:
    from engine.cli.place import PASS_AXES, TOKEN_AXES

    if axis in TOKEN_AXES:
        at = place.address.at
        first = 0 if at is None or axis not in PASS_AXES else place.trace.passes[at].start
        return f" {place.token(first + i)}"
    return f" {place.trace.label(i)}" if axis == "d_vocab" else ""


def _stats(stats: dict[str, Any]) -> str:
    parts = [f"{key} {stats[key]:.4g}" for key in ("min", "max", "mean", "std", "norm") if key in stats]
    bad = {key: stats[key] for key in ("nan", "+inf", "-inf") if stats.get(key)}
    if bad:
        kinds = ", ".join(f"{count} {key}" for key, count in bad.items())
        parts.append(f"not finite {sum(bad.values())} of {stats['count']} ({kinds})")
    return " · ".join(parts)

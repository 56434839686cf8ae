"""``layerstep show``: a tensor, a row, a cell, or an overview, as text or JSON."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING, Any

import click

from engine.cli.interrupt import prompt_interrupts
from engine.cli.options import run_options, source_command
from engine.cli.source import open_source
from engine.cli.streams import say, say_error, say_json
from engine.errors import LayerstepError
from engine.sites import Address

if TYPE_CHECKING:
    from engine.cli.place import Place
    from engine.traces import Trace

MOST_VALUES = 4_000_000
"""More numbers than this are printed only with --full."""


@source_command(
    "show",
    "Print what is at ADDRESS in a saved trace (FILE) or in a run of PROMPT: one tensor, a row, a cell. "
    "Without --at: tokens, sites and candidates for the next token, or an encoder's for masked ones.",
)
@click.option("--at", "address", metavar="ADDRESS", help="E.g. blocks.2.attn.pattern[h=3,q=8,k=2]@0.")
@click.option("--full", is_flag=True, help="Print every row and column.")
@click.option("--checks", is_flag=True, help="Print the invariants and their figures; exit 1 if one does not hold.")
@run_options
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
    with prompt_interrupts():
        if address is not None:
            from engine.cli.place import Place

            if Address.parse(address).site in ("logits", "probs"):
                trace.refuse_without_head()
            if as_json and not full:
                refuse_if_huge(trace, Address.parse(address))
            place = Place.find(trace, address)
            data = place.to_json() if as_json else {}
            lines = [] if as_json else place_lines(place, full)
        else:
            from engine.cli import overview

            data = overview.to_json(trace) if as_json else {}
            lines = [] if as_json or checks else list(overview.lines(trace))
        held = trace.checks(Address.parse(address).site if address else None) if checks else []
    if as_json:
        say_json(data | ({"checks": [check.to_json() for check in held]} if checks else {}))
    else:
        say(*lines, *(f"{'✓' if check.ok else '✗'} {check.site}@{check.at}  {check.text}" for check in held))
    failed = sum(not check.ok for check in held)
    if failed:
        say_error(f"{failed} of {len(held)} checks do not hold")
    return 1 if failed else 0


def refuse_if_huge(trace: Trace, address: Address) -> None:
    """JSON has no "…", so a tensor too large to be meant is refused, before it is computed."""
    site = trace.program.site(address.site)
    shape = trace.shape(site.name, address.at)
    sizes = dict(zip(site.axes, shape, strict=True))
    for axis, chosen in address.resolve(site.axes, shape).items():
        sizes[axis] = 1 if isinstance(chosen, int) else (chosen.stop or 0) - (chosen.start or 0)
    values = math.prod(sizes.values())
    if values > MOST_VALUES:
        raise LayerstepError(f"{address} has {values:,} values; name a part of it, or print all of them with --full")


def place_lines(place: Place, full: bool) -> list[str]:
    """An address with its op, its statistics and its numbers."""
    from engine.cli.tables import tensor_lines

    step = place.trace.program.step(place.address.site)
    if not place.axes:
        where = [f"{axis} {i} {place.fixed_label(axis)}".strip() for axis, i in place.fixed.items() if axis != "batch"]
        lines = [*tensor_lines(place, 0, full), " · ".join([*where, place.dtype])]
    else:
        shape = " × ".join(f"{axis.name} {axis.size}" for axis in place.axes)
        width = max(20, shutil.get_terminal_size().columns)
        lines = [
            f"{place.address} · {shape} · {place.dtype}",
            _stats(place.stats(), step is not None and step.op.hides),
            "",
        ]
        lines += [*tensor_lines(place, width, full), ""]
    if step is not None:
        lines.append(f"{step.op.text.title}: {step.op.text.formula}")
    return lines


def _stats(stats: dict[str, Any], masks: bool) -> str:
    parts = [f"{key} {stats[key]:.4g}" for key in ("min", "max", "mean", "std", "norm") if key in stats]
    bad = {key: stats[key] for key in ("nan", "+inf", "-inf") if stats[key]}
    if masks and (hidden := bad.pop("-inf", 0)):
        parts.append(f"{hidden} of {stats['size']} masked")
    if bad:
        kinds = ", ".join(f"{count} {key}" for key, count in bad.items())
        parts.append(f"NOT FINITE {sum(bad.values())} of {stats['size']} ({kinds})")
    return " · ".join(parts)

"""``layerstep export``: a page, a figure, data, a handout, a notebook or a recording of a trace, in one file."""

from __future__ import annotations

import io
import math
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.cli.idle import refuse_idle
from engine.cli.interrupt import prompt_interrupts
from engine.cli.options import DEFAULT_MODEL, ONLY_FOR_PROMPTS, keep_of, run_options, size_of, source_command
from engine.cli.progress import Progress
from engine.cli.source import Held, is_file, open_file, open_other, record, refuse_for_file
from engine.cli.streams import say, say_bytes, say_error, say_json
from engine.errors import ExportError
from engine.export.figures.style import FONTS, OF_A_TRACE, PALETTES
from engine.export.formats import CAPTIONS, DTYPES, FORMATS, SIZES, THEMES, FigureStyle, Format, format_of
from engine.sites import Address
from engine.text import display, human
from engine.wholefile import check_target

if TYPE_CHECKING:
    from engine.traces import Trace

CASTING = "tui.casting"
"""What records the app, by name: it stands on the engine and not the other way round, so nothing here imports it."""
TEXTS = ("json", "csv", "md", "svg", "tikz", "html", "ipynb", "cast")
"""Formats that may be printed on a terminal."""
_RANGE = re.compile(r"(\d{1,6})(?:\s*-\s*(\d{1,6}))?", re.ASCII)


def numbers_of(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """0,2-4 as (0, 2, 3, 4)."""
    if value is None:
        return None
    found: list[int] = []
    for one in value.split(","):
        match = _RANGE.fullmatch(one.strip())
        if not match or int(match[2] or match[1]) - int(match[1]) not in range(10_000):
            raise click.BadParameter(f"{value!r} are no numbers; write e.g. 0,2 or 0-3", ctx, param)
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(dict.fromkeys(found))


def _peaks(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[float, float] | None:
    """FLOPs and bytes a second that a machine can do."""
    if value is None:
        return None
    try:
        flops, moved = map(float, value.split(","))
    except ValueError:
        flops = moved = 0.0
    if not (0 < flops < math.inf and 0 < moved < math.inf):
        raise click.BadParameter(f"{value!r} is not FLOPs and bytes a second; write e.g. 5e12,2e11", ctx, param)
    return flops, moved


@source_command(
    "export",
    "Write a saved trace (FILE), a run of PROMPT, or a tour to one file that needs nothing else.\n\n"
    + "\n\n".join(f"{form.name}: {form.words}" for form in FORMATS.values())
    + "\n\nA figure is of one place (--at). A page, a notebook and data are of the whole trace; --keep, --layers and "
    "--heads choose what they hold. The file is named after what it is of unless -o names it; one that exists is "
    "replaced only with --force.",
)
@click.option("--to", "to", type=click.Choice([*FORMATS]), help="The format; else the ending of FILE says it.")
@click.option("-o", "--output", "path", metavar="FILE", help="The file to write; - is stdout.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--tour", metavar="NAME|FILE", help="Export a tour, with the prompt and the model that it names.")
@click.option("--notes", is_flag=True, help="Of a tour: the speaker's notes as well, and the answers in place.")
@click.option("--at", "address", metavar="ADDRESS", help="One place, e.g. blocks.2.attn.pattern[h=3].")
@click.option(
    "--view", metavar="NAME",
    help=f"A picture of it, as `layerstep show --view` has them; of all of a run {', '.join(OF_A_TRACE)}.",
)  # fmt: skip
@click.option("--over", metavar="AXIS=HOW", help="Take an axis together: head=mean or head=max.")
@click.option("--minus", metavar="ADDRESS", help="The difference to another place.")
@click.option("--other", metavar="PROMPT|FILE", help="Where --minus is: another trace; the same ADDRESS unless given.")
@click.option("--other-model", metavar="M", help="The other trace's model; of the same PROMPT unless --other is given.")
@click.option("--layers", callback=numbers_of, metavar="N,N-N", help="Only these layers.")
@click.option("--heads", callback=numbers_of, metavar="N,N-N", help="Only these heads, with the keys that they use.")
@click.option("--round-to", type=click.Choice(DTYPES), default="auto", help="Round numbers, for a smaller file.")
@click.option("--max-size", callback=size_of, metavar="SIZE", help="Refuse a file above this, e.g. 20M.")
@click.option("--title", metavar="TEXT", default="", help="The title of a page, a handout or a notebook.")
@click.option("--size", type=click.Choice(SIZES), default=SIZES[0], help="What a figure is for.", show_default=True)
@click.option("--palette", type=click.Choice(PALETTES), default=PALETTES[0], help="Its colours.", show_default=True)
@click.option("--theme", type=click.Choice(THEMES), default=THEMES[0], help="Its ground.", show_default=True)
@click.option("--font", type=click.Choice(FONTS), default=FONTS[0], help="Letters of an SVG.", show_default=True)
@click.option("--peaks", callback=_peaks, metavar="FLOPS,BYTES", help="Of a roofline: a second's most, e.g. 5e12,2e11.")
@click.option("--caption", type=click.Choice([c for c in CAPTIONS if c]), help="Print a figure's caption on stdout.")
@run_options
def command(
    context: click.Context,
    /,
    source: str | None,
    to: str | None,
    path: str | None,
    force: bool,
    tour: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    form = _form(to, path)
    for where in (options["address"], options["minus"]):
        if where is not None:
            Address.parse(where)  # before anything is loaded
    refuse_idle(context, form, options | {"tour": tour})
    if form.name == "cast":
        return _cast(context, source, path, force, tour, as_json, options)
    from engine.export.saving import write

    target = None if path is None else Path(path)
    if path is not None and path.endswith(("/", os.sep)):
        raise ExportError(f"{display(path)} is a folder; name a file in it")
    if target is not None and path != "-":
        check_target(target, ExportError, force=force)  # before anything runs
    order = _order(context, form, source, tour, options)
    if target is None:
        target = Path(_name(order.trace, options["address"] or options["view"], tour) + form.suffix)
    caption = ""
    if options["caption"]:
        from engine.export.figures.draw import caption as caption_of

        caption = caption_of(order, options["caption"])
    with Progress() as progress:
        if path == "-":
            _print(order, form, progress.watch)
            return 0
        size = write(order, target, force=force, watch=progress.watch, tell=_tell)
    if as_json:
        say_json({"file": str(target), "format": form.name, "bytes": size} | ({"caption": caption} if caption else {}))
    else:
        say_error(f"saved {target}: {human(size)}")
        if caption:
            say(*caption.splitlines())
    return 0


def _form(to: str | None, path: str | None) -> Format:
    if to is None and path in (None, "-"):
        raise click.UsageError(f"say in which format with --to ({', '.join(FORMATS)}), or name a file with -o")
    return format_of(Path(path or ""), to)


def _order(context: click.Context, form: Format, source: str | None, tour: str | None, options: dict[str, Any]) -> Any:
    """What is ordered, its traces recorded or opened."""
    run = {name: options.pop(name) for name in (*_RUN,)}
    from engine.export.order import Order
    from engine.export.selection import Selection

    keep = keep_of(run.pop("keep"))
    selection = Selection((keep,) if isinstance(keep, str) else tuple(keep), options["layers"], options["heads"])
    style = FigureStyle(
        options["size"], options["palette"], options["theme"], "", options["font"],
        options["peaks"],
    )  # fmt: skip
    how: dict[str, Any] = {
        "to": form.name, "at": options["address"], "view": options["view"], "minus": options["minus"],
        "selection": selection, "dtype": options["round_to"], "max_size": options["max_size"],
        "title": options["title"], "style": style, "notes": options["notes"],
    }  # fmt: skip
    if tour is not None:
        if source is not None:
            raise click.UsageError("a tour has its own prompt; leave FILE|PROMPT out, or leave --tour out")
        from engine.tours import read_tour

        walked = read_tour(tour)
        with Progress() as progress, prompt_interrupts():
            from engine.cli.heavy import load_torch

            load_torch()
            from engine.touring import open_tour

            run_of = open_tour(walked, progress.watch)
        return Order(run_of.main, tour=walked, beside=run_of.other, **how)
    models: Held = {}
    if source is not None and source != "-" and is_file(source):
        refuse_for_file(context, [name for name in ONLY_FOR_PROMPTS if name != "keep"])
        trace = open_file(source, run["model"], run["allow_pickle"])
    else:
        recorded = ("residual",) if selection.keep == ("residual",) else ("all",)
        trace = record(source, **{**run, "keep": recorded}, held=models)
    other, other_model = options["other"], options["other_model"]
    if other is not None or other_model is not None:
        how["other"] = open_other(other, source, other_model, {**run, "keep": ("all",)}, models)
    from engine.cli.views import over_of

    return Order(trace, over=over_of(options["over"]), **how)


_RUN = (
    "model", "keep", "kernel", "device", "dtype", "max_memory", "target", "literal", "chat", "ids", "allow_pickle",
    "edit",
)  # fmt: skip


def _tell(size: int | None) -> None:
    if size is not None:
        say_error(f"about {human(size)}")


def _print(order: Any, form: Format, watch: Any) -> None:
    if form.name not in TEXTS and sys.stdout is not None and sys.stdout.isatty():
        raise ExportError(f"{form.name} is no text for a terminal; name a file with -o, or pipe it on")
    from engine.export.saving import write_to

    whole = io.BytesIO()
    write_to(order, whole, watch=watch)
    say_bytes(whole.getbuffer())


def _name(trace: Trace, address: str | None, tour: str | None) -> str:
    """A name for the file: of the tour, the place, or the prompt's first words."""
    words = Path(tour).stem if tour else address or " ".join(trace.prompt.split()[:6])
    return re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.")[:80].lower() or "trace"


def _cast(
    context: click.Context, source: str | None, path: str | None, force: bool, tour: str | None, as_json: bool,
    options: dict[str, Any],
) -> int:  # fmt: skip
    """A recording of the app, which makes it itself."""
    try:
        write = import_module(CASTING).write
    except ModuleNotFoundError as error:
        raise ExportError(f"the app cannot be recorded without {error.name}; install layerstep again") from None
    request: dict[str, Any] = {}
    if tour is None and source is not None and is_file(source):
        request = {"file": source, "model": options["model"]}
    elif tour is None:
        named = {key: options[key] for key in ("target", "device", "dtype", "kernel", "chat", "allow_pickle")}
        request = {"model": options["model"] or DEFAULT_MODEL, "prompt": source, **named,
                   "edits": list(options["edit"] or ()) or None}  # fmt: skip
    if path == "-":
        raise click.UsageError("a cast is written to a file; name it with -o")
    target = Path(path or f"{Path(tour).stem if tour else 'walk'}.cast")
    check_target(target, ExportError, force=force)
    with Progress() as progress:
        size = write(request, target, tour=tour, force=force, address=options["address"] or "", watch=progress.watch)
    if as_json:
        say_json({"file": str(target), "format": "cast", "bytes": size})
    else:
        say_error(f"saved {target}: {human(size)}")
    return 0

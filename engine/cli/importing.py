"""``layerstep import FILE``: a trace of arrays that transformers or TransformerLens saved."""

from __future__ import annotations

from pathlib import Path

import click

from engine.cli.heavy import load_torch
from engine.cli.interrupt import prompt_interrupts
from engine.cli.options import MODEL_WORDS, ids_of, json_option
from engine.cli.options import command as make_command
from engine.cli.progress import Progress
from engine.cli.streams import say_error, say_json, say_notices
from engine.text import human
from engine.tracefile import check_target


@make_command(
    name="import",
    help=(
        "Make a trace of the arrays in FILE, an .npz or a .safetensors: hidden_states.0 …, attentions.0 … as "
        "transformers returns them, or a cache of TransformerLens (blocks.0.attn.hook_z …). The trace opens in the app "
        "and in every command; it holds what was in FILE, and what follows from that. Tokens are input_ids in FILE, or "
        "--ids, or --prompt."
    ),
)
@click.argument("file")
@click.option("-o", "--output", "path", metavar="OUT", required=True, help="Where to save, *.trace.safetensors.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option(
    "--model", metavar="M", required=True, help=f"{MODEL_WORDS}, which was recorded; weights need not be there."
)
@click.option("--prompt", metavar="TEXT", help="The text that was read.")
@click.option("--ids", metavar="IDS", help="Its token ids, separated by spaces or commas.")
@json_option
def command(file: str, path: str, force: bool, model: str, prompt: str | None, ids: str | None, as_json: bool) -> int:
    if prompt is not None and ids is not None:
        raise click.UsageError("--prompt and --ids both say what was read; choose one")
    check_target(Path(path), force=force)  # before anything is read
    given = prompt if ids is None else ids_of(ids)
    with Progress() as progress, prompt_interrupts():
        load_torch()
        from engine.importing import import_file

        made = import_file(file, model, given, watch=progress.loading)
    size = made.trace.save(Path(path), force=force)
    if as_json:
        sites = {name: list(sites) for name, sites in made.sites.items()}
        told = {"file": path, "bytes": size, "model": made.trace.config.name, "tokens": made.trace.length}
        told |= {"sites": sites, "left_out": made.left_out, "notices": list(made.trace.notices)}
        say_json(told | {"checks": [check.to_json() for check in made.trace.checks()]})
    else:
        say_notices(*made.trace.notices)
        say_error(f"saved {path}: {made.trace.length} tokens, {len(made.trace.passes[0].kept)} tensors, {human(size)}")
    return 0

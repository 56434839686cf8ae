"""``layerstep open FILE``: open a saved trace in the app."""

from __future__ import annotations

import click

from engine.cli.options import command as make_command
from engine.cli.options import pickle_option
from engine.cli.walk import app_options, app_settings, check_address, check_file, open_app


@make_command(name="open", help="Open the trace in FILE in the app.")
@click.argument("file")
@click.option("--model", metavar="M", help="The model it was recorded with, for what the file does not hold.")
@click.option("--at", "address", metavar="ADDRESS", help="Where to start, e.g. blocks.2.attn.pattern[h=3,q=8].")
@pickle_option
@app_options
def command(
    file: str,
    model: str | None,
    address: str | None,
    allow_pickle: bool,
    config: str | None,
    no_mouse: bool,
    light: bool,
) -> int:
    check_address(address)
    check_file(file)
    return open_app(None, model, address, file, allow_pickle=allow_pickle, **app_settings(config, no_mouse, light))

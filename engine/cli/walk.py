"""``layerstep [PROMPT]``: open the app."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from engine.cli.options import MODEL_WORDS, chat_option, pickle_option, target_option
from engine.cli.options import command as make_command
from engine.errors import LayerstepError

APP = "tui.start"
"""The app, by name: it stands on the engine and not the other way round, so nothing here imports it."""


def open_app(
    prompt: str | None,
    model: str | None,
    address: str | None,
    file: str | None,
    chat: bool = False,
    target: str | None = None,
    allow_pickle: bool = False,
    **settings: Any,
) -> int:
    """Start the app and wait for it; its exit code. ``settings``: what the app itself is told, see `app_options`.

    Raises LayerstepError where it is not installed.
    """
    try:
        run = import_module(APP).run
    except ModuleNotFoundError as error:
        raise LayerstepError(f"the app cannot start without {error.name}; install layerstep again") from None
    what = {"prompt": prompt, "model": model, "address": address, "file": file, "chat": chat, "target": target}
    return int(run(**what, allow_pickle=allow_pickle, **settings))


def app_options(function: Callable[..., int]) -> Callable[..., int]:
    """What the app itself can be told, however it is opened."""
    options = (
        click.option("--config", metavar="FILE", help="A settings file in place of the usual one."),
        click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal."),
        click.option("--light", is_flag=True, help="The light theme."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def app_settings(config: str | None, no_mouse: bool, light: bool, last: bool = False) -> dict[str, Any]:
    """Of these options, those that were given, as the app takes them."""
    given = {"config": config, "mouse": False if no_mouse else None, "light": light or None, "last": last or None}
    return {name: value for name, value in given.items() if value is not None}


@make_command(name="layerstep", help="Open the app on PROMPT. Without one it opens on a sample prompt.")
@click.argument("prompt", required=False)
@click.option("--model", metavar="M", help=f"{MODEL_WORDS}.  [default: modern]")
@click.option("--at", "address", metavar="ADDRESS", help="Where to start, e.g. blocks.2.attn.pattern[h=3,q=8].")
@chat_option
@target_option
@pickle_option
@click.option("--last", is_flag=True, help="Where the app was left.")
@app_options
def command(
    prompt: str | None,
    model: str | None,
    address: str | None,
    chat: bool,
    target: str | None,
    allow_pickle: bool,
    last: bool,
    config: str | None,
    no_mouse: bool,
    light: bool,
) -> int:
    check_address(address)
    if prompt == "-":  # the app reads a pipe by itself
        prompt = None
    settings = app_settings(config, no_mouse, light, last)
    return open_app(prompt, model, address, None, chat, target, allow_pickle, **settings)


def check_address(address: str | None) -> None:
    """Refuse what is no address before the app takes the screen."""
    if address is not None:
        from engine.sites import Address

        Address.parse(address)


def check_file(path: str) -> None:
    """Refuse a trace file that is not there, in one line."""
    if not os.path.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "is not there"
        raise LayerstepError(f"the trace file {path} {what}")

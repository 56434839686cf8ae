"""The table of commands, each imported when it is named."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from engine.cli.walk import command as walk

COMMANDS = {
    "open": "Open a saved trace in the app.",
    "trace": "Record a prompt and save the trace.",
    "generate": "Print how a text goes on, token by token.",
    "show": "Print a tensor, a row, a cell, or an overview.",
    "export": "Write a page, a figure, data, a handout or a notebook.",
    "plan": "Print bytes and FLOPs of a run, before running it.",
    "cache": "Print what the KV cache holds, and what it costs.",
    "import": "Make a trace of arrays that transformers or TransformerLens saved.",
    "tour": "Play, print or check a tour through a trace.",
    "models": "List the sample models, or inspect a model folder.",
}
"""Name -> one line. ``engine.cli.NAME`` holds ``command``, or what `MODULES` has in its place."""
MODULES = {"import": "importing"}
"""Names that a module cannot have."""

USAGE = """\
layerstep [PROMPT] [--model M] [--at ADDRESS]      walk through a forward pass in the app
       layerstep COMMAND ...                              do one thing and print it"""


class Layerstep(click.Group):
    """``layerstep COMMAND``."""

    def __init__(self) -> None:
        super().__init__(
            "layerstep",
            help=(
                "Step through a transformer's forward pass.\n\n"
                "Without a command the app opens on PROMPT; a PROMPT that is also a command's name goes after `--`. "
                "Results are printed on stdout, everything else on stderr. Exit codes: 0 done, 1 could not, 2 usage, "
                "130 cancelled."
            ),
            context_settings={"help_option_names": ["-h", "--help"]},
            params=[
                *(option for option in walk.params if isinstance(option, click.Option)),  # for --help
                click.Option(
                    ["--version"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_version,
                    help="Print the version and exit.",
                ),
            ],
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"engine.cli.{MODULES.get(cmd_name, cmd_name)}").command
        assert isinstance(command, click.Command)
        return command

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"Usage: {USAGE}\n")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, _: click.Parameter, asked: Any) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"layerstep {version('layerstep')}")
        except PackageNotFoundError:
            click.echo("layerstep (not installed)")
        ctx.exit()

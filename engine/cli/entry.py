"""From the shell to a command and back: which command is meant, and what an exception becomes.

Exit codes: 0 done, 1 could not (one line says why), 2 usage, 130 cancelled.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from engine.cli.commands import COMMANDS, Layerstep
from engine.cli.streams import flush, give_up_stdout, safe_streams, say_error
from engine.cli.walk import command as walk
from engine.errors import Cancelled, LayerstepError, is_out_of_memory

CANCELLED = 130
_OF_THE_GROUP = frozenset(["--help", "-h", "--version"])


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Nothing is raised, whatever happens."""
    args = list(sys.argv[1:] if argv is None else argv)
    safe_streams()
    if "_LAYERSTEP_COMPLETE" in os.environ:  # the shell asks what may come next
        return int(Layerstep().main(args, "layerstep", standalone_mode=False) or 0)
    try:
        code = _dispatch(args)
        flush()
        return code
    except BrokenPipeError:  # whoever read our results has read enough
        give_up_stdout()
        return 0
    except click.exceptions.Exit as asked:
        return asked.exit_code
    except click.ClickException as error:
        return _usage(error)
    except (KeyboardInterrupt, click.Abort, Cancelled):
        give_up_stdout()
        say_error("cancelled")
        return CANCELLED
    except LayerstepError as error:
        return _failed(args, str(error))
    except SystemExit:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        return _failed(args, f"{where}{error.strerror or error}")
    except BaseException as error:  # a panic in a Rust library is no Exception
        if is_out_of_memory(error):
            return _failed(args, "out of memory; shorten the prompt, or keep less (--keep residual)")
        hint = "" if "--debug" in args else "; --debug shows the traceback"
        return _failed(args, f"unexpected {type(error).__name__}: {error}{hint}")


def _dispatch(args: list[str]) -> int:
    """Run the command that is named; anything else is a prompt for the app. ``layerstep -- show`` is a prompt."""
    named = args and (args[0] in COMMANDS or args[0] in _OF_THE_GROUP)
    command: click.Command = Layerstep() if named else walk
    with command.make_context("layerstep", list(args)) as context:
        return int(command.invoke(context) or 0)


def _failed(args: list[str], message: str) -> int:
    if "--debug" in args:
        say_error(*traceback.format_exc().splitlines(), prefix="")
    say_error(message.splitlines()[0] if message.strip() else "failed without a reason")
    return 1


def _usage(error: click.ClickException) -> int:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        say_error(*error.ctx.get_usage().splitlines(), prefix="")
    say_error(error.format_message())
    return error.exit_code

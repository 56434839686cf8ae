"""The command line: one file per command, imported when it is used. Results on stdout, everything else on stderr."""

from engine.cli.entry import main

__all__ = ["main"]

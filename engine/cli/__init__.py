"""The command line: one file per command, imported when it is used. Results on stdout, everything else on stderr."""

import signal
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on ``argv`` (by default the process's own); the exit code."""
    try:
        from engine.cli.entry import run

        code = run(argv)
        if argv is None:  # all is said, and the process only closes
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return code
    except KeyboardInterrupt:  # that early, or that late
        return 130

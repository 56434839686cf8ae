"""Standard streams: results out, everything else on stderr, and nothing foreign reaches either as it is."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
from collections.abc import Mapping
from typing import Any

from engine.errors import LayerstepError
from engine.text import display


def safe_streams() -> None:
    """A closed standard stream becomes /dev/null, so that no file takes its number; what an encoding lacks is escaped."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            spare = os.open(os.devnull, os.O_RDWR)
            if spare != number:
                os.dup2(spare, number)
                os.close(spare)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(*lines: str) -> None:
    """Print lines of a result; foreign text in them becomes printable."""
    out = _stdout()
    out.write("".join(display(line) + "\n" for line in lines))


def say_json(data: object) -> None:
    """Print a result as JSON (RFC 8259); NaN and ±∞ are the strings of `plain`."""
    out = _stdout()
    out.write(json.dumps(plain(data), allow_nan=False, indent=None) + "\n")


def say_error(*lines: str, prefix: str = "layerstep: ") -> None:
    """Print lines on stderr, if there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write("".join(prefix + display(line) + "\n" for line in lines))
            sys.stderr.flush()


def say_notices(*notices: str) -> None:
    """Print what the user should know, on stderr, each once."""
    say_error(*dict.fromkeys(notices), prefix="layerstep: note: ")


def plain(value: Any) -> Any:
    """JSON's own values: a float that is not finite becomes "NaN", "Infinity" or "-Infinity", a tuple a list."""
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value


def flush() -> None:
    """Write what is buffered now, while an error can still be told."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            give_up_stdout()
            raise LayerstepError(f"stdout cannot be written: {error.strerror or error}") from None


def give_up_stdout() -> None:
    """Drop what is still buffered, so that the interpreter's own last flush does not fail."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)


def _stdout() -> Any:
    if sys.stdout is None:
        raise LayerstepError("stdout is closed, so there is nowhere to print")
    return sys.stdout

"""Standard streams: results out, everything else on stderr, and nothing foreign reaches either as it is."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator

from engine.errors import LayerstepError
from engine.jsontext import for_anyone
from engine.text import display


def safe_streams() -> None:
    """A closed stream becomes /dev/null, so that no file takes its number; what an encoding lacks is escaped."""
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
    _write("".join(display(line) + "\n" for line in lines))


class Text:
    """A text that is printed as it comes. A terminal gets it made printable, but for line breaks and tabs; everybody
    else gets the text itself."""

    def __init__(self) -> None:
        self.on_terminal = sys.stdout is not None and sys.stdout.isatty()
        self._last = ""

    def say(self, text: str) -> None:
        for part in re.split(r"([\n\t])", text) if self.on_terminal else [text]:
            if self.on_terminal and part not in ("", "\n", "\t"):
                before = display(self._last)  # an accent finds the letter that it stands on
                _write(display(self._last + part)[len(before) :])
            else:
                _write(part)
            self._last = part[-1:] or self._last
        flush()

    def end(self) -> None:
        """One line break, as every result ends."""
        _write("\n")
        flush()


def say_json(data: object) -> None:
    """Print a result as JSON (RFC 8259); NaN and ±∞ are strings."""
    _write(for_anyone(data) + "\n")


def say_bytes(data: bytes | memoryview) -> None:
    """Print a result that is no text."""
    if sys.stdout is None:
        raise LayerstepError(_CLOSED)
    with _told():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def say_error(*lines: str, prefix: str = "layerstep: ") -> None:
    """Print lines on stderr, if there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write("".join(prefix + display(line) + "\n" for line in lines))
            sys.stderr.flush()


def say_notices(*notices: str) -> None:
    """Print what the user should know, on stderr, each once."""
    say_error(*dict.fromkeys(notices), prefix="layerstep: note: ")


def flush() -> None:
    """Write what is buffered now, while an error can still be told."""
    if sys.stdout is not None:
        with _told():
            sys.stdout.flush()


def give_up_stdout() -> None:
    """Drop what is still buffered, so that the interpreter's own last flush does not fail."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)


def _write(text: str) -> None:
    if sys.stdout is None:
        raise LayerstepError(_CLOSED)
    with _told():
        sys.stdout.write(text)


_CLOSED = "stdout is closed, so there is nowhere to print"


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """An error of stdout as a LayerstepError; a reader that went away stays BrokenPipeError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up_stdout()
        raise LayerstepError(f"stdout cannot be written: {error.strerror or error}") from None

"""Progress of long work: one line on stderr, where that is a terminal."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from types import TracebackType

from engine.cli.streams import say_error
from engine.text import fit

PATIENCE = 0.4
"""Seconds before anything is shown: what is quick needs no progress."""
EVERY = 0.1


class Progress:
    """Used as a context; ``watch`` is what the engine calls before each step."""

    def __init__(self) -> None:
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + PATIENCE
        self._shown = 0
        self._said = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown:
            self._draw("")

    def watch(self, done: int, total: int, site: str) -> None:
        if self._live and time.monotonic() >= self._next:
            self._draw(f"layerstep: step {done}/{total} {site}")
            self._next = time.monotonic() + EVERY

    def loading(self, done: int, total: int, what: str) -> None:
        """What loading a model calls. That something is downloaded, and how much, is said first and everywhere."""
        if what.startswith("downloading") and what != self._said:
            self._said, self._next = what, 0.0
            if not self._live:
                say_error(what)
        if self._live and time.monotonic() >= self._next:
            self._draw(f"layerstep: {what} {done}/{total}")
            self._next = time.monotonic() + EVERY

    def _draw(self, text: str) -> None:
        # Blanks and not an escape sequence, so that nothing but text is ever written here.
        width = max(1, shutil.get_terminal_size().columns - 1)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"\r{fit(text, width)}\r" if not text else f"\r{fit(text, width)}")
            sys.stderr.flush()
        self._shown = len(text)

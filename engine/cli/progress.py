"""Progress of long work: one line on stderr, where that is a terminal."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from types import TracebackType

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

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown:
            self._draw("")

    def watch(self, done: int, total: int, site: str) -> None:
        if self._live and time.monotonic() >= self._next:
            self._draw(f"layerstep: step {done}/{total} {site}")
            self._next = time.monotonic() + EVERY

    def _draw(self, text: str) -> None:
        # Blanks and not an escape sequence, so that nothing but text is ever written here.
        width = max(1, shutil.get_terminal_size().columns - 1)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"\r{fit(text, width)}\r" if not text else f"\r{fit(text, width)}")
            sys.stderr.flush()
        self._shown = len(text)

"""Ctrl+C during long arithmetic."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

from engine.cli.streams import say_error

PATIENCE = 1.0
"""Seconds in which the ordinary way, an exception, may end the work."""


@contextlib.contextmanager
def prompt_interrupts() -> Iterator[None]:
    """Within this, Ctrl+C ends the process even if one operation of minutes does not come back to Python.

    Only for work that leaves nothing half done: the process ends where it stands.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    over = threading.Event()

    def watch() -> None:
        while number := os.read(heard, 1):
            if number[0] == signal.SIGINT and not over.wait(PATIENCE):
                say_error("cancelled")
                os._exit(130)
        os.close(heard)

    threading.Thread(target=watch, name="ctrl-c", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(told)

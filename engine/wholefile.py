"""Files that are written whole or not at all, and are on the disk before they have their name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(target: Path, mode: int | None = None, check: Callable[[], object] = lambda: None) -> Iterator[int]:
    """A new file that takes the place of ``target`` once it is complete and on the disk; else it is removed.

    ``mode`` are its permissions (None: the usual ones); ``check`` is asked before it gets its name, and may raise.
    """
    temporary = target.with_name(f".layerstep-{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        fd = os.open(temporary, flags, 0o666)
        try:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, mode)
            yield fd
            os.fsync(fd)
        finally:
            os.close(fd)
        check()  # again: another process may have written there meanwhile
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise

"""Files that are written whole or not at all, and are on the disk before they have their name; and what is said where
one cannot be. ``kind`` is the error that is raised then: one line, with what to do."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from engine.errors import LayerstepError
from engine.text import display

Kind = type[LayerstepError]


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


@contextmanager
def whole_file(path: Path, kind: Kind, *, force: bool = False, size: int = 0) -> Iterator[BinaryIO]:
    """A file to write to, which is at ``path`` once that is done. ``size``: how many bytes it will be, where known.

    Raises ``kind`` where it exists, unless ``force``, and where it cannot be written.
    """
    with said(path, kind, size):
        place, mode = target(path, kind, force=force)
        check = partial(target, path, kind, force=force)
        with replacing(place, mode, check) as fd, open(fd, "wb", closefd=False) as file:
            yield file


def check_target(path: Path, kind: Kind, *, force: bool = False) -> None:
    """Refuse a place that could not be written to, before there is anything to write. Raises ``kind``."""
    with said(path, kind):
        folder = target(path, kind, force=force)[0].parent
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def target(path: Path, kind: Kind, *, force: bool) -> tuple[Path, int | None]:
    """The file that ``path`` leads to, links followed, and its permissions where it is there to be replaced."""
    check_path(path, kind)
    place = Path(os.path.realpath(path))
    try:
        mode = place.lstat().st_mode
    except FileNotFoundError:
        return place, None
    check_ordinary(path, mode, "choose another name", kind)
    if not force:
        raise kind(f"{shown(path)} exists already; choose another name, or replace it with force (--force)")
    return place, stat.S_IMODE(mode)


def check_path(path: Path, kind: Kind) -> None:
    """Refuse a path with characters that no file name can have."""
    try:
        is_path = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise kind(f"{shown(path)} holds characters that no file name can have; choose another name")


def check_ordinary(path: Path, mode: int, advice: str, kind: Kind) -> None:
    """Refuse a folder, a pipe and a device."""
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
        raise kind(f"{shown(path)} is {what}; {advice}")


@contextmanager
def said(path: Path, kind: Kind, size: int = 0) -> Iterator[None]:
    """Say an error of the operating system in one line that names what to do."""
    try:
        yield
    except OSError as error:
        folder = shown(path.parent)
        if error.errno == errno.ENOENT:
            why = f"there is no folder {folder}; create it or choose another"
        elif error.errno in {errno.ENOSPC, errno.EDQUOT}:
            needed = f" ({size:,} bytes are needed)" if size else ""
            why = f"the disk is full{needed}; make room, or choose another folder"
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            why = f"no permission to write in the folder {folder}; choose another"
        else:
            why = f"{short(error.strerror or error)}; choose another place"
        raise kind(f"{shown(path)} cannot be written: {why}") from None


def shown(path: Path) -> str:
    """A path as it is printed."""
    return display(str(path))


def short(what: object) -> str:
    """The beginning of an error's text."""
    return display(str(what))[:120]

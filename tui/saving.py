"""Files of what is shown: the screen as text and as SVG, a picture's numbers as CSV. Whole, or not there at all."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from textual.geometry import Region
from textual.strip import Strip

from engine.csvtext import as_csv as as_csv
from engine.wholefile import replacing
from tui.render.svg import printable, svg
from tui.text import foreign


@dataclass(frozen=True, slots=True)
class Picture:
    """A screen as it was at one moment: its lines, and the colours where a cell has none of its own.

    ``pane`` is where the pane with the focus lies."""

    strips: tuple[Strip, ...]
    width: int
    pane: Region
    title: str
    ground: str
    ink: str

    def part(self, region: Region) -> Picture:
        """What lies in a region."""
        rows = self.strips[region.y : region.bottom]
        strips = tuple(strip.crop(region.x, region.right) for strip in rows)
        return replace(self, strips=strips, width=region.width)

    def text(self) -> str:
        """Its lines, without blanks at their ends."""
        return "".join(f"{printable(strip.text.rstrip())}\n" for strip in self.strips)

    def svg(self) -> str:
        """Itself as SVG."""
        return svg([list(strip) for strip in self.strips], self.width, self.title, self.ground, self.ink)


@asynccontextmanager
async def new_file(path: Path, force: bool = False) -> AsyncIterator[BinaryIO]:
    """A file that is at ``path`` once it is complete and on the disk; else nothing of it stays.

    Raises FileExistsError where there is one already, unless ``force``, and OSError.
    """

    def check() -> None:
        if not force and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "it exists already", str(path))

    check()
    with replacing(path.resolve() if path.is_symlink() else path, check=check) as fd:
        with open(fd, "wb", closefd=False) as file:
            yield file
        await asyncio.to_thread(os.fsync, fd)


def why_not(error: OSError, path: Path) -> str:
    """Why a file could not be written, in one line that says what to do."""
    folder = foreign(path.parent)
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            why = f"there is no folder {folder}; create it or choose another"
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            why = "there is no room for it; make room, or choose another folder"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            why = f"no permission to write in the folder {folder}; choose another"
        case errno.ENAMETOOLONG:
            why = "the name is too long; choose a shorter one"
        case _:
            why = f"{foreign(error.strerror or error).lower()}; choose another place"
    return f"{foreign(path)} cannot be written: {why}"

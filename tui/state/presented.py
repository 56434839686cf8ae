"""What a tour that is played shows just now, in a small file of its own, so that a second terminal can follow it.

There is one file for each app that plays a tour, named by its process; it is written whole or not at all, and one that
nobody owns any more, or that is not ours, counts as none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any

from engine.wholefile import replacing

FORMAT = 1
LARGEST = 1 << 20
"""Bytes of such a file at most."""
NAME = "presenting-{}.json"
KINDS = {"int": (int,), "str": (str,), "bool": (bool,), "float": (int, float)}


@dataclass(frozen=True, slots=True)
class Presented:
    """A stop as it is shown, its texts in Markdown with their numbers in place. Times are seconds since 1970.

    ``file``: of the tour, '' where that is not known; ``following``: the title of the next stop, '' after the last one.
    """

    process: int
    title: str
    stops: int
    file: str = ""
    began: float = 0.0
    at: int = 0
    arrived: float = 0.0
    stop: str = ""
    narration: str = ""
    question: str = ""
    answer: str = ""
    answered: bool = False
    notes: str = ""
    following: str = ""
    blank: bool = False


def publish(folder: Path, shown: Presented) -> None:
    """Write what is shown, for nobody else to read. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **asdict(shown)})
    path = folder / NAME.format(shown.process)
    with replacing(path, mode=0o600) as fd, open(fd, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)


def withdraw(folder: Path, process: int) -> None:
    """It is played no longer."""
    with suppress(OSError):
        (folder / NAME.format(process)).unlink()


def presented(folder: Path) -> list[Presented]:
    """The tours that are played now, the newest first."""
    return sorted(_living(folder), key=lambda shown: (-shown.began, shown.process))


def _living(folder: Path) -> Iterator[Presented]:
    try:
        paths = list(folder.glob(NAME.format("*")))
    except OSError:
        return
    for path in paths:
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            shown = _read(path)
            if shown.process == int(path.stem.partition("-")[2]) and lives(shown.process):
                yield shown


def lives(process: int) -> bool:
    """Whether a process runs."""
    if os.name != "posix":
        return True  # os.kill would end it there
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return isinstance(process, int) and process < 2**31
    return True


def _read(path: Path) -> Presented:
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    found: dict[str, Any] = json.loads(data.decode("utf-8"))
    if len(data) > LARGEST or found.pop("format") != FORMAT:
        raise ValueError("not ours")
    shown = Presented(**found)
    for one in fields(Presented):
        value = getattr(shown, one.name)
        if type(value) not in KINDS[str(one.type)] or (isinstance(value, float) and not isfinite(value)):
            raise TypeError(one.name)
    return shown

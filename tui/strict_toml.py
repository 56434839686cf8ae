"""TOML that somebody else wrote: bytes become tables, or one line says why they do not."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tui.settings import LARGEST


class Unreadable(Exception):
    """Why a file is not read; ``line``: where, 0 where that is not known."""

    def __init__(self, words: str, line: int = 0) -> None:
        super().__init__(words)
        self.line = line


def decoded(data: bytes, what: str) -> str:
    """The text of a file that should be ``what``. Raises Unreadable."""
    if len(data) > LARGEST:
        raise Unreadable(f"is no {what}: over a megabyte")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 (at byte {error.start})") from None


def loads(text: str, what: str) -> dict[str, Any]:
    """The tables in a text. Raises Unreadable."""
    with bounds(what):
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            said = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error))
            raise Unreadable(f"is no TOML: {said[1] if said else error}", int(said[2]) if said else 0) from None


@contextmanager
def bounds(what: str) -> Iterator[None]:
    """What Python cannot hold of a file is said as the rest of what is wrong with it. Raises Unreadable."""
    try:
        yield
    except RecursionError:
        raise Unreadable(f"is no {what}: its tables are nested too deep") from None
    except ValueError:  # int() and str() end at some thousands of digits
        raise Unreadable(f"is no {what}: a number in it has thousands of digits") from None

"""TOML that somebody else wrote: bytes become tables, or one line says why they do not; and texts as TOML has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LARGEST = 1 << 20
"""Bytes of a file at most: settings and tours are small."""

DEEPEST = 50
"""Parts of a key at most: what tomllib notes of one grows with their square."""

_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEEPEST}}}", re.ASCII)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


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
    import tomllib

    if deep := _DEEP_KEY.search(text):
        raise Unreadable(f"is no {what}: a key has more than {DEEPEST} parts", text.count("\n", 0, deep.start()) + 1)
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


def written(text: str) -> str:
    """A text as TOML has it on one line. Half a surrogate pair, which no file can hold, is U+FFFD."""
    return '"' + "".join(_ESCAPES.get(char) or _plain(char) for char in _whole(text)) + '"'


def written_lines(text: str) -> str:
    """A text in TOML over as many lines as it has; read back it ends with a line break more."""
    lines = _whole(text).replace("\\", "\\\\").replace('"""', '""\\"')
    return '"""\n' + "".join(char if char in "\n\t" else _plain(char) for char in lines) + '\n"""'


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _plain(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x20 or ord(char) == 0x7F else char

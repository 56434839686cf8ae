"""The files of a tokenizer, read as hostile input, and the library's failures, said in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from engine.checkpoints.folder import inside
from engine.errors import CheckpointError, TokenizerError
from engine.text import display

T = TypeVar("T")
Settings = Mapping[str, Mapping[str, Any]]
"""The JSON files beside a tokenizer, by name."""

MAX_TOKENIZER_BYTES: Final = 256 * 2**20
"""The largest tokenizer file that is read; the largest in use are around 35 MB."""
MAX_SETTINGS_BYTES: Final = 16 * 2**20

IDS_IN: Final = ("config.json", "generation_config.json")
"""The files that give control tokens by id."""
SETTINGS: Final = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", *IDS_IN)


def read_settings(folder: Path) -> dict[str, dict[str, Any]]:
    """The JSON files beside a tokenizer; a file that is not there is empty."""
    return {name: read_object(folder / name) for name in SETTINGS}


def read_object(file: Path, limit: int = MAX_SETTINGS_BYTES) -> dict[str, Any]:
    """A JSON object from a file, empty where there is no file. Raises TokenizerError."""
    if not os.path.lexists(file):
        return {}
    data = read(file, limit)
    settings = guarded(lambda: json.loads(data), f"{display(str(file))} is not JSON")
    if not isinstance(settings, dict):
        raise TokenizerError(f"{display(str(file))} is not a JSON object")
    return settings


def read_text(file: Path, limit: int) -> str:
    """The text of a UTF-8 file. Raises TokenizerError."""
    try:
        return read(file, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{display(str(file))} is not UTF-8 text (at byte {error.start:,})") from None


def read(file: Path, limit: int | None = None) -> bytes:
    """The bytes of a file from outside: an ordinary file, not an endless one, and really in its folder."""
    limit = MAX_TOKENIZER_BYTES if limit is None else limit
    if not file.is_file():
        raise TokenizerError(f"there is no tokenizer at {display(str(file))}; give a folder with a tokenizer.json")
    path = inside(file.parent, file.name)
    if (size := path.stat().st_size) > limit:
        raise TokenizerError(f"{display(str(file))} has {size:,} bytes, the limit is {limit:,}; is it the right file?")
    return path.read_bytes()


def guarded(call: Callable[[], T], what: str) -> T:
    """Call into the library, turning every way in which it fails into one line."""
    try:
        return call()
    except (TokenizerError, CheckpointError):
        raise
    except Exception as error:
        raise TokenizerError(f"{what}: {_reason(error)}") from None
    except BaseException as error:
        # A panic in the library's Rust code is no Exception, and its class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{what}: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return display(" ".join(text.split()))[:300] or type(error).__name__

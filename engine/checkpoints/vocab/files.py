"""The files of a tokenizer, read as hostile input, and the library's failures, said in one line."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from engine.checkpoints.folder import inside, refuse_dense, refuse_pointer
from engine.errors import LayerstepError, TokenizerError
from engine.text import display

T = TypeVar("T")
Settings = Mapping[str, Mapping[str, Any]]
"""The JSON files beside a tokenizer, by name."""

MAX_TOKENIZER_BYTES: Final = 128 * 2**20
"""The largest tokenizer.json that is read; the largest in use are around 35 MB."""
MAX_VOCABULARY_BYTES: Final = 64 * 2**20
"""The largest of any other file that holds a vocabulary."""
MAX_SETTINGS_BYTES: Final = 16 * 2**20
MAX_PIECES: Final = 2**20
"""XLM-V has 901,629; most have up to 262,144. A vocabulary's own file holds no more values in JSON, nor more lines."""
MAX_ADDED: Final = 2**17
"""Tokens beside the vocabulary, each of which takes long to add; models of speech have up to 65,536."""
MAX_VALUES: Final = 2**22
"""Values in a tokenizer.json: Gemma 3's pieces and merges make 1.9 million."""

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
    refuse_dense(file, data, MAX_PIECES)
    settings = guarded(lambda: json.loads(data), f"{display(str(file))} is not JSON")
    if not isinstance(settings, dict):
        raise TokenizerError(f"{display(str(file))} is not a JSON object")
    return settings


def read_text(file: Path, limit: int, folder: Path | None = None) -> str:
    """The text of a UTF-8 file. Raises TokenizerError."""
    try:
        return read(file, limit, folder).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{display(str(file))} is not UTF-8 text (at byte {error.start:,})") from None


def read(file: Path, limit: int, folder: Path | None = None) -> bytes:
    """The bytes of a file from outside: an ordinary file, not an endless one, and really in its folder.

    ``folder`` is the model's, where the file lies in a folder of it. A file of JSON is read on only where it begins as
    an object does. Raises TokenizerError or CheckpointError.
    """
    folder = folder or file.parent
    where, path = display(str(file)), inside(folder, str(file.relative_to(folder)))
    try:
        status = path.stat()
    except FileNotFoundError:
        raise TokenizerError(f"there is no tokenizer at {where}; give a folder with a tokenizer.json") from None
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
        raise TokenizerError(f"{where} is no ordinary file")
    if status.st_size > limit:
        raise TokenizerError(f"{where} has {status.st_size:,} bytes, the limit is {limit:,}; is it the right file?")
    with path.open("rb") as opened:
        start = opened.read(4096)
        refuse_pointer(file, start)
        if file.suffix == ".json" and not start.lstrip().startswith(b"{"):
            raise TokenizerError(f"{where} is not a JSON object")
        opened.seek(0)
        return opened.read(limit)


def refuse_many(count: int, what: str, file: Path | str, most: int = MAX_PIECES) -> None:
    """Refuse a file of more pieces than any model's, which would take long and fill memory. Raises TokenizerError."""
    if count > most:
        raise TokenizerError(f"{display(str(file))} has {count:,} {what}, the limit is {most:,}")


def guarded(call: Callable[[], T], what: str) -> T:
    """Call into the library, turning every way in which it fails into one line."""
    try:
        with _quiet():
            return call()
    except LayerstepError:
        raise
    except Exception as error:
        raise TokenizerError(f"{what}: {_reason(error)}") from None
    except BaseException as error:
        # A panic in the library's Rust code is no Exception, and its class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{what}: {_reason(error)}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep off the terminal what the library's Rust code itself writes there when it panics.

    Not where another thread might write at the same time: the TUI's pictures go the same way.
    """
    if threading.active_count() > 1:
        yield
        return
    try:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # there is no terminal, or no more files can be opened
        yield
        return
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return display(" ".join(text.split()))[:300] or type(error).__name__

"""Reading a model folder as hostile input: nothing outside it is opened, and no file is larger than what it is for."""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from engine.errors import CheckpointError
from engine.text import display

T = TypeVar("T")

MAX_JSON_BYTES = 16 * 1024 * 1024
"""The largest index in use has some 14 MB, for 140,000 tensors."""
MAX_JSON_VALUES = 400_000
"""A value may be two characters, and takes many times their memory."""
FOREIGN = {"tf_model.h5": "TensorFlow", "flax_model.msgpack": "Flax", "rust_model.ot": "Rust"}
"""Weights that transformers knew of and nothing reads here."""
_SHARED_BLOB = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}")


def shown(path: Path | str) -> str:
    """A path as it may be printed."""
    return display(str(path))


def is_folder(path: Path) -> bool:
    """Whether there is a folder at ``path``, which may be any text at all."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long
        return False


def inside(folder: Path, name: str) -> Path:
    """``folder/name`` if it really lies in the folder, links followed. Raises CheckpointError where it leads out.

    A snapshot in Hugging Face's cache, ``models--…/snapshots/REVISION``, is links into the ``blobs`` beside
    ``snapshots`` (or into those that the cache's repositories share), so there and only there such a link is followed;
    ``folder`` is then the snapshot itself, and ``name`` may name a file in a folder of it.
    """
    try:
        root = folder.resolve()
        path = (root / name).resolve()
        if os.path.islink(path):  # what remains of a loop where resolve does not raise
            raise RuntimeError
    except RuntimeError:
        raise CheckpointError(f"{display(name)[:200]!r} in {shown(folder)} is a link that leads to itself") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{display(name)[:200]!r} in {shown(folder)} is no file name: {display(str(error))[:100]}"
        ) from None
    if Path(name).is_absolute() or not (path.is_relative_to(root) or _is_blob(root, name, path)):
        raise CheckpointError(f"{shown(folder)}: {display(name)[:200]!r} leads out of the model folder; it is refused")
    return path


def hub_repo(folder: Path) -> Path | None:
    """The repository's folder in Hugging Face's cache, where ``folder`` is one of its snapshots."""
    repo = folder.parent.parent
    return repo if folder.parent.name == "snapshots" and repo.name.startswith("models--") else None


def name_of(folder: Path) -> str:
    """What a model is called that lies in a folder: the folder's name, or that of the repository on the hub."""
    folder = folder.resolve()
    repo = hub_repo(folder)
    return display(repo.name.removeprefix("models--").replace("--", "/") if repo else folder.name)[:200]


def _is_blob(root: Path, name: str, path: Path) -> bool:
    repo = hub_repo(root)
    if repo is None or ".." in Path(name).parts:
        return False
    shared = repo.parent / "blobs"
    return path.parent == repo / "blobs" or (
        path.is_relative_to(shared) and bool(_SHARED_BLOB.fullmatch(path.relative_to(shared).as_posix()))
    )


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object from ``folder/name``. Raises CheckpointError where it is missing, too large or not one."""
    return _parsed(*_text(folder, name), dict, "object")


def read_json_list(folder: Path, name: str) -> list[Any]:
    """A JSON list from ``folder/name``; as ``read_json``."""
    return _parsed(*_text(folder, name), list, "list")


def _text(folder: Path, name: str) -> tuple[Path, bytes]:
    path = inside(folder, name)
    try:
        status = path.stat()
        data = b"" if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_JSON_BYTES else path.read_bytes()
    except FileNotFoundError:
        what = f"{shown(folder)} has no {name}; it is no model folder, or {unfinished(folder)}"
        raise CheckpointError(what) from None
    except OSError as error:
        raise CheckpointError(f"{shown(path)} cannot be read: {error.strerror or error}") from None
    refuse_special(path, status)
    if status.st_size > MAX_JSON_BYTES:
        raise CheckpointError(f"{shown(path)} is {status.st_size} bytes; more than {MAX_JSON_BYTES} is no {name}")
    refuse_pointer(path, data)
    refuse_dense(path, data)
    return path, data


def refuse_special(path: Path, status: os.stat_result | None = None) -> None:
    """Refuse a folder, a pipe or a device: opening one may wait for ever."""
    if not stat.S_ISREG((status or path.stat()).st_mode):
        raise CheckpointError(f"{shown(path)} is no ordinary file")


def _parsed(path: Path, text: bytes, kind: type[T], called: str) -> T:
    try:
        data = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{shown(path)} is not JSON: {display(str(error))[:200]}") from None
    if not isinstance(data, kind):
        raise CheckpointError(f"{shown(path)} must hold a JSON {called}, but holds a {type(data).__name__}")
    return data


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a key that stands in it twice would mean one thing here and another elsewhere."""
    found = dict(pairs)
    if len(found) != len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {key[:80]!r} stands there twice")
    return found


def refuse_dense(path: Path | str, text: bytes, most: int = MAX_JSON_VALUES) -> None:
    """Refuse JSON of more values than any model's, which would fill memory."""
    if (values := sum(map(text.count, (b",", b"[", b"{")))) > most:
        raise CheckpointError(f"{shown(path)} holds some {values} values; more than {most} are no model's")


def refuse_pointer(path: Path, start: bytes) -> None:
    """Refuse a file that is only git-lfs's word for another, by how it starts."""
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        raise CheckpointError(
            f"{shown(path)} is a git-lfs pointer and not the file itself; run `git lfs pull` in its folder"
        )


def foreign(files: Collection[str]) -> str:
    """What is to be said of a folder's files where its weights are another library's; nothing where they are not."""
    found = next((file for file in FOREIGN if file in files), None)
    return f"its weights are {FOREIGN[found]}'s, in {found}, which layerstep does not read" if found else ""


def unfinished(folder: Path) -> str:
    """What is to be said of a file that is missing: an interrupted download leaves a mark."""
    repo = hub_repo(folder.resolve())
    places = [folder, folder / ".cache" / "huggingface" / "download", *([repo / "blobs"] if repo else [])]
    for place in places:
        for pattern in ("*.incomplete", "*.part", "*.crdownload", "*.aria2"):
            if found := next(place.glob(pattern), None):
                return f"the download is incomplete ({display(found.name)[:80]} is left of it); download it again"
    return "the download is incomplete"

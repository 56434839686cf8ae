"""What the app remembers from one run to the next: where it was left, its panes, and that it was seen.

One small JSON file. It is written whole or not at all, and one that is not ours counts as none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any

from engine.text import display
from engine.wholefile import replacing
from tui.state.drawing import MODES
from tui.state.sampling import Sampling

FORMAT = 1
LARGEST = 16 << 20
"""Bytes of the file at most; a prompt is in it."""
REQUEST = ("model", "prompt", "file", "chat", "target")
"""What of a request is remembered, beside its edits: never a permission that was given for once."""
PANES = ("", "tree", "stage", "why")


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is remembered. ``tree`` and ``why`` are panes asked for or hidden; None leaves them to the width."""

    request: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    address: str = ""
    views: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    shades: bool | None = None
    zoom: int = 0
    scale: str = ""
    limit: float = 0.0
    tree: bool | None = None
    why: bool | None = None
    maximised: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    seen: bool = False


def recall(path: Path | None) -> tuple[Remembered, str]:
    """What is remembered, and why it is not where a file is there that cannot be read. None: nothing is."""
    if path is None:
        return Remembered(), ""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return Remembered(), ""
    except OSError as error:
        return Remembered(), f"what was remembered cannot be read: {(error.strerror or str(error)).lower()}"
    try:
        if len(data) > LARGEST:
            raise ValueError("too long")
        return _read(json.loads(data.decode("utf-8"))), ""
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return Remembered(), f"{display(str(path))} is no session of layerstep's, so it is left out"


def _read(found: Any) -> Remembered:
    if found["format"] != FORMAT:
        raise ValueError("another format")
    known = {one.name for one in fields(Remembered)}
    given = {name: value for name, value in found.items() if name in known}
    read = Remembered(**given)
    request: dict[str, Any] = {name: _typed(read.request[name], str) for name in REQUEST if name in read.request}
    if edits := [_typed(edit, str) for edit in _typed(read.request.get("edits", []), list)]:
        request["edits"] = edits
    views = {_typed(name, str): _typed(view, str) for name, view in read.views.items()}
    for name in ("shades", "tree", "why"):
        if getattr(read, name) is not None:
            _typed(getattr(read, name), bool)
    if _typed(read.maximised, str) not in PANES:
        raise ValueError("no pane")
    _typed(read.seen, bool)
    _typed(read.address, str)
    if _typed(read.scale, str) not in ("", *MODES):
        raise ValueError("no scale")
    limit = float(_finite(_typed(read.limit, int | float)))
    zoom = max(0, min(_typed(read.zoom, int), 99))
    return replace(
        read, request=request, views=views, zoom=zoom, limit=limit, sampling=_sampling(found.get("sampling") or {})
    )


def _sampling(found: Mapping[str, Any]) -> Sampling:
    """A sampling whose figures are figures; whether they are in range is for the engine to say."""
    usual = Sampling()
    for one in fields(Sampling):
        value = found.get(one.name, getattr(usual, one.name))
        if one.name == "stop":
            _typed(value, str)
        elif value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(one.name)
        elif value is not None:
            _finite(value)
        usual = replace(usual, **{one.name: value})
    if usual.tokens is None:
        raise TypeError("tokens")
    return usual


def _finite(value: float) -> float:
    """A number that JSON has and a float holds. Raises ValueError and OverflowError."""
    if not isfinite(value):
        raise ValueError("not finite")
    return value


def _typed(value: Any, kind: type | UnionType) -> Any:
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise TypeError(str(kind))
    return value


def remember(path: Path | None, what: Remembered) -> None:
    """Write it, whole or not at all, for nobody else to read. Raises OSError."""
    if path is None:
        return
    data = {name.name: getattr(what, name.name) for name in fields(what)}
    data |= {"request": portable(what.request), "views": dict(what.views), "sampling": asdict(what.sampling)}
    text = json.dumps({"format": FORMAT, **data}, indent=1, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=0o600) as fd, open(fd, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)


def portable(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request that means the same from another folder."""
    kept = {name: request[name] for name in (*REQUEST, "edits") if name in request}
    if "file" in kept:
        kept["file"] = os.path.abspath(kept["file"])
    model = kept.get("model", "")
    if (model.startswith(".") or os.sep in model) and os.path.exists(model):
        kept["model"] = os.path.abspath(model)
    return kept


def first_time(path: Path | None) -> bool:
    """Whether nobody has been here before; False where nothing is remembered, or what is cannot be read."""
    found, wrong = recall(path)
    return path is not None and not found.seen and not wrong


def seen(path: Path | None) -> None:
    """From now on it is not the first time."""
    if path is not None:
        with suppress(OSError):
            remember(path, replace(recall(path)[0], seen=True))

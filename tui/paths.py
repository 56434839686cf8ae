"""Paths and models that a person typed: what is there, and what is wrong with them, in one line."""

from __future__ import annotations

import re
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

from tui.text import foreign

HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]*/)?\w[\w.-]*(@\S+)?", re.ASCII)
"""``owner/name``, the old ones ``name``, perhaps of one revision."""
LONGEST = 80
"""Characters of a path that are shown."""


class Place(NamedTuple):
    """A typed path, what is there (file, folder, other, nothing), and what is wrong with it, or ''."""

    path: Path
    kind: str = "nothing"
    wrong: str = ""


def place(text: str) -> Place:
    """What a typed path leads to."""
    typed = text.strip()
    path = Path(typed)
    try:
        path = path.expanduser()
        mode = path.stat().st_mode
    except FileNotFoundError:
        return Place(path)
    except OSError as error:
        return Place(path, wrong=f"{_shown(typed)}: {(error.strerror or str(error)).lower()}")
    except RuntimeError:  # expanduser
        return Place(path, wrong=f"{_shown(typed)}: there is no such user")
    except ValueError as error:
        return Place(path, wrong=f"that is no path: {error}")
    return Place(path, "file" if S_ISREG(mode) else "folder" if S_ISDIR(mode) else "other")


def at_home(text: str) -> str:
    """A typed path with ``~`` spelled out. Else as it was typed: ``./modern`` is not the sample ``modern``."""
    return str(place(text).path) if text.startswith("~") else text


def model_kind(text: str) -> str:
    """What a typed model is, in words: a place on the disk comes before an id of the hub."""
    typed = text.strip()
    found = place(typed)
    kind = "nothing" if found.wrong else found.kind
    gguf = typed.lower().endswith(".gguf")
    if kind != "nothing":
        return (
            "a folder" if kind == "folder" else "a GGUF file" if gguf else "no model: neither a folder nor a GGUF file"
        )
    if HUB_ID.fullmatch(typed) and not gguf:
        return "from the hub"
    return "no such file" if gguf else "no such folder"


def unreadable(text: str) -> str:
    """Why a typed path cannot be opened; '' where it can."""
    return unwritable(text) or (f"there is no file {_shown(text)}" if place(text).kind == "nothing" else "")


def unwritable(text: str) -> str:
    """Why a typed path is no place for a file; '' where it may be one."""
    _, kind, wrong = place(text)
    if wrong or not text.strip():
        return wrong or "write a path"
    what = {"folder": "a folder", "other": "no ordinary file"}.get(kind)
    return f"{_shown(text)} is {what}" if what else ""


def _shown(text: str) -> str:
    text = text.strip()
    return foreign(text if len(text) <= LONGEST else f"{text[: LONGEST - 20]} …")

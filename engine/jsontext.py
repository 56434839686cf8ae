"""JSON that holds only what RFC 8259 knows, so no NaN and no infinities."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
"""A JSON object."""


def for_anyone(data: object) -> str:
    """JSON for any program: "NaN", "Infinity", "-Infinity" as words; half a surrogate pair, as a path may hold, is
    U+FFFD."""
    return json.dumps(plain(data, words=True), allow_nan=False)


def for_ourselves(data: object) -> str:
    """JSON for the other process of layerstep: null for a number that is not finite, and texts exactly as they are."""
    return json.dumps(plain(data, words=False), allow_nan=False)


def plain(value: Any, *, words: bool) -> Any:
    """JSON's own values: no float that is not finite, lists for tuples; with ``words`` all of it readable outside."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return ("NaN" if value != value else "Infinity" if value > 0 else "-Infinity") if words else None
    if isinstance(value, Mapping):
        return {key: plain(entry, words=words) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, words=words) for entry in value]
    if words and isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value

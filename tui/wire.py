"""Frames of the conversation with the engine: a 4-byte length, a JSON header, raw bytes."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from array import array
from typing import Any

LONGEST_HEADER = 64 * 1024 * 1024
LONGEST_PAYLOAD = 1024 * 1024 * 1024

Header = dict[str, Any]


class WireError(Exception):
    """Bytes that are no frame: the other side is not an engine, or it is broken."""


def pack(header: Header, payload: bytes = b"") -> bytes:
    """One frame. ``bytes`` is set in the header where there is a payload."""
    if payload:
        header = header | {"bytes": len(payload)}
    text = json.dumps(header, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    return struct.pack(">I", len(text)) + text + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[Header, bytes]:
    """The next frame. Raises IncompleteReadError at the end of the pipe, WireError where it is no frame."""
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    if length > LONGEST_HEADER:
        raise WireError(f"a header of {length} bytes")
    try:
        header = json.loads(await reader.readexactly(length))
    except ValueError as error:
        raise WireError(f"a header that is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise WireError("a header that is no object")
    size = header.get("bytes", 0)
    if not isinstance(size, int) or not 0 <= size <= LONGEST_PAYLOAD:
        raise WireError(f"a payload of {size!r} bytes")
    return header, await reader.readexactly(size) if size else b""


def floats(payload: bytes) -> array[float]:
    """The float32 little-endian values of a payload."""
    values = array("f")
    values.frombytes(payload[: len(payload) // 4 * 4])
    if sys.byteorder == "big":
        values.byteswap()
    return values

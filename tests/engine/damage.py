"""Ways to damage a trace file, by accident and on purpose, for the tests and for `tests/fuzz`."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Iterator
from typing import Any

CHECKSUM = re.compile(rb'\\"checksum\\":\\"([0-9a-f]{8})\\"')


def header_length(data: bytes) -> int:
    """The bytes of a file before its tensors' data."""
    return 8 + int.from_bytes(data[:8], "little")


ACCIDENTS = ("bit", "byte", "cut", "insert", "delete", "zeros", "copy", "repeat", "append", "prepend")


def accidents(data: bytes, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """Endlessly: what a disk, a network or an editor may do to a file, with the name of what was done."""
    header = header_length(data)
    regions = {"length": (0, 8), "header": (8, header), "data": (header, len(data)), "file": (0, len(data))}
    while True:
        kind, region = draw.choice(ACCIDENTS), draw.choice(list(regions))
        start, stop = regions[region]
        at = draw.randrange(start, max(start + 1, stop))
        yield f"{kind} in {region} at {at}", _damaged(kind, data, at, draw)


def _damaged(kind: str, data: bytes, at: int, draw: random.Random) -> bytes:
    n = min(draw.choice([1, 1, 2, 3, 8, 64, 512]), len(data) - at)
    before, here, after = data[:at], data[at : at + n], data[at + n :]
    match kind:
        case "bit":
            return before + bytes([here[0] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        case "byte":
            return before + bytes([here[0] ^ draw.randrange(1, 256)]) + data[at + 1 :]
        case "cut":
            return before
        case "insert":
            return before + draw.randbytes(n) + here + after
        case "delete":
            return before + after
        case "zeros":
            return before + bytes(n) + after
        case "copy":
            other = draw.randrange(len(data) - n + 1)
            return before + data[other : other + n] + after
        case "repeat":
            return before + here + here + after
        case "append":
            return data + draw.randbytes(n)
    return draw.randbytes(n) + data


def sealed(data: bytes) -> bytes:
    """The file with length and header checksum made right, as somebody would who wants to deceive us."""
    found = CHECKSUM.search(data, 0, header_length(data))
    if not found:
        return data
    zeroed = data[: found.start(1)] + b"00000000" + data[found.end(1) : header_length(data)]
    return data[: found.start(1)] + f"{zlib.crc32(zeroed):08x}".encode() + data[found.end(1) :]


def parts(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """What a file holds: the table of tensors, what layerstep added, and the data."""
    header = header_length(data)
    table = json.loads(data[8:header])
    ours = json.loads(table.pop("__metadata__")["layerstep"])
    return table, ours, data[header:]


def assembled(table: object, ours: object, data: bytes = b"") -> bytes:
    """A file with this table and this addition to it, whatever they are, its header checksum right."""
    metadata = {"__metadata__": {"layerstep": json.dumps(ours, separators=(",", ":"))}}
    outer = json.dumps(metadata | table if isinstance(table, dict) else table, separators=(",", ":")).encode()
    outer = outer.ljust(-(-(8 + len(outer)) // 64) * 64 - 8)
    return sealed(len(outer).to_bytes(8, "little") + outer + data)


STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 63, 64, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308,
    "", "0", "F32", "I64", "BOOL", "a\nb\x1b[31m", "\ud83d", "x" * 300, [], [0], [1, 2], [2**32, 2**32], [0, 2**62, 4],
    {}, {"a": 1}, [[]], [None], [-1],
)  # fmt: skip


def forgeries(data: bytes, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """Endlessly: files whose checksum is right and whose header says something else than was saved."""
    table, ours, body = parts(data)
    while True:
        whole = json.loads(json.dumps({"table": table, "ours": ours}))
        done = [_forge(whole, draw) for _ in range(draw.choice([1, 1, 1, 2, 4]))]
        yield "; ".join(done), assembled(whole["table"], whole["ours"], body)


def _forge(whole: dict[str, Any], draw: random.Random) -> str:
    """Change one place of a nested object."""
    places = [(holder, key, path) for holder, key, path in _places(whole, "") if path.count("/") > 1]
    if not places:
        return "nothing"
    holder, key, path = draw.choice(places)
    value = holder[key]
    kind = draw.randrange(6)
    if kind == 0:
        del holder[key]
        return f"{path} removed"
    if kind == 5 and isinstance(holder, dict) and key:
        at = draw.randrange(len(key))
        other = key[:at] + draw.choice("0123-@.a") + key[at + draw.randrange(2) :]
        holder[other] = holder.pop(key)
        return f"{path} renamed {other!r}"
    if kind == 1 and type(value) is int:
        holder[key] = value + draw.choice([-1, 1, -8, 8, 64, 1000, 2**40])
    elif kind == 2:
        holder[key] = _copied(draw.choice(places)[0], draw)
    elif kind == 3 and isinstance(value, str) and value:
        at = draw.randrange(len(value))
        holder[key] = value[:at] + draw.choice("0f \n\x00é\ud800[.") + value[at + 1 :]
    else:
        holder[key] = json.loads(json.dumps(draw.choice(STRANGE)))
    return f"{path} = {holder[key]!r:.60}"


def _copied(holder: Any, draw: random.Random) -> Any:
    values = list(holder.values()) if isinstance(holder, dict) else list(holder)
    return json.loads(json.dumps(draw.choice(values))) if values else None


def _places(value: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    if not isinstance(value, dict | list):
        return
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key, f"{path}/{key}"
        yield from _places(value[key], f"{path}/{key}")

"""Numbers as JSON that any program reads (RFC 8259): a whole trace, or one picture.

A float32 is the shortest text that is read back as the same float32. What is not finite is one of the strings "NaN",
"Infinity" and "-Infinity". ``schema/trace.schema.json`` says what else there is. The file is written piece by piece.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import BinaryIO

import orjson
import torch
from torch import Tensor

from engine.export import contents
from engine.export.order import Order
from engine.export.selection import Part, parts, tensor
from engine.jsontext import Json, for_anyone
from engine.ops.base import Text
from engine.pictures import Picture, picture
from engine.runtime import Watch
from engine.summary import INPUTS
from engine.traces import Trace

SCHEMA = "urn:layerstep:schema:trace:1"
FLOAT, DOUBLE, WHOLE = 11, 21, 4
"""About how many bytes a number takes with what is between two: one of 32 bits and fewer, of 64 bits, a whole one."""
AT_ONCE = 512 * 1024
"""Numbers that are made text in one go."""
WORDS = (b'"NaN"', b'"Infinity"', b'"-Infinity"')
"""What is not finite."""


def schema() -> Json:
    """The JSON Schema (draft 2020-12) of both kinds of file."""
    text = files("engine.export").joinpath("schema/trace.schema.json").read_text("utf-8")
    found: Json = json.loads(text)
    return found


def size(order: Order) -> int | None:
    """About the bytes of the file; None for a picture, which is small."""
    if order.at is not None:
        return None
    found = parts(order.trace, order.selection)
    words = sum(len(about) for about in _abouts(order, found)) + len(_head(order))
    dtypes = (contents.stored(part, contents.asked(order)) for part in found)
    return words + sum(part.numel * _each(dtype) for part, dtype in zip(found, dtypes, strict=True))


def _each(dtype: torch.dtype) -> int:
    return WHOLE if not dtype.is_floating_point else DOUBLE if dtype is torch.float64 else FLOAT


def write(order: Order, file: BinaryIO, watch: Watch | None = None) -> None:
    """Write the trace, or the picture at the address that is named."""
    for piece in _trace(order, watch) if order.at is None else _picture(picture(order.wish, watch), order):
        file.write(piece)


# -- a trace -------------------------------------------------------------------------------------------------------


def _trace(order: Order, watch: Watch | None) -> Iterator[bytes]:
    found, dtype = parts(order.trace, order.selection), contents.asked(order)
    yield f'{_head(order)[:-1]},\n"tensors": [\n'.encode()
    for i, (part, about) in enumerate(zip(found, _abouts(order, found), strict=True)):
        if watch is not None:
            watch(i, len(found), part.site.name)
        yield (b",\n" if i else b"") + f'{about[:-1]}, "values": '.encode()
        yield from nested(tensor(order.trace, part).to(contents.stored(part, dtype)))
        yield b"}"
    yield b"\n]}\n"


def _abouts(order: Order, found: Sequence[Part]) -> Iterator[str]:
    """What each tensor is."""
    told = contents.tensors(found, contents.asked(order))
    for part in found:
        words = _words(order.trace, part.site.name)
        about = {"site": part.site.name, "title": words.title, "formula": words.formula, "latex": words.latex}
        yield for_anyone(about | {"on_path": part.on_path} | told[part.site.name])


def _head(order: Order) -> str:
    told = {"schema": SCHEMA, "format": "layerstep-trace", "version": contents.FORMAT_VERSION}
    return for_anyone(told | contents.about(order.trace) | {"selection": contents.chosen(order.selection)})


def _words(trace: Trace, name: str) -> Text:
    """How people are told of a site."""
    if (step := trace.program.step(name)) is not None:
        return step.op.text
    title, formula, _ = INPUTS.get(name, (name, "", ""))
    return Text(title, formula, "", "")


# -- a picture -----------------------------------------------------------------------------------------------------


def _picture(shown: Picture, order: Order) -> Iterator[bytes]:
    told = {"schema": SCHEMA, "format": "layerstep-picture", "version": contents.FORMAT_VERSION}
    about = contents.about(order.trace)
    told |= {key: about[key] for key in ("made_by", "model", "dtype", "kernel", "prompt", "notices")}
    values = shown.values if shown.place is None else shown.place.tensor
    picture = {"view": shown.view.name if shown.view else None}
    picture |= (shown.told or {}) if shown.place is None else shown.place.about()
    yield f'{for_anyone(told)[:-1]},\n"picture": {for_anyone(picture)[:-1]}'.encode()
    if values is not None:
        dtype = contents.asked(order)
        yield b', "values": '
        yield from nested(values if dtype is None or not values.is_floating_point() else values.to(dtype))
    yield b"}}\n"


# -- numbers -------------------------------------------------------------------------------------------------------


def nested(values: Tensor) -> Iterator[bytes]:
    """Numbers as JSON, nested as their axes are. A 16-bit one is that of the float32 that equals it."""
    values = values.detach().cpu()
    if values.numel() <= AT_ONCE or not values.ndim:
        yield _dumped(values)
        return
    step = max(1, AT_ONCE // max(1, math.prod(values.shape[1:])))
    for start in range(0, values.shape[0], step):
        yield b"," if start else b"["
        if step == 1:
            yield from nested(values[start])
        else:
            yield _dumped(values[start : start + step])[1:-1]
    yield b"]"


def _dumped(values: Tensor) -> bytes:
    wide = values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
    if not wide.ndim or not wide.numel():
        return _worded(orjson.dumps(wide.tolist()), wide)
    return _worded(orjson.dumps(wide.contiguous().numpy(), option=orjson.OPT_SERIALIZE_NUMPY), wide)


def _worded(text: bytes, values: Tensor) -> bytes:
    """The same with a word for each null, which stands for a number that JSON has not."""
    if b"null" not in text:
        return text
    odd = values[~values.isfinite()].tolist()
    if set(odd) == {-math.inf}:  # by far the most: masked scores
        return text.replace(b"null", WORDS[2])
    words = iter([WORDS[0] if value != value else WORDS[1 if value > 0 else 2] for value in odd])
    return re.sub(b"null", lambda _: next(words), text)

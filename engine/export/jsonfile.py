"""Numbers as JSON that any program reads (RFC 8259): a whole trace, or one picture.

A float32 is the shortest text that is read back as the same float32. What is not finite is one of the strings "NaN",
"Infinity" and "-Infinity". ``schema/trace.schema.json`` says what else there is. The file is written piece by piece.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, BinaryIO

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

if TYPE_CHECKING:
    import numpy as np

SCHEMA = "urn:layerstep:schema:trace:1"
NUMBER = {torch.float64: 24}
"""About how many bytes a number takes, of other dtypes 14."""
AT_ONCE = 128 * 1024
"""Numbers that are made text in one go."""


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
    return words + sum(part.numel * NUMBER.get(contents.stored(part, contents.asked(order)), 14) for part in found)


def write(order: Order, file: BinaryIO, watch: Watch | None = None) -> None:
    """Write the trace, or the picture at the address that is named."""
    for piece in _trace(order, watch) if order.at is None else _picture(picture(order.wish, watch), order):
        file.write(piece.encode("ascii"))


# -- a trace -------------------------------------------------------------------------------------------------------


def _trace(order: Order, watch: Watch | None) -> Iterator[str]:
    found, dtype = parts(order.trace, order.selection), contents.asked(order)
    yield _head(order)[:-1] + ',\n"tensors": [\n'
    for i, (part, about) in enumerate(zip(found, _abouts(order, found), strict=True)):
        if watch is not None:
            watch(i, len(found), part.site.name)
        yield (",\n" if i else "") + about[:-1] + ', "values": '
        yield from nested(tensor(order.trace, part).to(contents.stored(part, dtype)))
        yield "}"
    yield "\n]}\n"


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


def _picture(shown: Picture, order: Order) -> Iterator[str]:
    told = {"schema": SCHEMA, "format": "layerstep-picture", "version": contents.FORMAT_VERSION}
    about = contents.about(order.trace)
    told |= {key: about[key] for key in ("made_by", "model", "dtype", "kernel", "prompt", "notices")}
    values = shown.values if shown.place is None else shown.place.tensor
    picture = {"view": shown.view.name if shown.view else None}
    picture |= (shown.told or {}) if shown.place is None else shown.place.about()
    yield for_anyone(told)[:-1] + ',\n"picture": ' + for_anyone(picture)[:-1]
    if values is not None:
        dtype = contents.asked(order)
        yield ', "values": '
        yield from nested(values if dtype is None or not values.is_floating_point() else values.to(dtype))
    yield "}}\n"


# -- numbers -------------------------------------------------------------------------------------------------------


def nested(values: Tensor) -> Iterator[str]:
    """Numbers as JSON, nested as their axes are."""
    values = values.detach().cpu()
    if not values.numel():
        yield json.dumps(values.tolist())
    elif values.numel() <= AT_ONCE:
        yield _grouped(texts(values), values.shape)
    else:
        step = max(1, AT_ONCE // max(1, math.prod(values.shape[1:])))
        yield "["
        for start in range(0, values.shape[0], step):
            yield "," if start else ""
            if step == 1:
                yield from nested(values[start])
            else:
                block = values[start : start + step]
                yield _grouped(texts(block), block.shape)[1:-1]
        yield "]"


def texts(values: Tensor) -> list[str]:
    """Each number as JSON. A 16-bit one is that of the float32 that equals it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wide = values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
    flat = wide.contiguous().reshape(-1).numpy()
    array = pa.array(flat).cast(pa.string())
    for where, word in _unlike(flat) if values.is_floating_point() else ():
        if where.any():
            array = pc.if_else(pa.array(where), word, array)
    found: list[str] = array.to_pylist()
    return found


def _unlike(flat: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    """Where numbers are written in a way of their own: those that JSON has not, and −0, else read as a whole number."""
    import numpy as np

    yield (flat == 0) & np.signbit(flat), "-0.0"
    if not np.isfinite(flat).all():
        yield np.isnan(flat), '"NaN"'
        yield flat == np.inf, '"Infinity"'
        yield flat == -np.inf, '"-Infinity"'


def _grouped(rows: list[str], shape: Sequence[int]) -> str:
    """Texts in brackets, axis by axis from the inside."""
    for n in reversed(shape):
        rows = [f"[{','.join(rows[i : i + n])}]" for i in range(0, len(rows), n)]
    return rows[0]

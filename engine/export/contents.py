"""What a file of numbers says of them: the model, the prompt, the tokens, and of each tensor its axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version

import torch

from engine.dtypes import dtype_name
from engine.export.order import Order
from engine.export.selection import Part, Selection
from engine.jsontext import Json
from engine.text import Token, tokens_to_json
from engine.traces import Trace

FORMAT_VERSION = 1
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def made_by() -> str:
    """This program and its version."""
    try:
        return f"layerstep {version('layerstep')}"
    except PackageNotFoundError:  # run from a folder of sources
        return "layerstep"


def about(trace: Trace) -> Json:
    """The model, the prompt and the passes."""
    return {
        "made_by": made_by(),
        "model": trace.config.name,
        "config": trace.config.to_json(),
        "dtype": dtype_name(trace.dtype),
        "device": trace.device.type,
        "kernel": "+".join(trace.kernels),
        "prompt": trace.prompt,
        "notices": list(trace.notices),
        "tokens": [labelled(row) for row in trace.tokens],
        "source_tokens": [labelled(row) for row in trace.source_tokens],
        "passes": [{"start": p.start, "length": p.length, "seconds": p.seconds} for p in trace.passes],
    }


def labelled(row: Sequence[Token]) -> list[Json]:
    """Tokens, each with its label."""
    return [data | {"label": token.label} for data, token in zip(tokens_to_json(row), row, strict=True)]


def chosen(selection: Selection) -> Json:
    """What was asked for."""
    layers, heads = selection.layers, selection.heads
    return {
        "keep": list(selection.keep),
        "layers": None if layers is None else list(layers),
        "heads": None if heads is None else list(heads),
    }


def tensors(parts: Iterable[Part], dtype: torch.dtype | None) -> Json:
    """Of each tensor, by its site: axes, shape, which heads (all where none are named), and its dtype when recorded and
    here."""
    return {
        part.site.name: {
            "axes": list(part.site.axes),
            "shape": list(part.shape),
            "index": {axis: list(chosen) for axis, chosen in part.index.items()},
            "recorded": dtype_name(part.dtype),
            "dtype": dtype_name(stored(part, dtype)),
        }
        for part in parts
    }


def stored(part: Part, dtype: torch.dtype | None) -> torch.dtype:
    """What a tensor is written in: ``dtype`` where it holds floating-point numbers and one is asked for."""
    return dtype if dtype is not None and part.dtype.is_floating_point else part.dtype


def asked(order: Order) -> torch.dtype | None:
    """The dtype that floating-point numbers are rounded to; None where none are."""
    return DTYPES.get(order.dtype)

"""Opens a saved trace, as hostile input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine import tracefile
from engine.config import ModelConfig
from engine.errors import TraceFileError
from engine.model import DTYPES, Model, load_model
from engine.ops.base import PassInfo
from engine.program import Program, build_program
from engine.text import display, tokens_from_json
from engine.traces import Pass, Trace


def open_trace(path: str | Path, model: str | Path | Model | None = None) -> Trace:
    """Open a saved trace: its header is read, its tensors are mapped when they are asked for.

    Without ``model`` everything that the kept tensors determine can be had; with it, everything. Raises
    TraceFileError where the file is damaged or no trace.
    """
    path = Path(path)
    header, tensors = tracefile.read(path)
    where = display(str(path))
    try:
        config = ModelConfig.from_json(header["config"])
        config = replace(config, name=display(config.name))
        program = build_program(config)
        dtype = DTYPES[header["dtype"]]
        tokens = tuple(tuple(tokens_from_json(row)) for row in header["tokens"])
        labels = {int(key): display(str(value)) for key, value in header["top"].items()}
        passes = tuple(
            _open_pass(where, config, program, dtype, tensors, at, entry) for at, entry in enumerate(header["passes"])
        )
        notices = tuple(display(str(notice)) for notice in header["notices"])
        prompt = str(header["prompt"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceFileError(
            f"{where}: its header is damaged ({display(str(error))[:120]}); record the trace again"
        ) from None
    if not passes or len({p.given["tokens"].shape[0] for p in passes} | {len(tokens)}) != 1:
        raise TraceFileError(f"{where}: its passes and tokens do not fit together; record the trace again")
    if any(len(row) != passes[-1].start + passes[-1].length for row in tokens):
        raise TraceFileError(f"{where}: its passes and tokens do not fit together; record the trace again")
    weights = None
    if model is not None:
        opened = load_model(model, dtype=header["dtype"])
        if replace(opened.config, name=config.name) != config:
            raise TraceFileError(f"{where}: it was recorded with another architecture than {opened.name}'s")
        weights = opened.weights
    return Trace(
        config,
        program,
        weights,
        passes,
        tokens,
        prompt=prompt,
        label_of=lambda i: labels.get(i, f"‹id {i}›"),
        notices=notices,
        source=str(path),
    )


def _open_pass(
    where: str,
    config: ModelConfig,
    program: Program,
    dtype: torch.dtype,
    tensors: tracefile.Tensors,
    at: int,
    entry: Mapping[str, Any],
) -> Pass:
    """One pass of a file, every tensor's shape and dtype checked against the program before any is read."""
    start, length = int(entry["start"]), int(entry["length"])
    batch = tensors.shape(f"tokens@{at}")[0]
    sizes = config.axis_sizes(batch, length, start)
    suffix = f"@{at}"
    names = [key.removesuffix(suffix) for key in tensors if key.endswith(suffix)]
    inputs = {site.name for site in program.inputs}
    for name in names:
        expected = program.shape(program.site(name), sizes)
        if (found := tensors.shape(name + suffix)) != expected:
            raise TraceFileError(f"{where}: {display(name)} is {list(found)}, but the config asks for {list(expected)}")
    for name in ("tokens", "positions", "key_positions"):
        if name not in names or tensors.dtype(name + suffix) is not torch.int64:
            raise TraceFileError(f"{where}: {name} of pass {at} is missing or no int64; record the trace again")
    given = {name: tensors[name + suffix] for name in names if name in inputs}
    kept = _Named(tensors, {name: name + suffix for name in names if name not in inputs})
    info = PassInfo(dtype, bool(entry["dense"]), str(entry["kernel"]), {display(str(name)) for name in entry["ran"]})
    return Pass(start, length, info, given, kept, float(entry["seconds"]))


class _Named(Mapping[str, Tensor]):
    """A pass's tensors in a file, by site."""

    def __init__(self, tensors: Mapping[str, Tensor], keys: Mapping[str, str]) -> None:
        self._tensors, self._keys = tensors, keys

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[self._keys[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

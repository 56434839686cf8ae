"""Opens a saved trace, as hostile input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine import tracefile
from engine.architecture import build_program
from engine.config import ModelConfig
from engine.errors import TraceFileError
from engine.model import DTYPES, Model, load_model
from engine.ops.base import PassInfo
from engine.ops.experts import ChooseExperts
from engine.ops.kernels import CUDA_ONLY, KERNELS
from engine.ops.mask import PADDING, is_dense
from engine.program import Program
from engine.text import Token, display, tokens_from_json
from engine.tracefile import expect
from engine.traces import Pass, Trace, fingerprint


def _inputs(program: Program) -> list[str]:
    """What a pass cannot be without: ids and positions."""
    return [site.name for site in program.inputs if "past" not in site.axes]


def open_trace(path: str | Path, model: str | Path | Model | None = None, *, allow_pickle: bool = False) -> Trace:
    """Open a saved trace: its header is read, its tensors are mapped when they are asked for.

    Without ``model`` everything that the kept tensors determine can be had; with it, everything. ``allow_pickle`` is
    for loading it, as `load_model` has it. Raises TraceFileError where the file is damaged or no trace.
    """
    path = Path(path)
    where = display(str(path))
    header, tensors = tracefile.read(path)
    try:
        config = ModelConfig.from_json(expect(header["config"], dict, f"{where}: config"))
        config = replace(config, name=display(config.name))
        dtype = DTYPES[expect(header["dtype"], str, f"{where}: dtype")]
        tokens = tuple(tuple(tokens_from_json(row)) for row in expect(header["tokens"], list, f"{where}: tokens"))
        source = expect(header["source_tokens"], list, f"{where}: source_tokens")
        sources = tuple(tuple(tokens_from_json(row)) for row in source)
        labels = {int(i): display(expect(label, str, f"{where}: a label")) for i, label in header["top"].items()}
        entries = expect(header["passes"], list, f"{where}: passes")
        notices = tuple(display(expect(n, str, f"{where}: a notice")) for n in header["notices"])
        prompt = expect(header["prompt"], str, f"{where}: prompt")
        recorded_with = expect(header["weights"], str, f"{where}: weights")
        program = build_program(config)
        names = _names(tensors, len(entries))
        passes = tuple(
            _open_pass(where, config, program, dtype, tensors, at, entry, names[at], len(sources[0]) if sources else 0)
            for at, entry in enumerate(entries)
        )
    except TraceFileError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise TraceFileError(
            f"{where}: its header is damaged ({display(str(error))[:120]}); record the trace again"
        ) from None
    if not _fits_together(config, passes, tokens, sources):
        raise TraceFileError(f"{where}: its passes and tokens do not fit together; record the trace again")
    weights = None
    label_of: Callable[[int], str] = lambda i: labels.get(i, f"‹id {i}›")  # noqa: E731

    if model is not None:
        opened = model
        if not isinstance(opened, Model):
            opened = load_model(opened, device="cpu", dtype=header["dtype"], allow_pickle=allow_pickle)
        if replace(opened.config, name=config.name) != config:
            raise TraceFileError(f"{where}: it was recorded with another architecture than {opened.name}'s")
        if (opened.dtype, opened.device.type) != (dtype, "cpu"):
            raise TraceFileError(f"{where}: open it with a model of {header['dtype']} on the cpu")
        if fingerprint(opened.weights) != recorded_with:
            raise TraceFileError(f"{where}: it was recorded with other weights than {opened.name}'s")
        weights = opened.weights
        if opened.tokenizer is not None:
            label_of = opened.tokenizer.label
    return Trace(
        config,
        program,
        weights,
        passes,
        tokens,
        prompt=prompt,
        label_of=label_of,
        notices=notices,
        source=str(path),
        source_tokens=sources,
        fingerprint=recorded_with,
    )


def _names(tensors: tracefile.Tensors, passes: int) -> list[list[str]]:
    """The sites that the file holds of each pass."""
    names: list[list[str]] = [[] for _ in range(passes)]
    for key in tensors:
        site, _, at = key.rpartition("@")
        if not at.isdecimal() or int(at) >= passes:
            raise ValueError(f"{key[:80]} belongs to no pass")
        names[int(at)].append(site)
    return names


def _open_pass(
    where: str,
    config: ModelConfig,
    program: Program,
    dtype: torch.dtype,
    tensors: tracefile.Tensors,
    at: int,
    entry: Mapping[str, Any],
    names: Sequence[str],
    src: int,
) -> Pass:
    """One pass of a file, every tensor's shape and dtype checked against the program before any is read."""
    start, length = (expect(entry[key], int, f"{where}: {key}") for key in ("start", "length"))
    if start < 0 or length < 1:
        raise ValueError(f"pass {at} has {length} tokens after {start}")
    sizes = config.axis_sizes(tensors.shape(f"tokens@{at}")[0], length, start, src)
    inputs, ids = {site.name for site in program.inputs}, _inputs(program)
    for name in names:
        shape, found = program.shape(program.site(name), sizes), tensors.shape(f"{name}@{at}")
        step = program.step(name)
        kind = step.dtype(dtype) if step else torch.int64 if name in ids else dtype
        if found != shape or tensors.dtype(f"{name}@{at}") is not kind:
            held = f"{list(found)} of {tensors.dtype(f'{name}@{at}')}"
            raise TraceFileError(f"{where}: {display(name)} is {held}, but the config asks for {list(shape)} of {kind}")
    if missing := [name for name in ids if name not in names]:
        raise TraceFileError(f"{where}: {missing[0]} of pass {at} is missing; record the trace again")
    kernel = expect(entry["kernel"], str, f"{where}: kernel")
    if kernel not in KERNELS:
        raise ValueError(f"kernel {kernel[:40]!r} is not known")
    key_positions = tensors[f"key_positions@{at}"].tolist()
    source_positions = tensors[f"source_positions@{at}"].tolist() if src else []
    info = PassInfo(
        dtype,
        is_dense(key_positions, 0) and is_dense(source_positions, 0),
        "auto" if kernel in CUDA_ONLY else kernel,
        {display(expect(name, str, f"{where}: ran")) for name in expect(entry["ran"], list, f"{where}: ran")},
        extents=tuple(1 + max(row) for row in key_positions),
    )
    given = {name: tensors[f"{name}@{at}"] for name in names if name in inputs}
    kept = _Named(tensors, {name: f"{name}@{at}" for name in names if name not in inputs})
    for name in kept:  # numbers that pick a weight are looked at before they can
        step = program.step(name)
        if step is not None and isinstance(step.op, ChooseExperts):
            assert config.experts is not None
            if not _within(kept[name], 0, config.experts.n - 1):
                raise TraceFileError(f"{where}: {display(name)} names an expert that is not there; record it again")
    return Pass(start, length, info, given, kept, expect(entry["seconds"], float, f"{where}: seconds"))


def _fits_together(
    config: ModelConfig,
    passes: Sequence[Pass],
    tokens: Sequence[Sequence[Token]],
    sources: Sequence[Sequence[Token]],
) -> bool:
    """Whether each pass goes on where the one before ended, on the ids and positions that the header tells of."""
    if not passes or passes[0].start or not tokens:
        return False
    if any(after.start != before.start + before.length for before, after in pairwise(passes)):
        return False
    if bool(sources) != (config.encoder_layers is not None):
        return False
    last = config.n_ctx - 1 if config.positions == "learned" else 2**31
    for p in passes if sources else ():
        told, places = p.given["source_tokens"], p.given["source_positions"]
        if not all(sources) or told.tolist() != [[token.id for token in row] for row in sources]:
            return False
        if not _within(told, 0, config.d_vocab - 1) or not _within(places, PADDING, last):
            return False
    ids = torch.cat([p.given["tokens"] for p in passes], dim=1)
    places = torch.cat([p.given["positions"] for p in passes], dim=1)
    return (
        ids.tolist() == [[token.id for token in row] for row in tokens]
        and _within(ids, 0, config.d_vocab - 1)
        and _within(places, PADDING, last)
        and torch.equal(passes[-1].given["key_positions"], places)
    )


def _within(numbers: Tensor, least: int, most: int) -> bool:
    return bool(((numbers >= least) & (numbers <= most)).all())


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

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
from engine.editing import edited
from engine.errors import TraceFileError
from engine.model import DTYPES, Model, load_model
from engine.ops.base import PassInfo
from engine.ops.experts import ChooseExperts
from engine.ops.kernels import CUDA_ONLY, KERNELS
from engine.ops.mask import PADDING, is_dense
from engine.program import Program
from engine.stretches import Kept, Stretches
from engine.text import Token, display, tokens_from_json
from engine.tracefile import expect
from engine.traces import Pass, Trace, fingerprint


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
        program = edited(build_program(config), config, dtype, _edits(where, header))
        spans = [_span(where, at, entry) for at, entry in enumerate(entries)]
        held = Stretches(where, tensors, config, program, dtype, spans, len(sources[0]) if sources else 0)
        if not _fits_together(config, spans, held, tokens, sources):
            raise TraceFileError(f"{where}: its passes and tokens do not fit together; record the trace again")
        _check_experts(where, config, program, held)
        passes = tuple(_passes(where, dtype, spans, held, entries))
    except TraceFileError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise TraceFileError(
            f"{where}: its header is damaged ({display(str(error))[:120]}); record the trace again"
        ) from None
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
        if recorded_with and fingerprint(opened.weights) != recorded_with:  # what was imported may not know them
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


def _edits(where: str, header: Mapping[str, Any]) -> list[str]:
    """The what-ifs that a trace was recorded with, as text."""
    return [expect(edit, str, f"{where}: an edit") for edit in expect(header.get("edits", []), list, f"{where}: edits")]


def _span(where: str, at: int, entry: Mapping[str, Any]) -> tuple[int, int]:
    """Start and length of a pass."""
    start, length = (expect(entry[key], int, f"{where}: {key}") for key in ("start", "length"))
    if start < 0 or length < 1:
        raise ValueError(f"pass {at} has {length} tokens after {start}")
    return start, length


def _fits_together(
    config: ModelConfig,
    spans: Sequence[tuple[int, int]],
    held: Stretches,
    tokens: Sequence[Sequence[Token]],
    sources: Sequence[Sequence[Token]],
) -> bool:
    """Whether each pass goes on where the one before ended, on the ids and positions that the header tells of."""
    if not tokens or any(start != sum(before) for before, (start, _) in pairwise(((0, 0), *spans))):
        return False
    if bool(sources) != (config.encoder_layers is not None):
        return False
    last = config.n_ctx - 1 if config.positions == "learned" else 2**31
    for _, told in held.whole("source_tokens"):
        if not all(sources) or told.tolist() != [[token.id for token in row] for row in sources]:
            return False
        if not _within(told, 0, config.d_vocab - 1):
            return False
    if not all(_within(places, PADDING, last) for _, places in held.whole("source_positions")):
        return False
    ids, places = (_joined(held, name) for name in ("tokens", "positions"))
    return (
        ids.tolist() == [[token.id for token in row] for row in tokens]
        and _within(ids, 0, config.d_vocab - 1)
        and _within(places, PADDING, last)
        and all(torch.equal(keys, places[:, : keys.shape[1]]) for _, keys in held.whole("key_positions"))
    )


def _joined(held: Stretches, name: str) -> Tensor:
    """An input over all passes. [batch pos]"""
    return torch.cat([tensor for _, tensor in held.whole(name)], dim=1)


def _check_experts(where: str, config: ModelConfig, program: Program, held: Stretches) -> None:
    """Numbers that pick a weight are looked at before they can."""
    for step in program.steps:
        if isinstance(step.op, ChooseExperts):
            assert config.experts is not None
            for _, chosen in held.whole(step.site.name):
                if not _within(chosen, 0, config.experts.n - 1):
                    name = display(step.site.name)
                    raise TraceFileError(f"{where}: {name} names an expert that is not there; record it again")


def _passes(
    where: str,
    dtype: torch.dtype,
    spans: Sequence[tuple[int, int]],
    held: Stretches,
    entries: Sequence[Mapping[str, Any]],
) -> Iterator[Pass]:
    """The passes, whose tensors are mapped when they are asked for."""
    places = _joined(held, "positions")  # [batch pos]
    counting = (places == torch.arange(places.shape[1])).all(0).long().cumprod(0)  # [pos] 1 while no gap was met
    most = places.cummax(1).values + 1  # [batch pos]
    whole_source = all(is_dense(rows.tolist(), 0) for _, rows in held.whole("source_positions"))
    for at, ((start, length), entry) in enumerate(zip(spans, entries, strict=True)):
        kernel = expect(entry["kernel"], str, f"{where}: kernel")
        if kernel not in KERNELS:
            raise ValueError(f"kernel {kernel[:40]!r} is not known")
        end = start + length - 1
        info = PassInfo(
            dtype,
            bool(counting[end]) and whole_source,
            "auto" if kernel in CUDA_ONLY else kernel,
            {display(expect(name, str, f"{where}: ran")) for name in expect(entry["ran"], list, f"{where}: ran")},
            extents=tuple(most[:, end].tolist()),
            start=start,
        )
        given = {name: held.share(name, at) for name in held.needed}
        yield Pass(start, length, info, given, Kept(held, at), expect(entry["seconds"], float, f"{where}: seconds"))


def _within(numbers: Tensor, least: int, most: int) -> bool:
    return bool(((numbers >= least) & (numbers <= most)).all())

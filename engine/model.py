"""A model: config, program, weights and tokenizer together, on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.architecture import build_program
from engine.checkpoints.lookup import Folder, find
from engine.checkpoints.report import LoadReport
from engine.checkpoints.weights import Loading, plan_loading
from engine.config import ModelConfig
from engine.dtypes import ITEMSIZE, dtype_name
from engine.errors import CheckpointError, DeviceError
from engine.program import Program
from engine.runtime import Watch
from engine.text import display
from engine.tokenizer import Tokenizer

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEMSIZE}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Model:
    """Config, program, weights and tokenizer on one device; nothing in it changes after loading.

    ``report`` says what loading did that is worth knowing: casts, ties, tensors that were ignored; it gives lines.
    ``compiled`` are the steps that were last compiled for it (`engine.compiled`), by what they depend on.
    """

    config: ModelConfig
    program: Program
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    device: torch.device
    dtype: torch.dtype
    source: str = ""
    report: LoadReport = field(default_factory=LoadReport)
    compiled: dict[object, Any] = field(default_factory=dict, init=False)

    @property
    def name(self) -> str:
        return self.config.name

    def __repr__(self) -> str:
        return f"<Model {self.name}: {self.config.summary}, {self.device}, {dtype_name(self.dtype)}>"

    @classmethod
    def from_weights(
        cls, config: ModelConfig, weights: Mapping[str, Tensor], tokenizer: Tokenizer | None = None
    ) -> Model:
        """A model from weights at hand, under the program's names. Raises CheckpointError where one does not fit."""
        program = build_program(config)
        for name, shape in program.params.items():
            if name not in weights:
                raise CheckpointError(f"{config.name}: weight {name!r} {list(shape)} is missing")
            if tuple(weights[name].shape) != shape:
                raise CheckpointError(
                    f"{config.name}: {name} is {list(weights[name].shape)}, but the config asks for {list(shape)}"
                )
        held = {name: weights[name].detach() for name in program.params}
        first = next(iter(held.values()))
        for name, weight in held.items():
            if (weight.dtype, weight.device) != (first.dtype, first.device) or not weight.is_floating_point():
                raise CheckpointError(
                    f"{config.name}: {name} is {dtype_name(weight.dtype)} on {weight.device}; weights must be of one "
                    f"floating-point dtype on one device, as {dtype_name(first.dtype)} on {first.device}"
                )
        return cls(config, program, held, tokenizer, first.device, first.dtype)


def load_model(
    model: str | Path | Model,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    *,
    allow_pickle: bool = False,
    watch: Watch | None = None,
) -> Model:
    """Open a model: a sample's name, a folder with config.json and its weights, or a hub id such as ``gpt2`` or
    ``org/name@revision``, which is downloaded where it is not in the hub's cache.

    ``device``: auto, cpu, cuda, mps. ``dtype``: auto is the file's own; float16 is widened to float32 on a CPU,
    which has no float16 arithmetic worth having. ``allow_pickle`` also reads pytorch_model.bin, as data. ``watch`` is
    told of a download (in MiB) and of reading, and may raise Cancelled. Raises CheckpointError where the model is
    missing, damaged or not supported, MemoryLimitError where it does not fit, and DeviceError where the machine lacks
    the device, or where a Model is given that is elsewhere or of another dtype than asked for. Weights are mapped from
    their files, which must not be changed or cut short while the model is in use: the system ends a program that then
    reads them (SIGBUS).
    """
    device, dtype = str(device), dtype_name(dtype) if isinstance(dtype, torch.dtype) else str(dtype)
    on = None if device == "auto" else pick_device(device)
    if dtype != "auto" and dtype not in DTYPES:
        raise DeviceError(f"dtype {display(dtype)!r} is not known; known are auto, {', '.join(DTYPES)}")
    if isinstance(model, Model):
        return _as_asked(model, on, DTYPES.get(dtype))
    found = find(model, watch, allow_pickle)
    loading = _plan(found, on or pick_device("auto"), None if dtype == "auto" else dtype, allow_pickle)
    weights = loading.read(watch)
    report = loading.report.with_notes(*found.notes)
    tokenizer = Tokenizer.find(found.path)
    if tokenizer is None:
        report = report.with_notes("no tokenizer: prompts are token ids")
    compute = DTYPES[loading.dtype]
    return Model(loading.config, loading.program, weights, tokenizer, loading.device, compute, str(found.path), report)


def own_dtype(found: Folder, device: str = "auto", *, allow_pickle: bool = False) -> torch.dtype:
    """What a folder's model runs in unless a dtype is asked for."""
    return DTYPES[_plan(found, pick_device(device), None, allow_pickle).dtype]


def _plan(found: Folder, device: torch.device, dtype: str | None, allow_pickle: bool) -> Loading:
    files = found.open(allow_pickle)
    return plan_loading(files, found.path, found.family, found.config, device, dtype, found.usual)


def _as_asked(model: Model, device: torch.device | None, dtype: torch.dtype | None) -> Model:
    """A loaded model as it is, where that is what was asked for."""
    here = device is None or (device.type == model.device.type and device.index in (None, model.device.index))
    if not here or dtype not in (None, model.dtype):
        raise DeviceError(
            f"{model.name} is loaded already, as {dtype_name(model.dtype)} on {model.device}, and stays so; "
            "load it again from its folder"
        )
    return model


def pick_device(device: str) -> torch.device:
    """The device of this name; auto is CUDA where there is one, else the CPU. Raises DeviceError."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    have = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = device.split(":")[0]
    if kind not in have:
        raise DeviceError(f"device {display(device)!r} is not known; known are auto, cpu, cuda, mps")
    if not have[kind]:
        raise DeviceError(f"this machine has no {kind} device that torch can use; use --device cpu")
    try:
        return torch.device(device)
    except RuntimeError:
        raise DeviceError(f"device {display(device)!r} is not known; write e.g. cuda:0") from None

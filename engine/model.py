"""A model: config, program, weights and tokenizer together, on a device."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor

from engine.checkpoints.families import Family
from engine.checkpoints.folder import TensorFiles, open_tensors, shown
from engine.checkpoints.lookup import Folder, find
from engine.config import ModelConfig
from engine.dtypes import ITEMSIZE, dtype_name
from engine.errors import CheckpointError, DeviceError
from engine.program import Program, build_program
from engine.text import display
from engine.tokenizer import Tokenizer

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEMSIZE}


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Config, program, weights and tokenizer on one device; nothing in it changes after loading.

    ``report`` says what loading did that is worth knowing: casts, ties, tensors that were ignored.
    """

    config: ModelConfig
    program: Program
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    device: torch.device
    dtype: torch.dtype
    source: str = ""
    report: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.config.name

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
    model: str | Path | Model, device: str | torch.device = "auto", dtype: str | torch.dtype = "auto"
) -> Model:
    """Open a model: a sample's name, or a folder with config.json and model.safetensors.

    ``device``: auto, cpu, cuda, mps. ``dtype``: auto is the file's own; float16 is widened to float32 on a CPU,
    which has no float16 arithmetic worth having. Raises CheckpointError where the folder is missing, damaged or not
    supported, and DeviceError where the machine lacks the device, or where a Model is given that is elsewhere or of
    another dtype than asked for.
    """
    device, dtype = str(device), dtype_name(dtype) if isinstance(dtype, torch.dtype) else str(dtype)
    on = None if device == "auto" else pick_device(device)
    if dtype != "auto" and dtype not in DTYPES:
        raise DeviceError(f"dtype {display(dtype)!r} is not known; known are auto, {', '.join(DTYPES)}")
    if isinstance(model, Model):
        return _as_asked(model, on, DTYPES.get(dtype))
    found, on = find(model), on or pick_device("auto")
    folder, family, config = found.path, found.family, found.config
    with open_tensors(folder) as files:
        config, said = _settle_head(files, family, config)
        program = build_program(config)
        weights, report = _read_weights(files, family, program, on, DTYPES.get(dtype))
    tokenizer = Tokenizer.load(folder) if os.path.lexists(folder / "tokenizer.json") else None
    if tokenizer is None:
        report = (*report, "no tokenizer.json: prompts are token ids")
    compute = next(iter(weights.values())).dtype
    return Model(config, program, weights, tokenizer, on, compute, str(folder), (*said, *report))


def _as_asked(model: Model, device: torch.device | None, dtype: torch.dtype | None) -> Model:
    """A loaded model as it is, where that is what was asked for."""
    here = device is None or (device.type == model.device.type and device.index in (None, model.device.index))
    if not here or dtype not in (None, model.dtype):
        raise DeviceError(
            f"{model.name} is loaded already, as {dtype_name(model.dtype)} on {model.device}, and stays so; "
            "load it again from its folder"
        )
    return model


def own_dtype(folder: Folder, device: str = "auto") -> torch.dtype:
    """What a folder's model runs in unless a dtype is asked for, by the first of its weights."""
    with open_tensors(folder.path) as files:
        if not files.names:
            raise CheckpointError(f"{folder.name}: its files hold no tensors")
        return _compute_dtype(files.tensor(min(files.names)).dtype, pick_device(device))


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


def _settle_head(files: TensorFiles, family: Family, config: ModelConfig) -> tuple[ModelConfig, tuple[str, ...]]:
    """Tied or not, and what is to be said of it: a head in the file wins over a config that ties it."""
    head, embed = family.tensor_name("unembed.weight"), family.tensor_name("embed.weight")
    if not config.tied or not {head, embed} <= files.names:
        return config, ()
    ours, theirs = files.tensor(head), files.tensor(embed)
    if ours.dtype is theirs.dtype and torch.equal(ours, theirs):
        return config, (f"ignored {head}: it is the embedding matrix, to which the config ties it",)
    return replace(config, tied=False), (f"used {head}: it is not the embedding matrix, though the config ties them",)


def _read_weights(
    files: TensorFiles, family: Family, program: Program, device: torch.device, dtype: torch.dtype | None
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Every weight of the program from the files: all there, of the right shape, none left over."""
    where = shown(files.folder)
    wanted = {family.tensor_name(param): param for param in program.params}
    left_over = {n for n in files.names - set(wanted) if not any(fnmatchcase(n, p) for p in family.ignored)}
    report = [f"ignored {display(n)}" for n in sorted(files.names - set(wanted) - left_over)]
    if "unembed.weight" not in program.params:
        left_over.discard(family.tensor_name("unembed.weight"))  # settled before: it is the embedding
    if left_over:
        raise CheckpointError(
            f"{where}: tensor {display(min(left_over))!r} is in the file, but the config has no place for it"
        )
    weights: dict[str, Tensor] = {}
    casts: dict[str, int] = {}
    for name, param in wanted.items():
        shape = program.params[param]
        if name not in files.names:
            raise CheckpointError(f"{where}: tensor {name!r} {list(shape)} is missing")
        if files.shape(name) != shape:
            raise CheckpointError(
                f"{where}: {name} is {list(files.shape(name))} in the file, but the config asks for {list(shape)}"
            )
        stored = files.tensor(name)
        native = _compute_dtype(stored.dtype, device)
        target = dtype or native
        if stored.dtype is not target:
            key = f"{dtype_name(stored.dtype)} to {dtype_name(target)}"
            casts[key] = casts.get(key, 0) + 1
        weights[param] = stored.to(device, target)
    kinds = {w.dtype for w in weights.values()}
    if len(kinds) > 1:
        raise CheckpointError(
            f"{where}: tensors of {' and '.join(sorted(map(dtype_name, kinds)))} are mixed; choose one with --dtype"
        )
    report += [f"cast {count} tensors from {cast}" for cast, count in casts.items()]
    if "unembed.weight" not in program.params:
        report.append("unembedding is the embedding matrix (tied)")
    return weights, tuple(report)


def _compute_dtype(stored: torch.dtype, device: torch.device) -> torch.dtype:
    if not stored.is_floating_point or stored.itemsize == 1:
        raise CheckpointError(
            f"weights of dtype {dtype_name(stored)} are not supported; float32, bfloat16, float16, float64 are"
        )
    return torch.float32 if stored is torch.float16 and device.type == "cpu" else stored

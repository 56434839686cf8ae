"""The program's weights from a model's files: all there, of the right shape, none left over.

All is decided before a number is read: which tensor each weight is, what dtype it gets, and what memory that takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from engine.architecture import build_program
from engine.checkpoints.family import Family, Source
from engine.checkpoints.files import Stored
from engine.checkpoints.folder import shown
from engine.checkpoints.report import LoadReport
from engine.config import ModelConfig
from engine.dtypes import ITEMSIZE
from engine.errors import CheckpointError, MemoryLimitError
from engine.program import Program
from engine.runtime import Watch, available_memory
from engine.text import display, human

EMBED, HEAD = "embed.weight", "unembed.weight"
NEVER_ASKED = 64 * 1024 * 1024
"""Bytes that loading may take without asking how much memory is free."""
NEVER_WARNED = 1024 * 1024 * 1024
"""The same for mapped files, which take only what can be taken back."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One weight: ``stored`` is its tensor's name in the file, ``copied`` says that its ``pick`` is no view."""

    param: str
    shape: tuple[int, ...]
    stored: str
    pick: Callable[[Tensor], Tensor] | None
    copied: bool


@dataclass(frozen=True, slots=True)
class Loading:
    """What will be read, and as what; ``read`` does it."""

    config: ModelConfig
    program: Program
    pieces: tuple[Piece, ...]
    files: Stored
    dtype: str
    device: torch.device
    report: LoadReport

    def needs(self, dtype: str) -> int:
        """Bytes of memory in this dtype. A weight that is the mapped file itself takes none."""
        return sum(
            prod(piece.shape) * ITEMSIZE[dtype]
            for piece in self.pieces
            if self.device.type != "cpu"
            or piece.copied
            or not self.files.mapped(piece.stored)
            or self.files.dtype(piece.stored) != dtype
        )

    def read(self, watch: Watch | None = None) -> dict[str, Tensor]:
        """The weights, as views of the mapped files where nothing has to be changed. Raises MemoryLimitError."""
        self._refuse_if_too_large()
        target: torch.dtype = getattr(torch, self.dtype)
        weights: dict[str, Tensor] = {}
        for done, piece in enumerate(self.pieces):
            if watch is not None:
                watch(done, len(self.pieces), f"weights of {self.config.name}")
            stored = self.files.tensor(piece.stored)
            weight = (stored if piece.pick is None else piece.pick(stored)).to(self.device, target)
            weights[piece.param] = weight
            if weight.untyped_storage().data_ptr() != stored.untyped_storage().data_ptr():
                self.files.release(piece.stored)  # else a copied model is in memory twice
        return weights

    def _refuse_if_too_large(self) -> None:
        needed = self.needs(self.dtype)
        if needed <= NEVER_ASKED or needed <= (free := available_memory(self.device)):
            return
        stored = Counter(self.files.dtype(piece.stored) for piece in self.pieces).most_common(1)[0][0]
        cheaper = next((dtype for dtype in (stored, "bfloat16") if self.needs(dtype) <= free), None)
        if cheaper is not None:
            less = self.needs(cheaper)
            advice = f"--dtype {cheaper} " + (f"needs {human(less)}" if less else "takes the files as they are")
        elif self.device.type != "cpu":
            advice = "--device cpu takes the files as they are"
        else:
            advice = "close other programs, or take a smaller model"
        raise MemoryLimitError(
            f"{self.config.name}'s weights need {human(needed)} as {self.dtype}, but {human(free)} are free on "
            f"{self.device.type}; {advice}"
        )


def plan_loading(
    files: Stored,
    where: Path | str,
    family: Family,
    config: ModelConfig,
    device: torch.device,
    dtype: str | None = None,
    usual: str | None = None,
) -> Loading:
    """Find every weight in the files. Raises CheckpointError where one is missing, mis-shaped or left over.

    ``dtype`` is what was asked for. Without it, it is the files' own; of several in the files the config's, ``usual``,
    if it is among them, else that of most bytes. float16 is widened on a CPU.
    """
    files = files if family.unpacked is None else family.unpacked(files)
    names = _Names(files, family, shown(where))
    config, moved, report = _settle_head(names, config)
    program = build_program(config)
    pieces = tuple(_piece(names, moved.get(p) or family.source(p, config), p, s) for p, s in program.params.items())
    ignored = names.ignored({piece.stored for piece in pieces}, settled=report.ignored)
    stored = _dtypes(names, pieces)
    target = dtype or _own_dtype(names, stored, device, usual)
    casts = {(kind, target): len(held) for kind, held in stored.items() if kind != target}
    report = replace(report, casts=casts, ignored=ignored, notes=tuple(files.notes))
    loading = Loading(config, program, pieces, files, target, device, report)
    mapped = sum(prod(piece.shape) for piece in pieces) * ITEMSIZE[target] - loading.needs(target)
    if mapped <= NEVER_WARNED or mapped <= (free := available_memory(device)):
        return loading
    said = f"{human(mapped)} of weights are more than the {human(free)} that are free: every pass reads the disk"
    return replace(loading, report=replace(report, warnings=(*report.warnings, said)))


class _Names:
    """The files' tensors by their canonical names."""

    def __init__(self, files: Stored, family: Family, where: str) -> None:
        self.files, self.family, self.where = files, family, where
        self.stored: dict[str, str] = {}
        for name in files.names:
            before = self.stored.setdefault(family.canonical(name), name)
            if before != name:
                raise CheckpointError(
                    f"{where}: tensors {display(before)[:120]!r} and {display(name)[:120]!r} are two spellings of one"
                )
        if not self.stored:
            raise CheckpointError(f"{where}: its files hold no tensors")

    def __contains__(self, name: str) -> bool:
        return name in self.stored

    def shape(self, name: str) -> tuple[int, ...]:
        return self.files.shape(self.stored[name])

    def tensor(self, name: str) -> Tensor:
        return self.files.tensor(self.stored[name])

    def ignored(self, used: set[str], settled: Mapping[str, int]) -> dict[str, int]:
        """How many tensors each pattern of the family covers. Raises CheckpointError where none covers one."""
        found: Counter[str] = Counter(settled)
        unknown: list[str] = []
        for canonical, name in sorted(self.stored.items()):
            if name in used or canonical in settled:
                continue
            pattern = next((p for p in self.family.ignored if fnmatchcase(canonical, p)), None)
            if pattern is None:
                unknown.append(name)
            else:
                found[pattern] += 1
        if unknown:
            unknown.sort()
            others = len(unknown) - 1
            more = f", and so {'is' if others == 1 else 'are'} {others} more" if others else ""
            raise CheckpointError(
                f"{self.where}: tensor {display(unknown[0])[:200]!r} is in the file, but the config has no place for "
                f"it{more}"
            )
        return dict(found)


def _settle_head(names: _Names, config: ModelConfig) -> tuple[ModelConfig, dict[str, Source], LoadReport]:
    """Tied or not, weights that are found elsewhere than usual, and what is to be said of it.

    A head in the file wins over a config that ties it, and where only one of two tied matrices is there it is both.
    A head that the config promises and the files lack is the embedding, with a warning; it is never made up.
    """
    count = len(names.stored)
    if config.n_layers > count:
        raise CheckpointError(
            f"{names.where}: the config asks for {config.n_layers} layers, but there are {count} tensors in all"
        )
    if config.head == "none":
        return config, {}, LoadReport()
    source, untied = names.family.source, replace(config, tied=False)
    head, embed = source(HEAD, untied).name, source(EMBED, config).name
    if config.tied and head in names:
        if embed not in names:
            said = f"the embedding matrix is {head}, to which the config ties it"
            return config, {EMBED: Source(head)}, LoadReport(tied=said)
        if names.shape(head) == names.shape(embed) and _equal(names, head, embed):
            return config, {}, LoadReport(ignored={head: 1}, tied=f"{head} is the embedding matrix once more (tied)")
        return untied, {}, LoadReport(tied=f"used {head}: it is not the embedding matrix, though the config ties them")
    if config.tied:
        return config, {}, LoadReport(tied="unembedding is the embedding matrix (tied)")
    if head not in names and embed in names and (shapes := build_program(config).params)[HEAD] == shapes[EMBED]:
        said = f"{head} is missing though the config promises it: unembedding with the embedding matrix instead"
        return replace(config, tied=True), {}, LoadReport(warnings=(said,))
    return config, {}, LoadReport()


def _equal(names: _Names, one: str, other: str) -> bool:
    a, b = names.tensor(one), names.tensor(other)
    same = a.dtype is b.dtype and torch.equal(a, b)
    names.files.release(names.stored[one])
    names.files.release(names.stored[other])
    return same


def _piece(names: _Names, source: Source, param: str, shape: tuple[int, ...]) -> Piece:
    """Where a weight comes from; its shape is found without reading it."""
    if source.name not in names and source.or_else is not None and source.or_else.name in names:
        source = source.or_else
    wanted = source.shape or (shape if source.pick is None else None)
    if source.name not in names:
        raise CheckpointError(f"{names.where}: tensor {source.name!r} {list(wanted or shape)} is missing")
    found = names.shape(source.name)
    if wanted is not None and found != wanted:
        raise CheckpointError(
            f"{names.where}: {source.name} is {list(found)} in the file, but the config asks for {list(wanted)}"
        )
    copied = False
    if source.pick is not None:
        whole = torch.empty(found, device="meta")
        try:
            part = source.pick(whole)
        except (RuntimeError, IndexError, ValueError):
            part = whole
        if tuple(part.shape) != shape:
            raise CheckpointError(
                f"{names.where}: {source.name} is {list(found)} in the file, but the config asks for a {param} "
                f"{list(shape)} in it"
            )
        copied = part is not whole and part._base is None
    return Piece(param, shape, names.stored[source.name], source.pick, copied)


def _dtypes(names: _Names, pieces: tuple[Piece, ...]) -> dict[str, set[str]]:
    """The dtypes that the weights are stored in, and the tensors of each."""
    found: dict[str, set[str]] = {}
    for piece in pieces:
        kind = names.files.dtype(piece.stored)
        if kind not in ITEMSIZE:
            raise CheckpointError(
                f"{names.where}: {display(piece.stored)[:200]} is {display(kind)[:40]}; weights of that dtype are not "
                f"supported, only {', '.join(ITEMSIZE)}; take the model that was not quantised"
            )
        found.setdefault(kind, set()).add(piece.stored)
    return found


def _own_dtype(names: _Names, stored: Mapping[str, set[str]], device: torch.device, usual: str | None) -> str:
    """What a model runs in unless a dtype is asked for."""
    files = names.files
    sizes = {kind: sum(prod(files.shape(n)) for n in held) * ITEMSIZE[kind] for kind, held in stored.items()}
    own = usual if usual in sizes else max(sizes, key=lambda kind: sizes[kind])
    return "float32" if own == "float16" and device.type == "cpu" else own

"""How a file holds the passes of a trace: what consecutive passes have of a site is one tensor, a stretch.

``blocks.0.attn.q@3`` is the site in pass 3, and ``blocks.0.attn.q@1-499`` what one pass over the tokens of passes 1 to
499 would hold. Each of them has its share in it: its own rows along ``pos``, what it attended to along ``kv_pos``, and
all of what has neither axis. So a generation's file is as large as its rows. What lies over queries and keys stays
with its pass, as its rows have a length of their own in each.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.errors import TraceFileError
from engine.program import Program
from engine.sites import Site
from engine.text import display
from engine.tracefile import Rows, Tensors

_KEY: Final = re.compile(r"([^@]+)@(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_APART: Final = frozenset(("query", "key"))


class Stretch(NamedTuple):
    """A site in passes ``first`` to ``last``; its text is the name of a tensor in a file."""

    site: str
    first: int
    last: int

    @classmethod
    def parse(cls, key: str) -> Stretch:
        """Raises ValueError for what is no such name."""
        found = _KEY.fullmatch(key)
        stretch = cls(found[1], int(found[2]), int(found[3] or found[2])) if found else None
        if stretch is None or str(stretch) != key:
            raise ValueError(f"{key[:80]} belongs to no pass")
        return stretch

    def __str__(self) -> str:
        return f"{self.site}@{self.first}" + (f"-{self.last}" if self.last > self.first else "")


def _along(site: Site) -> str | None:
    """The axis along which a site's passes follow one another; None where all have the same."""
    return next((axis for axis in ("pos", "kv_pos") if axis in site.axes), None)


# --- saving -----------------------------------------------------------------------------------------------


def stretches(
    program: Program, lengths: Sequence[int], passes: Sequence[Mapping[str, Tensor]]
) -> dict[str, Tensor | Rows]:
    """What to write of passes over so many tokens each: every row once."""
    found: dict[Stretch, list[Tensor]] = {}
    for name in dict.fromkeys(name for tensors in passes for name in tensors):
        held = [(at, tensors[name]) for at, tensors in enumerate(passes) if name in tensors]
        found |= _of_site(program.site(name), lengths, held)
    caches = {cache: step.reads[1] for cache in program.caches.values() if (step := program.step(cache))}
    for name, new in ({"key_positions": "positions"} | caches).items():
        for stretch in [stretch for stretch in found if stretch.site == name and stretch.first == 0]:
            rows = found.get(Stretch(new, 0, stretch.last), [])
            if len(rows) == len(found[stretch]) and all(map(torch.equal, rows, found[stretch])):
                found[stretch] = rows  # one tensor by two names
    return {str(stretch): _one(program.site(stretch.site), parts) for stretch, parts in found.items()}


def _of_site(
    site: Site, lengths: Sequence[int], held: Sequence[tuple[int, Tensor]]
) -> Iterator[tuple[Stretch, list[Tensor]]]:
    """The stretches of a site: of each the first pass's tensor, and the rows by which the later ones go on."""
    along, apart = _along(site), not _APART.isdisjoint(site.axes)
    runs: list[list[tuple[int, Tensor]]] = []
    for at, tensor in held:
        follows = runs and at == runs[-1][-1][0] + 1 and not apart
        if follows and (along or tensor is (before := runs[-1][-1][1]) or torch.equal(tensor, before)):
            runs[-1].append((at, tensor))
        else:
            runs.append([(at, tensor)])
    for (first, whole), *later in runs:
        rows = [_last(site, tensor, lengths[at]) for at, tensor in later] if along else []
        yield Stretch(site.name, first, later[-1][0] if later else first), [whole, *rows]


def _last(site: Site, tensor: Tensor, n: int) -> Tensor:
    """The rows that a pass of ``n`` tokens has not from those before it."""
    if "kv_pos" not in site.axes:
        return tensor
    axis = site.axes.index("kv_pos")
    return tensor.narrow(axis, tensor.shape[axis] - n, n)


def _one(site: Site, parts: Sequence[Tensor]) -> Tensor | Rows:
    along = _along(site)
    return Rows(tuple(parts), site.axes.index(along)) if along and len(parts) > 1 else parts[0]


# --- opening ----------------------------------------------------------------------------------------------


class Stretches:
    """The tensors of a file by site and pass, each pass's share a view.

    ``spans`` has start and length of every pass, ``src`` is the length of the source. Shapes and dtypes are checked,
    and nothing is read. Raises TraceFileError and ValueError for what these passes cannot have.
    """

    def __init__(
        self,
        where: str,
        tensors: Tensors,
        config: ModelConfig,
        program: Program,
        dtype: torch.dtype,
        spans: Sequence[tuple[int, int]],
        src: int,
    ) -> None:
        self._tensors, self._program, self._spans = tensors, program, spans
        found: dict[str, list[Stretch]] = {}
        for stretch in sorted(map(Stretch.parse, tensors)):
            found.setdefault(stretch.site, []).append(stretch)
        self._check_passes(found)
        self._of = {site.name: found[site.name] for site in program.sites if site.name in found}
        self.needed = [site.name for site in program.inputs if "past" not in site.axes]
        for name in self.needed:
            self._check_everywhere(where, name)
        batch = next(iter(tensors.shape(str(self._of["tokens"][0]))), 0)
        for name, of in self._of.items():
            site, step = program.site(name), program.step(name)
            kind = step.dtype(dtype) if step else torch.int64
            for stretch in of:
                start, end = spans[stretch.first][0], sum(spans[stretch.last])
                shape = program.shape(site, config.axis_sizes(batch, end - start, start, src))
                held = tensors.shape(str(stretch)), tensors.dtype(str(stretch))
                if held != (shape, kind):
                    raise TraceFileError(
                        f"{where}: {display(str(stretch))} is {list(held[0])} of {held[1]}, but the config asks for "
                        f"{list(shape)} of {kind}"
                    )
        self._bounds = sorted({bound for of in self._of.values() for s in of for bound in (s.first, s.last + 1)})
        self._kept: dict[int, tuple[str, ...]] = {}

    def _check_passes(self, found: Mapping[str, Sequence[Stretch]]) -> None:
        """Refuse passes that are not there or are held twice, and several in one tensor that cannot lie in one."""
        for name, of in found.items():
            site = self._program.site(name)
            for before, stretch in pairwise((Stretch(name, -1, -1), *of)):
                if "past" in site.axes or stretch.last >= len(self._spans):
                    raise ValueError(f"{stretch} belongs to no pass")
                if stretch.first <= before.last:
                    raise ValueError(f"{before} and {stretch} hold the same pass")
                if stretch.last > stretch.first and not _APART.isdisjoint(site.axes):
                    raise ValueError(f"{stretch} has queries and keys, which no two passes have in one tensor")

    def _check_everywhere(self, where: str, name: str) -> None:
        """Refuse a file in which a pass is without one of its inputs."""
        then = 0
        for stretch in self._of.get(name, []):
            if stretch.first > then:
                break
            then = stretch.last + 1
        if then < len(self._spans):
            raise TraceFileError(f"{where}: {name} of pass {then} is missing; record the trace again")

    def whole(self, name: str) -> Iterator[tuple[Stretch, Tensor]]:
        """The tensors of a site as they are in the file."""
        for stretch in self._of.get(name, []):
            yield stretch, self._tensors[str(stretch)]

    def has(self, name: str, at: int) -> bool:
        return self._find(name, at) is not None

    def share(self, name: str, at: int) -> Tensor:
        """What a pass has of a site. Raises KeyError where it has nothing."""
        stretch = self._find(name, at)
        if stretch is None:
            raise KeyError(name)
        tensor, site = self._tensors[str(stretch)], self._program.site(name)
        along = _along(site)
        if stretch.first == stretch.last or along is None:
            return tensor
        (start, length), (first, _) = self._spans[at], self._spans[stretch.first]
        held, before = (site.held(start), site.held(first)) if along == "kv_pos" else (0, 0)
        rows = tensor.narrow(site.axes.index(along), (start - held) - (first - before), held + length)
        # As a tensor of its own has them: products look at the strides even of an axis of one index.
        return rows.view(-1).view(rows.shape) if rows.is_contiguous() else rows

    def kept(self, at: int) -> tuple[str, ...]:
        """The sites that a pass has, but for its inputs."""
        since = bisect_right(self._bounds, at)  # between two bounds all passes have the same
        if since not in self._kept:
            self._kept[since] = tuple(name for name in self._of if name not in self.needed and self.has(name, at))
        return self._kept[since]

    def _find(self, name: str, at: int) -> Stretch | None:
        of = self._of.get(name, [])
        i = bisect_right(of, at, key=lambda stretch: stretch.first) - 1
        return of[i] if i >= 0 and at <= of[i].last else None


class Kept(Mapping[str, Tensor]):
    """What a pass in a file has recorded, by site."""

    def __init__(self, stretches: Stretches, at: int) -> None:
        self._stretches, self._at = stretches, at

    def __getitem__(self, name: str) -> Tensor:
        if name not in self:
            raise KeyError(name)
        return self._stretches.share(name, self._at)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stretches.kept(self._at))

    def __len__(self) -> int:
        return len(self._stretches.kept(self._at))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name not in self._stretches.needed and self._stretches.has(name, self._at)

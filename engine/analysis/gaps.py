"""How far a site of passes on a cache is from the same positions of one uncached pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from engine.sites import Site
from engine.traces import Trace

CELLS_AT_ONCE = 4 * 1024 * 1024
"""Numbers of a site over positions that are compared in one go."""
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of a number -> the whole number that has the same bits."""

Found = tuple[float, bool]
"""The largest difference, and whether any bit differs."""


def by_pass(trace: Trace, site: Site, cached: Sequence[Tensor], uncached: Tensor) -> list[Found]:
    """What is found of a site in every pass. ``cached`` has it by pass, ``uncached`` over the whole text.

    A number that is not finite on one side alone is infinitely far. Keys that a window has let go of are left out.
    """
    if "pos" in site.axes:
        return _of_rows(site, cached, uncached)
    of = _of_caches if "kv_pos" in site.axes else _of_cells
    return _read(torch.stack(list(of(trace, site, cached, uncached)), dim=1))


def handed_on(trace: Trace, site: Site, cached: Sequence[Tensor]) -> dict[int, float]:
    """Pass -> how far rows of a cache are from what the pass before attended to at the same positions.

    Left out are passes whose rows are the same or in the very same memory, and those that did not record them: what a
    compiled pass appended is only to rounding what is derived of it.
    """
    dim, found = site.axes.index("kv_pos"), dict[int, float]()
    for at in range(1, len(cached)):
        before, rows = cached[at - 1], cached[at]
        if not (trace.kept(site.name, at - 1) and trace.kept(site.name, at)):
            continue
        skipped = trace.first_key(site.name, at) - trace.first_key(site.name, at - 1)
        both = before.shape[dim] - skipped
        a, b = before.narrow(dim, skipped, both), rows.narrow(dim, 0, both)
        if both and (a.data_ptr(), a.stride()) != (b.data_ptr(), b.stride()) and (gap := largest(a, b)):
            found[at] = gap
    return found


def largest(a: Shaped[Tensor, "*axes"], b: Shaped[Tensor, "*axes"]) -> float:
    """The largest |a − b|."""
    return float(_gaps(a[None], b[None], 0)[0])


def _of_rows(site: Site, cached: Sequence[Tensor], uncached: Tensor) -> list[Found]:
    """A site over positions. Those of many short passes are compared at once."""
    dim, start = site.axes.index("pos"), 0
    lengths = torch.tensor([rows.shape[dim] for rows in cached])
    of = torch.arange(len(lengths)).repeat_interleave(lengths).to(uncached.device)  # [pos], whose position it is
    found = torch.zeros(2, len(lengths), dtype=_wide(uncached), device=uncached.device)
    for rows in _joined(cached, dim, max(1, CELLS_AT_ONCE * uncached.shape[dim] // uncached.numel())):
        n = rows.shape[dim]
        gaps = _gaps(rows, uncached.narrow(dim, start, n), dim)  # [2 n]
        found.scatter_reduce_(1, of[start : start + n].expand(2, n), gaps, "amax")
        start += n
    return _read(found)


def _joined(cached: Sequence[Tensor], dim: int, at_once: int) -> Iterator[Tensor]:
    """All passes' positions, at most so many at once."""
    held, pieces = 0, list[Tensor]()
    for rows in cached:
        for piece in rows.split(at_once, dim):
            if held + piece.shape[dim] > at_once:
                yield torch.cat(pieces, dim)
                held, pieces = 0, []
            pieces.append(piece)
            held += piece.shape[dim]
    yield torch.cat(pieces, dim)


def _of_caches(trace: Trace, site: Site, cached: Sequence[Tensor], uncached: Tensor) -> Iterator[Float[Tensor, " 2"]]:
    """Keys or values that passes attend to. Rows in the very memory that the pass before read are compared once."""
    dim, done = site.axes.index("kv_pos"), 0
    seen: tuple[int, tuple[int, ...]] = (0, ())
    gaps = torch.zeros(2, trace.length, dtype=_wide(uncached), device=uncached.device)
    for at, rows in enumerate(cached):
        first = trace.first_key(site.name, at)
        stop = first + rows.shape[dim]
        lies = (rows.data_ptr() - first * rows.stride(dim) * rows.itemsize, rows.stride())
        start = max(first, done) if lies == seen else first
        new = rows.narrow(dim, start - first, stop - start)
        gaps[:, start:stop] = _gaps(new, uncached.narrow(dim, start, stop - start), dim)
        yield gaps[:, first:stop].amax(1)
        seen, done = lies, stop


def _of_cells(trace: Trace, site: Site, cached: Sequence[Tensor], uncached: Tensor) -> Iterator[Float[Tensor, " 2"]]:
    """A site over queries and keys, or over neither positions nor these."""
    for at, cells in enumerate(cached):
        same = uncached
        for dim, axis in enumerate(site.axes):
            if axis in ("query", "key"):
                start = trace.passes[at].start if axis == "query" else trace.first_key(site.name, at)
                same = same.narrow(dim, start, cells.shape[dim])
        yield _gaps(cells[None], same[None], 0)[:, 0]


def _gaps(a: Shaped[Tensor, "*axes"], b: Shaped[Tensor, "*axes"], dim: int) -> Float[Tensor, "2 n"]:
    """For every index along a dimension the largest |a − b|, and 1 where any bit differs."""
    a, b = (x.movedim(dim, 0).flatten(1) for x in (a, b))  # [n cells]
    other = a.view(BITS[a.itemsize]) != b.view(BITS[b.itemsize])
    wide = _wide(a)
    gap = (a.to(wide) - b.to(wide)).abs().masked_fill(~other, 0).nan_to_num(nan=inf, posinf=inf)
    return torch.stack((gap.amax(1), other.any(1).to(wide)))


def _wide(x: Tensor) -> torch.dtype:
    """What differences are taken in: float64 only where the numbers are, since not every device has it."""
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def _read(found: Float[Tensor, "2 passes"]) -> list[Found]:
    return [(gap, other > 0) for gap, other in found.T.tolist()]

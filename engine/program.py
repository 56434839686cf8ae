"""The forward pass as an ordered tuple of named steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import prod
from typing import NamedTuple

import torch

from engine.edits import UNEDITED
from engine.errors import AddressError
from engine.ops.base import Cost, Op, Shape
from engine.sites import Site, matches, normalise


@dataclass(frozen=True, slots=True)
class Step:
    """One step: ``op`` reads sites, uses weights, and writes ``site``; off the path it runs only when asked for."""

    site: Site
    op: Op
    reads: tuple[str, ...]
    params: tuple[str, ...] = ()
    on_path: bool = True

    def dtype(self, model: torch.dtype) -> torch.dtype:
        """What it writes in a model of this dtype: off the path float32 at least."""
        if self.op.float32 or self.op.int64:
            return torch.float32 if self.op.float32 else torch.int64
        return model if self.on_path else torch.promote_types(model, torch.float32)

    def itemsize(self, model: int) -> int:
        """The same in bytes a number."""
        if self.op.float32 or self.op.int64:
            return 4 if self.op.float32 else 8
        return model if self.on_path else max(model, 4)


class Planned(NamedTuple):
    """A step in a schedule, and the sites that nothing needs after it."""

    step: Step
    drops: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The forward pass: ``inputs`` that are given, ``steps`` in order, ``params`` with their shapes.

    ``edges`` are the sites from which every other can be had by running one block again: the residual stream
    between the blocks, and the logits. A step reads only inputs and sites written before it, and no
    site is written twice. ``once`` are the sites of an encoder beside a decoder, and what the decoder's blocks make of
    its last stream alone: they depend on the source, and are the same in every pass. ``handed_on`` are those of them
    that later passes read.
    """

    inputs: tuple[Site, ...]
    steps: tuple[Step, ...]
    params: Mapping[str, Shape]
    edges: tuple[str, ...] = ()
    once: frozenset[str] = field(init=False)
    handed_on: frozenset[str] = field(init=False)
    caches: Mapping[str, str] = field(init=False)
    n_params: int = field(init=False)
    _by_site: dict[str, Step] = field(init=False, repr=False)
    _sites: dict[str, Site] = field(init=False, repr=False)
    _schedules: dict[object, tuple[Planned, ...]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        known = {site.name for site in self.inputs}
        once = {name for name in known if name.startswith("source_")}
        by_site: dict[str, Step] = {}
        for step in self.steps:
            if step.site.name in known:
                raise ValueError(f"{step.site.name} is written twice")
            if unknown := [read for read in step.reads if read not in known]:
                raise ValueError(f"{step.site.name} reads {unknown[0]}, which nothing has written before")
            known.add(step.site.name)
            by_site[step.site.name] = step
            if step.reads and once.issuperset(step.reads):
                once.add(step.site.name)
        read_anew = {read for step in self.steps if step.site.name not in once for read in step.reads}
        object.__setattr__(self, "once", frozenset(once))
        object.__setattr__(self, "handed_on", frozenset(once & read_anew))
        past = {site.name for site in self.inputs if "past" in site.axes}
        caches = {read: step.site.name for step in self.steps for read in step.reads if read in past}
        object.__setattr__(self, "caches", caches)
        object.__setattr__(self, "_by_site", by_site)
        object.__setattr__(self, "_sites", {site.name: site for site in self.sites})
        object.__setattr__(self, "n_params", sum(prod(shape) for shape in self.params.values()))

    @property
    def sites(self) -> tuple[Site, ...]:
        """All sites: the inputs, then what the steps write."""
        return (*self.inputs, *(step.site for step in self.steps))

    def site(self, name: str) -> Site:
        """The site of this name (``hook_`` is dropped). Raises AddressError, with what is near, where there is none."""
        if site := self._sites.get(name) or self._sites.get(normalise(name)):
            return site
        names = list(self._sites)
        name = normalise(name)
        tail = name.rsplit(".", 1)[-1]
        near = get_close_matches(name, names, 3) or [other for other in names if other.endswith(tail)] or names
        raise AddressError(f"there is no site {name!r} in this program; there is, for example, {', '.join(near[:3])}")

    def step(self, name: str) -> Step | None:
        """The step that writes a site; None for an input."""
        return self._by_site.get(name)

    def computing(self, name: str) -> Step | None:
        """The step that computes what a site holds: of an edited one that before the edit; None for an input."""
        return self._by_site.get(f"{name}{UNEDITED}") or self.step(name)

    def with_ops(self, ops: Mapping[str, Op]) -> Program:
        """The same program with other ops at some sites, which read and write the same."""
        steps = (replace(step, op=ops.get(step.site.name, step.op)) for step in self.steps)
        return replace(self, steps=tuple(steps))

    def reached_from(self, names: Iterable[str]) -> frozenset[str]:
        """These sites, and all that become different where they do."""
        reached = set(names)
        for step in self.steps:
            if not reached.isdisjoint(step.reads):
                reached.add(step.site.name)
        return frozenset(reached)

    def path(self) -> tuple[str, ...]:
        """The sites on the path to the logits, in order."""
        return tuple(step.site.name for step in self.steps if step.on_path)

    def matching(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """The sites, on the path or off it, that match one of the patterns, in order."""
        return tuple(step.site.name for step in self.steps if matches(step.site.name, patterns))

    def schedule(self, wanted: Collection[str], given: Collection[str]) -> tuple[Planned, ...]:
        """The steps that compute ``wanted`` from ``given``, in order, each with what can be let go after it."""
        key = (frozenset(wanted), frozenset(given))
        if key not in self._schedules:
            if len(self._schedules) > 256:
                self._schedules.clear()
            self._schedules[key] = self._schedule(*key)
        return self._schedules[key]

    def _schedule(self, wanted: frozenset[str], given: frozenset[str]) -> tuple[Planned, ...]:
        needed = set(wanted - given)
        steps: list[Step] = []
        for step in reversed(self.steps):
            if step.site.name in needed:
                steps.append(step)
                needed.update(read for read in step.reads if read not in given)
        planned: list[Planned] = []
        seen = set(wanted)  # going backwards: the first reader met is the last one to run
        for step in steps:
            drops = tuple(dict.fromkeys(name for name in (*step.reads, step.site.name) if name not in seen))
            seen.update(drops)
            planned.append(Planned(step, drops))
        return tuple(reversed(planned))

    def derivable(self, known: Collection[str]) -> set[str]:
        """The sites that follow from the ``known`` ones without any weight."""
        derivable = set(known)
        for step in self.steps:
            if not step.params and derivable.issuperset(step.reads):
                derivable.add(step.site.name)
        return derivable

    def shape(self, site: Site, sizes: Mapping[str, int]) -> Shape:
        """The shape of a site for given axis sizes (``ModelConfig.axis_sizes``)."""
        return site.shape(sizes)

    def flops(self, sizes: Mapping[str, int]) -> int:
        """Floating-point operations of the steps on the path."""
        costs = self.costs(sizes, 1)
        return sum(costs[s.site.name].flops for s in self.steps if s.on_path)

    def costs(self, sizes: Mapping[str, int], itemsize: int) -> dict[str, Cost]:
        """What every step computes and moves, by the site it writes, in a model of so many bytes a number."""
        shapes = {site.name: self.shape(site, sizes) for site in self.sites}
        return {
            s.site.name: s.op.cost(
                [shapes[r] for r in s.reads], [self.params[p] for p in s.params], shapes[s.site.name],
                s.itemsize(itemsize),
            )
            for s in self.steps
        }  # fmt: skip

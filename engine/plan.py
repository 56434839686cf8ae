"""What a pass will cost, known before it runs: bytes per site, the peak, and FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch

from engine.config import ModelConfig
from engine.errors import AddressError, MemoryLimitError, PromptError
from engine.ops.base import Shape
from engine.program import Program
from engine.runtime import available_memory
from engine.sites import Site
from engine.text import display
from engine.text import human as human

NEVER_REFUSED = 32 * 1024 * 1024
"""Bytes that a run may take without asking how much memory is free; asking takes longer than a small pass."""

Keep = str | Sequence[str]
"""``"all"``, ``"residual"``, or a list of them and of site patterns such as ``["blocks.*.attn.q"]``."""


@dataclass(frozen=True, slots=True)
class SitePlan:
    """One site: its shape, the bytes that it takes, and whether the run keeps it."""

    site: Site
    shape: Shape
    bytes: int
    kept: bool
    on_path: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes of one pass that keeps ``wanted``.

    ``peak`` is the most that is alive at once: what is kept and one step's surroundings.
    """

    wanted: tuple[str, ...]
    rows: tuple[SitePlan, ...]
    kept: int
    peak: int
    weights: int
    flops: int

    def to_json(self) -> dict[str, object]:
        rows = [
            {
                "site": r.site.name,
                "shape": list(r.shape),
                "bytes": r.bytes,
                "kept": r.kept,
                "on_path": r.on_path,
            }
            for r in self.rows
        ]
        return {
            "kept": self.kept,
            "peak": self.peak,
            "weights": self.weights,
            "flops": self.flops,
            "sites": rows,
        }


def kept_sites(program: Program, keep: Keep) -> tuple[str, ...]:
    """The sites that ``keep`` names, by all its words together. A pattern that names none is refused."""
    words = {"all": program.path(), "residual": program.edges}
    if isinstance(keep, str) and keep in words:
        return words[keep]
    patterns = [keep] if isinstance(keep, str) else list(keep) if isinstance(keep, Sequence) else [keep]
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise AddressError('keep must be "all", "residual" or site patterns such as ["blocks.*.attn.q"]')
    named: set[str] = set()
    for pattern in patterns:
        exact = (pattern,) if program.step(pattern) else ()  # a pattern with nothing to match is looked up
        found = words.get(pattern) or exact or program.matching([pattern])
        if not found:
            program.site(pattern)  # raises, naming what is near
        named.update(found)
    return tuple(step.site.name for step in program.steps if step.site.name in named)


def prompt_sizes(config: ModelConfig, n_tokens: int, batch: int = 1) -> dict[str, int]:
    """The size of every axis in recording prompts of ``n_tokens``.

    An encoder-decoder's encoder reads them, and the decoder only its start token.
    """
    return config.axis_sizes(batch, 1, src=n_tokens) if config.encoder_layers else config.axis_sizes(batch, n_tokens)


def plan_pass(program: Program, sizes: Mapping[str, int], itemsize: int, keep: Keep = "all") -> Plan:
    """Bytes and FLOPs of one pass over axes of these ``sizes`` at ``itemsize`` bytes a number.

    Steps off the path are float32 at least. Tensors that are only another name for one already there cost nothing.
    """
    return _plan_pass(program, tuple(sizes.items()), itemsize, tuple(keep) if isinstance(keep, list) else keep)


@lru_cache(maxsize=256)
def _plan_pass(
    program: Program, axis_sizes: tuple[tuple[str, int], ...], itemsize: int, keep: str | tuple[str, ...]
) -> Plan:
    sizes = dict(axis_sizes)
    wanted = kept_sites(program, keep)
    kept = set(wanted)
    shapes = {site.name: program.shape(site, sizes) for site in program.sites}
    bytes_of: dict[str, int] = {}
    scratch: dict[str, int] = {}
    owner: dict[str, str] = {}
    for step in program.steps:
        name = step.site.name
        alias = step.op.alias([shapes[read] for read in step.reads])
        owner[name] = name if alias is None else owner.get(step.reads[alias], step.reads[alias])
        bytes_of[name] = 0 if alias is not None else prod(shapes[name]) * step.itemsize(itemsize)
        scratch[name] = step.op.scratch([shapes[read] for read in step.reads], shapes[name], itemsize)
    rows = tuple(
        SitePlan(s.site, shapes[s.site.name], bytes_of[s.site.name], s.site.name in kept, s.on_path)
        for s in program.steps
    )
    held = {owner[name] for name in kept}
    return Plan(
        wanted,
        rows,
        kept=sum(bytes_of.get(name, 0) for name in held),
        peak=_peak(program, kept, bytes_of, scratch, owner),
        weights=program.n_params * itemsize,
        flops=program.flops(sizes),
    )


def bytes_of_more(
    program: Program, config: ModelConfig, itemsize: int, start: int, new: int, keep: Keep = "all", src: int = 0
) -> int:
    """Bytes of ``new`` tokens after ``start`` earlier ones, each a pass of its own: what is kept of them, and the keys
    and values of all, which lie in one place for all passes."""
    anew = [name for name in kept_sites(program, keep) if name not in program.once]
    half = plan_pass(program, config.axis_sizes(1, 1, start + new // 2, src), itemsize, anew)  # keys grow: the mean
    caches = set(program.caches.values())
    views = sum(row.bytes for row in half.rows if row.kept and row.site.name in caches)
    sizes = config.axis_sizes(1, 1, start + new, src)
    held = sum(prod(program.site(past).shape(sizes)) for past in program.caches) * itemsize
    return new * (half.kept - views) + held


def _peak(
    program: Program,
    kept: Collection[str],
    bytes_of: Mapping[str, int],
    scratch: Mapping[str, int],
    owner: Mapping[str, str],
) -> int:
    """Walk the schedule and count what is alive after each step, shared storage once."""
    names: dict[str, int] = {}  # storage owner -> how many live names it has
    live = peak = 0
    for step, drops in program.schedule(kept, [site.name for site in program.inputs]):
        own = owner[step.site.name]
        if own in owner and not names.get(own):
            live += bytes_of[own]
        names[own] = names.get(own, 0) + 1
        peak = max(peak, live + scratch[step.site.name])
        for name in drops:
            if name in owner:
                names[owner[name]] -= 1
                live -= 0 if names[owner[name]] else bytes_of[owner[name]]
    return peak


def check_limit(max_memory: object) -> None:
    """Raise PromptError for what is no number of bytes; None is no limit."""
    if max_memory is not None and not (isinstance(max_memory, int | float) and max_memory >= 0):
        raise PromptError(f"max_memory must be a number of bytes, but is {display(repr(max_memory))[:80]}")


def refuse_if_too_much(
    need: int,
    what: str,
    device: torch.device,
    max_memory: int | None = None,
    *,
    residual: Callable[[], int] | None = None,
    advice: str = "shorten the prompt",
) -> None:
    """Raise MemoryLimitError, with the numbers and a way out, where ``need`` bytes are over ``max_memory``, by default
    what is free; ``residual`` tells how many keeping less would need. PromptError where the limit is no number."""
    check_limit(max_memory)
    if max_memory is None and need <= NEVER_REFUSED:
        return
    limit = available_memory(device) if max_memory is None else int(max_memory)
    if need <= limit:
        return
    if residual is not None and (less := residual()) <= limit:
        advice = f'keep="residual" needs {human(less)}'
    raise MemoryLimitError(f"{what} needs {human(need)}, but the limit is {human(limit)}; {advice}")

"""What if cached keys and values were int8 or int4: the error at each site, and what becomes of the next token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf, sqrt
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from engine.analysis.blockwise import blocks, check_has_cache, in_turn, reads_of, refuse_beyond, weights_of
from engine.analysis.cachecost import held
from engine.cache import Appending, Held
from engine.dtypes import GROUP, quantised_row_bytes
from engine.errors import PromptError
from engine.ops.quantised import BITS, QuantisedAppend
from engine.program import Program
from engine.runtime import Watch, as_part
from engine.text import display, human
from engine.traces import Trace

CELLS_AT_ONCE = 4 * 1024 * 1024
"""Numbers of a site that are compared in one go."""


@dataclass(frozen=True, slots=True)
class SiteError:
    """What it changes at a site, over all passes: the largest |Δ|, and ‖Δ‖ / ‖x‖."""

    site: str
    error: float
    relative: float


@dataclass(frozen=True, slots=True)
class Quantised:
    """What a quantised cache does to a trace.

    ``rows`` are the sites that it changes, in the order of the program. Of ``positions`` with logits ``same_top`` have
    the same likeliest token, and ``kl`` is the mean of KL(as it was ‖ quantised) over them, in nats. ``bytes`` include
    the scales.
    """

    bits: int
    group: int
    bytes: int
    bytes_before: int
    rows: tuple[SiteError, ...]
    same_top: int
    positions: int
    kl: float

    @property
    def text(self) -> str:
        share = self.bytes / self.bytes_before if self.bytes_before else 1.0
        said = (
            f"keys and values in int{self.bits}, {self.group} to a scale, take {human(self.bytes)} in place of "
            f"{human(self.bytes_before)} ({share:.0%})"
        )
        if self.positions:
            said += (
                f"; the likeliest token stays at {self.same_top} of {self.positions} positions, mean KL {self.kl:.2g}"
            )
        return said

    def to_json(self) -> dict[str, Any]:
        return {
            "bits": self.bits,
            "group": self.group,
            "bytes": self.bytes,
            "bytes_before": self.bytes_before,
            "text": self.text,
            "rows": [asdict(row) for row in self.rows],
            "tokens": {"same_top": self.same_top, "of": self.positions, "kl": self.kl},
        }


def quantised(
    trace: Trace, bits: int = 8, group: int = GROUP, watch: Watch | None = None, *, max_memory: int | None = None
) -> Quantised:
    """The trace's passes once more, with keys and values read as they are after storing them with so many bits.

    The arithmetic is that of `engine.ops.quantised`. All rows are read as they were stored, those of the pass itself
    too: then it does not matter how a text was cut into passes, and a prompt alone shows the error. What comes before
    the first cache is the trace's own. Keys and values of an encoder-decoder's source stay as they are. Sites of whole
    numbers, as experts' ids, have no row. Raises PromptError for other bits or groups, a batch or an encoder,
    NotKeptError without weights, MemoryLimitError, and Cancelled where ``watch`` does.
    """
    if not isinstance(bits, int) or bits not in BITS:
        raise PromptError(f"bits must be 8 or 4, but is {display(str(bits))[:40]}")
    if isinstance(group, bool) or not isinstance(group, int) or group < 1:
        raise PromptError(f"group must be a whole number from 1, but is {display(str(group))[:40]}")
    check_has_cache(trace.config, len(trace.tokens))
    c, group = trace.config, min(group, trace.config.d_head)
    rows = 2 * c.kv_heads * sum(held(c, layer, trace.length) for layer in range(c.n_layers))
    before = rows * c.d_head * trace.dtype.itemsize
    ops = {
        name: QuantisedAppend("keys" if name.endswith("k") else "values", bits, group)
        for name in trace.program.caches.values()
    }
    tally = _run(trace, trace.program.with_ops(ops), before, watch, max_memory)
    after = rows * quantised_row_bytes(c.d_head, bits, group)
    return Quantised(bits, group, after, before, tuple(tally.errors()), tally.same_top, tally.positions, tally.kl)


def _run(trace: Trace, program: Program, held_bytes: int, watch: Watch | None, max_memory: int | None) -> _Tally:
    """Run every pass of a trace by a program whose caches hold something else, and compare."""
    weights, past_of = weights_of(trace, "another cache"), {cache: past for past, cache in program.caches.items()}
    changed = program.reached_from(past_of)
    wanted = blocks([name for name in program.path() if name in changed])
    shared = sorted(reads_of(program, changed.intersection(program.path())) - changed - program.caches.keys())
    longest = max(p.length for p in trace.passes)
    what = f"running {trace.length} tokens with another cache"
    refuse_beyond(trace, wanted, longest, trace.length - longest, what, max_memory, beside=held_bytes)
    tally, cache = _Tally(trace.device), {past: Held.of(trace.site(past, 0)) for past in program.caches}
    for at, p in enumerate(trace.passes):
        info, appending = p.info.again(), Appending(cache, trace.length)
        info.append, info.past_finite = appending, False
        given = trace.sites(shared, at) | appending.past
        cache, stop = {}, p.start + p.length
        said = as_part(watch, at, len(trace.passes))
        for names, made in zip(wanted, in_turn(program, weights, given, wanted, info, said), strict=True):
            was = trace.sites(names, at)
            for name in names:
                if (past := past_of.get(name)) is None:
                    tally.note(name, was[name], made[name])
                    continue
                rows = appending.held.get(past) or Held.of(made[name])
                cache[past] = rows.last(program.site(past).held(stop))
                tally.note(name, was[name][:, -p.length :], made[name][:, -p.length :])  # each row once
    return tally


class _Tally:
    """What was found so far: by site the largest |Δ|, Σ Δ² and Σ x²; and of the next tokens."""

    def __init__(self, device: torch.device) -> None:
        device = with_float64(device)
        self._sites: dict[str, Tensor] = {}
        self._same = torch.zeros((), dtype=torch.int64, device=device)
        self._kl = torch.zeros((), dtype=torch.float64, device=device)
        self.positions = 0

    def note(self, name: str, was: Tensor, now: Tensor) -> None:
        if not was.is_floating_point():
            return
        for a, b in _pieces(was, now):
            gap = b - a
            found = torch.stack((gap.abs().amax(), gap.square().sum(), a.square().sum()))
            before = self._sites.get(name, torch.zeros_like(found))
            self._sites[name] = torch.cat((before[:1].maximum(found[:1]), before[1:] + found[1:]))
            if name == "logits":
                self._next_tokens(a, b)

    def _next_tokens(self, was: Float[Tensor, "batch pos d_vocab"], now: Float[Tensor, "batch pos d_vocab"]) -> None:
        p, q = was.log_softmax(-1), now.log_softmax(-1)
        self._kl += (p.exp() * (p - q)).sum()
        self._same += ((was.argmax(-1) == now.argmax(-1)) & ~now.isnan().any(-1)).sum()
        self.positions += was.shape[1]

    @property
    def same_top(self) -> int:
        return int(self._same)

    @property
    def kl(self) -> float:
        """The mean over the positions."""
        mean = float(self._kl) / max(1, self.positions)
        return 0.0 if mean < 0 else mean  # by rounding

    def errors(self) -> Iterator[SiteError]:
        for name, found in self._sites.items():
            most, gaps, sizes = found.tolist()
            relative = sqrt(gaps / sizes) if sizes else inf if gaps else 0.0
            yield SiteError(name, most, relative)


def _pieces(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Two tensors over positions in float64, so many positions at once that the copies stay small."""
    rows, device = max(1, CELLS_AT_ONCE * a.shape[1] // a.numel()), with_float64(a.device)
    for x, y in zip(a.split(rows, 1), b.split(rows, 1), strict=True):
        yield x.to(device).double(), y.to(device).double()


def with_float64(device: torch.device) -> torch.device:
    """Where sums over a device's numbers are taken in float64: an Apple GPU has none."""
    return torch.device("cpu") if device.type == "mps" else device

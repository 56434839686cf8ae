"""The record of one prompt: its passes, what was kept of them, and all that can be derived."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from engine import tracefile
from engine.cache import Held, KVCache
from engine.checks import Check, check_step
from engine.config import ModelConfig
from engine.dtypes import dtype_name
from engine.editing import edited, edits_in, refuse_nowhere, rerun
from engine.edits import Edit, said
from engine.errors import AddressError, MemoryLimitError, NotKeptError
from engine.ops.base import at_least_float32
from engine.passes import Pass as Pass
from engine.passes import as_run, cache_before, earlier
from engine.plan import bytes_of_more, human, plan_pass, refuse_if_too_much
from engine.program import Program, Step
from engine.remembered import Remembered
from engine.runner import computing, run
from engine.runtime import Watch, available_memory
from engine.sites import ENCODER, HELD_AXES, PASS_AXES, SOURCE_AXES, Address, Span, normalise
from engine.stretches import stretches
from engine.text import Token, tokens_to_json
from engine.traceformat import EDITED

Window = Mapping[str, tuple[int, int]]
"""Axis -> half-open range."""

MASKS = (b"[MASK]", b"<mask>")
"""The mask tokens of BERT's and of RoBERTa's tokenizers."""

DERIVED_BYTES = 256 * 1024 * 1024
"""How much of what was derived is held, the least recently asked for going first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that may come next."""

    id: int
    label: str
    prob: float
    logit: float


class Trace:
    """The record of one prompt (or of a batch, one row each). Nothing in it changes.

    ``trace["blocks.2.attn.pattern"]`` is the tensor of a site over all passes, with TransformerLens's ``hook_``
    names understood; ``trace["blocks.2.attn.pattern[h=3,q=8]@0"]`` a place in it. A tensor that was not kept is
    derived by running its steps again, bit for bit. ``cache`` is what a next pass reads, where the trace was recorded
    to go on.
    """

    def __init__(
        self,
        config: ModelConfig,
        program: Program,
        weights: Mapping[str, Tensor] | None,
        passes: tuple[Pass, ...],
        tokens: tuple[tuple[Token, ...], ...],
        *,
        prompt: str = "",
        label_of: Callable[[int], str] | None = None,
        notices: tuple[str, ...] = (),
        source: str = "",
        source_tokens: tuple[tuple[Token, ...], ...] = (),
        fingerprint: str = "",
        cache: KVCache | None = None,
    ) -> None:
        self.config = config
        self.program = program
        self.weights = weights
        self.passes = passes
        self.tokens = tokens
        self.prompt = prompt
        self.notices = notices
        self.source = source
        self.source_tokens = source_tokens
        self.cache = cache
        self._label_of = label_of
        self._fingerprint = fingerprint
        self.joined: dict[str, Held] = {}
        self._derived = Remembered()
        self._without_weights: list[set[str]] = []

    @property
    def device(self) -> torch.device:
        return self.passes[0].given["tokens"].device

    @property
    def dtype(self) -> torch.dtype:
        return self.passes[0].info.dtype

    @property
    def fingerprint(self) -> str:
        """What tells the weights that it was recorded with from others of the same architecture."""
        if not self._fingerprint and self.weights is not None:
            self._fingerprint = fingerprint(self.weights)
        return self._fingerprint

    @property
    def kernels(self) -> tuple[str, ...]:
        """The attention kernels that ran."""
        return tuple(sorted({name for p in self.passes for name in p.info.ran}))

    @property
    def length(self) -> int:
        """Positions over all passes, padding included."""
        return self.passes[-1].stop

    def line(self, axis: str, row: int = 0) -> tuple[Token, ...]:
        """The tokens that an axis runs over: of the source, along an axis of an encoder beside a decoder."""
        return (self.source_tokens if axis in SOURCE_AXES.values() else self.tokens)[row]

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        tokens, passes, kernel = f"{len(self.tokens)} × {self.length} tokens", len(self.passes), "+".join(self.kernels)
        return f"<Trace {self.config.name}: {tokens}, {passes} passes, {self.device}, {kernel}>"

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The what-ifs that it was recorded with, in the order of the program."""
        return edits_in(self.program)

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from engine.tracehtml import trace_html

        return trace_html(self)

    # -- reading -----------------------------------------------------------------------------------------------

    def __getitem__(self, address: str | Address) -> Tensor:
        """The tensor at an address. Raises AddressError, or NotKeptError where it cannot be derived."""
        if not isinstance(address, Address):
            address = Address.parse(str(address))
        site = self.program.site(address.site)
        if not address.index:
            return self.stitched(site.name) if address.at is None else self.site(site.name, address.at)
        index = address.resolve(site.axes, self.shape(site.name, address.at))
        window = {axis: (i, i + 1) if isinstance(i, int) else _ends(i) for axis, i in index.items()}
        part = self._across(site.name, window) if address.at is None else self.part(site.name, address.at, window)
        return part[tuple(0 if isinstance(index.get(axis), int) else slice(None) for axis in site.axes)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(site.name == normalise(name) for site in self.program.sites)

    @property
    def source_length(self) -> int:
        """Positions of what an encoder-decoder's encoder has read; 0 of any other model."""
        return len(self.source_tokens[0]) if self.source_tokens else 0

    def sizes(self, at: int) -> dict[str, int]:
        """The size of every axis in a pass."""
        p = self._pass(at)
        return self.config.axis_sizes(p.given["tokens"].shape[0], p.length, p.start, self.source_length)

    def shape(self, name: str, at: int | None = None) -> tuple[int, ...]:
        """The shape of a site in one pass, or over all (``at=None``)."""
        site = self.program.site(name)
        sizes = self.sizes(len(self.passes) - 1 if at is None else at)
        if at is None:
            sizes |= {"pos": self.length, "query": self.length, "past": 0}
        return self.program.shape(site, sizes)

    def site(self, name: str, at: int) -> Tensor:
        """A whole tensor of one pass, kept or derived."""
        source = self._source(name, at)
        return source if source is not None else self._derive(name, at)

    def sites(self, names: Iterable[str], at: int) -> dict[str, Tensor]:
        """Whole tensors of one pass; those that are not there are derived in one go, and nothing holds them here."""
        found = {name: self._source(name, at) for name in names}
        there = {name: tensor for name, tensor in found.items() if tensor is not None}
        missing = tuple(name for name in found if name not in there)
        if self.weights is None or not missing:
            return there | {name: self.site(name, at) for name in missing}
        return there | self._run_again(missing, at)

    def kept(self, name: str, at: int) -> bool:
        """Whether a tensor of a pass is there without running anything."""
        p = self._pass(0 if name in self.program.once else at)
        return name in p.kept or name in p.given

    def can_have(self, name: str, at: int) -> bool:
        """Whether a tensor of a pass is there or can be derived, for which most need the weights."""
        return self.weights is not None or name in self._derivable(at)

    def stitched(self, name: str) -> Tensor:
        """A site over all passes: joined along positions, or along query rows where keys grow from pass to pass."""
        return self._across(self.program.site(name).name, {})

    def _across(self, name: str, window: Window) -> Tensor:
        """A part of a site over all passes; only the passes that it lies in are asked."""
        axes = self.program.site(name).axes
        grows = next((axis for axis in ("pos", "query") if axis in axes), None)
        if grows is None or len(self.passes) == 1:  # keys and values: the last pass attends to all of them
            if "kv_pos" in axes and self.program.site(name).window is not None and len(self.passes) > 1:
                return self._all_rows(name, window)  # but for those that a window has let go of
            return self.part(name, 0 if "past" in axes else len(self.passes) - 1, window)
        start, stop = window.get(grows, (0, self.length))
        own = {at: (max(start, p.start) - p.start, min(stop - p.start, p.length)) for at, p in enumerate(self.passes)}
        own = {at: span for at, span in own.items() if span[0] < span[1]} or {0: (0, 0)}
        part = self._with_later_keys if "key" in axes else self.part
        parts = [part(name, at, {**window, grows: span}) for at, span in own.items()]
        return torch.cat(parts, dim=axes.index(grows))

    def _with_later_keys(self, name: str, at: int, window: Window) -> Tensor:
        """A part of a site over (…, key) of one pass, filled up for the keys that it did not have, yet or any more."""
        step = self.program.step(name)
        assert step is not None
        start, stop = window.get("key", (0, self.length))
        first, end = self.first_key(name, at), self.sizes(at)["key"]
        low, high = min(max(start, first), end), min(max(stop, first), end)
        part = self.part(name, at, {**window, "key": (low - first, high - first)})
        before = min(max(0, low - start), stop - start)  # all of them where the pass has none of the keys asked for
        after = (stop - start) - before - (high - low)
        return torch.nn.functional.pad(part, (before, after), value=step.op.unseen)

    def _all_rows(self, name: str, window: Window) -> Tensor:
        """Keys or values of all positions, what no query sees any more included."""
        step = self.program.step(name)
        assert step is not None
        return self._across(step.reads[1], {"pos" if axis == "kv_pos" else axis: span for axis, span in window.items()})

    def first_key(self, name: str, at: int) -> int:
        """The position in the text of the first key of a site in a pass: those before it a window has let go of."""
        start = self._pass(at).start
        return start - self.program.site(name).held(start)

    def origin(self, name: str, axis: str, at: int | None) -> int:
        """The position in the text of index 0 along an axis of a site, in one pass or over all (``at=None``)."""
        if at is None or axis not in (*PASS_AXES, *HELD_AXES):
            return 0
        return self.first_key(name, at) if axis in HELD_AXES else self._pass(at).start

    def part(self, name: str, at: int, window: Window) -> Tensor:
        """A part of a site: only what it needs is computed. [the site's axes, narrowed to ``window``]

        It equals the same part of the whole tensor to rounding, since a product's last bits depend on its size.

        A window over heads, query rows or positions of a step off the path runs that step (and those before it)
        for the part alone.
        """
        at = 0 if name in self.program.once else at
        step, source = self.program.step(name), self._source(name, at)
        axes = self.program.site(name).axes
        if source is not None or step is None:
            return _narrow(self.site(name, at), axes, window)
        sizes = self.sizes(at)
        along = _along(step)
        own = {axis: _aligned(axis, span, self.config) for axis, span in window.items() if axis in along}
        own = {axis: span for axis, span in own.items() if span != (0, sizes[axis])}
        if not own:
            return _narrow(self._derive(name, at), axes, window)
        reads = [
            self.part(
                read,
                at,
                {
                    axis: span if axis != "kv_head" else _kv_heads(span, self.config)
                    for axis, span in ((along[out][i], span) for out, span in own.items())
                    if axis is not None
                },
            )
            for i, read in enumerate(step.reads)
        ]
        part = {axis: stop - start for axis, (start, stop) in own.items()}
        self._refuse_if_huge(name, tuple(part.get(axis, sizes[axis]) for axis in axes))
        with computing(self.program):
            weights = (self._weight_part(step, param, own, sizes) for param in step.params)
            result = step.op.run(self._pass(at).info, *reads, *weights)
        inner = {axis: (a - own.get(axis, (0, 0))[0], b - own.get(axis, (0, 0))[0]) for axis, (a, b) in window.items()}
        return _narrow(result, axes, inner)

    def weight(self, name: str) -> Tensor:
        """A weight of the model. Raises NotKeptError in a trace that was opened without one."""
        if self.weights is None:
            raise NotKeptError(
                f"this needs the weight {name}, which a trace file does not hold; open it with its model"
            )
        return self.weights[name]

    def _weight_part(self, step: Step, param: str, window: Window, sizes: Mapping[str, int]) -> Tensor:
        """The part of a weight that a part of the result needs."""
        weight = self.weight(param)
        for axis, dim in step.op.along_weight.items():
            if axis in window:
                (start, stop), unit = window[axis], weight.shape[dim] // sizes[axis]
                weight = weight.narrow(dim, start * unit, (stop - start) * unit)
        return weight

    def _pass(self, at: int) -> Pass:
        if not 0 <= at < len(self.passes):
            raise AddressError(f"there is no pass {at}; this trace has passes 0…{len(self.passes) - 1}")
        return self.passes[at]

    def _source(self, name: str, at: int) -> Tensor | None:
        """A tensor that is there without running a step of this pass: given, kept, or left by a pass before."""
        p = self._pass(at)
        if at and name in self.program.once:
            return self.site(name, 0)
        if name in p.given:
            return p.given[name]
        if name in p.kept:
            return p.kept[name]
        if (derived := self.remembered(name, at)) is not None:
            return derived
        if name in self.program.caches:
            return earlier(self, name, at).rows
        return None

    def held(self, at: int) -> KVCache:
        """What a pass ``at`` reads of those before it; ``at`` may be one more than there are."""
        return cache_before(self, at)

    def _derive(self, name: str, at: int) -> Tensor:
        if self.weights is None and name not in self._derivable(at):
            raise NotKeptError(
                f"{name} was not kept, and deriving it needs the weights; open this trace with its model, "
                f"or record it with {name} in keep as well (--keep all,{name})"
            )
        self._refuse_if_huge(name, self.shape(name, at))
        tensor = self._run_again((name,), at)[name]
        self.remember(name, at, tensor)
        return tensor

    def _run_again(self, names: tuple[str, ...], at: int) -> dict[str, Tensor]:
        p = self._pass(at)
        known = {*p.given, *p.kept, *(s.site.name for s in self.program.steps if (s.site.name, at) in self._derived)}
        known |= {site.name for site in self.program.inputs} | (self.program.once if at else frozenset())
        schedule = self.program.schedule(names, known)
        needed = dict.fromkeys(read for step, _ in schedule for read in step.reads if read in known)
        given = {read: as_run(self, read, at) for read in needed}
        return run(self.program, self.weights or {}, given, names, p.info.again())

    def _derivable(self, at: int) -> set[str]:
        """What can be had of a pass without weights."""
        for i in range(len(self._without_weights), at + 1):
            p = self._pass(i)
            past = {site.name for site in self.program.inputs if "past" in site.axes}
            if i:
                earlier = self._without_weights[i - 1]
                past = {name for name in past if name.replace(".past_", ".cache_") in earlier}
                past |= self.program.once & self._without_weights[0]
            self._without_weights.append(self.program.derivable({*p.given, *p.kept, *past}))
        return self._without_weights[at]

    def _refuse_if_huge(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise MemoryLimitError for a tensor that this machine cannot hold twice: it and what it comes from."""
        step = self.program.step(name)
        size = 2 * prod(shape) * (step.itemsize(self.dtype.itemsize) if step else 8)
        if size > DERIVED_BYTES and size > (free := available_memory(self.device)):
            raise MemoryLimitError(
                f"{name} of {' × '.join(map(str, shape))} takes {human(size)} to derive, but {human(free)} is free; "
                "ask for a part of it, e.g. one head and some query rows [h=0,q=0:512]"
            )

    def remembered(self, name: str, at: int) -> Tensor | None:
        """What was derived of a pass, if it is held still."""
        return self._derived.get(name, at)

    def remember(self, name: str, at: int, tensor: Tensor) -> None:
        """Hold what was derived of a pass, as long as there is room."""
        self._derived.put(name, at, tensor, DERIVED_BYTES)

    # -- what people ask ---------------------------------------------------------------------------------------

    def top(self, k: int = 5, *, pos: int = -1, row: int = 0) -> list[Candidate]:
        """The ``k`` most probable next tokens after a position; of an encoder, the tokens for that very place.

        Empty where the logits there hold a NaN or +∞. Raises AddressError where the model predicts no token at all.
        """
        self.refuse_without_head()
        logits = at_least_float32(self[f"logits[b={row},p={pos}]"])  # [d_vocab]
        probs = logits.softmax(-1)
        if bool(probs.isnan().any()):
            return []
        best = probs.topk(max(0, min(k, probs.numel())))
        return [
            Candidate(i, self.label(i), p, float(logits[i]))
            for p, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def refuse_without_head(self) -> None:
        """Raise AddressError, with what to look at instead, in a trace of a model that has no logits."""
        if self.config.predicts is None:
            kind = "a model" if self.config.causal else "an encoder"
            raise AddressError(
                f"{self.config.name} is {kind} without an output head: it has no logits and predicts no token; look at "
                f"{self.program.path()[-1]}, what it comes to"
            )

    def masked(self, row: int = 0) -> list[int]:
        """The positions of a row that hold a mask token, which an encoder's head is asked to fill."""
        return [pos for pos, token in enumerate(self.tokens[row]) if token.special and token.bytes in MASKS]

    def label(self, token_id: int) -> str:
        """How a token of the vocabulary is shown."""
        return self._label_of(token_id) if self._label_of else f"‹id {token_id}›"

    def checks(self, name: str | None = None) -> list[Check]:
        """The invariants (of one site's step, or of all steps), each with its figure and its tolerance."""
        return list(self.iter_checks(name))

    def iter_checks(self, name: str | None = None, at: int | None = None) -> Iterator[Check]:
        """The same, one at a time, of all passes or of one. What a trace without weights cannot derive is left out."""
        steps = self.program.steps if name is None else [self.program.step(self.program.site(name).name)]
        for i in range(len(self.passes)) if at is None else (at,):
            for step in steps:
                if step is not None and not (i and step.site.name in self.program.once):
                    try:
                        yield from check_step(self, step, i)
                    except NotKeptError:
                        continue

    def first_nonfinite(self) -> tuple[str, int, int] | None:
        """The first tensor on the path, in order, that holds NaN or ±∞: (site, pass, count)."""
        for at in range(len(self.passes)):
            for name in self.program.path():
                if (at and name in self.program.once) or not self.can_have(name, at):
                    continue
                tensor = self.site(name, at)
                if tensor.is_floating_point() and (count := int((~torch.isfinite(tensor)).sum())):
                    return name, at, count
        return None

    # -- what-ifs ----------------------------------------------------------------------------------------------

    def edit(self, *edits: Edit | str, watch: Watch | None = None) -> Trace:
        """The same passes with numbers changed: ``t.edit("blocks.2.attn.z[h=3] = 0")``, a new trace.

        Only what depends on the edits runs again; all else is shared with this trace, and every bit is what a fresh run
        with these edits gives. Edits that this trace has stay. Raises EditError, AddressError, NotKeptError in a trace
        without weights, MemoryLimitError, and Cancelled where ``watch`` does.
        """
        program = edited(self.program, self.config, self.dtype, edits)
        if program is self.program:
            return self
        refuse_nowhere(program, len(self.tokens), self.length, self.source_length)
        if self.weights is None:
            raise NotKeptError("an edit runs steps again, which needs the weights; open this trace with its model")
        kept = [name for name in program.path() if name in self.passes[0].kept]
        refuse_if_too_much(self._bytes_of(program, kept), f"running {self.length} tokens edited", self.device)
        passes, cache = rerun(self, program, self.weights, watch)
        notices = (
            *(notice for notice in self.notices if notice not in map(said, self.edits)),
            *map(said, edits_in(program)),
        )
        return Trace(
            self.config,
            program,
            self.weights,
            passes,
            self.tokens,
            prompt=self.prompt,
            label_of=self._label_of,
            notices=notices,
            source=self.source,
            source_tokens=self.source_tokens,
            fingerprint=self._fingerprint,
            cache=cache,
        )

    def _bytes_of(self, program: Program, kept: list[str]) -> int:
        """Bytes of recording its passes by a program."""
        first, size, src = self.passes[0], self.dtype.itemsize, self.source_length
        more = self.length - first.stop
        later = bytes_of_more(program, self.config, size, first.stop, more, kept, src) if more else 0
        return plan_pass(program, self.sizes(0), size, kept).peak + later

    # -- files -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, force: bool = False) -> int:
        """Write the trace to one safetensors file, whole or not at all; the size in bytes. Raises TraceFileError."""
        header = {
            "config": self.config.to_json(),
            "dtype": dtype_name(self.dtype),
            "weights": self.fingerprint,
            "prompt": self.prompt,
            "notices": list(self.notices),
            "tokens": [tokens_to_json(row) for row in self.tokens],
            "source_tokens": [tokens_to_json(row) for row in self.source_tokens],
            "top": self._top_labels(),
            "passes": [
                {
                    "start": p.start,
                    "length": p.length,
                    "kernel": p.info.kernel,
                    "ran": sorted(p.info.ran),
                    "seconds": p.seconds,
                }
                for p in self.passes
            ],
        }
        passes = [{**p.given, **p.kept} for p in self.passes]
        tensors = stretches(self.program, [p.length for p in self.passes], passes)
        if not self.edits:
            return tracefile.write(Path(path), header, tensors, force=force)
        header["edits"] = [str(edit) for edit in self.edits]
        return tracefile.write(Path(path), header, tensors, force=force, version=EDITED)

    def _top_labels(self) -> dict[str, str]:
        """Labels of the likeliest tokens, so that a table of candidates needs no tokenizer where it is opened."""
        if self._label_of is None:
            return {}
        ids: set[int] = {token.id for row in self.tokens for token in row}
        for at, p in enumerate(self.passes):
            if "logits" in p.kept:
                ids |= set(self.site("logits", at).topk(min(20, self.config.d_vocab), dim=-1).indices.unique().tolist())
        return {str(i): self.label(i) for i in sorted(ids)}


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """A checksum of a few numbers of every weight: another seed, or more training, gives another one."""
    total = 0
    for name in sorted(weights):
        flat = weights[name].detach().flatten()
        sample = flat[:: max(1, flat.numel() // 61)].to("cpu", torch.float64)
        total = zlib.crc32(sample.numpy().tobytes(), zlib.crc32(name.encode(), total))
    return f"{total:08x}"


def _ends(span: Span) -> tuple[int, int]:
    """A resolved span's ends."""
    assert span.start is not None
    assert span.stop is not None
    return span.start, span.stop


def _narrow(tensor: Tensor, axes: tuple[str, ...], window: Window) -> Tensor:
    """The part of a tensor that a window names; a view."""
    for axis, (start, stop) in window.items():
        tensor = tensor.narrow(axes.index(axis), start, stop - start)
    return tensor


def _along(step: Step) -> Mapping[str, tuple[str | None, ...]]:
    """``Op.along`` in the step's own axes: an encoder beside a decoder has names of its own for them."""
    if not step.site.name.startswith(ENCODER):
        return step.op.along
    return {
        SOURCE_AXES.get(axis, axis): tuple(read and SOURCE_AXES.get(read, read) for read in reads)
        for axis, reads in step.op.along.items()
    }


def _aligned(axis: str, span: tuple[int, int], config: ModelConfig) -> tuple[int, int]:
    """A range of query heads widened to whole groups, so that each finds its key-value head; one head stays one."""
    start, stop = span
    group = config.group
    if axis != "head" or stop - start == 1:
        return span
    return start // group * group, -(-stop // group) * group


def _kv_heads(span: tuple[int, int], config: ModelConfig) -> tuple[int, int]:
    """The key-value heads that a range of query heads reads."""
    start, stop = span
    return start // config.group, (stop - 1) // config.group + 1

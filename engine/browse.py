"""What an app asks of the engine: a summary, a window of a site with its statistics, candidates, checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from engine import tracefile
from engine.analysis import kvcache
from engine.analysis.drift import drift
from engine.analysis.pages import pages
from engine.analysis.quantised import quantised
from engine.chat import messages_of
from engine.checkpoints.lookup import find
from engine.checks import Check
from engine.continuing import Branches, sampling_of
from engine.dtypes import dtype_name
from engine.errors import AddressError, LayerstepError, PromptError
from engine.jsontext import Json
from engine.model import Model, load_model
from engine.opening import open_trace
from engine.ops.base import Shape, times
from engine.program import Step
from engine.recording import trace
from engine.runtime import Watch
from engine.samples import sample_folders
from engine.sampling import Sampling
from engine.sites import ENCODER, Address, Site, Span
from engine.statistics import Statistics
from engine.text import Token, display
from engine.told import fields
from engine.traces import Trace

RECORDING = ("keep", "kernel", "max_memory", "target")
"""Parameters of a request that are handed to ``trace`` as they are."""
MAX_CELLS = 4 * 1024 * 1024
"""The largest window that is handed over, and the block in which statistics are taken."""


class Session:
    """One open trace, and the model that was loaded last."""

    def __init__(self) -> None:
        self._loaded: tuple[tuple[str, str, str], Model] | None = None
        self._branches: Branches | None = None
        self._statistics: dict[str, Json] = {}

    def about(self) -> Json:
        return {"torch": torch.__version__, "device": "cuda" if torch.cuda.is_available() else "cpu",
                "threads": torch.get_num_threads()}  # fmt: skip

    @property
    def trace(self) -> Trace:
        return self.branches.trace

    @property
    def branches(self) -> Branches:
        if self._branches is None:
            raise LayerstepError("no trace is open yet")
        return self._branches

    @property
    def model(self) -> Model:
        """The model of the open trace. Raises LayerstepError for a file that was opened without one."""
        weights = self.trace.weights
        if self._loaded is None or self._loaded[1].weights is not weights:
            raise LayerstepError(
                "this trace was opened without its model, so nothing more can run; open it with --model"
            )
        return self._loaded[1]

    def open(self, params: Mapping[str, Any], watch: Watch) -> Json:
        """Record a prompt, or open a trace file; the summary of it. What was open stays where this fails."""
        if params.get("file") is not None:
            opened = open_trace(params["file"], self._model_of_file(params, watch))
        else:
            prompt = params.get("prompt")
            if prompt is None:
                raise PromptError("there is no prompt; type one")
            model = self._model(params, watch)
            options = {key: params[key] for key in RECORDING if params.get(key) is not None}
            chat = bool(params.get("chat"))
            opened = trace(model, messages_of(prompt) if chat else prompt, watch=watch, chat=chat, **options)
        self.show(opened)
        report = [] if params.get("file") is not None or self._loaded is None else list(self._loaded[1].report)
        return summary(opened) | {"report": report}

    def show(self, trace: Trace) -> None:
        """Take a trace as the open one, with no other branch."""
        self._branches, self._statistics = Branches(trace), {}

    def _model_of_file(self, params: Mapping[str, Any], watch: Watch) -> Model | None:
        """The model to open a trace file with, on the device and in the dtype that such a file asks for."""
        if params.get("model") is None:
            return None
        header, _ = tracefile.read(Path(params["file"]))
        return self._model({**params, "device": "cpu", "dtype": str(header["dtype"])}, watch)

    def _model(self, params: Mapping[str, Any], watch: Watch) -> Model:
        key = (str(params.get("model") or "modern"), params.get("device") or "auto", params.get("dtype") or "auto")
        allow = bool(params.get("allow_pickle"))
        if self._loaded is None or self._loaded[0] != key:
            watch(0, 1, f"loading {display(key[0])}")
            self._loaded = None  # the one before need not be in memory beside it
            self._loaded = key, load_model(key[0], device=key[1], dtype=key[2], allow_pickle=allow, watch=watch)
        return self._loaded[1]

    def window(self, address: str) -> tuple[Json, memoryview]:
        """A part of a site as float32, with the statistics of the whole plane that it lies in."""
        trace, place = self.trace, Address.parse(address)
        site = trace.program.site(place.site)
        shape = trace.shape(site.name, place.at)
        index = place.resolve(site.axes, shape)
        axes = tuple(axis for axis in site.axes if not isinstance(index.get(axis), int))
        whole = tuple(size for axis, size in zip(site.axes, shape, strict=True) if axis in axes)
        cells = math.prod(_length(index.get(axis), size) for axis, size in zip(axes, whole, strict=True))
        if cells > MAX_CELLS:
            raise AddressError(f"{place} is {cells:,} cells; ask for at most {MAX_CELLS:,} at a time")
        tensor = trace[place].to("cpu", torch.float32).contiguous()
        result = {
            "address": str(place),
            "axes": list(axes),
            "shape": list(tensor.shape),
            "full_shape": list(whole),
            "dtype": _dtype_of(trace, site),
            "stats": self._plane(place, site, index, axes, whole),
            "numbers": numbers(trace, site, place.at),
        }
        if place.at is not None:
            result["origin"] = self._origin(site, place.at, index, axes)
        return result, memoryview(tensor.numpy().tobytes())

    def _plane(
        self, place: Address, site: Site, index: Mapping[str, int | Span], axes: tuple[str, ...], whole: tuple[int, ...]
    ) -> Json:
        fixed = tuple((axis, i) for axis, i in index.items() if isinstance(i, int))
        plane = Address(site.name, fixed, place.at)
        key = str(plane)
        if key not in self._statistics:
            step = self.trace.program.step(site.name)
            told = Statistics.of(blocks(self.trace, plane, axes, whole))
            self._statistics[key] = _told(told, masks=step is not None and step.op.hides)
        return self._statistics[key]

    def _origin(self, site: Site, at: int, index: Mapping[str, int | Span], axes: tuple[str, ...]) -> Json:
        """Where in the text the first row along each axis of positions stands."""
        start = self.trace.passes[at].start
        first = {"pos": start, "query": start, "key": self.trace.first_key(site.name, at)}
        first["kv_pos"] = first["key"]
        offset = {axis: i.start or 0 for axis, i in index.items() if isinstance(i, Span)}
        return {axis: first[axis] + offset.get(axis, 0) for axis in axes if axis in first}

    def top(self, address: str, k: int, params: Mapping[str, Any] | None = None) -> Json:
        """The candidates after a position: ``logits[b=0,p=10]``; after the last one of all, or of the pass named.

        Of an encoder they are those for the position itself. Where ``params`` say how a token is chosen, each has
        ``scores_prob`` too: its probability after penalty, temperature and filters, None where it is excluded.
        """
        place = Address.parse(address)
        self.trace.refuse_without_head()
        shape = self.trace.shape("logits", place.at)
        index = place.resolve(("batch", "pos", "d_vocab"), shape)
        row, pos = index.get("batch", 0), index.get("pos", shape[1] - 1)
        if not isinstance(row, int) or not isinstance(pos, int):
            raise AddressError(f"{place}: candidates are those of one position; write e.g. logits[b=0,p=3]")
        if place.at:
            pos += self.trace.passes[place.at].start
        rows = self.trace.top(max(1, min(k, 1000)), pos=pos, row=row)
        sampling = sampling_of(params or {})
        after = self._scored(sampling, row, pos) if sampling != Sampling() and rows else None
        return {
            "rows": [
                {"id": c.id, "label": c.label, "prob": c.prob, "logit": c.logit}
                | ({} if after is None else {"scores_prob": float(after[c.id]) or None})
                for c in rows
            ],
            "numbers": numbers(self.trace, self.trace.program.site(place.site), place.at),
            "nonfinite": 0 if rows else int((~torch.isfinite(self.trace[f"logits[b={row},p={pos}]"])).sum()),
        }

    def _scored(self, sampling: Sampling, row: int, pos: int) -> Float[Tensor, " d_vocab"]:
        """The probabilities that the token after a position is drawn from."""
        seen = [token.id for token in self.trace.tokens[row][: pos + 1]]
        return sampling.scores(self.trace[f"logits[b={row},p={pos}]"], seen).softmax(-1).cpu()

    def checks(self, site: str | None, watch: Watch, at: int | None = None) -> Json:
        """The invariants of one site's step, or of all steps, in one pass; of all passes the one in which each holds
        worst."""
        program, passes = self.trace.program, len(self.trace.passes)
        if at is not None and not (isinstance(at, int) and 0 <= at < passes):
            raise AddressError(f"there is no pass {at!r}; there are 0…{passes - 1}")
        names = [step.site.name for step in program.steps] if site is None else [program.site(site).name]
        order = {name: i for i, name in enumerate(names)}
        worst: dict[tuple[str, str], Check] = {}
        for check in self.trace.iter_checks(site, at):
            watch(check.at * len(names) + order.get(check.site, 0), passes * len(names), check.site)
            known = worst.setdefault((check.site, check.name), check)
            if _badness(check) > _badness(known):
                worst[check.site, check.name] = check
        return {"rows": [check.to_json() for check in worst.values()]}

    def generate(self, params: Mapping[str, Any], watch: Watch) -> Json:
        """More tokens; the summary of the longer trace, and what was generated."""
        return self._anew(lambda: self.branches.generate(self.model, params, watch))

    def branch(self, pos: int, token: int, watch: Watch) -> Json:
        return self._anew(lambda: self.branches.branch(self.model, pos, token, watch))

    def crop(self, n: int, watch: Watch) -> Json:
        return self._anew(lambda: self.branches.crop(self.model, n, watch))

    def switch(self, to: int) -> Json:
        return self._anew(lambda: self.branches.switch(to))

    def _anew(self, do: Callable[[], Json]) -> Json:
        """What it answers, and the summary of the trace that is looked at then."""
        try:
            answer = do()
        finally:
            self._statistics = {}
        return summary(self.trace) | {"branch": self.branches.current, "branches": len(self.branches.traces)} | answer

    def cache(self, tokens: int | None) -> Json:
        """What the KV cache holds and costs."""
        return kvcache.cache_report(self.trace, tokens).to_json()

    def timing(self, watch: Watch) -> Json:
        """One token more with the cache and without, measured now."""
        return kvcache.time_per_token(self.model, self.trace, watch=watch).to_json()

    def drift(self, watch: Watch) -> Json:
        """Cached against uncached."""
        return drift(self.trace, watch).to_json()

    def quantised(self, bits: int, watch: Watch) -> Json:
        """What if the cache were int8 or int4."""
        return quantised(self.trace, bits, watch=watch).to_json()

    def pages(self, size: int) -> Json:
        """The cache in pages, and their waste."""
        return pages(self.trace, size).to_json()

    def models(self) -> Json:
        found = [find(name) for name in sample_folders()]
        return {"rows": [{"name": f.path.name, "path": str(f.path), "text": f.config.summary} for f in found]}

    def save(self, path: Path, force: bool) -> Json:
        return {"path": str(path), "size": self.trace.save(path, force=force)}


def _badness(check: Check) -> tuple[bool, float]:
    """How near an invariant is to not holding."""
    return not check.ok, check.figure / check.tolerance if check.tolerance else check.figure


def summary(trace: Trace) -> Json:
    """All that an app shows of a trace before it asks for a tensor."""
    shapes = {site.name: trace.shape(site.name) for site in trace.program.sites}
    return {
        "model": trace.config.name,
        "file": trace.source if trace.weights is None else None,
        "prompt": trace.prompt,
        "device": trace.device.type,
        "dtype": dtype_name(trace.dtype),
        "kernel": "+".join(trace.kernels),
        "notices": list(trace.notices),
        "config": trace.config.to_json(),
        "facts": fields(trace.config),
        "predicts": trace.config.predicts,
        "tokens": [[_token(token) for token in row] for row in trace.tokens],
        "source_tokens": [[_token(token) for token in row] for row in trace.source_tokens],
        "target": _target(trace),
        "masked": [trace.masked(row) for row in range(len(trace.tokens))],
        "passes": [{"start": p.start, "length": p.length, "seconds": p.seconds} for p in trace.passes],
        "origins": _origins(trace),
        "steps": [_given(trace, site, shapes[site.name]) for site in _shown_inputs(trace)]
        + [_step(trace, step, shapes) for step in trace.program.steps],
    }


def _origins(trace: Trace) -> list[Json]:
    """The passes, each with the label of its first token."""
    row = trace.tokens[0]
    return [
        {"start": p.start, "length": p.length, "seconds": p.seconds, "token": row[p.start].label} for p in trace.passes
    ]


def _target(trace: Trace) -> str:
    """What an encoder-decoder's decoder was given after its start token; '' of any other model."""
    given = trace.tokens[0] if trace.source_tokens else ()
    return b"".join(token.bytes for token in given if token.origin != "tokenizer").decode("utf-8", "replace").strip()


def _token(token: Token) -> Json:
    return {
        "id": token.id,
        "label": token.label,
        "hex": token.bytes.hex(),
        "group": token.group,
        "special": token.special,
        "origin": token.origin,
    }


def _shown_inputs(trace: Trace) -> list[Site]:
    """The inputs that people look at, what an encoder reads first."""
    shown = [site for site in trace.program.inputs if "past" not in site.axes]
    return sorted(shown, key=lambda site: site.name not in trace.program.once)


INPUTS = {
    "source_tokens": (
        "Token ids of the source",
        "The tokenizer cut the text that the encoder reads into pieces and gave each its number in the vocabulary.",
    ),
    "source_positions": (
        "Positions in the source",
        "Where each token of the source stands, counted from 0. Padding stands nowhere and has −1.",
    ),
    "tokens": ("Token ids", "The tokenizer cut the prompt into pieces and gave each its number in the vocabulary."),
    "positions": ("Positions", "Where each token stands, counted from 0. Padding stands nowhere and has −1."),
    "key_positions": (
        "Positions of the keys",
        "Where each key stands that may be attended to, earlier passes first.",
    ),
}


def _given(trace: Trace, site: Site, shape: Shape) -> Json:
    title, story = INPUTS[site.name]
    return _row(trace, site, shape) | {
        "part": "input", "on_path": True, "kept": True, "dtype": "int64", "title": title, "formula": "",
        "latex": "", "numbers": times(*shape), "story": story, "reads": [], "params": [],
    }  # fmt: skip


def _step(trace: Trace, step: Step, shapes: Mapping[str, Shape]) -> Json:
    site, text, shape = step.site, step.op.text, shapes[step.site.name]
    return _row(trace, site, shape) | {
        "part": _part(site.name),
        "on_path": step.on_path,
        "kept": trace.kept(site.name, len(trace.passes) - 1),
        "dtype": _dtype_of(trace, site),
        "title": text.title,
        "formula": text.formula,
        "latex": text.latex,
        "numbers": _numbers(trace, step, shapes),
        "story": text.story,
        "reads": list(step.reads),
        "params": list(step.params),
    }


def numbers(trace: Trace, site: Site, at: int | None) -> str:
    """The formula's symbols with the sizes of one pass, or of all of them together."""
    step = trace.program.step(site.name)
    if step is None:
        return times(*trace.shape(site.name, at))
    return _numbers(trace, step, {name: trace.shape(name, at) for name in (site.name, *step.reads)})


def _numbers(trace: Trace, step: Step, shapes: Mapping[str, Shape]) -> str:
    params = [trace.program.params[param] for param in step.params]
    return step.op.numbers([shapes[read] for read in step.reads], params, shapes[step.site.name])


def _row(trace: Trace, site: Site, shape: Shape) -> Json:
    in_encoder = site.name.startswith(ENCODER)
    layers = trace.config.encoder_layers or 0
    stack = "" if not layers else "encoder " if in_encoder else "decoder "
    block = None if site.block is None else site.block + (0 if in_encoder else layers)
    return {
        "site": site.name,
        "block": block,  # counted through, so that an encoder's and a decoder's are told apart
        "block_name": "" if block is None else f"{stack}block {site.block}",
        "label": site.name.rsplit(".", 1)[-1],
        "axes": list(site.axes),
        "window": site.window,
        "shape": list(shape),
    }


def _part(name: str) -> str:
    """Which part of the pass a site belongs to, by its name's middle."""
    if "cross_attn" in name:
        return "cross-attention"
    if ".attn." in name or name.endswith("attn_out"):
        return "attention"
    if ".mlp." in name or name.endswith("mlp_out"):
        return "mlp"
    if name.endswith((".scale", ".normalized")):
        return "norm"
    if ".resid_" in name:
        return "residual"
    return "output" if name.startswith(("logits", "probs", "head.", "embed_out", "pooled", "sentence")) else "input"


def _dtype_of(trace: Trace, site: Site) -> str:
    step, given = trace.program.step(site.name), trace.passes[0].given.get(site.name)
    return dtype_name(step.dtype(trace.dtype) if step else trace.dtype if given is None else given.dtype)


def _length(index: int | Span | None, size: int) -> int:
    if isinstance(index, Span):
        return (index.stop or 0) - (index.start or 0)
    return size


def _told(stats: Statistics, *, masks: bool) -> Json:
    """Statistics as an app gets them: −∞ is a masked cell where the step hides cells, else not finite like the rest."""
    masked = stats.below if masks else 0
    figures = dict.fromkeys(("min", "max", "mean", "std", "norm")) | stats.spread_to_json()
    return figures | {"count": stats.finite, "nonfinite": stats.size - stats.finite - masked, "masked": masked}


def blocks(trace: Trace, plane: Address, axes: tuple[str, ...], whole: tuple[int, ...]) -> Iterator[Tensor]:
    """A plane in parts of at most MAX_CELLS, so that a large one is never whole in memory."""
    inner = math.prod(whole[1:])
    if not axes:
        yield trace[plane]
    elif inner > MAX_CELLS and len(axes) > 1:
        for i in range(whole[0]):
            yield from blocks(trace, _narrowed(plane, axes[0], i), axes[1:], whole[1:])
    else:
        step = max(1, MAX_CELLS // max(1, inner))
        for start in range(0, whole[0], step):
            yield trace[_narrowed(plane, axes[0], Span(start, min(whole[0], start + step)))]


def _narrowed(plane: Address, axis: str, index: int | Span) -> Address:
    return Address(plane.site, (*plane.index, (axis, index)), plane.at)

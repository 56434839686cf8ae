"""What an app asks of the engine: a summary, a window of a site with its statistics, candidates, checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from engine import tracefile, windows
from engine.analysis import kvcache, looks
from engine.analysis.drift import drift
from engine.analysis.pages import pages
from engine.analysis.quantised import quantised
from engine.chat import messages_of
from engine.checkpoints.lookup import find
from engine.checks import Check, worst
from engine.continuing import Branches, sampling_of
from engine.errors import AddressError, Cancelled, LayerstepError, PromptError
from engine.export import saving
from engine.export.formats import format_of
from engine.export.order import Order
from engine.export.selection import Selection
from engine.jsontext import Json
from engine.model import Model, load_model
from engine.opening import open_trace
from engine.recording import trace
from engine.runtime import Watch
from engine.samples import sample_folders
from engine.sampling import Sampling
from engine.sites import HELD_AXES, PASS_AXES, Address
from engine.summary import dtype_of, numbers, summary
from engine.text import display
from engine.tours import read_tour
from engine.traces import Trace
from engine.windows import Difference, Plane

RECORDING = ("keep", "kernel", "max_memory", "target", "edits")
"""Parameters of a request that are handed to ``trace`` as they are."""

MAX_CELLS = 4 * 1024 * 1024
"""The most numbers that one request for a window is answered with."""


class Slot:
    """A trace that is open, with its branches, and the model that was loaded last for it."""

    def __init__(self) -> None:
        self.loaded: tuple[tuple[str, str, str], Model] | None = None
        self.branches: Branches | None = None

    @property
    def model(self) -> Model | None:
        """The model that the open trace was recorded with; None of a file that was opened without one."""
        if self.loaded is None or self.branches is None or self.loaded[1].weights is not self.branches.trace.weights:
            return None
        return self.loaded[1]


class Session:
    """One open trace, and beside it another one to look at; what is not said to be of the other is of the main one."""

    def __init__(self) -> None:
        self.slots = {"main": Slot(), "other": Slot()}
        self._statistics: dict[object, Json] = {}

    def about(self) -> Json:
        return {"torch": torch.__version__, "device": "cuda" if torch.cuda.is_available() else "cpu",
                "threads": torch.get_num_threads()}  # fmt: skip

    @property
    def trace(self) -> Trace:
        return self.branches.trace

    @property
    def branches(self) -> Branches:
        return self._opened("main")

    @property
    def model(self) -> Model:
        """The model of the open trace. Raises LayerstepError for a file that was opened without one."""
        if self.trace.weights is None or (model := self.slots["main"].model) is None:
            raise LayerstepError(
                "this trace was opened without its model, so nothing more can run; open it with --model"
            )
        return model

    def trace_of(self, params: Mapping[str, Any]) -> Trace:
        """The trace that a request is about. Raises LayerstepError where there is none."""
        return self._opened(_which(params)).trace

    def _opened(self, which: str) -> Branches:
        branches = self.slots[which].branches
        if branches is None:
            raise LayerstepError(
                "no trace is open yet" if which == "main" else "no other trace is open beside this one"
            )
        return branches

    def open(self, params: Mapping[str, Any], watch: Watch) -> Json:
        """Record a prompt, perhaps with ``generate`` greedy tokens after it, or open a trace file; the summary of it.

        What was open stays where this fails.
        """
        which = _which(params)
        slot = self.slots[which]
        before = slot.loaded if slot.model else None
        try:
            opened = self._open(params, watch)
        except BaseException:
            slot.loaded = before or slot.loaded
            raise
        self.show(opened, which)
        report = [] if params.get("file") is not None or slot.loaded is None else list(slot.loaded[1].report)
        return summary(opened) | {"report": report}

    def _open(self, params: Mapping[str, Any], watch: Watch) -> Trace:
        if params.get("file") is not None:
            return open_trace(params["file"], self._model_of_file(params, watch))
        prompt = params.get("prompt")
        if prompt is None:
            raise PromptError("there is no prompt; type one")
        model = self._model(params, watch)
        options = {key: params[key] for key in RECORDING if params.get(key) is not None}
        chat, more = bool(params.get("chat")), params.get("generate")
        text = messages_of(prompt) if chat else prompt
        made = trace(model, text, watch=watch, chat=chat, goes_on=bool(more), **options)
        if not more:
            return made
        grown = Branches(made)
        if grown.generate(model, {"n": more}, watch)["generated"]["stopped"] == "cancelled":
            raise Cancelled("cancelled")  # what was generated until then is not what was asked for
        return grown.trace

    def show(self, trace: Trace, which: str = "main") -> None:
        """Take a trace as the open one, with no other branch; ``which`` says if it is the one beside."""
        self.slots[which].branches = Branches(trace)
        self._statistics = {}

    def close_other(self) -> Json:
        """Let go of the trace beside, and of its model."""
        self.slots["other"] = Slot()
        self._statistics = {}
        return {}

    def _model_of_file(self, params: Mapping[str, Any], watch: Watch) -> Model | None:
        """The model to open a trace file with, on the device and in the dtype that such a file asks for."""
        if params.get("model") is None:
            return None
        header, _ = tracefile.read(Path(params["file"]))
        return self._model({**params, "device": "cpu", "dtype": str(header["dtype"])}, watch)

    def _model(self, params: Mapping[str, Any], watch: Watch) -> Model:
        """The model that a request names; one that is loaded for either trace is not loaded again."""
        key = (str(params.get("model") or "modern"), params.get("device") or "auto", params.get("dtype") or "auto")
        allow = bool(params.get("allow_pickle"))
        slot = self.slots[_which(params)]
        for held in (slot, *self.slots.values()):
            if held.loaded is not None and held.loaded[0] == key:
                slot.loaded = held.loaded
                return held.loaded[1]
        watch(0, 1, f"loading {display(key[0])}")
        slot.loaded = None  # the one before need not be in memory beside it
        slot.loaded = key, load_model(key[0], device=key[1], dtype=key[2], allow_pickle=allow, watch=watch)
        return slot.loaded[1]

    def plane(self, params: Mapping[str, Any]) -> Plane | Difference:
        """What a request for a window names: an ``address``, an axis to reduce (``over``), another plane (``minus``,
        with an ``address``, a ``trace``, and an ``over`` of its own where it is another) to take away."""
        over, minus = params.get("over"), params.get("minus")
        if not minus:
            return windows.find(self.trace_of(params), params["address"], over)
        other = {"trace": _which(params), "over": over, **minus}
        taken = Plane.find(self.trace_of(other), other["address"], other["over"])
        return windows.find(self.trace_of(params), params["address"], over, taken)

    def window(
        self, address: str, params: Mapping[str, Any] | None = None, watch: Watch | None = None
    ) -> tuple[Json, memoryview]:
        """A part of a site as float32, with the statistics of the whole plane that it lies in.

        ``params`` may reduce an axis and take another window away, as `plane` says; of a difference ``common`` are the
        sizes of all of it, and a cell that is masked on both sides is −∞.
        """
        plane = self.plane({**(params or {}), "address": address})
        cells = math.prod(windows.shape_of(plane.asked))
        if cells > MAX_CELLS:
            raise AddressError(f"{address} is {cells:,} cells; ask for at most {MAX_CELLS:,} at a time")
        mine = plane.first if isinstance(plane, Difference) else plane
        plain, at = plane is mine and mine.over is None, mine.address.at
        tensor = windows.values(plane, watch)
        if isinstance(plane, Difference):  # a zero may be two equal weights, or two masked ones
            tensor = windows.marked(plane, plane.asked, tensor)
        result: Json = {
            "address": str(Address.parse(address)),
            "axes": list(plane.axes),
            "shape": list(tensor.shape),
            "full_shape": list(windows.shape_of(mine.whole)),
            "dtype": dtype_of(mine.trace, mine.site) if plain else "float32",
            "stats": self._stats(plane, watch),
            "numbers": numbers(mine.trace, mine.site, at),
        }
        if isinstance(plane, Difference):
            result["common"] = list(windows.shape_of(plane.whole))
        if at is not None:
            result["origin"] = _origin(mine, plane.asked, at)
        return result, memoryview(tensor.numpy().tobytes())

    def _stats(self, plane: Plane | Difference, watch: Watch | None) -> Json:
        if plane.key not in self._statistics:
            self._statistics[plane.key] = windows.statistics(plane, watch)
        return self._statistics[plane.key]

    def look(self, params: Mapping[str, Any], watch: Watch | None = None) -> tuple[Json, bytes | memoryview]:
        """A picture that is derived from the trace (`engine.analysis.looks`), and its numbers where it has many."""
        more = {key: params[key] for key in ("k", "bins") if params.get(key) is not None}
        if (size := params.get("size")) is not None:
            more["size"] = tuple(size)
        told, tensor = looks.look(self.trace_of(params), params["name"], params["address"], watch=watch, **more)
        return told, b"" if tensor is None else memoryview(tensor.numpy().tobytes())

    def top(self, address: str, k: int, params: Mapping[str, Any] | None = None) -> Json:
        """The candidates after a position: ``logits[b=0,p=10]``; after the last one of all, or of the pass named.

        Of an encoder they are those for the position itself. Where ``params`` say how a token is chosen, each has
        ``scores_prob`` too: its probability after penalty, temperature and filters, None where it is excluded.
        """
        place, trace = Address.parse(address), self.trace_of(params or {})
        trace.refuse_without_head()
        shape = trace.shape("logits", place.at)
        index = place.resolve(("batch", "pos", "d_vocab"), shape)
        row, pos = index.get("batch", 0), index.get("pos", shape[1] - 1)
        if not isinstance(row, int) or not isinstance(pos, int):
            raise AddressError(f"{place}: candidates are those of one position; write e.g. logits[b=0,p=3]")
        if place.at:
            pos += trace.passes[place.at].start
        rows = trace.top(max(1, min(k, 1000)), pos=pos, row=row)
        sampling = sampling_of(params or {})
        after = _scored(trace, sampling, row, pos) if sampling != Sampling() and rows else None
        return {
            "rows": [
                {"id": c.id, "label": c.label, "prob": c.prob, "logit": c.logit}
                | ({} if after is None else {"scores_prob": float(after[c.id]) or None})
                for c in rows
            ],
            "numbers": numbers(trace, trace.program.site(place.site), place.at),
            "nonfinite": 0 if rows else int((~torch.isfinite(trace[f"logits[b={row},p={pos}]"])).sum()),
        }

    def checks(self, site: str | None, watch: Watch, at: int | None = None, which: str = "main") -> Json:
        """The invariants of one site's step, or of all steps, in one pass; of all passes the one in which each holds
        worst."""
        trace = self.trace_of({"trace": which})
        program, passes = trace.program, len(trace.passes)
        if at is not None and not (isinstance(at, int) and 0 <= at < passes):
            raise AddressError(f"there is no pass {at!r}; there are 0…{passes - 1}")
        names = [step.site.name for step in program.steps] if site is None else [program.site(site).name]
        order = {name: i for i, name in enumerate(names)}

        def watched() -> Iterator[Check]:
            for check in trace.iter_checks(site, at):
                watch(check.at * len(names) + order.get(check.site, 0), passes * len(names), check.site)
                yield check

        return {"rows": [check.to_json() for check in worst(watched())]}

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

    def export(self, params: Mapping[str, Any], watch: Watch) -> Json:
        """Write an export (`engine.export`): ``to`` a ``path``, of the picture at an ``address`` or of all of a trace.

        ``minus`` is as in `plane`; ``tour`` is the tour that is played, on the main trace and the other one.
        """
        trace, minus = self.trace_of(params), params.get("minus") or {}
        other = self.trace_of({"trace": minus["trace"]}) if minus.get("trace") else None
        tour = read_tour(params["tour"]) if params.get("tour") else None
        order = Order(
            trace,
            format_of(Path(params["path"]), params.get("to")).name,
            at=params.get("address"),
            view=params.get("view"),
            over=params.get("over") or {},
            minus=minus.get("address"),
            other=other,
            selection=Selection(**{key: tuple(params[key]) for key in ("keep", "layers", "heads") if params.get(key)}),
            dtype=params.get("dtype") or "auto",
            max_size=params.get("max_size"),
            tour=tour,
            beside=self.trace_of({"trace": "other"}) if tour is not None and tour.other is not None else None,
            notes=bool(params.get("notes")),
        )
        path = Path(params["path"])
        return {"path": str(path), "size": saving.write(order, path, force=bool(params.get("force")), watch=watch)}

    def save(self, path: Path, force: bool) -> Json:
        return {"path": str(path), "size": self.trace.save(path, force=force)}


def _which(params: Mapping[str, Any]) -> str:
    """Which trace a request is about. Raises LayerstepError for a word that means none."""
    which = params.get("trace") or "main"
    if which not in ("main", "other"):
        raise LayerstepError(f"there is no trace {display(str(which))[:40]!r}; there are main and other")
    return str(which)


def _scored(trace: Trace, sampling: Sampling, row: int, pos: int) -> Float[Tensor, " d_vocab"]:
    """The probabilities that the token after a position is drawn from."""
    seen = [token.id for token in trace.tokens[row][: pos + 1]]
    return sampling.scores(trace[f"logits[b={row},p={pos}]"], seen).softmax(-1).cpu()


def _origin(plane: Plane, asked: windows.Ranges, at: int) -> Json:
    """Where in the text the first row along each axis of positions stands."""
    return {
        axis: plane.trace.origin(plane.site.name, axis, at) + start
        for axis, (start, _) in zip(plane.axes, asked, strict=True)
        if axis in (*PASS_AXES, *HELD_AXES)
    }

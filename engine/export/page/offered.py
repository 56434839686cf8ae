"""Which pictures each site has in a page: those of the app that can be drawn of what the page holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from engine import views
from engine.analysis import chain
from engine.export.selection import Part
from engine.hidden import mask_of
from engine.jsontext import Json
from engine.ops.attention import Scores
from engine.ops.base import Shape
from engine.pictures import CHAIN
from engine.traces import Trace
from engine.views import View, Words

Views = tuple[tuple[str, ...], tuple[tuple[View, Words | None], ...]]
"""A site's axes, and its pictures, those that take heads together with their words: the same of all layers."""
PLAIN = ("", "histogram", "heads", "layers")
"""Looks that are drawn of the tensor itself alone."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a page holds of a trace: tensors by site, the sites of each look along depth, and looks at single places by
    (site, look)."""

    tensors: Mapping[str, Part]
    along: Mapping[str, Collection[str]]
    at_places: Collection[tuple[str, str]] = ()

    def draws(self, view: View, row: Json, stages: Collection[str]) -> bool:
        """Whether a picture of a step can be drawn of it; ``stages`` are the sites from its scores to its weights."""
        site, part = row["site"], self.tensors.get(row["site"])
        if view.kind == "grid":
            return site in self.along.get(view.look, ())
        if (site, view.name) in self.at_places:
            return True
        if part is None or (view.over and part.index):  # all heads are needed
            return False
        if view is CHAIN:
            return bool(stages) and self.tensors.keys() >= set(stages)
        return view.look in PLAIN or (view.look == "rotation" and self.tensors.keys() >= set(row["reads"]))


def offered(trace: Trace, about: Json, held: Held) -> Json:
    """The pictures of every site: ``views`` has the number of its list in ``view_lists``."""
    stages, lists = _stages(trace), dict[Views, int]()
    numbers: dict[str, int] = {}
    for row in about["steps"]:
        site, axes = row["site"], tuple(row["axes"])
        every = (*_every_view(axes, tuple(row["shape"]), tuple(row["looks"]), row["dtype"]), CHAIN)
        weights = mask_of(trace.program, site) is not None
        drawn = [view for view in every if held.draws(view, row, stages.get(site, ()))]
        if drawn:
            words = tuple((view, _words(view, row, weights)) for view in drawn)
            numbers[site] = lists.setdefault((axes, words), len(lists))
    return {"views": numbers, "view_lists": [_view_list(*found) for found in lists]}


def _words(view: View, row: Json, weights: bool) -> Words | None:
    """What is said of a picture that takes heads together."""
    if not view.over:
        return None
    left = [axis for axis in row["axes"] if axis not in ("batch", "head")]
    size = row["shape"][row["axes"].index("head")]
    return views.together(view.over, "head", size, row["label"], left, weights=weights)


def _view_list(axes: tuple[str, ...], shown: Sequence[tuple[View, Words | None]]) -> list[Json]:
    return [
        asdict(view) | {"fixed": view.fixed(axes)} | ({} if words is None else asdict(words)) for view, words in shown
    ]


@lru_cache(maxsize=256)
def _every_view(axes: tuple[str, ...], shape: Shape, looks: tuple[str, ...], dtype: str) -> tuple[View, ...]:
    return views.views_of(dict(zip(axes, shape, strict=True)), looks, dtype.startswith("int"))


def _stages(trace: Trace) -> dict[str, set[str]]:
    """By each site from scores to weights, all of them."""
    found: dict[str, set[str]] = {}
    for step in trace.program.steps:
        if isinstance(step.op, Scores):
            names = {stage.site.name for stage in chain.stages_of(trace.program, step.site.name)}
            found |= dict.fromkeys(names, names)
    return found

"""Tables as columns of their own kinds: tokens, candidates, what the engine derived, and all steps of a trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from engine import windows
from engine.dtypes import dtype_name
from engine.export.order import Order
from engine.export.selection import parts
from engine.jsontext import Json
from engine.ops.base import Cost
from engine.place import Place
from engine.runtime import Watch
from engine.sites import within_block
from engine.traces import Trace
from engine.windows import Plane


class Column(NamedTuple):
    """A column of a table; ``kind`` is label, int, number or labels."""

    name: str
    kind: str
    cells: Sequence[Any]


Table = list[Column]


def tokens(place: Place) -> Table:
    """Whole numbers per token, with what is known of each token."""
    axis = place.axes[0]
    line = place.trace.line(axis.name, place.row)
    positions = [axis.first + i for i in range(axis.size)]
    found = [line[pos] if pos < len(line) else None for pos in positions]
    name = within_block(place.address.site).removeprefix("attn.").removeprefix("cross_attn.").removeprefix("mlp.")
    return [
        Column(axis.name, "int", positions),
        Column("token", "label", [token.label if token else "" for token in found]),
        Column(name, "int", place.tensor.reshape(-1).tolist()),
        Column("id", "int", [token.id if token else -1 for token in found]),
        Column("bytes", "label", [token.bytes.hex() if token else "" for token in found]),
        Column("origin", "label", [token.origin if token else "" for token in found]),
    ]


def ranking(place: Place) -> Table:
    """The vocabulary, the likeliest first: of logits and probs the candidates, of another tensor its numbers."""
    axis, values = place.axes[0], place.tensor.detach().cpu().double()
    if bool(values.isnan().any()):
        values, order = values[:0], torch.empty(0, dtype=torch.long)
    else:
        values, order = values.sort(descending=True, stable=True)
    ids = [axis.start + i for i in order.tolist()]
    ranks = Column("rank", "int", list(range(1, len(ids) + 1)))
    named = Column("token", "label", [place.trace.label(i) for i in ids])
    plane = place.plane
    if not isinstance(plane, Plane) or plane.site.name not in ("logits", "probs") or plane.asked != plane.whole:
        return [ranks, named, Column("id", "int", ids), Column("value", "number", values.tolist())]
    pos = place.fixed.get("pos", -1) + (place.trace.passes[plane.address.at].start if plane.address.at else 0)
    best = place.trace.top(len(ids), pos=pos, row=place.row) if ids else []
    return [
        Column("rank", "int", list(range(1, len(best) + 1))),
        Column("token", "label", [one.label for one in best]),
        Column("id", "int", [one.id for one in best]),
        Column("logit", "number", [one.logit for one in best]),
        Column("probability", "number", [one.prob for one in best]),
    ]


def _list(told: Json) -> Table:
    kinds = {"bar": "number"}
    return [
        Column(column["name"], kinds.get(column["kind"], column["kind"]), [row[i] for row in told["rows"]])
        for i, column in enumerate(told["columns"])
    ]


def _tiles(told: Json) -> Table:
    kinds = {"title": "label", "site": "label", "head": "int", "over heads": "label", "entropy in bits": "number"}
    keys = ("title", "site", "head", "reduce", "entropy")
    return [
        Column(name, kind, [tile[key] for tile in told["tiles"]])
        for (name, kind), key in zip(kinds.items(), keys, strict=True)
    ]


def _rotation(told: Json) -> Table:
    pairs = told["pairs"]
    found = [Column("pair", "int", [pair["pair"] for pair in pairs])]
    found += [Column(name, "int", [pair["dims"][i] for pair in pairs]) for i, name in enumerate(("dim", "with dim"))]
    found += [Column(key, "number", [pair[key] for pair in pairs]) for key in ("inv_freq", "angle", "cos", "sin")]
    return found + [
        Column(f"{when} {axis}", "number", [pair[when][i] for pair in pairs])
        for when in ("before", "after")
        for i, axis in enumerate("xy")
    ]


def _chain(told: Json) -> Table:
    keys = {"stage": "label", "value": "value", "state": "state", "what it did": "words", "site": "site"}
    return [
        Column(name, "number" if key == "value" else "label", [stage[key] for stage in told["stages"]])
        for name, key in keys.items()
    ]


def bins(told: Json) -> Table:
    edges, counts = told["edges"], told["counts"]
    beyond = [(name, told[key]) for name, key in (("masked", "masked"), ("NaN", "nan"), ("inf", "above"),
                                                 ("-inf", "below")) if told[key]]  # fmt: skip
    rest: list[None] = [None] * len(beyond)
    return [
        Column("what", "label", ["bin"] * len(counts) + [name for name, _ in beyond]),
        Column("from", "number", [*edges[:-1], *rest]),
        Column("to", "number", [*edges[1:], *rest]),
        Column("count", "int", [*counts, *(n for _, n in beyond)]),
    ]


LOOKS: dict[str, Callable[[Json], Table]] = {
    "list": _list,
    "thumbs": _tiles,
    "rotation": _rotation,
    "chain": _chain,
}
"""The table behind a picture that the engine derived, by its kind."""


def steps(order: Order, watch: Watch | None = None) -> Table:
    """A row for every tensor that is chosen: its step, its cost over all passes, and how its numbers are spread."""
    trace, found = order.trace, parts(order.trace, order.selection)
    number_of = {step.site.name: i for i, step in enumerate(trace.program.steps)}
    costs = _costs(trace)
    rows: list[dict[str, Any]] = []
    for done, part in enumerate(found):
        name, step = part.site.name, trace.program.step(part.site.name)
        if watch is not None:
            watch(done, len(found), name)
        stats = windows.statistics(Plane.find(trace, name)) if part.numel else {}
        cost = costs.get(name, Cost(0, 0))
        rows.append({
            "step": number_of.get(name), "site": name, "title": step.op.text.title if step else "given",
            "block": part.site.block, "axes": " ".join(part.site.axes),
            "shape": " ".join(map(str, trace.shape(name))), "dtype": dtype_name(part.dtype),
            "on path": int(part.on_path), "kept": int(trace.kept(name, len(trace.passes) - 1)),
            "reads": " ".join(step.reads) if step else "", "weights": _weights(trace, name),
            "flops": cost.flops, "bytes": cost.bytes, "size": math.prod(trace.shape(name)),
            "finite": stats.get("count", 0), "not finite": stats.get("nonfinite", 0), "masked": stats.get("masked", 0),
            **{key: stats.get(key) for key in ("min", "max", "mean", "std", "norm")},
        })  # fmt: skip
    words = {"site", "title", "axes", "shape", "dtype", "reads"}
    figures = {"min", "max", "mean", "std", "norm"}
    return [
        Column(key, "label" if key in words else "number" if key in figures else "int", [row[key] for row in rows])
        for key in rows[0]
    ]


def _costs(trace: Trace) -> dict[str, Cost]:
    """What each step computes and moves over all passes, by the site it writes."""
    found: dict[str, Cost] = {}
    for at in range(len(trace.passes)):
        for name, cost in trace.program.costs(trace.sizes(at), trace.dtype.itemsize).items():
            if not (at and name in trace.program.once):
                found[name] = found.get(name, Cost(0, 0)) + cost
    return found


def _weights(trace: Trace, name: str) -> int:
    step = trace.program.step(name)
    return sum(math.prod(trace.program.params[param]) for param in step.params) if step else 0

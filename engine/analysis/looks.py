"""Looks: the pictures that are derived from a trace. Which of them a step has, and each by its name.

What a step has is decided by its op, its axes and what it reads, for any program. Every look is told as JSON, a large
one with its numbers beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count

import torch
from torch import Tensor

from engine import windows
from engine.analysis import chain as chains
from engine.analysis import heads as thumbs
from engine.analysis import histogram as histograms
from engine.analysis import lens as lenses
from engine.analysis import neighbours as nearest
from engine.analysis import neurons as ffn
from engine.analysis import residual
from engine.analysis.places import Rows, one, resolved, rows_of, token_of
from engine.analysis.rotation import rotation
from engine.errors import AddressError, NotKeptError
from engine.jsontext import Json
from engine.ops.attention import SinkSoftmax, Softmax
from engine.ops.base import Text, counted
from engine.ops.embedding import Embed, LearnedPositions, SinusoidalPositions
from engine.ops.rotary import RotaryTable, Rotate
from engine.program import Program, Step
from engine.runtime import Watch, as_part
from engine.sites import Address
from engine.statistics import Statistics
from engine.traces import Trace
from engine.windows import Plane

PLAIN = ("arcs", "text", "mean", "max", "curves")
"""Looks that are windows of the site itself, drawn in another way."""


def looks_of(
    program: Program, step: Step, *, weights: bool = True, has: Callable[[str], bool] = lambda site: True
) -> tuple[str, ...]:
    """The looks of a step, in order. ``weights``: whether they are at hand; ``has``: whether a site can be had."""
    site, op, found = step.site.name, step.op, list[str]()
    if not has(site):
        return ()
    for stream in residual.streams(program):
        if site in stream.sites:
            lens = weights and stream is residual.streams(program)[0] and not lenses.no_lens(program)
            found += ["lens", "norms"] if lens else ["norms"]
        if site in stream.added:
            found.append("added")
    if thumbs.has_heads(step):
        found += ["heads", "layers"] if step.site.block is not None else ["heads"]
        found += ["mean", "max"]
    if isinstance(op, Softmax | SinkSoftmax):
        found += ["arcs", "text"]
    if isinstance(op, Embed) and weights:
        found.append("neighbours")
    made = program.computing(site)  # by what an edit changes, if it is edited
    if made is not None and isinstance(made.op, LearnedPositions | SinusoidalPositions | RotaryTable):
        found.append("curves")
    if isinstance(op, Rotate) and all(map(has, step.reads)):
        found.append("rotation")
    if weights and site in ffn.outputs(program):
        found.append("neurons")
    return tuple(found)


def looks_in(trace: Trace) -> dict[str, tuple[str, ...]]:
    """The looks of every step of a trace that has any, by site: those that can be had of what it holds."""
    last = len(trace.passes) - 1
    found = {
        step.site.name: looks_of(
            trace.program, step, weights=trace.weights is not None, has=lambda site: trace.can_have(site, last)
        )
        for step in trace.program.steps
    }
    return {site: looks for site, looks in found.items() if looks}


def depth(of: Trace | Program) -> tuple[str, ...]:
    """The points of the residual stream in order: what enters the first block, then what each addition leaves.

    Of an encoder-decoder the decoder's, then the encoder's.
    """
    program = of.program if isinstance(of, Trace) else of
    return tuple(point for stream in residual.streams(program) for point in stream.points)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a look is asked for, beside its address."""

    size: tuple[int, int]
    k: int
    bins: int
    watch: Watch | None


Told = tuple[Text, Json, Tensor | None]
"""How people are told of a look; what it says; and its numbers, float32."""


def look(
    trace: Trace,
    name: str,
    address: str | Address,
    *,
    size: tuple[int, int] = (24, 48),
    k: int = 50,
    bins: int = 40,
    watch: Watch | None = None,
) -> tuple[Json, Tensor | None]:
    """A look at an address, as JSON and, of a grid or of tiles, its numbers (float32, on the CPU).

    ``size`` is the largest tile, ``k`` the most rows of a list, ``bins`` those of a histogram. JSON always has look,
    kind, address, title, formula, latex, story and numbers; its floats may be NaN. Raises AddressError for a look that
    the site does not have, NotKeptError where weights or a tensor are missing, and what ``watch`` raises.
    """
    place = address if isinstance(address, Address) else Address.parse(address)
    trace.program.site(place.site)
    if name in PLAIN:
        raise AddressError(f"{name} is a picture of the site's own numbers: ask for a window of {place.site}")
    if name not in LOOKS:
        raise AddressError(f"there is no look {name!r}; there are {', '.join(LOOKS)}")
    text, told, values = LOOKS[name](trace, place, Asked(size, k, bins, watch))
    about = {"title": text.title, "formula": text.formula, "latex": text.latex, "story": text.story}
    values = None if values is None else values.float().cpu().contiguous()
    return {"look": name, "address": str(place)} | about | told, values


# -- grids: positions × depth --------------------------------------------------------------------------------------


def _lens(trace: Trace, place: Address, asked: Asked) -> Told:
    if _stream(trace, place, "lens") is not lenses.stream_with_head(trace.program):
        raise AddressError(f"{place.site} has no look 'lens': no head reads the stream that it lies on")
    rows = rows_of(trace, place)
    found = lenses.lens(trace, rows, watch=asked.watch)
    texts = [["" if i < 0 else trace.label(i) for i in row] for row in found.ids.tolist()]
    told = _grid(rows, found.sites, found.probs, found.probs) | {"texts": texts}
    return lenses.TEXT, told | {"numbers": lenses.numbers(trace.program)}, found.probs


def _norms(trace: Trace, place: Address, asked: Asked) -> Told:
    return _lengths(trace, place, residual.NORMS, _stream(trace, place, "norms").points, asked)


def _added(trace: Trace, place: Address, asked: Asked) -> Told:
    return _lengths(trace, place, residual.ADDED, _stream(trace, place, "added").added, asked)


def _stream(trace: Trace, place: Address, look: str) -> residual.Stream:
    """The stream that a look along depth is about: the one that its site lies on or is added to."""
    stream = residual.stream_of(trace.program, trace.program.site(place.site).name)
    if stream is None:
        raise AddressError(f"{place.site} has no look {look!r}: it is no site of the residual stream")
    return stream


def _lengths(trace: Trace, place: Address, text: Text, sites: Sequence[str], asked: Asked) -> Told:
    """Lengths of vectors at the sites that can be had; the figures are those of all positions."""
    rows, every = rows_of(trace, place), rows_of(trace, place.with_index(p=None))
    sites = [site for site in sites if all(trace.can_have(site, part.at) for part in every.parts)]
    if not sites:
        raise NotKeptError(
            f"{place.site} was not kept, nor any other site of its stream; open this trace with its model"
        )
    whole = residual.norms(trace, sites, every, asked.watch)
    values = whole[rows.start - every.start : rows.stop - every.start]
    numbers = f"d_model = {trace.config.d_model}, {counted(len(sites), 'site')}"
    return text, _grid(rows, sites, values, whole) | {"numbers": numbers}, values


def _grid(rows: Rows, sites: Sequence[str], values: Tensor, figures_of: Tensor) -> Json:
    return {
        "kind": "grid",
        "rows": {"axis": rows.axis, "start": rows.start, "size": rows.stop - rows.start},
        "cols": {"axis": "depth", "sites": list(sites)},
        "shape": list(values.shape),
        "stats": Statistics.of([figures_of]).told(masks=False),
    }


# -- tiles ---------------------------------------------------------------------------------------------------------


def _heads(trace: Trace, place: Address, asked: Asked) -> Told:
    return _tiles(trace, place, asked, thumbs.HEADS, (trace.program.site(place.site).name,))


def _layers(trace: Trace, place: Address, asked: Asked) -> Told:
    if trace.program.site(place.site).block is None:
        raise AddressError(f"{place.site} belongs to no layer; ask for its heads")
    sites = thumbs.alike(trace.program, trace.program.site(place.site).name)
    had = [site for site in sites if trace.can_have(site, place.at or 0)]
    return _tiles(trace, place, asked, thumbs.LAYERS, had or sites, layers=True)


def _tiles(
    trace: Trace, place: Address, asked: Asked, text: Text, sites: Sequence[str], *, layers: bool = False
) -> Told:
    step = trace.program.step(sites[0])
    if step is None or not thumbs.has_heads(step):
        raise AddressError(f"{place.site} has no heads to look at: no queries and keys for each head")
    _, index = resolved(trace, place)
    row = one(place, index, "batch", 0)
    tiles = thumbs.tiles(trace, sites, asked.size, at=place.at, row=row, reduced=not layers, watch=asked.watch)
    values = torch.stack([tile.values for tile in tiles])
    _, heads, queries, keys = trace.shape(sites[0], place.at)
    of = f"{counted(len(sites), 'layer')} of {counted(heads, 'head')}" if layers else counted(heads, "head")
    told = {
        "kind": "thumbs",
        "tiles": [
            {
                "title": f"layer {trace.program.site(tile.site).block} {tile.title}" if layers else tile.title,
                "site": tile.site,
                "head": tile.head,
                "reduce": tile.reduce,
                "entropy": tile.entropy,
            }
            for tile in tiles
        ],
        "shape": list(values.shape),
        "columns": heads if layers else 0,
        "numbers": f"{of}, {queries} × {keys} cells each",
    }
    return text, told, values


# -- lists ---------------------------------------------------------------------------------------------------------


def _neighbours(trace: Trace, place: Address, asked: Asked) -> Told:
    site = trace.program.site(place.site).name
    rows, part = token_of(trace, place)
    step = trace.program.step(site)
    if step is None or not isinstance(step.op, Embed):
        raise AddressError(f"neighbours are those of a token's embedding, as of embed, and not of {site}")
    token = int(trace.part(step.reads[0], part.at, rows.window(part))[0, 0])
    found = nearest.neighbours(trace, token, asked.k, site=site, watch=asked.watch)
    d_vocab, width = trace.program.params[step.params[0]]
    told = {
        "kind": "list",
        "columns": _columns(token="label", id="int", cosine="bar", norm="number"),
        "rows": [[trace.label(n.id), n.id, n.cosine, n.norm] for n in found],
        "numbers": f"{trace.label(token)} (id {token}) beside {d_vocab - 1} other rows of {width} numbers",
    }
    return nearest.TEXT, told, None


def _neurons(trace: Trace, place: Address, asked: Asked) -> Told:
    site = trace.program.site(place.site).name
    axes, index = resolved(trace, place)
    rows, part = token_of(trace, place)
    choice = one(place, index, "choice") if "choice" in index else None
    found = ffn.neurons(trace, site, rows, part, asked.k, choice)
    mixed, promotes = "choice" in axes, ffn.promotes(trace.program, site)
    gated = any(n.pre_linear is not None for n in found)
    columns = _columns(neuron="int") + (_columns(expert="int", weight="number") if mixed else [])
    columns += _columns(post="bar", pre="number") + (_columns(pre_linear="number") if gated else [])
    columns += _columns(**{"‖w_out‖": "number"}, contribution="number")
    columns += _columns(promotes="labels") if promotes else []
    rows_told = [
        [n.index]
        + ([n.expert, n.weight] if mixed else [])
        + [n.post, n.pre]
        + ([n.pre_linear] if gated else [])
        + [n.out_norm, n.contribution]
        + ([[trace.label(i) for i in n.promotes]] if promotes else [])
        for n in found
    ]
    text = replace(ffn.TEXT, story=ffn.TEXT.story + ffn.EXPERTS) if mixed else ffn.TEXT
    of = trace.shape(site, part.at)[-1]
    return (
        text,
        {"kind": "list", "columns": columns, "rows": rows_told, "numbers": f"{len(found)} of {of} neurons"},
        None,
    )


def _columns(**kinds: str) -> list[Json]:
    return [{"name": name, "kind": kind} for name, kind in kinds.items()]


# -- one cell, one vector, one plane -------------------------------------------------------------------------------


def _rotation(trace: Trace, place: Address, asked: Asked) -> Told:
    found = rotation(trace, place)
    told = {
        "kind": "rotation",
        "pairs": [asdict(pair) for pair in found.pairs],
        "pair": found.pair,
        "convention": found.convention,
        "theta": found.theta,
        "scaling": found.scaling,
        "position": found.position,
        "rotated": found.rotated,
        "of": found.of,
        "numbers": f"position {found.position}, {found.told}: {found.rotated} of {found.of} dimensions turn",
    }
    return Rotate.TEXT, told, None


def _chain(trace: Trace, place: Address, asked: Asked) -> Told:
    stages = chains.chain(trace, place)
    numbers = " → ".join(f"{stage.label} {stage.number}" for stage in stages)
    return chains.TEXT, {"kind": "chain", "stages": [asdict(s) for s in stages], "numbers": numbers}, None


def _histogram(trace: Trace, place: Address, asked: Asked) -> Told:
    plane, reading = Plane.find(trace, str(place)), count()

    def parts() -> Iterator[Tensor]:
        return windows.blocks(plane, as_part(asked.watch, next(reading), histograms.TIMES))

    found = histograms.histogram(parts, asked.bins)
    stats, (q01, q50, q99) = found.told, found.quantiles or (None, None, None)
    told = {
        "kind": "histogram",
        "edges": list(found.edges),
        "counts": list(found.counts),
        "nan": stats.nan,
        "above": stats.above,
        "below": 0 if plane.masks else stats.below,
        "masked": stats.below if plane.masks else 0,
        "q01": q01,
        "q50": q50,
        "q99": q99,
        "stats": stats.told(masks=plane.masks),
        "numbers": f"{counted(stats.finite, 'number')} in {counted(len(found.counts), 'bin')}",
    }
    return histograms.TEXT, told, None


LOOKS: dict[str, Callable[[Trace, Address, Asked], Told]] = {
    "lens": _lens,
    "norms": _norms,
    "added": _added,
    "heads": _heads,
    "layers": _layers,
    "neighbours": _neighbours,
    "neurons": _neurons,
    "rotation": _rotation,
    "chain": _chain,
    "histogram": _histogram,
}

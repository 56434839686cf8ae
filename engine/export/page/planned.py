"""How large a page will be, before anything of it is made; and what to choose where that is too large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from engine.errors import LayerstepError
from engine.export.order import Order
from engine.export.page import mathml
from engine.export.page.blocks import size_of, stored
from engine.export.page.document import traces_of
from engine.export.page.entry import CANDIDATES
from engine.export.page.offered import Held, offered
from engine.export.page.safe import safe
from engine.export.selection import Part, parts
from engine.hidden import mask_of
from engine.summary import summary
from engine.text import human
from engine.tours import SPOKEN
from engine.traces import Trace
from engine.views import LOOKS

PER_TENSOR, PER_DEPTH = 270, 24
"""Bytes that are told of a tensor with its checks; of a position at one depth of the lens."""
BESIDE = 12_000
"""Bytes of what is told once: words, looks, the cache."""


def told(order: Order) -> int:
    """About how many bytes all but the tensors is, without style and script."""
    found = 0
    for trace in traces_of(order):
        chosen, about = parts(trace, order.selection), summary(trace)
        rows = len(trace.tokens) * trace.length
        formulas = len(safe(mathml.trees(step["latex"] for step in about["steps"])))
        along = {look: [row["site"] for row in about["steps"] if look in row["looks"]] for look in LOOKS}
        views = len(safe(offered(trace, about, Held({part.site.name: part for part in chosen}, along))))
        found += BESIDE + len(safe(about)) + formulas + views + PER_TENSOR * len(chosen)
        found += rows * (len(about["depth"]) * PER_DEPTH + 16 * CANDIDATES)
        found += size_of(rows * trace.length // 8) if any(mask_of(trace.program, p.site.name) for p in chosen) else 0
        found += _labels(trace) if any("d_vocab" in part.site.axes for part in chosen) else 0
    if order.tour is not None:
        found += sum(2 * len(getattr(stop, text)) + 40 for stop in order.tour.stops for text in SPOKEN)
    return found


def tensors(order: Order) -> int:
    """Bytes of the elements that hold tensors."""
    every = (part for trace in traces_of(order) for part in parts(trace, order.selection))
    return sum(_size(part, order.dtype) for part in every)


def cheaper(order: Order, limit: int, beside: int) -> str:
    """What to choose so that the page fits into ``limit`` bytes, ``beside`` of which are no tensors, in words."""
    for words, other in _choices(order):
        try:
            needed = tensors(other)
        except LayerstepError:  # e.g. none of it can be had
            continue
        if needed <= limit - beside:
            return f"{words} makes it about {human(needed + beside)}"
    return "choose less with --keep, --layers and --heads"


def _choices(order: Order) -> Iterator[tuple[str, Order]]:
    """Smaller pages, what is missed the least first."""
    chosen, program, layers = order.selection, order.trace.program, order.trace.config.n_layers
    keeps, few = [chosen.keep], [chosen.layers]
    if chosen.keep == ("all",):
        weights = {
            f"*.{step.site.name.rpartition('.')[2]}" for step in program.steps if mask_of(program, step.site.name)
        }
        keeps.append(("path", *sorted(weights)))
    if chosen.layers is None:
        few += [tuple(range(n)) for n in dict.fromkeys((layers // 2, layers // 4, 1)) if 0 < n < layers]
    dtypes = [order.dtype, *(["float16"] if order.dtype in ("auto", "float32") else [])]
    bare = [(chosen.layers, (keep,), dtype) for keep in ("path", "residual") for dtype in dtypes]
    for of, keep, dtype in (*product(few, keeps, dtypes), *(bare if len(keeps) > 1 else [])):
        words = [
            f"--keep '{','.join(keep)}'" if keep != chosen.keep else "",
            f"--layers {','.join(map(str, of or ()))}" if of != chosen.layers else "",
            f"--round-to {dtype}" if dtype != order.dtype else "",
        ]
        yield (
            " ".join(filter(None, words)),
            replace(order, selection=replace(chosen, keep=keep, layers=of), dtype=dtype),
        )


def _size(part: Part, dtype: str) -> int:
    return size_of(part.nbytes(stored(part.dtype, dtype)))


def _labels(trace: Trace) -> int:
    """Bytes of the labels of the whole vocabulary."""
    return len(safe([trace.label(i) for i in range(trace.config.d_vocab)]))

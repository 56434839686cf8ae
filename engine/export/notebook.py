"""A Jupyter notebook with the trace inside: it opens it with layerstep and draws its pictures anew.

The trace's file is in the notebook as base64, so that one file is handed on. Every picture is there already as HTML,
for who only reads it. The weights are not in it: what needs them is drawn where the model is at hand.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from engine.analysis.looks import looks_in
from engine.errors import LayerstepError
from engine.explanation import explain
from engine.export import contents, walk
from engine.export.order import Order
from engine.export.walk import plain
from engine.jsontext import Json, for_anyone
from engine.opening import open_trace
from engine.pictures import Wish, picture, views_of
from engine.runtime import Watch
from engine.shown import Shown
from engine.sites import KEYS, LETTERS, QUERIES, Address
from engine.stretches import stretches
from engine.traceformat import Rows
from engine.traces import Trace

PICTURE, TOKEN, TOKENS = 9_000, 800, 30
"""About how many bytes a picture takes, and with each of so many tokens."""
OVERVIEW, FEW = 3, 5
"""About how many pictures the trace's own overview is worth; and how many there are of what is no tour."""
LINE = 48 * 1024
"""Bytes of the trace in a line of base64."""
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
HIDDEN = {"jupyter": {"source_hidden": True}, "tags": ["hide-input"]}
"""How a cell says that its source is not to be read."""


class Held(NamedTuple):
    """A trace of the notebook: its name there, itself, its file, and what that gives without the model."""

    name: str
    trace: Trace
    path: Path
    bare: Trace


def size(order: Order) -> int | None:
    """About the bytes of the file."""
    traces = [order.trace, *([order.beside] if order.beside is not None else [])]
    pictures = OVERVIEW + (sum(1 for _ in walk.wishes(order)) if order.tour is not None else FEW)
    each = PICTURE + TOKEN * min(order.trace.length, TOKENS)
    return sum(4 * _bytes(trace) // 3 for trace in traces) + pictures * each


def cheaper(order: Order, limit: int) -> str:
    """What makes the file smaller."""
    return "record the trace with --keep residual, or hand on its own file (layerstep trace … -o FILE) instead"


def write(order: Order, file: BinaryIO, watch: Watch | None = None) -> None:
    """Write the notebook: of a tour's stops, or without one of what a first look is taken at."""
    with tempfile.TemporaryDirectory(prefix="layerstep-") as folder:
        held = [_held("t", order.trace, Path(folder))]
        if order.beside is not None:
            held.append(_held("other", order.beside, Path(folder)))
        file.write(b'{"cells": [\n')
        for number, cell in enumerate(_cells(order, held, watch)):
            file.write(b",\n" if number else b"")
            if isinstance(cell, Held):
                _embed(cell, number, file)
            else:
                file.write(for_anyone({"id": f"cell-{number}", **cell}).encode())
        meta = {"kernelspec": KERNEL, "language_info": {"name": "python"}, "layerstep": {"made_by": contents.made_by()}}
        file.write(f'],\n"metadata": {for_anyone(meta)},\n"nbformat": 4, "nbformat_minor": 5}}\n'.encode())


def _held(name: str, trace: Trace, folder: Path) -> Held:
    path = folder / f"{name}.trace.safetensors"
    trace.save(path)
    return Held(name, trace, path, open_trace(path))


def _bytes(trace: Trace) -> int:
    """About the bytes of a trace's file."""
    passes = [{**p.given, **p.kept} for p in trace.passes]
    seen: dict[object, int] = {}
    for tensor in stretches(trace.program, [p.length for p in trace.passes], passes).values():
        parts = tensor.parts if isinstance(tensor, Rows) else (tensor,)
        seen[tuple((part.data_ptr(), part.shape, part.stride()) for part in parts)] = tensor.nbytes
    return sum(seen.values()) + 24 * 1024


def _embed(held: Held, number: int, file: BinaryIO) -> None:
    """A cell with the bytes of a trace's file, a piece at a time."""
    about: Json = {
        "id": f"cell-{number}",
        "cell_type": "code",
        "execution_count": None,
        "metadata": HIDDEN,
        "outputs": [],
    }
    file.write(for_anyone(about)[:-1].encode() + b', "source": [')
    file.write(f'"# The trace, as its own file has it.\\n", "{held.name}_data = \\"\\"\\"\\n"'.encode())
    with held.path.open("rb") as source:
        while piece := source.read(LINE):
            file.write(b',\n"' + base64.b64encode(piece) + b'\\n"')
    file.write(b',\n"\\"\\"\\""]}')


# -- cells ---------------------------------------------------------------------------------------------------------


def _markdown(text: str) -> Json:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(source: str, html: str = "", text: str = "") -> Json:
    """A cell of code, and what it answers."""
    data = {"text/plain": text} | ({"text/html": html} if html else {})
    outputs = [{"output_type": "execute_result", "execution_count": None, "data": data, "metadata": {}}]
    return {
        "cell_type": "code", "execution_count": None, "metadata": {}, "source": source.splitlines(keepends=True),
        "outputs": outputs if text or html else [],
    }  # fmt: skip


def _cells(order: Order, held: list[Held], watch: Watch | None) -> Iterator[Json | Held]:
    trace = order.trace
    prompt = "\n".join(f"> {plain(line) or ' '}" for line in trace.prompt.split("\n")[:40])
    about = plain(order.tour.about) if order.tour is not None else ""
    model = f"Recorded with {plain(trace.config.name)}. Running this needs layerstep; reading it needs nothing."
    yield _markdown("\n\n".join(filter(None, (f"# {plain(walk.title_of(order))}", about, prompt, model))))
    yield from held
    yield _code(_OPEN)
    for one in held:
        name = one.name
        yield _code(_OPENED.format(name=name), trace_html(one.trace), repr(one.trace))
    yield _markdown("The weights are not in here. Where the model is at hand, more can be seen: the lens, neighbours.")
    yield _code("\n".join(_with_model(one) for one in held))
    if order.tour is not None:
        yield from _stops(order, held, watch)
    else:
        yield from _first_look(order, held[0], watch)
    yield _markdown("## Checks\n\nWhat must hold of a forward pass: figures beside what rounding explains.")
    yield _code(_CHECKS)


def trace_html(trace: Trace) -> str:
    """A trace as a notebook shows it."""
    return trace._repr_html_()


_OPEN = """import base64
import tempfile
from pathlib import Path

from engine import LayerstepError, explain, open_trace, show

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)"""
_OPENED = """{name}_path = folder / "{name}.trace.safetensors"
{name}_path.write_bytes(base64.b64decode({name}_data))
{name} = open_trace({name}_path)
{name}"""
_FIGURE = """from IPython.display import SVG

from engine import save_as
from engine.export.formats import FigureStyle

save_as(t, folder / "figure.svg", at={address}, style=FigureStyle(size="page"), force=True)
SVG(filename=str(folder / "figure.svg"))"""
_CHECKS = """for check in t.checks():
    print("✓" if check.ok else "✗", check.site, check.text)"""


def _with_model(held: Held) -> str:
    name = held.name
    return (
        f"try:\n    {name} = open_trace({name}_path, {held.trace.config.name!a})\n"
        f'except LayerstepError as error:\n    print("without its model:", error)'
    )


def _stops(order: Order, held: list[Held], watch: Watch | None) -> Iterator[Json]:
    """A tour: of each stop its words, and its picture to be drawn anew. Answers are folded away."""
    assert order.tour is not None
    count = len(order.tour.stops)
    for number, stage in enumerate(walk.stages(order), 1):
        if watch is not None:
            watch(number - 1, count, stage.title)
        yield _markdown(f"## {number}. {plain(stage.title)}\n\n{stage.narration}")
        for wish in filter(None, (stage.wish, stage.beside)):
            yield _show(held, wish)
        if stage.question:
            answer = f"<details><summary>Answer</summary>\n\n{stage.answer}\n\n</details>"
            yield _markdown(f"**Question.** {stage.question}\n\n{answer}")
        if stage.notes and order.notes:
            quoted = "\n".join(f"> {line}".rstrip() for line in stage.notes.split("\n"))
            yield _markdown(f"**For the speaker**\n\n{quoted}")


def _show(held: list[Held], wish: Wish) -> Json:
    """A picture, drawn anew by its cell: where its model is at hand, if it needs that."""
    one = next(one for one in held if one.trace is wish.trace)
    call = f"show({one.name}, {wish.address!a}, {wish.view!a})"
    if not _without_weights(one.bare, wish):
        call = f'{call} if {one.name}.weights is not None else "this needs the model"'
    shown = Shown(picture(wish))
    return _code(call, shown._repr_html_(), repr(shown))


def _without_weights(bare: Trace, wish: Wish) -> bool:
    """Whether a picture can be had of the file alone."""
    place = Address.parse(wish.address)
    site = bare.program.site(place.site)
    try:
        if wish.view not in {view.name for view in views_of(bare, site, place.at)}:
            return False
        picture(Wish(bare, wish.address, wish.view))
    except LayerstepError:
        return False
    return True


def _first_look(order: Order, held: Held, watch: Watch | None) -> Iterator[Json]:
    """Attention in the middle of the model, one cell of it explained, the lens, and a figure for a paper."""
    trace, looks = order.trace, looks_in(order.trace)
    blocks = order.selection.layers or (trace.config.n_layers // 2,)
    attention = [site for site in trace.program.sites
                 if site.block in blocks and set(site.axes) & {*QUERIES} and set(site.axes) & {*KEYS}]  # fmt: skip
    patterns = [site for site in attention if "arcs" in looks.get(site.name, ())]
    if patterns:
        site, head = patterns[-1], (order.selection.heads or (0,))[0]
        at = f"{site.name}[h={head}]"
        yield _markdown("## Attention\n\nThe weights of one head: queries down, keys across.")
        yield _show([held], Wish(trace, at, views_of(trace, site)[0].name))
        yield _markdown("All heads of the layer, and one weight on its way from its score.")
        yield _show([held], Wish(trace, site.name, "heads"))
        last = trace.shape(site.name)[-2] - 1
        cell = f"{site.name}[b=0,h={head},{LETTERS[site.axes[2]]}={last},{LETTERS[site.axes[3]]}=0]"
        told = explain(trace, cell)
        yield _code(f"explain(t, {cell!a})", told._repr_html_(), str(told))
        yield _markdown("The same as a figure for a slide or a paper: as SVG, PDF, PNG or TikZ.")
        yield _code(_FIGURE.format(address=ascii(at)))
    if along := next((name for name, found in looks.items() if "norms" in found), ""):
        yield _markdown("## Along depth\n\nThe residual stream: its length, and what each depth would predict.")
        yield _show([held], Wish(trace, along, "norms"))
        if lens := next((name for name, found in looks.items() if "lens" in found), ""):
            yield _show([held], Wish(trace, lens, "lens"))
    last_site = trace.program.sites[-1]
    if last_site.axes[-1] == "d_vocab" and trace.can_have(last_site.name, len(trace.passes) - 1):
        yield _markdown("## What comes next")
        yield _show([held], Wish(trace, last_site.name, views_of(trace, last_site)[0].name))

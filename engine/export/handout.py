"""A handout in Markdown, one file: the prompt, the model, and of each place a figure, its formula and its numbers.

Figures are in the file itself, as PNG at its end, where Markdown's references put them into the text: so it is handed
on as one file, and what does not show such figures shows their captions and tables. Whatever is foreign is escaped.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from engine.dtypes import dtype_name
from engine.export import contents, walk
from engine.export.order import Order
from engine.export.tables import Cell, lines
from engine.export.walk import Stage, plain
from engine.htmltext import ends, short
from engine.pictures import Picture, Wish, find_view, picture
from engine.place import Place
from engine.runtime import Watch
from engine.sites import Address
from engine.summary import numbers
from engine.text import Token
from engine.told import fields, traits
from engine.traces import Trace

DPI = 150
"""Dots an inch of its figures: enough on a screen and in print, where they are a page wide."""
WORDS, TABLE = 40_000, 110_000
"""About how many bytes the words take, and a figure that is a table or many pictures."""
FIGURE, NUMBER, MANY = 24_000, 800, 32
"""… another figure, and each number in a cell of it, as there are where it has at most so many rows and columns."""
BAR, SIDE = 250, 1_650
"""… a bar, and a row or column of a square of cells alone."""
FIGURES_SAY_IT = ("histogram", "tokens", "thumbs")
"""Kinds of pictures that say in figures all that a table would."""
ROWS, COLUMNS, TOKENS = 12, 13, 64
"""How large the tables are at most; of more the middle is left out."""


def size(order: Order) -> int | None:
    """About the bytes of the file."""
    return WORDS + sum(map(_figure, walk.wishes(order)))


def cheaper(order: Order, limit: int) -> str:
    """What makes the file smaller."""
    less = "a tour of fewer stops" if order.tour is not None else "fewer steps with --keep or --layers"
    return f"choose {less}"


def _figure(wish: Wish) -> int:
    """About the bytes of a figure."""
    view, place, trace = find_view(wish, wish.view or ""), Address.parse(wish.address), wish.trace
    if view.kind not in ("attention", "matrix", "bars"):
        return TABLE
    site = trace.program.site(place.site)
    sizes = dict(zip(site.axes, trace.shape(site.name, place.at), strict=True))
    spread = [sizes[axis] for axis in view.spread]
    cells = math.prod(spread)
    if len(spread) < 2:
        return FIGURE + BAR * cells
    return FIGURE + NUMBER * cells if max(spread) <= MANY else int(SIDE * math.sqrt(cells))


def write(order: Order, file: BinaryIO, watch: Watch | None = None) -> None:
    """Write the handout: of a tour's stops, or without one of the steps of a layer. Answers are at its end, and in
    their places where the speaker's notes are asked for."""
    sheet = _Sheet(order)
    count = walk.count(order)
    for text in sheet.head():
        file.write(_block(text))
    for number, stage in enumerate(walk.stages(order), 1):
        if watch is not None:
            watch(number - 1, count, stage.title)
        for text in sheet.stage(number, stage, watch):
            file.write(_block(text))
    for text in sheet.tail():
        file.write(_block(text))


def _block(text: str) -> bytes:
    return f"{text}\n\n".encode("utf-8", "replace")


class _Sheet:
    """A handout on its way: its figures and answers so far."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.figures: list[str] = []
        self.answers: list[tuple[int, Stage]] = []
        size = "page" if order.style.size == "slide" else order.style.size
        self.style = replace(order.style, size=size, caption="")

    def head(self) -> Iterator[str]:
        """The title, the prompt, the model and the tokens."""
        order, trace = self.order, self.order.trace
        yield f"# {plain(walk.title_of(order))}"
        if order.tour is not None and order.tour.about:
            yield plain(order.tour.about)
        if trace.prompt:
            yield "\n".join(f"> {plain(line) or ' '}" for line in trace.prompt.split("\n")[:40])
        yield from (f"*Note:* {plain(notice)}" for notice in trace.notices)
        yield _table(["model", plain(trace.config.name)], _facts(trace), left=(0, 1))
        for name, rows in (("Source tokens", trace.source_tokens), ("Tokens", trace.tokens)):
            for i, row in enumerate(rows[:4]):
                yield f"## {name}" + (f", row {i}" if len(rows) > 1 else "")
                yield from _tokens(row)

    def stage(self, number: int, stage: Stage, watch: Watch | None) -> Iterator[str]:
        """One place."""
        yield f"## {number}. {plain(stage.title)}"
        if stage.narration:
            yield stage.narration
        yield from self._picture(stage.wish, watch)
        if stage.beside is not None:
            yield "Beside it:"
            yield from self._picture(stage.beside, watch)
        if stage.question:
            yield f"**Question.** {stage.question}"
            if self.order.notes:
                yield f"**Answer.** {stage.answer}"
            else:
                self.answers.append((number, stage))
        if stage.notes and self.order.notes:
            yield "**For the speaker**"
            yield "\n".join(f"> {line}".rstrip() for line in stage.notes.split("\n"))

    def tail(self) -> Iterator[str]:
        """The answers, and the figures' own bytes."""
        if self.answers:
            yield "## Answers"
        for number, stage in self.answers:
            yield f"**{number}. {plain(stage.title)}**"
            yield stage.answer
        yield f"*Made by {plain(contents.made_by())}.*"
        yield from (f"[figure-{n}]: <data:image/png;base64,{data}>" for n, data in enumerate(self.figures, 1))

    def _picture(self, wish: Wish, watch: Watch | None) -> Iterator[str]:
        """A figure with its caption, the formula with this model's numbers, and a table."""
        from engine.export.figures import draw

        shown, file = picture(wish, watch), io.BytesIO()
        draw.write(Order(wish.trace, "png", at=wish.address, view=wish.view, style=self.style), file, dpi=DPI)
        self.figures.append(base64.b64encode(file.getvalue()).decode())
        number = len(self.figures)
        yield f"![{plain(_title(shown))}][figure-{number}]"
        yield f"*Figure {number}.* {plain(draw.caption(shown))}"
        latex, sizes = _formula(shown)
        if latex:
            yield f"$$\n{latex}\n$$"
        if sizes:
            yield plain(sizes)
        yield from _numbers(shown)


def _facts(trace: Trace) -> Iterator[list[str]]:
    yield ["architecture", plain(traits(trace.config))]
    yield from ([plain(name), plain(words)] for name, words in fields(trace.config) if len(words) < 80)
    ran = [str(trace.device), dtype_name(trace.dtype), "+".join(trace.kernels)]
    yield ["ran on", plain(", ".join(filter(None, ran)))]
    if len(trace.passes) > 1:
        yield ["passes", str(len(trace.passes))]


def _tokens(row: Sequence[Token]) -> Iterator[str]:
    shown = ends(len(row), TOKENS)
    cells = (["…", "", "", ""] if i < 0 else [f"{i}", plain(row[i].label), f"{row[i].id}", row[i].bytes.hex(" ")]
             for i in shown)  # fmt: skip
    yield _table(["position", "token", "id", "bytes"], cells, left=(1, 3))
    if -1 in shown:
        yield f"{len(row)} tokens in all; the middle is left out."


def _title(shown: Picture) -> str:
    return shown.place.title if shown.place is not None else str((shown.told or {})["title"])


def _formula(shown: Picture) -> tuple[str, str]:
    """The formula as LaTeX (the caption has it as text), and its symbols with this model's numbers."""
    if shown.place is None:
        told = shown.told or {}
        return told["latex"], told["numbers"]
    place = shown.place
    step = shown.trace.program.step(place.address.site)
    if step is None or place.title != str(place.address):  # reduced, or a difference
        return "", ""
    site = shown.trace.program.site(place.address.site)
    return step.op.text.latex, numbers(shown.trace, site, place.address.at)


def _numbers(shown: Picture) -> Iterator[str]:
    """The picture's numbers as a table, the middle left out where it is large."""
    if shown.view is not None and shown.view.kind in FIGURES_SAY_IT:
        return
    head, *rows = lines(shown)
    if not rows:
        return
    across, down = ends(len(head), COLUMNS), ends(len(rows), ROWS)
    heads = ["…" if j < 0 else plain(str(head[j])) for j in across]
    cells = (["…"] * len(across) if i < 0 else ["…" if j < 0 else _cell(rows[i][j]) for j in across] for i in down)
    left = [n for n, j in enumerate(across) if j >= 0 and isinstance(rows[0][j], str)]
    yield _table(heads, cells, left)
    if -1 in across or -1 in down:
        yield f"{len(rows)} rows and {len(head) - 1} columns in all; the middle is left out." + _more(shown.place)


def _more(place: Place | None) -> str:
    """Where the other numbers are."""
    return "" if place is None else f" All of them: `layerstep export … --at {place.address} --to csv`."


def _cell(one: Cell) -> str:
    if isinstance(one, float):
        return short(one) if math.isfinite(one) else plain(short(one))
    return plain(" ".join(one) if isinstance(one, list) else "" if one is None else str(one))


def _table(heads: Sequence[str], rows: Iterator[list[str]], left: Sequence[int]) -> str:
    """A table as GitHub's Markdown has it; its cells are Markdown already."""
    rules = [":--" if i in left else "--:" for i in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in ([head or " " for head in heads], rules, *rows))

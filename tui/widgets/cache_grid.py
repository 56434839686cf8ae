"""The cache as it grows: layers × positions after a pass, what each layer stores, and which heads share a kv head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.message import Message

from tui.state.cache import CacheReport, Growth, Layer, Share
from tui.state.cache_grid import Columns, states
from tui.state.numbers import count, size
from tui.state.trace import Trace
from tui.text import cells, fit
from tui.widgets.cache_section import Line, Section, bytes_right, flow, label, paragraph, widest
from tui.widgets.cache_sharing import sharing_lines

MARKS = {"held": "▒", "added": "█", "dropped": "×", "absent": "┄"}
WORDS = {"held": "held", "added": "added by this pass", "dropped": "dropped by a window", "absent": "not there yet"}
ROOMY, TIGHT = 108, 56
"""Cells from which the allocated bytes have a column too, and below which only the bytes have one."""
NAMED = 5
"""Cells of a column from which tokens are named."""
STORY = (
    "Keys and values of earlier tokens do not change any more, so they are kept: a new token adds one row per layer, "
    "and computes only its own."
)
HIGH = 13
"""Lines from which it stands over the layers; where there are fewer, under them."""


class CacheGrid(Section):
    """``show`` gives it the report and the place: a pass, a layer, a kv head."""

    class Picked(Message):
        """A layer was clicked."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._report: CacheReport | None = None
        self._trace: Trace | None = None
        self._at = self._row = self._head = self._top = 0

    def show(self, trace: Trace, report: CacheReport | None, at: int, row: int, head: int, trouble: str = "") -> None:
        """Draw the cache after pass ``at`` with the cursor on a layer and one of its kv heads."""
        self._trace, self._report, self._at, self._row, self._head = trace, report, at, row, head
        self.say(trace, report, at, row, head, trouble=trouble)

    def in_sight(self) -> tuple[int, int]:
        rows = len(self._report.layers) if self._report else 0
        return self.around(self.lead + self._top + self._row, self._row, rows)

    def write(self, width: int) -> Iterator[Line]:
        report, trace, inks = self._report, self._trace, self.inks
        if report is None or trace is None:
            yield from self.waiting()
            return
        growth = report.at_pass(self._at)
        kind = widest((_kind(layer) for layer in report.layers), 12)
        number = max(2, *(len(str(layer.layer)) for layer in report.layers))
        gutter, tail = number + kind + 5, 24 + 11 * (width >= ROOMY) - 14 * (width < TIGHT)
        columns = Columns.within(report.tokens, width - gutter - tail - 1)
        story = list(paragraph(STORY, inks.muted, width))
        head = [
            *self._pass(trace, growth, len(report.growth) - 1, width),
            *self._legend(report, columns, width),
            self._head_line(trace, growth, columns, gutter, width),
        ]
        rest = [
            *(self._layer_line(*row, growth, columns, (number, kind), width) for row in enumerate(report.layers)),
            *self._sharing(report, width),
        ]
        over = self.room.height >= min(HIGH, len(story) + len(head) + len(rest))
        self._top = len(head) + over * len(story)
        yield from (*story, *head, *rest) if over else (*head, *rest, *story)

    def _sharing(self, report: CacheReport, width: int) -> Iterator[Line]:
        inks = self.inks
        if width < ROOMY:
            yield []
        layer = report.layers[min(self._row, len(report.layers) - 1)]
        shared = (Segment(" who shares what", inks.strong), Segment(f"  {_sharing_words(layer)}", inks.muted))
        yield from flow((*shared, Segment(_read_by(report.sharing, self._head), inks.accent)), width)
        yield from sharing_lines(report.sharing, self._head, width, inks)

    def _pass(self, trace: Trace, growth: Growth, last: int, width: int) -> Iterator[Line]:
        inks, first = self.inks, growth.positions - growth.new
        what = trace.label(0, first) if growth.new == 1 else f"{count(growth.new)} positions"
        parts = (
            Segment(f" pass {growth.at}", inks.strong),
            Segment((f" of 0–{last}" if last else "") + " adds ", inks.muted),
            Segment(fit(what, min(24, cells(what))), inks.accent),
            Segment(f" at {count(first)}" if growth.new == 1 else "", inks.muted),
            Segment(f" · {count(growth.positions)} positions", inks.text),
            Segment(f" · {size(growth.bytes)} in all", inks.strong),
            Segment("" if last else " · g in the walk adds a token", inks.faint),
        )
        yield from flow(parts, width)

    def _head_line(self, trace: Trace, growth: Growth, columns: Columns, gutter: int, width: int) -> Line:
        inks = self.inks
        segments = [Segment(fit("  layer", gutter), inks.faint)]
        if columns.width >= NAMED:
            for pos in range(columns.total):
                new = growth.positions - growth.new <= pos < growth.positions
                style = inks.strong if new else inks.muted if pos < growth.positions else inks.faint
                segments.append(Segment(fit(trace.label(0, pos), columns.width - 1) + " ", style))
        else:
            segments.append(Segment(_ruler(columns), inks.faint))
        heads = f" {'rows':>5} {'dropped':>7}" if width >= TIGHT else ""
        heads += f"{'bytes':>10}" + (f"{'allocated':>11}" if width >= ROOMY else "")
        return [*segments, Segment(heads, inks.faint)]

    def _layer_line(
        self, row: int, layer: Layer, growth: Growth, columns: Columns, widths: tuple[int, int], width: int
    ) -> Line:
        inks, here = self.inks, row == self._row
        text, quiet = (inks.cursor, inks.cursor_muted) if here else (inks.text, inks.muted)
        rows, dropped = layer.rows(growth.positions), growth.positions - layer.rows(growth.positions)
        kind = inks.primary if layer.window is not None and not here else quiet
        number, name = widths
        segments = [
            Segment("▸" if here else " ", inks.accent),
            Segment(f" {layer.layer:>{number}} ", text),
            Segment(label(_kind(layer), name) + " ", kind),
            Segment(" ", inks.text),
        ]
        segments += self._cells(layer, growth, columns)
        if width >= TIGHT:
            segments += [
                Segment(f" {count(rows):>5}", inks.text),
                Segment(f" {count(dropped) if dropped else '·':>7}", inks.muted if dropped else inks.faint),
            ]
        segments.append(Segment(bytes_right(layer.held_bytes(growth.positions)), inks.text))
        return [*segments, Segment(bytes_right(layer.allocated, 11), inks.muted)] if width >= ROOMY else segments

    def _cells(self, layer: Layer, growth: Growth, columns: Columns) -> Iterator[Segment]:
        wide, gap = max(1, columns.width - 1), " " * (columns.width > 1)
        for name, run in groupby(states(layer, growth, columns)):
            mark = MARKS[name] * wide if name in ("held", "added") else MARKS[name].center(wide)
            yield Segment((mark + gap) * sum(1 for _ in run), self._style(name))

    def _style(self, name: str) -> Style:
        inks = self.inks
        return {"held": inks.bar_weight, "added": inks.accent}.get(name, inks.faint)

    def _legend(self, report: CacheReport, columns: Columns, width: int) -> Iterator[Line]:
        inks, segments = self.inks, []
        several = f"  {count(columns.per)} positions a cell" if columns.per > 1 else ""
        room = "  allocated: with room to grow into" if width >= ROOMY and report.allocated > report.bytes else ""
        short = sum(len(words) + 4 for words in WORDS.values()) + len(several) + len(room) > width
        for name, mark in MARKS.items():
            words = name if short else WORDS[name]
            segments += [Segment(f" {mark}", self._style(name)), Segment(f" {words} ", inks.faint)]
        yield from flow((*segments, Segment(several, inks.muted), Segment(room, inks.faint)), width)

    def on_click(self, event: Click) -> None:
        """A click on a layer goes there."""
        row = event.y + self.scroll_offset.y - self.lead - self._top
        if self._report is not None and 0 <= row < len(self._report.layers):
            self.post_message(self.Picked(row))


def _kind(layer: Layer) -> str:
    return layer.kind if layer.window is None else f"window {layer.window}"


def _sharing_words(layer: Layer) -> str:
    heads, kv = layer.heads, layer.kv_heads
    if kv == heads:
        return f"every one of {heads} query heads has its own keys and values (MHA)"
    if kv == 1:
        return f"all {heads} query heads read the same keys and values (MQA)"
    return f"{heads} query heads over {kv} kv heads, {layer.group} share one (GQA)"


def _read_by(sharing: Sequence[Share], head: int) -> str:
    """Which query heads read the keys and values of a kv head."""
    heads = next((share.heads for share in sharing if share.kv_head == head), ())
    if not heads:
        return ""
    more = "" if len(heads) == 1 else f" {'and' if len(heads) == 2 else 'to'} {heads[-1]}"
    return f" · kv head {head}, read by query head{'s' * (len(heads) > 1)} {heads[0]}{more}"


def _ruler(columns: Columns) -> str:
    """Positions every few columns."""
    every = 5 if columns.width > 1 else 10
    marks = [" "] * columns.cells
    for column in range(0, columns.count, every):
        text, at = str(column * columns.per), column * columns.width
        if at + len(text) <= len(marks):
            marks[at : at + len(text)] = text
    return "".join(marks)

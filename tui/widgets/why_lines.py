"""Parts of the explanation: paragraphs, the way of a cell from score to weight, which heads share keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from rich.segment import Segment
from rich.style import Style

from engine.views import HEAD_AXES
from tui.render.palette import Inks
from tui.state.cursor import Cursor
from tui.state.looks import Chain, Stage
from tui.state.numbers import short
from tui.state.trace import Trace
from tui.state.views import Plane
from tui.text import cells, fit, foreign, right
from tui.widgets.lines import wrap

Line = tuple[list[Segment], int]
"""A line, and the step that a click on it leads to (-1: none)."""
EMPTY: Line = ([], -1)
STATES = {"masked": "masked", "nan": "NaN", "+inf": "∞", "-inf": "-∞"}
NAME, VALUE = 9, 9
ABREAST = 38
"""From this width on a stage's words stand beside its value."""
SHARED = 8
"""So many key/value heads are listed; of more, those around the cursor's."""


def paragraph(text: str, style: Style, width: int, indent: int = 1) -> Iterator[Line]:
    """Foreign text as wrapped lines."""
    for part in str(text).split("\n") if text else ():
        for line in wrap(foreign(part), max(4, width - indent - 1)):
            yield [Segment(" " * indent + line, style)], -1


def stages(chain: Chain, site: str, trace: Trace, inks: Inks, width: int) -> Iterator[Line]:
    """A row for each stage of the cell, that of ``site`` marked: its name, the value, what was done to it."""
    yield [Segment(" this cell, from score to weight", inks.faint)], -1
    for stage in chain.stages:
        here, known = stage.site == site, trace.by_site.get(stage.site)
        value = _value(stage)
        row = [
            Segment("▸" if here else " ", inks.accent),
            Segment(fit(stage.label, NAME), inks.strong if here else inks.primary),
            Segment(right(value, VALUE) + "  ", _style(stage, here, inks)),
        ]
        leads = known.index if known and not here else -1
        beside, indent = width >= ABREAST, 1 + NAME + VALUE + 2 if width >= ABREAST else 3
        words = wrap(foreign(stage.words), max(4, width - indent - 1)) if stage.words else []
        yield [*row, *([Segment(words[0], inks.muted)] if words and beside else [])], leads
        for line in words[1:] if beside else words:
            yield [Segment(" " * indent + line, inks.muted)], leads


def sharing(plane: Plane, cursor: Cursor, inks: Inks, width: int) -> Iterator[Line]:
    """``kv 2 ← heads 4 5 [6] 7`` for each key/value head that several query heads read.

    The cursor's is marked, unless the picture is of all heads.
    """
    per, axes = plane.trace.heads_per_kv, plane.step.axes
    if per == 1 or not {"head", "kv_head"} & set(axes):
        return
    total = max(per, plane.trace.heads(plane.step))
    head = max(0, min(cursor.head, total - 1))
    count, here = total // per, head // per
    one = any(axis in HEAD_AXES for axis in (*dict(plane.place), plane.view.rows, plane.view.cols))
    first = max(0, min(here - SHARED // 2, count - SHARED))
    name = (
        f"{per} query heads share each key and value head" if count > 1 else "all query heads share one key and value"
    )
    yield from paragraph(name, inks.faint, width)
    for kv in range(first, min(count, first + SHARED)):
        lead = f"kv {right(str(kv), len(str(count - 1)))} ← "
        marked = one and kv == here
        words = [f"[{n}]" if one and n == head else str(n) for n in range(kv * per, (kv + 1) * per)]
        indent = 2 + cells(lead)
        for n, line in enumerate(wrap(" ".join(words), max(4, width - indent - 1))):
            mark = "▸ " if marked and n == 0 else "  "
            style = inks.text if marked else inks.muted
            yield (
                [
                    Segment(mark + (lead if n == 0 else " " * cells(lead)), inks.accent if marked else inks.muted),
                    *_marked(line, style, inks.strong),
                ],
                -1,
            )
    if count > SHARED:
        yield [Segment(f"   of {count} kv heads", inks.faint)], -1


def _marked(line: str, style: Style, strong: Style) -> Iterator[Segment]:
    """A line of numbers, the one in brackets strong."""
    before, bracket, rest = line.partition("[")
    yield Segment(before, style)
    if bracket:
        inside, _, after = rest.partition("]")
        yield Segment(f"[{inside}]", strong)
        yield Segment(after, style)


def _value(stage: Stage) -> str:
    return STATES.get(stage.state) or ("…" if stage.value is None else short(stage.value, VALUE - 1))


def _style(stage: Stage, here: bool, inks: Inks) -> Style:
    if stage.state == "masked":
        return inks.faint
    return inks.error if stage.state else inks.accent if here else inks.text

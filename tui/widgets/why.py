"""The right pane: what the step does, with this model's numbers, and whether its checks hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from engine.views import DEPTH
from tui.state.answers import Check
from tui.state.block import Block
from tui.state.cursor import Cursor
from tui.state.looks import Chain, Grid
from tui.state.naming import explained
from tui.state.numbers import count, exact
from tui.state.trace import Step, Trace
from tui.state.views import Plane
from tui.text import cells, fit, foreign
from tui.widgets.lines import LineView
from tui.widgets.readout import spot, value_words
from tui.widgets.why_lines import EMPTY, Line, paragraph, sharing, stages

WEIGHTS = 4
"""So many of a step's weights are named; a mixture of experts has hundreds."""


class WhyPane(LineView, can_focus=True):
    """Formula, numbers, shapes, story, the value at the cursor, checks."""

    BINDINGS = [  # noqa: RUF012
        Binding("up", "scroll_up", show=False),
        Binding("down", "scroll_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
    ]

    class Chosen(Message):
        """One of the step's inputs was clicked."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    class Asked(Message):
        """A place in the text was clicked: ``at`` is the character of the line."""

        def __init__(self, line: str, at: int) -> None:
            super().__init__()
            self.line, self.at = line, at

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state: tuple[Plane | None, Cursor | None, Block | None, tuple[Check, ...] | None, str, str, Chain | None]
        self._state = (None, None, None, None, "", "", None)
        self._lines: list[Line] = []

    def show(
        self,
        plane: Plane | None,
        cursor: Cursor | None,
        block: Block | None,
        checks: tuple[Check, ...] | None,
        trouble: str = "",
        numbers: str = "",
        chain: Chain | None = None,
    ) -> None:
        """Explain the cursor's step; ``checks`` is None while they are not here, ``trouble`` why there is no value.

        ``numbers`` are the formula's, in the pass that is looked at; ``chain`` is the way of a query × key cell.
        """
        state = (plane, cursor, block, checks, trouble, numbers, chain)
        if state == self._state:
            return
        old = self._state[0]
        self._state = state
        if old is None or plane is None or old.step.site != plane.step.site:
            self.scroll_to(y=0, animate=False, force=True, immediate=True)
        self.lay_out()

    def on_resize(self) -> None:
        """Wrap anew."""
        self.lay_out()

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        if place >= len(self._lines):
            return self.blank(width)
        line = self._lines[place][0]
        return self.cached((width, *line), lambda: line, width)  # by what it says: most lines stay as more is known

    def on_click(self, event: Click) -> None:
        """A click on an input goes to the step that wrote it, one on a word asks what it means."""
        place = event.y + self.scroll_offset.y
        if 0 <= place < len(self._lines) and self._lines[place][1] >= 0:
            self.post_message(self.Chosen(self._lines[place][1]))
        else:
            line = self.strip(event.y)
            self.post_message(self.Asked(line.text, len(line.crop(0, max(0, event.x)).text)))

    def lay_out(self) -> None:
        plane, cursor, block, checks, trouble, numbers, chain = self._state
        width = self.room.width
        if not self.display or width < 4 or plane is None or cursor is None:
            self._lines = []
        else:
            self._lines = list(self._write(plane, cursor, block, checks, trouble, numbers, chain, width))
        self.reach(Size(width, len(self._lines)))
        self.refresh()

    def _write(
        self,
        plane: Plane,
        cursor: Cursor,
        block: Block | None,
        checks: Sequence[Check] | None,
        trouble: str,
        numbers: str,
        chain: Chain | None,
        width: int,
    ) -> Iterator[Line]:
        inks, step = self.inks, plane.step
        one_size = plane.at is None or len(plane.trace.passes) == 1  # those of the step are of all passes together
        told = explained(plane, block)
        yield from paragraph(told.title, inks.strong, width)
        yield from paragraph(told.formula, inks.accent, width)
        yield from paragraph(told.numbers if one_size or not told.own else numbers, inks.muted, width)
        if told.story:
            yield EMPTY
            yield from paragraph(told.story, inks.text, width)
        yield EMPTY
        yield from self._flow(plane.trace, step, plane.at, width)
        if trouble:
            yield EMPTY
            yield from paragraph(f"✗ {trouble}", inks.error, width)
        elif plane.view.kind != "ranked":
            yield EMPTY
            yield from self._here(plane, cursor, block, width)
        if chain is not None and chain.stages and not trouble:
            yield EMPTY
            yield from stages(chain, step.site, plane.trace, inks, width)
        if shared := list(sharing(plane, cursor, inks, width)):
            yield from (EMPTY, *shared)
        if checks or (checks is None and not trouble):
            yield EMPTY
            yield from self._checks(checks, _heading(plane, told.own), width)
        if not step.on_path and not trouble:
            yield EMPTY
            yield from paragraph(f"○ {_unwritten(step)}", inks.muted, width)

    def _flow(self, trace: Trace, step: Step, at: int | None, width: int) -> Iterator[Line]:
        inks = self.inks
        for name in step.reads:
            known = trace.by_site.get(name)
            read = trace.step(known.index, at) if known else None
            yield from self._pair("in ", name, _shape(read) if read else "", width, read.index if read else -1)
        for name in step.params[:WEIGHTS]:
            yield from self._pair("w  ", name, "", width, -1, inks.muted)
        if (more := len(step.params) - WEIGHTS) > 0:
            yield from self._pair("w  ", f"… and {more} more", "", width, -1, inks.muted)
        yield from self._pair("out", step.site, _shape(step), width, -1, inks.strong)

    def _pair(
        self, head: str, name: str, shape: str, width: int, leads: int, style: Style | None = None
    ) -> Iterator[Line]:
        inks, name = self.inks, foreign(name)
        room = width - 6 - cells(shape) - 1
        yield (
            [
                Segment(f" {head} ", inks.faint),
                Segment(_tail(name, max(4, room)), style or inks.primary),
                Segment(f" {shape}", inks.muted),
            ],
            leads,
        )

    def _here(self, plane: Plane, cursor: Cursor, block: Block | None, width: int) -> Iterator[Line]:
        inks = self.inks
        heads = [(axis, str(index), index) for axis, index in plane.place if axis in ("head", "kv_head")]
        places = heads + spot(plane, cursor)
        for axis, label, index in places:
            size = len(plane.depth) if axis == DEPTH else plane.step.size(axis)
            tail = f"  {index} of {size}" if label != str(index) else f"  of {size}"
            if plane.step.first(axis):
                tail = f"  at {index}"
            yield (
                [
                    Segment(f" {fit(axis, 8)} ", inks.muted),
                    Segment(fit(label, min(cells(label), max(4, width - 11 - len(tail)))), inks.text),
                    Segment(tail, inks.faint),
                ],
                -1,
            )
        told = block.told if block else None
        if isinstance(told, Grid) and (word := told.text(plane.cell(cursor)[0] - told.start, plane.cell(cursor)[1])):
            yield [Segment(f" {fit('token', 8)} ", inks.muted), Segment(foreign(word), inks.strong)], -1
        if words := value_words(plane, block, plane.cell(cursor)):
            yield [Segment(f" {fit('value', 8)} ", inks.muted), Segment(words, inks.accent)], -1
        if block is not None and told is None and not plane.step.whole:
            stats = block.stats
            norm = [Segment(exact(stats.norm), inks.text), Segment("  all cells", inks.faint)]
            yield [Segment(f" {fit('norm', 8)} ", inks.muted), *norm], -1
            if stats.nonfinite:
                yield [Segment(f" ✗ {count(stats.nonfinite)} values are not finite", inks.error)], -1

    def _checks(self, checks: Sequence[Check] | None, heading: str, width: int) -> Iterator[Line]:
        """Each check once; ``heading`` says of what it is."""
        inks = self.inks
        if checks is None:
            yield [Segment(" checking …", inks.faint)], -1
            return
        if checks:
            yield from paragraph(heading, inks.faint, width)
        for check in checks:
            mark, tone = ("✓", inks.success) if check.ok else ("✗", inks.error)
            for n, (line, _) in enumerate(paragraph(check.name, inks.text if check.ok else inks.error, width - 2)):
                yield [Segment(f" {mark}" if n == 0 else "  ", tone), *line], -1
            yield from paragraph(check.words, inks.muted, width, indent=3)


def _heading(plane: Plane, own: bool) -> str:
    """What the checks are of, where the picture is not the step's tensor or there are several passes."""
    passes, of = len(plane.trace.passes), "" if own else " of the step itself"
    if passes == 1:
        return f"checks{of}" if of else ""
    if plane.at is None:
        return f"checks{of}, worst of {passes} passes"
    return f"checks of pass @{plane.at}" if own else f"checks{of} in pass @{plane.at}"


def _unwritten(step: Step) -> str:
    """Why a step that the outcome may well hang on is not part of the pass."""
    if step.part in ("attention", "cross-attention") and step.axes[-1:] in (("key",), ("src_key",)):
        return "the pass does all of attention in one step and does not write this down: computed when you look"
    return "the pass does not write this down: computed when you look"


def _shape(step: Step) -> str:
    return "×".join(
        str(size) for size in (step.shape[1:] if step.axes[:1] == ("batch",) and step.shape[:1] == (1,) else step.shape)
    )


def _tail(name: str, width: int) -> str:
    """A site's name, its end kept where it is too long."""
    return fit(name, min(width, cells(name))) if cells(name) <= width else "…" + name[-(width - 1) :]

"""A picture of one place in a trace: what the engine is asked for, and what a cell means."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine import views
from engine.sites import LETTERS, Address, Index, Span, depth_name, within_block
from engine.views import DEPTH, TOGETHER, TOKEN_AXES, WHOLE_PASS, View
from tui.state.block import Stats, window
from tui.state.cursor import Cursor
from tui.state.numbers import exact
from tui.state.trace import Step, Trace


def views_of(step: Step) -> tuple[View, ...]:
    """The pictures a step has, the best one first."""
    return views.views_of(dict(zip(step.axes, step.shape, strict=True)), step.looks, step.whole)


@dataclass(frozen=True, slots=True)
class Plane:
    """One picture of one place: what the engine is asked for, and what a cell means."""

    trace: Trace
    step: Step
    view: View
    place: tuple[tuple[str, int], ...]
    at: int | None
    names: tuple[tuple[str, str], ...] = ()  # axis -> what the cursor's index on it is called
    depth: tuple[str, ...] = ()  # the sites along the axis of that name
    minus: Plane | None = None  # what is taken from it, cell by cell

    @classmethod
    def of(cls, trace: Trace, cursor: Cursor, view: View) -> Plane:
        """The picture of the cursor's step."""
        step = trace.step(cursor.step, cursor.at)
        place = tuple((axis, cursor.index(trace, axis)) for axis in view.fixed(step.axes))
        depth = trace.along_depth(view.look, step) if DEPTH in (view.rows, view.cols) else ()
        return cls(trace, step, view, place, cursor.at, depth=depth)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns; of a difference those that both have."""
        view, step = self.view, self.step
        rows = step.size(view.rows) if view.rows else 1
        cols = len(self.depth) if view.cols == DEPTH else step.size(view.cols) if view.cols else 1
        if self.minus is not None:
            other = self.minus.size
            return min(rows, other[0]), min(cols, other[1])
        return rows, cols

    @property
    def has_cells(self) -> bool:
        """Whether it is a plane of numbers; tiles, tables, rotations and histograms are none."""
        return not self.view.look or self.view.kind == "grid"

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal pictures."""
        site = self.depth or (within_block(self.step.site) if self.view.look in WHOLE_PASS else self.step.site)
        return (self.trace.run, site, self.view, self.place, self.at, self.minus.key if self.minus else None)

    @property
    def batch(self) -> int:
        """The row of the batch that is shown."""
        return dict(self.place).get("batch", 0)

    def address(self, rows: tuple[int, int], cols: tuple[int, int]) -> str:
        """The window ``rows`` × ``cols`` (half-open) as an address."""
        index: dict[str, Index] = dict(self.place)
        index |= {axis: Span(*span) for axis, span in ((self.view.rows, rows), (self.view.cols, cols)) if axis}
        ordered = tuple((LETTERS.get(axis, axis), index[axis]) for axis in self.step.axes if axis in index)
        return str(Address(self.step.site, ordered, self.at))

    def window(self, rows: tuple[int, int], cols: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """What to ask for when ``rows`` × ``cols`` are looked at; of thumbnails that is the size of one."""
        return (rows, cols) if self.view.kind == "thumbs" else window(self.size, rows, cols)

    def label(self, axis: str, index: int) -> str:
        """What a row or column is called: the token or the site where the axis runs over those, else its number.

        In a difference both tokens, where the two sides have not the same.
        """
        if axis == DEPTH:
            return depth_name(self.depth[index]) if index < len(self.depth) else ""
        if axis not in TOKEN_AXES:
            return str(index)
        mine = self.trace.label(self.batch, self.step.first(axis) + index, axis)
        its = self.minus.label(axis, index) if self.minus and index < self.minus.step.size(axis) else mine
        return mine if mine == its else f"{mine}|{its}"

    def outside(self, cell: tuple[int, int]) -> bool:
        """Whether a cell lies beyond what both sides of a difference have."""
        return self.minus is not None and not (cell[0] < self.size[0] and cell[1] < self.size[1])

    def zero_is_masked(self, stats: Stats) -> bool:
        """Whether a cell of exactly 0 is a masked one: so it is among attention weights."""
        weights = self.view.kind in ("attention", "arcs", "text") and self.minus is None
        return weights and not stats.signed and 0 < stats.high <= 1.0

    def words(self, value: float | None, stats: Stats) -> str:
        """A value in words; … while it is not here."""
        if value is None:
            return "…"
        if value == 0 and self.zero_is_masked(stats):
            return "0 (masked)"
        if value == float("-inf") and stats.masked:
            return "-∞ (masked)" if self.minus is None else "masked"
        return exact(value, self.step.whole)

    def cell(self, cursor: Cursor) -> tuple[int, int]:
        """The cursor's row and column in the picture; of thumbnails the number of its tile."""
        view = self.view
        if view.kind == "thumbs":
            head = cursor.index(self.trace, "head")
            if view.look == "heads":
                return head + len(TOGETHER), 0
            blocks = self.trace.blocks_with(within_block(self.step.site))
            block = blocks.index(self.step.block) if self.step.block in blocks else 0
            return block * self.step.size("head") + head, 0
        if view.cols == DEPTH:
            return cursor.index(self.trace, view.rows), self._deep(cursor.step)
        row = cursor.index(self.trace, view.rows) if view.rows else 0
        return row, cursor.index(self.trace, view.cols) if view.cols else 0

    def _deep(self, step: int) -> int:
        """How deep a step is: the last site along the depth that is not behind it."""
        places = [self.trace.by_site[site].index for site in self.depth]
        return max((n for n, place in enumerate(places) if place <= step), default=0)

    @property
    def transposed(self) -> bool:
        """Whether the engine's array has the columns first (it keeps the site's order of axes)."""
        view, axes = self.view, self.step.axes
        if DEPTH in (view.rows, view.cols):
            return False
        return bool(view.rows and view.cols) and axes.index(view.rows) > axes.index(view.cols)

    def without(self, other: Plane | None) -> Plane:
        """The picture of the difference to another one; None: of this one alone."""
        return replace(self, minus=other)

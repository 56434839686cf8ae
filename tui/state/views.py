"""Which picture a step gets. It follows from the axes alone, so a new op needs no new view.

query × key is attention, anything × one more axis is a matrix, one axis is bars, the vocabulary is a ranked table,
whole numbers per token are a token table. All other axes are fixed at the cursor.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.sites import LETTERS, Address, Index, Span
from tui.state.block import Stats
from tui.state.cursor import Cursor
from tui.state.numbers import exact
from tui.state.trace import SOURCE_AXES, Step, Trace

TOKEN_AXES = ("query", "key", "pos", "kv_pos", *SOURCE_AXES)
HEAD_AXES = ("head", "kv_head", "choice")
"""Axes that ``h`` walks: attention heads, and of a mixture of experts the chosen experts of a token, best first."""


@dataclass(frozen=True, slots=True)
class View:
    """A picture of a step: its kind and the axes it spreads out; '' where there is none."""

    kind: str  # "attention" | "matrix" | "bars" | "ranked" | "tokens"
    rows: str = ""
    cols: str = ""

    def fixed(self, step: Step) -> tuple[str, ...]:
        """The axes that are fixed at the cursor."""
        return tuple(axis for axis in step.axes if axis not in (self.rows, self.cols))

    def size(self, step: Step) -> tuple[int, int]:
        """Rows and columns."""
        return (step.size(self.rows) if self.rows else 1, step.size(self.cols) if self.cols else 1)


def views_of(step: Step) -> tuple[View, ...]:
    """The pictures a step can have, the best one first."""
    axes = [axis for axis in step.axes if axis != "batch"]
    wide = [axis for axis in axes if step.size(axis) != 1 or axis in TOKEN_AXES]
    tokens = [axis for axis in axes if axis in TOKEN_AXES]
    query = next((axis for axis in ("query", "src_query") if axis in axes), "")
    key = next((axis for axis in ("key", "src_key") if axis in axes), "")
    if query and key:
        return (View("attention", query, key), View("bars", key))
    if axes and axes[-1] == "d_vocab":
        rows = tokens[0] if tokens else ""
        return (
            View("ranked", "d_vocab"),
            View("bars", "d_vocab"),
            *([View("matrix", rows, "d_vocab")] if rows else []),
        )
    if step.whole and tokens and len(wide) == 1:
        return (View("tokens", tokens[0]),)
    if len(wide) <= 1:
        return (View("bars", wide[0] if wide else (axes[-1] if axes else "")),)
    cols = wide[-1]
    rows = next((axis for axis in wide[:-1] if axis in TOKEN_AXES), wide[-2])
    pictures = [View("matrix", rows, cols), View("bars", cols)]
    heads = next((axis for axis in wide if axis in HEAD_AXES), None)
    if heads and heads not in (rows, cols):
        pictures.append(View("matrix", heads, cols))
    return tuple(pictures)


@dataclass(frozen=True, slots=True)
class Plane:
    """One picture of one place: what the engine is asked for, and what a cell means."""

    trace: Trace
    step: Step
    view: View
    place: tuple[tuple[str, int], ...]
    at: int | None
    names: tuple[tuple[str, str], ...] = ()  # axis -> what the cursor's index on it is called

    @classmethod
    def of(cls, trace: Trace, cursor: Cursor, view: View) -> Plane:
        """The picture of the cursor's step."""
        step = trace.step(cursor.step, cursor.at)
        return cls(trace, step, view, tuple((axis, cursor.index(trace, axis)) for axis in view.fixed(step)), cursor.at)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.view.size(self.step)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal pictures."""
        return (self.trace.run, self.step.site, self.view, self.place, self.at)

    @property
    def batch(self) -> int:
        """The row of the batch that is shown."""
        return dict(self.place).get("batch", 0)

    def address(self, rows: tuple[int, int], cols: tuple[int, int]) -> str:
        """The window ``rows`` × ``cols`` (half-open) as an address."""
        index: dict[str, Index] = dict(self.place)
        if self.view.rows:
            index[self.view.rows] = Span(*rows)
        if self.view.cols:
            index[self.view.cols] = Span(*cols)
        ordered = tuple((LETTERS.get(axis, axis), index[axis]) for axis in self.step.axes if axis in index)
        return str(Address(self.step.site, ordered, self.at))

    def label(self, axis: str, index: int) -> str:
        """What a row or column is called: the token where the axis runs over tokens, else its number."""
        if axis not in TOKEN_AXES:
            return str(index)
        return self.trace.label(self.batch, self.step.first(axis) + index, axis)

    def zero_is_masked(self, stats: Stats) -> bool:
        """Whether a cell of exactly 0 is a masked one: so it is among attention weights."""
        return self.view.kind == "attention" and not stats.signed and 0 < stats.high <= 1.0

    def words(self, value: float | None, stats: Stats) -> str:
        """A value in words; … while it is not here."""
        if value is None:
            return "…"
        if value == 0 and self.zero_is_masked(stats):
            return "0 (masked)"
        if value == float("-inf") and stats.masked:
            return "-∞ (masked)"
        return exact(value, self.step.whole)

    def cell(self, cursor: Cursor) -> tuple[int, int]:
        """The cursor's row and column in the picture."""
        view = self.view
        row = cursor.index(self.trace, view.rows) if view.rows else 0
        return row, cursor.index(self.trace, view.cols) if view.cols else 0

    @property
    def transposed(self) -> bool:
        """Whether the engine's array has the columns first (it keeps the site's order of axes)."""
        view, axes = self.view, self.step.axes
        return bool(view.rows and view.cols) and axes.index(view.rows) > axes.index(view.cols)

"""Which pictures a step has. They follow from its axes, so a new op needs no new view.

query × key is attention, anything × one more axis is a matrix, one axis is bars, the vocabulary is a ranked table,
whole numbers per token are a token table. All other axes are fixed at the cursor. Beside these windows of the tensor
there are *looks*: pictures that the engine derives, of the steps for which it says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.sites import LETTERS, Address, Index, Span, block_of, within_block
from tui.state.block import Stats
from tui.state.cursor import Cursor
from tui.state.numbers import exact
from tui.state.trace import SOURCE_AXES, Step, Trace

TOKEN_AXES = ("query", "key", "pos", "kv_pos", *SOURCE_AXES)
HEAD_AXES = ("head", "kv_head", "choice")
"""Axes that ``h`` walks: attention heads, and of a mixture of experts the chosen experts of a token, best first."""
DEPTH = "depth"
"""The axis of a look that runs over sites: its index is a step."""


@dataclass(frozen=True, slots=True)
class View:
    """A picture of a step: its kind and the axes it spreads out; '' where there is none.

    ``look`` is what the engine derives it by, '' where it is a window of the tensor; ``over`` how its heads are taken
    together; ``free`` are axes that are neither spread out nor fixed at the cursor.
    """

    kind: str  # "attention" | "matrix" | "bars" | "ranked" | "tokens" | "arcs" | "text" | "curves", and those of LOOKS
    rows: str = ""
    cols: str = ""
    name: str = ""
    look: str = ""
    over: str = ""
    free: tuple[str, ...] = ()

    def fixed(self, step: Step) -> tuple[str, ...]:
        """The axes that are fixed at the cursor."""
        return tuple(axis for axis in step.axes if axis not in (self.rows, self.cols, *self.free))

    def size(self, step: Step) -> tuple[int, int]:
        """Rows and columns."""
        return (step.size(self.rows) if self.rows else 1, step.size(self.cols) if self.cols else 1)


LOOKS = {
    "lens": "grid", "norms": "grid", "added": "grid", "heads": "thumbs", "layers": "thumbs", "neighbours": "list",
    "neurons": "list", "rotation": "rotation", "histogram": "histogram",
}  # fmt: skip
"""Looks that are no window of the tensor, and the kind of picture that each is."""
TOGETHER = ("mean", "max")
"""Ways to take heads together; their tiles come before those of the heads."""
WHOLE_PASS = ("lens", "norms", "added", "layers")
"""Looks that are the same at every site that has them."""


def views_of(step: Step) -> tuple[View, ...]:
    """The pictures a step has, the best one first."""
    windows = _windows(step)
    first = windows[0]
    found = [view for view in windows if not view.over]
    found += [_look(step, first, name) for name in step.looks if name in LOOKS]
    found += [view for view in windows if view.over]
    if not step.whole:
        found.append(View("histogram", name="histogram", look="histogram", free=(first.rows, first.cols)))
    return tuple(found)


def _windows(step: Step) -> tuple[View, ...]:
    axes = [axis for axis in step.axes if axis != "batch"]
    wide = [axis for axis in axes if step.size(axis) != 1 or axis in TOKEN_AXES]
    tokens = [axis for axis in axes if axis in TOKEN_AXES]
    query = next((axis for axis in ("query", "src_query") if axis in axes), "")
    key = next((axis for axis in ("key", "src_key") if axis in axes), "")
    if query and key:
        more = {
            "arcs": View("arcs", query, key, "arcs"),
            "text": View("text", "", key, "text"),
            "mean": View("attention", query, key, "mean", over="mean", free=("head",)),
            "max": View("attention", query, key, "max", over="max", free=("head",)),
        }
        known = [view for name, view in more.items() if name in step.looks]
        return (View("attention", query, key, "heatmap"), View("bars", key, "", "row"), *known)
    if axes and axes[-1] == "d_vocab":
        rows = tokens[0] if tokens else ""
        return (
            View("ranked", "d_vocab", "", "ranked"),
            View("bars", "d_vocab", "", "row"),
            *([View("matrix", rows, "d_vocab", "heatmap")] if rows else []),
        )
    if step.whole and tokens and len(wide) == 1:
        return (View("tokens", tokens[0], "", "tokens"),)
    if len(wide) <= 1:
        return (View("bars", wide[0] if wide else (axes[-1] if axes else ""), "", "row"),)
    cols = wide[-1]
    rows = next((axis for axis in wide[:-1] if axis in TOKEN_AXES), wide[-2])
    pictures = [View("matrix", rows, cols, "heatmap"), View("bars", cols, "", "row")]
    heads = next((axis for axis in wide if axis in HEAD_AXES), None)
    if heads and heads not in (rows, cols):
        pictures.append(View("matrix", heads, cols, "all heads"))
    if "curves" in step.looks:
        pictures.append(View("curves", rows, cols, "curves"))
    return tuple(pictures)


def _look(step: Step, first: View, name: str) -> View:
    kind = LOOKS[name]
    tokens = next((axis for axis in step.axes if axis in TOKEN_AXES), "")
    spread = tuple(axis for axis in step.axes if axis not in ("batch", *TOKEN_AXES))
    if kind == "grid":
        return View(kind, tokens, DEPTH, name, look=name, free=spread)
    if kind == "thumbs":
        return View(kind, name=name, look=name, free=(*spread, first.rows, first.cols))
    if kind == "rotation":
        return View(kind, name=name, look=name)
    return View(kind, name=name, look=name, free=spread)


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
        place = tuple((axis, cursor.index(trace, axis)) for axis in view.fixed(step))
        depth = trace.along_depth(view.look, step) if DEPTH in (view.rows, view.cols) else ()
        return cls(trace, step, view, place, cursor.at, depth=depth)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns; of a difference those that both have."""
        rows, cols = self.view.size(self.step)
        if self.view.cols == DEPTH:
            cols = len(self.depth)
        if self.minus is not None:
            other = self.minus.size
            return min(rows, other[0]), min(cols, other[1])
        return rows, cols

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

    def label(self, axis: str, index: int) -> str:
        """What a row or column is called: the token or the site where the axis runs over those, else its number."""
        if axis == DEPTH:
            return _depth_name(self.depth[index]) if index < len(self.depth) else ""
        if axis not in TOKEN_AXES:
            return str(index)
        return self.trace.label(self.batch, self.step.first(axis) + index, axis)

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
            return "-∞ (masked)"
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

    def without(self, other: Plane) -> Plane:
        """The picture of the difference to another one."""
        return replace(self, minus=other)


def _depth_name(site: str) -> str:
    """``2.mid`` of ``blocks.2.resid_mid``, ``2.mlp`` of ``blocks.2.mlp_out``."""
    inner = within_block(site)
    short = inner.removeprefix("resid_").removesuffix("_out")
    block = block_of(site)
    return short if block is None else f"{block}.{short}"

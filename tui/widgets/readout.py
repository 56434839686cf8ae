"""Under a picture: the value at the cursor in words, and the scale with the picture's statistics."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from engine.views import DEPTH, HEAD_AXES, TOKEN_AXES
from tui.render.cells import MASKED, Scale, legend
from tui.state.answers import Ranking
from tui.state.block import Block
from tui.state.cursor import Cursor
from tui.state.looks import Thumbs
from tui.state.numbers import count, exact, short
from tui.state.views import Plane
from tui.text import cells, fit, foreign
from tui.widgets.lines import LineView

LABEL = 18


def spot(plane: Plane, cursor: Cursor) -> list[tuple[str, str, int]]:
    """The cursor's place on the axes of the picture: axis, what is there, index (of a position: in the whole text)."""
    axes = [axis for axis in (plane.view.rows, plane.view.cols) if axis]
    extra = [axis for axis in plane.step.axes if axis in TOKEN_AXES and axis not in axes]
    extra += [axis for axis in plane.step.axes if axis == "choice" and axis not in axes]
    if plane.view.kind in ("rotation", "histogram"):  # they spread out no axis, and still have a cell at the cursor
        extra += [axis for axis in plane.step.axes if axis not in ("batch", *HEAD_AXES, *extra)]
    named = dict(plane.names)
    return [
        (axis, named.get(axis) or plane.label(axis, index), plane.step.first(axis) + index)
        for axis in extra + axes
        for index in [plane.cell(cursor)[1] if axis == DEPTH else cursor.index(plane.trace, axis)]
    ]


def value_words(plane: Plane, block: Block | None, cell: tuple[int, int]) -> str:
    """The value at a cell in words; … while it is not here, '' in a picture whose cells are no values."""
    if plane.view.look and plane.view.kind != "grid":
        return ""
    if plane.outside(cell):
        return "not in both"
    return plane.words(block.value(*cell), block.stats) if block else "…"


def _candidate(ranking: Ranking | None, cursor: Cursor | None) -> str:
    """The chosen candidate of a ranking in words."""
    rows = ranking.rows if ranking and cursor else ()
    if not rows or cursor is None:
        return ""
    row = next((row for row in rows if row.id == cursor.vocab), rows[0])
    drawn = (
        ""
        if not ranking or not ranking.sampled
        else "  never drawn"
        if row.drawn is None
        else f"  drawn {row.drawn:.4f}"
    )
    return f"{foreign(row.label)} ({row.id})  p {row.prob:.4f}{drawn}  logit {exact(row.logit)}"


def _tile(block: Block | None, number: int) -> str:
    """A small picture in words."""
    told = block.told if block else None
    if not isinstance(told, Thumbs) or not 0 <= number < len(told.tiles):
        return ""
    tile = told.tiles[number]
    entropy = "" if tile.entropy is None else f"   {tile.entropy:.2f} bits of entropy"
    return f"{foreign(tile.title)}{entropy}   Enter opens"


class Readout(LineView, can_focus=False):
    """Two lines: ``0.6312   query full (10) · key disk (8)`` and the legend."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._words: list[tuple[str, str, int]] = []
        self._value = ""
        self._block: Block | None = None
        self._scale: Scale | None = None
        self._whole = False
        self._trouble = ""
        self._more = ""

    def show(
        self,
        plane: Plane | None,
        cursor: Cursor | None,
        block: Block | None,
        scale: Scale | None,
        ranking: Ranking | None = None,
        trouble: str = "",
        marked: tuple[str, str] = ("", ""),
    ) -> None:
        """Say what is at the cursor; ``trouble`` is why there is nothing.

        ``marked``: what a picture that is no plane marks, in words, and more about it.
        """
        words = spot(plane, cursor) if plane and cursor else []
        value = value_words(plane, block, plane.cell(cursor)) if plane and cursor else ""
        if plane and plane.view.kind == "ranked":
            words, value = [word for word in words if word[0] != "d_vocab"], _candidate(ranking, cursor)
        if plane and cursor and plane.view.kind == "thumbs":  # all queries and keys are in it
            words, value = [], _tile(block, plane.cell(cursor)[0])
        if plane and plane.view.kind == "list":
            words = [(f"{plane.view.name} of", label, index) for axis, label, index in words if axis in TOKEN_AXES]
        if plane and plane.view.kind == "rotation":
            words = [(axis, str(n), n) for axis, n in plane.place if axis in HEAD_AXES] + words
        value, more = (marked[0] or value, marked[1])
        self._whole = plane is not None and plane.step.whole
        state = (words, value, block, scale, trouble, more)
        if state != (self._words, self._value, self._block, self._scale, self._trouble, self._more):
            self._words, self._value, self._block, self._scale, self._trouble, self._more = state
            self.forget()

    def mark(self, value: str, more: str) -> None:
        """Another row of a list is marked."""
        self._value, self._more = value, more
        self.forget()

    def strip(self, y: int) -> Strip:
        width = self.room.width
        return self.cached(
            (y, width), lambda: self._place(width) if y == 0 else self._legend(width) if y == 1 else [], width
        )

    def _place(self, width: int) -> list[Segment]:
        inks = self.inks
        if self._trouble:
            return [Segment(" ✗ ", inks.error), Segment(foreign(self._trouble), inks.error)]
        value = inks.accent + inks.strong.without_color
        text = self._value if cells(self._value) + 2 <= width else self._value.rpartition("   ")[0] or self._value
        segments = [Segment(f" {text}   ", value)] if text else [Segment(" ", inks.text)]
        for brief in (False, True):
            place = self._spots(brief)
            if sum(segment.cell_length for segment in segments + place) <= width + 1:
                break
        return segments + place

    def _spots(self, brief: bool) -> list[Segment]:
        """Where the cursor is; ``brief``: of a token not where in the text it stands."""
        inks, segments = self.inks, list[Segment]()
        for n, (axis, label, index) in enumerate(self._words):
            segments.append(Segment(f"{'· ' if n else ''}{axis} ", inks.muted))
            known = label != str(index)
            segments.append(Segment(f"{fit(label, min(cells(label), LABEL)) if known else index} ", inks.strong))
            if known and not brief:
                segments.append(Segment(f"({index}) ", inks.muted))
        return segments

    def _legend(self, width: int) -> list[Segment]:
        inks, block = self.inks, self._block
        if block is None or self._trouble:
            return []
        stats = block.stats
        cells_are_values = block.told is None or block.told.KIND == "grid"
        segments = [Segment(" ", inks.text)]
        scale = self._scale if not self._whole else None
        if scale is not None:
            low, high = scale.ends
            segments += [
                Segment(f"{low} ", inks.muted),
                *legend(scale, max(8, width // 5)),
                Segment(f" {high}  ", inks.muted),
            ]
            if scale.words:
                segments.append(Segment(f"{scale.words}  ", inks.accent))
        if not cells_are_values:
            return segments if scale is not None else [Segment(f" {fit(self._more, width - 2)}", inks.muted)]
        parts = [f"min {exact(stats.low, True)}", f"max {exact(stats.high, True)}"]
        if not self._whole:
            parts = [f"min {short(stats.low)}", f"max {short(stats.high)}"]
            parts += [f"mean {short(stats.mean)}", f"std {short(stats.std)}"]
        if stats.masked:
            parts.insert(0, f"{MASKED} {count(stats.masked)} masked")
        used = sum(segment.cell_length for segment in segments)
        if scale is not None and scale.places < 0 and scale.mode == "auto":
            ends = f"{'±' if scale.signed else '0…'}{short(scale.limit, 5)}"
            words = f"shade = share of {ends}"
            parts.insert(0, words if used + len(words) + 2 <= width else f"shade of {ends}")
        if stats.nonfinite:
            segments.append(Segment(f"{count(stats.nonfinite)} not finite  ", inks.error))
        for part in parts:
            if used + len(part) + 2 > width:
                break
            segments.append(Segment(f"{part}  ", inks.muted))
            used += len(part) + 2
        return segments


class Caption(LineView, can_focus=False):
    """One line over a picture: the step's title and formula, for when the explanation is hidden."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._words = ("", "")

    def show(self, title: str, formula: str) -> None:
        """What is done in this step."""
        if (title, formula) != self._words:
            self._words = (title, formula)
            self.forget()

    def strip(self, y: int) -> Strip:
        width = self.room.width
        title, formula = (foreign(word) for word in self._words)
        return self.cached(
            (y, width),
            lambda: (
                [
                    Segment(f" {title}   ", self.inks.muted),
                    Segment(fit(formula, max(0, width - cells(title) - 5)), self.inks.accent),
                ]
                if y == 0
                else []
            ),
            width,
        )

"""RoPE of one head's q or k: the pair of dims at the cursor before and after it is turned, and how far all are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.strip import Strip

from tui.render.braille import Canvas
from tui.render.plot import arc, line, overlaid
from tui.state.block import Block
from tui.state.looks import Pair, Rotation
from tui.state.numbers import count, exact, short, special
from tui.state.views import Plane
from tui.text import cells, fit, foreign, right
from tui.widgets.lines import wrap
from tui.widgets.plane import PlaneView

ARROWS = "→↗↑↖←↙↓↘"
SPEEDS = "▁▂▃▄▅▆▇█"
CIRCLE = (11, 30)
"""The least and the most lines of the circle."""
NUMBERS = 43
"""Columns that the numbers beside the circle take."""
NAME = 11
TABLE = (50, 6)
"""The least columns and lines of the table of pairs."""
DIM = "dim"
"""What a click on a pair finds in its style."""
COLUMNS = (5, 8, 9, 10, 9, 17, 17)
Line = list[Segment]


class RotationView(PlaneView):
    """A circle with the pair before and after, its numbers, and below a strip of all pairs; narrow: no circle."""

    DEFAULT_CSS = "RotationView { overflow: hidden auto; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._last: tuple[object, Rotation] | None = None
        self._lines: list[Line] = []
        self._drawn: object = None

    @property
    def marked(self) -> tuple[str, str]:
        """The cursor's value in words, and what it was before it was turned."""
        pair, rotation = self.pair, self.rotation
        if pair is None or rotation is None:
            return "", ""
        side = pair.dims.index(self.dim)
        words = f"{exact(pair.before[side])} before · turned by {short(pair.angle)} rad"
        return exact(pair.after[side]), f"{words} · pair {pair.pair} of {len(rotation.pairs)}"

    @property
    def rotation(self) -> Rotation | None:
        """All pairs of the head at the position; they stay while the cursor goes from dim to dim."""
        told = self.block.told if self.block else None
        if isinstance(told, Rotation):
            return told
        return self._last[1] if self._last and self.plane and self._last[0] == _spot(self.plane) else None

    @property
    def dim(self) -> int:
        """The cursor's dim."""
        return next((index for axis, index in self.plane.place if axis == "d_head"), 0) if self.plane else 0

    @property
    def pair(self) -> Pair | None:
        """The pair that holds it; None where it is not turned."""
        rotation = self.rotation
        return next((pair for pair in rotation.pairs if self.dim in pair.dims), None) if rotation else None

    def show(self, plane: Plane, cell: tuple[int, int], block: Block | None) -> None:
        """Keep what is told of the head: its other dims need no new answer to be drawn."""
        if block is not None and isinstance(block.told, Rotation) and block.key == plane.key:
            self._last = (_spot(plane), block.told)
        super().show(plane, cell, block)

    def seen(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (0, 1), (0, 1)

    def measure(self) -> None:
        self._drawn = None
        if self.plane is None:
            return
        self._lay_out()
        self._virtual(self.room.width, len(self._lines))

    def strip(self, y: int) -> Strip:
        width, place = self.room.width, y + self.scroll_offset.y
        self._lay_out()
        if self.plane is None or place >= len(self._lines):
            return self.blank(width)
        return self.cached((place, self.dim, width), lambda: self._lines[place], width)

    def _lay_out(self) -> None:
        """All lines for the room there is."""
        rotation, room = self.rotation, self.room
        state = (id(rotation), self.dim, room, self.app.theme)
        if state == self._drawn:
            return
        self._drawn = state
        self._strips.clear()
        self._lines = list(self._write(rotation, room.width, room.height)) if rotation and room.width > 0 else []

    def _write(self, rotation: Rotation, width: int, height: int) -> Iterator[Line]:
        strip = list(self._strip_of_pairs(rotation, width))
        pair, lines = self.pair, height - len(strip) - 1
        size = min(lines, CIRCLE[1], (width - NUMBERS) // 2)
        if pair is None or size < CIRCLE[0] or not _known(pair):
            numbers = list(self._numbers(rotation, width))
            yield from numbers if len(numbers) <= lines else self._few_numbers(rotation, width)
        else:
            numbers = list(self._numbers(rotation, width - 2 * size - 3))
            circle = self._circle(pair, size)
            above = max(0, (size - len(numbers)) // 2)
            for y in range(max(size, len(numbers))):
                left = circle[y] if y < size else [Segment(" " * 2 * size, self.inks.text)]
                beside = numbers[y - above] if above <= y < above + len(numbers) else []
                yield [Segment(" ", self.inks.text), *left, Segment("  ", self.inks.text), *beside]
        yield []
        yield from strip
        used = (max(size, CIRCLE[0]) if self.pair else 8) + 1 + len(strip)
        yield from self._table(rotation, width, height - used - 1)

    def _circle(self, pair: Pair, size: int) -> list[Line]:
        """The plane of the two dims: the vector before dashed to ○, after solid to ●, the angle between them."""
        inks, canvas = self.inks, Canvas(2 * size, size)
        middle, radius = (2 * size - 1.0, 2 * size - 0.5), 2 * size - 4.0
        reach = max(math.hypot(*pair.before), math.hypot(*pair.after)) or 1.0

        def tip(end: tuple[float, float]) -> tuple[float, float]:
            return middle[0] + end[0] / reach * radius, middle[1] - end[1] / reach * radius

        line(canvas, (0, middle[1]), (4 * size - 1, middle[1]), inks.bar_track, 0, (1, 2))
        line(canvas, (middle[0], 0), (middle[0], 4 * size - 1), inks.bar_track, 0, (1, 2))
        arc(canvas, middle, radius, 0, math.tau, inks.faint, 1, (2, 2))
        start, turn = math.atan2(pair.before[1], pair.before[0]), pair.angle % math.tau
        arc(canvas, middle, radius * 0.35, start, turn, inks.success, 2)
        line(canvas, middle, tip(pair.before), inks.primary, 3, (3, 3))
        line(canvas, middle, tip(pair.after), inks.accent, 4)
        lines = [canvas.segments(y, inks.text) for y in range(size)]
        for end, glyph, style in ((pair.before, "○", inks.primary), (pair.after, "●", inks.accent)):
            x, y = tip(end)
            row, col = max(0, min(size - 1, round(y) // 4)), max(0, min(2 * size - 1, round(x) // 2))
            lines[row] = overlaid(lines[row], col, glyph, style + inks.strong.without_color)
        return lines

    def _numbers(self, rotation: Rotation, width: int) -> Iterator[Line]:
        inks, pair = self.inks, self.pair
        if pair is None:
            words = f"dim {self.dim} is not turned: RoPE turns {rotation.rotated} of {rotation.of} dims"
            for words_line in wrap(words, max(4, width - 2)):
                yield [Segment(f" {words_line}", inks.strong)]
        else:
            i, j = pair.dims
            turns = pair.angle / math.tau
            yield self._row("dims", f"{i} and {j}", f"  pair {pair.pair} of {len(rotation.pairs)}")
            yield self._row("frequency", short(pair.inv_freq), "  rad/position")
            yield self._row("position", count(rotation.position))
            yield self._row("angle", _angle(rotation, pair))
            yield self._row("", f"{short(turns)} turns", f"  {_arrow(pair)}")
            yield self._row("cos, sin", f"{short(pair.cos)}, {short(pair.sin)}")
            yield self._row("○ before", _vector(pair.before))
            yield self._row("● after", _vector(pair.after))
            yield self._row("length", *_lengths(pair))
            yield []
        for name, words in (
            ("θ", _theta(rotation)),
            ("scaling", foreign(rotation.scaling) or "none"),
            ("rotated", f"{rotation.rotated} of {rotation.of} dims"),
            ("pairs", foreign(rotation.convention)),
        ):
            for n, part in enumerate(wrap(words, max(8, width - NAME - 3))):
                yield self._row(name if n == 0 else "", part)

    def _few_numbers(self, rotation: Rotation, width: int) -> Iterator[Line]:
        """The same in fewer lines."""
        pair = self.pair
        if pair is None:
            yield [Segment(f" dim {self.dim} is not turned", self.inks.strong)]
        else:
            yield self._row("dims", "{} and {}".format(*pair.dims), f"  pair {pair.pair} of {len(rotation.pairs)}")
            yield self._row("angle", _angle(rotation, pair), f"  {short(pair.angle / math.tau)} turns {_arrow(pair)}")
            yield self._row("cos, sin", f"{short(pair.cos)}, {short(pair.sin)}")
            yield self._row("○ before", _vector(pair.before), f"  length {short(math.hypot(*pair.before), 6)}")
            yield self._row("● after", _vector(pair.after), f"  length {short(math.hypot(*pair.after), 6)}")
        turned = f"{rotation.rotated} of {rotation.of} dims"
        yield self._row("θ", f"{_theta(rotation)} · scaling {foreign(rotation.scaling) or 'none'} · {turned}")
        for n, part in enumerate(wrap(foreign(rotation.convention), max(8, width - NAME - 3))):
            yield self._row("pairs" if n == 0 else "", part)

    def _row(self, name: str, words: str, more: str = "") -> Line:
        inks = self.inks
        return [
            Segment(f" {fit(name, NAME)} ", inks.muted),
            Segment(words, inks.text if name != "● after" else inks.accent),
            Segment(more, inks.faint),
        ]

    def _table(self, rotation: Rotation, width: int, height: int) -> Iterator[Line]:
        """The pairs around the chosen one in numbers, where there is room for some."""
        inks, pairs = self.inks, rotation.pairs
        if height < TABLE[1] or width < TABLE[0]:
            return
        yield []
        names = ("pair", "dims", "rad/pos", "a turn in", "angle", "before", "after")
        yield [Segment(_columns(names, width), inks.faint)]
        chosen = self.pair
        here = pairs.index(chosen) if chosen else 0
        first = max(0, min(here - (height - 2) // 2, len(pairs) - (height - 2)))
        for pair in pairs[first : first + height - 2]:
            words = (
                str(pair.pair), "{}, {}".format(*pair.dims), short(pair.inv_freq), _period(pair), short(pair.angle),
                _vector(pair.before, 6), _vector(pair.after, 6),
            )  # fmt: skip
            style = inks.cursor if pair is chosen else inks.muted
            yield [Segment(_columns(words, width), style + self._leads_to(pair))]

    def _leads_to(self, pair: Pair) -> Style:
        """What a click on a pair finds: of its two dims the one on the cursor's side."""
        here = self.pair
        return Style(meta={DIM: pair.dims[here.dims.index(self.dim) if here else 0]})

    def on_click(self, event: Click) -> None:
        """A click on a pair goes to its dim."""
        dim = event.style.meta.get(DIM)
        if dim is not None:
            self.post_message(self.Picked(None, dim))

    def _strip_of_pairs(self, rotation: Rotation, width: int) -> Iterator[Line]:
        """How fast each pair turns, and where it points now, with the chosen one marked."""
        inks, pairs = self.inks, rotation.pairs
        room = width - NAME - 3
        if not pairs or room < 4:
            return
        chosen = self.pair
        here = pairs.index(chosen) if chosen else -1
        first = max(0, min(here - room // 2, len(pairs) - room))
        shown = pairs[first : first + room]
        each = max(1, min(3, room // len(shown)))
        mark = (here - first) * each if here >= 0 else -1

        def row(name: str, glyphs: list[str]) -> Line:
            styles = (inks.strong if n == here - first else inks.muted for n in range(len(glyphs)))
            marks = [
                Segment(glyph.rjust(each), style + self._leads_to(pair))
                for glyph, style, pair in zip(glyphs, styles, shown, strict=True)
            ]
            return [Segment(f" {fit(name, NAME)} ", inks.faint), *marks]

        yield row("speed, log", [_speed(pair, pairs) for pair in shown])
        yield row("points to", [_arrow(pair) for pair in shown])
        under = f"{'▴'.rjust(mark + each)} pair {chosen.pair}" if chosen and mark >= 0 else ""
        yield [Segment(" " * (NAME + 2), inks.text), Segment(under, inks.accent)]
        ends = f"pair 0: a turn in {_period(pairs[0])} … pair {len(pairs) - 1}: in {_period(pairs[-1])} positions"
        yield [Segment(f" {fit(ends, max(0, width - 2))}", inks.faint)]


def _columns(words: Sequence[str], width: int) -> str:
    """A row of the table of pairs: as many columns as there is room for."""
    line = ""
    for word, size in zip(words, COLUMNS, strict=True):
        if cells(line) + size + 1 > width:
            break
        line += right(word, size)
    return line + " "


def _spot(plane: Plane) -> object:
    """Equal for the dims of one head at one position."""
    place = tuple((axis, index) for axis, index in plane.place if not axis.startswith("d_"))
    return (plane.trace.run, plane.step.site, place, plane.at)


def _theta(rotation: Rotation) -> str:
    return count(int(rotation.theta)) if rotation.theta.is_integer() else exact(rotation.theta)


def _angle(rotation: Rotation, pair: Pair) -> str:
    return f"{count(rotation.position)} × {short(pair.inv_freq)} = {short(pair.angle)} rad"


def _known(pair: Pair) -> bool:
    return all(map(math.isfinite, (*pair.before, *pair.after, pair.angle)))


def _arrow(pair: Pair) -> str:
    """Where (1, 0) points to once it is turned by the pair's angle."""
    return ARROWS[round(pair.angle / (math.tau / 8)) % 8] if math.isfinite(pair.angle) else "?"


def _speed(pair: Pair, pairs: tuple[Pair, ...]) -> str:
    """Its frequency between the slowest and the fastest one, by logarithm."""
    known = [math.log(p.inv_freq) for p in pairs if 0 < p.inv_freq < math.inf]
    if not 0 < pair.inv_freq < math.inf:
        return "·"
    span = max(known) - min(known)
    return SPEEDS[round((math.log(pair.inv_freq) - min(known)) / span * 7) if span else 7]


def _period(pair: Pair) -> str:
    """Positions that a full turn takes."""
    if not 0 < pair.inv_freq < math.inf:
        return "∞"
    turn = math.tau / pair.inv_freq
    return f"{turn:.1f}" if turn < 100 else count(round(turn))


def _lengths(pair: Pair) -> tuple[str, str]:
    """A turn keeps the length; where it does not, cos and sin have a factor."""
    before, after = math.hypot(*pair.before), math.hypot(*pair.after)
    if math.isclose(before, after, rel_tol=1e-3, abs_tol=1e-6):
        return short(before), "  a turn keeps it"
    return f"{short(before)} → {short(after)}", ""


def _vector(end: tuple[float, float], digits: int = 7) -> str:
    x, y = (special(value) or short(value, digits) for value in end)
    return f"({x}, {y})"

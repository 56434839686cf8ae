"""All heads of a layer, or of all layers, as small pictures."""

from __future__ import annotations

import math
from typing import NamedTuple

from rich.segment import Segment
from textual.events import Click
from textual.strip import Strip

from engine.views import TOGETHER
from tui.render.blocks import halves
from tui.render.cells import Scale
from tui.state.block import Stats
from tui.state.looks import Thumbs as Told
from tui.state.looks import Tile
from tui.state.views import Plane
from tui.text import cells, fit, right
from tui.widgets.plane import PlaneView

LEAST = {"heads": 10, "layers": 4}
"""The least width of a picture: of a layer's heads with a title, of all layers' without one."""
OBLONG = 2
"""How much longer than wide, or wider than long, a cell of the plane may become where that fills the room better."""
SPARE = 4
"""The most that goes into the gap between two pictures beyond what is needed."""
GUTTER = 4
"""Before the pictures of a layer: its number."""


class Sizes(NamedTuple):
    """Of one picture in cells, its dots downward, two in a cell; from one to the next; how many are side by side, and
    how many such rows there are."""

    width: int = 1
    height: int = 1
    dots: int = 2
    step_x: int = 1
    step_y: int = 1
    columns: int = 1
    rows: int = 1


class Thumbs(PlaneView):
    """Half blocks, two cells of the plane in one of the terminal. ``cell`` is the number of the framed picture."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._scale: Scale | None = None
        self._sizes = Sizes()
        self._measured: object = None
        self._stats = Stats()

    @property
    def scale(self) -> Scale | None:
        """How values become colours."""
        return self._scale

    @property
    def told(self) -> Told | None:
        """The pictures, when they are here."""
        told = self.block.told if self.block else None
        return told if isinstance(told, Told) else None

    @property
    def tile_size(self) -> tuple[int, int]:
        """Height and width, in cells of the plane, of the largest picture that there is room for."""
        return self._sizes.dots, self._sizes.width

    @property
    def _grid(self) -> bool:
        """Whether a row is a layer."""
        return self.plane is not None and self.plane.view.look == "layers"

    @property
    def _heading(self) -> int:
        return 1 if self._grid else 0

    @property
    def _gutter(self) -> int:
        return GUTTER if self._grid else 0

    def measure(self) -> None:
        plane, told = self.plane, self.told
        if plane is None:
            return
        self._sizes = self._fit(plane)
        if told is not None and self._measured is not told:
            self._measured, self._stats = told, _stats(told)
        stats, drawing = self._stats, self.drawing
        weight = stats.low >= 0 and 0 < stats.high <= 1
        mode, fixed = drawing.mode, drawing.fixed
        self._scale = Scale(stats, self.palette, 9, weight, drawing.shades, False, mode, fixed, "picture")
        sizes = self._sizes
        hidden = max(0, sizes.columns - self._across)
        self._virtual(self.room.width + hidden * sizes.step_x, self._heading + sizes.rows * sizes.step_y + self._grid)

    def _fit(self, plane: Plane) -> Sizes:
        """As large as all of them fit, down to the least size; from there on they scroll."""
        step, room, lines = plane.step, self.room.width, self.room.height - self._heading
        tall, wide = max(1, step.shape[-2]), max(1, step.shape[-1])
        heads = max(1, step.size("head"))
        if self._grid:  # the frame lies in the gaps
            columns, rows, least, (extra_x, extra_y) = heads, max(1, len(_layers(plane))), LEAST["layers"], (1, 1)
            room, lines = room - GUTTER - 1, lines - 1
            width, dots = _largest_picture(room // columns - extra_x, lines // rows - extra_y, tall, wide)
        else:
            count, least, (extra_x, extra_y) = heads + len(TOGETHER), LEAST["heads"], (2, 2)

            def picture(columns: int) -> tuple[int, int]:
                return _largest_picture(room // columns - extra_x, lines // -(-count // columns) - extra_y, tall, wide)

            def area(columns: int) -> tuple[int, int, int]:
                width, dots = picture(columns)
                return width * dots, width, -(-count // columns) * -columns  # few places that stay empty

            columns = max(range(1, count + 1), key=area)
            width, dots = picture(columns)
            if width < least:
                least = wide if least < wide <= least + OBLONG else least
                columns = max(1, min(count, room // (least + extra_x)))
            rows = -(-count // columns)
        if width < least or dots < 2:
            width = max(1, min(max(least, width), room - extra_x))
            dots = max(1, round(min(width, wide) * tall / wide))
        height = -(-dots // 2)
        spare = 0 if self._grid else max(0, min(SPARE, room // columns - width - extra_x))
        return Sizes(width, height, dots, width + extra_x + spare, height + extra_y, columns, rows)

    @property
    def _across(self) -> int:
        """How many pictures can be seen side by side."""
        return max(1, (self.room.width - self._gutter - self._grid) // self._sizes.step_x)

    @property
    def _first(self) -> int:
        """The first column that can be seen."""
        return max(0, min(self._sizes.columns - self._across, -(-self.scroll_offset.x // self._sizes.step_x)))

    def seen(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Not a part of a plane: the size of the pictures to ask for."""
        height, width = self.tile_size
        return (0, height), (0, width)

    def follow(self, fresh: bool) -> None:
        sizes, top = self._sizes, self.scroll_offset.y
        row, column = divmod(self.cell[0], sizes.columns)
        line, room = row * sizes.step_y, max(1, self.room.height - self._heading)
        x, y = self.scroll_offset.x, top
        if line < top or line + sizes.step_y + self._grid > top + room:
            y = line if line < top else line + sizes.step_y + self._grid - room
        if not self._first <= column < self._first + self._across:
            x = (column if column < self._first else column - self._across + 1) * sizes.step_x
        if (x, y) != tuple(self.scroll_offset):
            self.scroll_to(x=max(0, x), y=max(0, y), animate=False, force=True, immediate=True)

    def strip(self, y: int) -> Strip:
        width, told = self.room.width, self.told
        if self.plane is None or told is None or self._scale is None:
            return self.blank(width)
        here, first = self.cell[0], self._first
        if y < self._heading:
            return self.cached(("heads", here, first, width), lambda: self._numbers(first), width)
        row, part = divmod(y - self._heading + self.scroll_offset.y, self._sizes.step_y)
        columns = self._sizes.columns
        near = here if row - self._grid <= here // columns <= row else -1
        return self.cached((row, part, near, first, width), lambda: self._line(told, row, part, first), width)

    def _numbers(self, first: int) -> list[Segment]:
        """Over the pictures of all layers: the heads."""
        inks, sizes = self.inks, self._sizes
        segments = [Segment(right("head", GUTTER) + " ", inks.faint)]
        for column in range(first, min(sizes.columns, first + self._across)):
            style = inks.strong if column == self.cell[0] % sizes.columns else inks.muted
            segments.append(Segment(fit(str(column), sizes.step_x), style))
        return segments

    def _line(self, told: Told, row: int, part: int, first: int) -> list[Segment]:
        """One line of a row of pictures: their titles, a line of each, or what is below them."""
        sizes, inks = self._sizes, self.inks
        start, last = row * sizes.columns + first, min(sizes.columns, first + self._across)
        tiles = range(start, min(len(told.tiles), row * sizes.columns + last))
        if self._grid:
            return self._grid_line(told, row, part, tiles)
        segments: list[Segment] = []
        gap = " " * (sizes.step_x - sizes.width - 2)
        for number in tiles:
            here = number == self.cell[0]
            ink = inks.accent if here else inks.muted
            sides = "┃┃" if here else "  "
            if part == 0:
                title = _headline(told.tiles[number], sizes.width)
                rest = ("━" if here else " ") * (sizes.width - cells(title))
                segments += [
                    Segment("┏" if here else " ", ink),
                    Segment(title, inks.strong if here else inks.text),
                    Segment(rest + ("┓" if here else " ") + gap, ink),
                ]
            elif part == sizes.height + 1:
                segments.append(Segment(f"┗{'━' * sizes.width}┛{gap}" if here else " " * sizes.step_x, ink))
            else:
                picture = self._pixels(told, number, part - 1)
                segments += [Segment(sides[0], ink), *picture, Segment(f"{sides[1]}{gap}", ink)]
        return segments

    def _grid_line(self, told: Told, row: int, part: int, tiles: range) -> list[Segment]:
        """The same where rows are layers: a frame lies in the gaps between the pictures."""
        sizes, inks, here = self._sizes, self.inks, self.cell[0]
        if part == 0:  # the gap over a row, which is the one under the row before
            segments = [Segment(" " * GUTTER, inks.text)]
            text = " "
            above = [number - sizes.columns == here for number in self._row(row)]
            below = [number == here for number in self._row(row)]
            for top, bottom in zip(above, below, strict=True):
                left, mid, end = ("┏", "━", "┓") if bottom else ("┗", "━", "┛") if top else ("", " ", " ")
                text = (text[:-1] + left if left else text) + mid * sizes.width + end
            return [*segments, Segment(text, inks.accent)]
        layers = _layers(self.plane) if self.plane else ()
        name = str(layers[row]) if row < len(layers) else ""
        mine = bool(tiles) and here // sizes.columns == row
        label = right(name, GUTTER - 1) if part == (sizes.height + 1) // 2 else " " * (GUTTER - 1)
        segments = [Segment(label + " ", inks.strong if mine else inks.muted)]
        side = "┃" if tiles and tiles[0] == here else " "
        segments.append(Segment(side, inks.accent))
        for number in tiles:
            segments += self._pixels(told, number, part - 1)
            beside = number == here or number + 1 == here in tiles
            segments.append(Segment("┃" if beside else " ", inks.accent))
        return segments

    def _row(self, row: int) -> range:
        """The numbers of the pictures that can be seen in a row."""
        start = row * self._sizes.columns + self._first
        return range(start, row * self._sizes.columns + min(self._sizes.columns, self._first + self._across))

    def _pixels(self, told: Told, number: int, line: int) -> list[Segment]:
        """A line of one picture."""
        assert self._scale is not None
        sizes, (_, tall, wide) = self._sizes, told.shape
        if not tall or not wide:
            return [Segment(" " * sizes.width, self.inks.text)]
        limit = 0.0
        if self._scale.mode == "row":
            size = tall * wide
            limit = self._scale.row_limit(list(told.values[number * size : (number + 1) * size]))
        high = sizes.dots
        columns = [_bin(x, sizes.width, wide) for x in range(sizes.width)]

        def drawn(y: int) -> list[float]:
            if y >= high:
                return [math.nan] * sizes.width
            lines = [told.row(number, at) for at in _bin(y, high, tall)]
            return [_largest([line[x] for line in lines for x in column]) for column in columns]

        return halves(drawn(2 * line), drawn(2 * line + 1), self._scale, limit)

    def on_click(self, event: Click) -> None:
        """A click on a picture opens it."""
        sizes, told = self._sizes, self.told
        row = (event.y - self._heading + self.scroll_offset.y) // sizes.step_y
        column = (event.x - self._gutter) // sizes.step_x + self._first
        number = row * sizes.columns + column
        inside = event.y >= self._heading and event.x >= self._gutter and column < sizes.columns
        if told is not None and inside and number < len(told.tiles):
            self.post_message(self.Picked(number, None))


def _layers(plane: Plane) -> tuple[int, ...]:
    """The blocks that have this picture's step."""
    return plane.trace.blocks_with(plane.step.inner)


def _bin(at: int, of: int, size: int) -> range:
    """The cells of a plane that one of ``of`` dots stands for; they are more while a larger picture is still here."""
    start = at * size // of
    return range(start, max(start + 1, (at + 1) * size // of))


def _largest(values: list[float]) -> float:
    """The value with the largest magnitude; NaN where all are."""
    return values[0] if len(values) == 1 else max((v for v in values if v == v), key=abs, default=math.nan)


def _largest_picture(width: int, lines: int, tall: int, wide: int) -> tuple[int, int]:
    """Width and dots downward of a picture in this room; (0, 0) where there is none.

    A cell of the plane has whole dots wherever each can have one, so that all look alike; about square, else at most
    ``OBLONG``.
    """
    room_x, room_y = max(0, width), max(0, lines) * 2
    if not room_x or not room_y:
        return 0, 0
    if room_x < wide and room_y < tall:  # each dot stands for several cells: as square as the plane
        share = min(room_x / wide, room_y / tall)
        return max(1, min(room_x, round(share * wide * 1.25))), max(1, min(room_y, round(share * tall * 1.25)))
    across, down = room_x / wide, room_y / tall
    across, down = min(across, OBLONG * max(1.0, down)), min(down, OBLONG * max(1.0, across))
    return _dots(across, wide), _dots(down, tall)


def _dots(each: float, cells: int) -> int:
    """Dots for so many cells at about ``each``: as many for every one where that is one or more."""
    return int(each) * cells if each >= 1 else max(1, int(each * cells))


def _stats(told: Told) -> Stats:
    """Over all pictures; they are small."""
    values = [value for value in told.values if -math.inf < value < math.inf]
    if not values:
        return Stats()
    mean = math.fsum(values) / len(values)
    square = math.fsum(value * value for value in values) / len(values)
    return Stats(min(values), max(values), mean, math.sqrt(max(0.0, square - mean * mean)))


def _headline(tile: Tile, width: int) -> str:
    """Title and entropy in as many cells as there are."""
    title = tile.title
    if tile.entropy is not None:
        bits, fewer = f"{tile.entropy:.2f}", f"{tile.entropy:.1f}"
        brief = title if tile.head is None else f"h{tile.head}"
        for words in (f" {title} · {bits} bits ", f"{title} {fewer} bits", f"{brief} {fewer} bits", f"{title} {fewer}"):
            if cells(words) <= width:
                return fit(words, cells(words))
    return fit(title, min(cells(title), width))

"""A plane as cells: rows and columns with their labels, of any size; only what is seen is drawn and fetched."""

from __future__ import annotations

from rich.segment import Segment
from textual.events import Click
from textual.strip import Strip

from tui.render.cells import WIDEST, Scale, auto_width
from tui.state.block import Stats
from tui.state.views import TOKEN_AXES, Plane
from tui.text import cells, centred, fit, right
from tui.widgets.plane import PlaneView

LABEL = 12
NO_STATS = Stats()


class Heatmap(PlaneView):
    """A query × key pattern or any matrix. ``zoom`` sets the width of a cell; 0 chooses it."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.zoom = 0
        self.shades = False
        self._gutter = 1
        self._width = 2
        self._scale: Scale | None = None

    @property
    def cell_width(self) -> int:
        """Cells of the terminal that a column takes."""
        return self._width

    @property
    def scale(self) -> Scale | None:
        """How values become cells now."""
        return self._scale

    @property
    def columns(self) -> int:
        """How many columns can be seen at once."""
        return max(0, (self.room.width - self._gutter) // self._width)

    @property
    def first_column(self) -> int:
        """The first column that is seen."""
        total = self.plane.size[1] if self.plane else 0
        return max(0, min(total - self.columns, -(-self.scroll_offset.x // self._width)))

    def restyle(self, zoom: int | None = None, shades: bool | None = None) -> None:
        """Another cell width or way to draw cells."""
        self.zoom = self.zoom if zoom is None else max(0, min(zoom, WIDEST))
        self.shades = self.shades if shades is None else shades
        self._strips.clear()
        self.measure()
        self.follow(False)
        self.refresh()
        self.want()

    def measure(self) -> None:
        if self.plane is None:
            return
        rows, cols = self.plane.size
        stats = self.block.stats if self.block else NO_STATS
        self._gutter = min(_gutter(self.plane), max(1, self.room.width // 3))
        space = max(0, self.room.width - self._gutter)
        signed = stats.signed or not self.block
        self._width = self.zoom or auto_width(cols, space, signed)
        weight = self.plane.view.kind == "attention" and not stats.signed and stats.high <= 1.0
        masked = bool(self.block and self.block.zero_is_masked)
        self._scale = Scale(stats, self.palette, self._width, weight, self.shades, masked)
        hidden = max(0, cols - self.columns)
        self._virtual(self.room.width + hidden * self._width, rows + 1)

    def visible(self) -> tuple[tuple[int, int], tuple[int, int]]:
        rows, cols = self.plane.size if self.plane else (0, 0)
        top, left = self.scroll_offset.y, self.first_column
        return (
            (min(top, rows), min(rows, top + max(0, self.room.height - 1))),
            (min(left, cols), min(cols, left + self.columns)),
        )

    def follow(self, fresh: bool) -> None:
        row, col = self.cell
        height, width = max(1, self.room.height - 1), max(1, self.columns)
        x, y, top, left = self.scroll_offset.x, self.scroll_offset.y, self.scroll_offset.y, self.first_column
        if not top <= row < top + height:
            y = row if row < top and not fresh else row - height + 1 if not fresh else row - height // 2
        if not left <= col < left + width:
            left = col if col < left and not fresh else col - width + 1 if not fresh else col - width // 2
            x = left * self._width
        if (x, y) != tuple(self.scroll_offset):
            self.scroll_to(x=max(0, x), y=max(0, y), animate=False, immediate=True)

    def strip(self, y: int) -> Strip:
        plane, width = self.plane, self.room.width
        if plane is None or self._scale is None:
            return self.blank(width)
        left, count = self.first_column, min(self.columns, plane.size[1])
        if y == 0:
            return self.cached(("head", left, self.cell[1], width), lambda: self._heading(plane, left, count), width)
        row = y - 1 + self.scroll_offset.y
        if row >= plane.size[0]:
            return self.blank(width)
        here = self.cell[1] if row == self.cell[0] else -1
        return self.cached((row, left, here, width), lambda: self._line(plane, row, left, count, here), width)

    def _line(self, plane: Plane, row: int, left: int, count: int, here: int) -> list[Segment]:
        assert self._scale is not None
        values = self.block.line(row, left, left + count) if self.block else [None] * count
        label = right(plane.label(plane.view.rows, row), self._gutter - 1) + " "
        style = self.inks.strong if here >= 0 else self.inks.muted
        return [Segment(label, style), *self._scale.segments(values, here - left if here >= 0 else -1)]

    def _heading(self, plane: Plane, left: int, count: int) -> list[Segment]:
        axis, width, here = plane.view.cols, self._width, self.cell[1]
        name = fit(f"{plane.view.rows}↓ {axis}→", self._gutter)
        segments = [Segment(name, self.inks.faint)]
        if width >= 4 or (width == 3 and axis not in TOKEN_AXES):
            for col in range(left, left + count):
                text = centred(plane.label(axis, col), width - 1) + " "
                segments.append(Segment(text, self.inks.strong if col == here else self.inks.muted))
            return segments
        return segments + self._ruler(plane, axis, left, count, width, here)

    def _ruler(self, plane: Plane, axis: str, left: int, count: int, width: int, here: int) -> list[Segment]:
        """Numbers every few columns, and the label of the cursor's column over it."""
        total = count * width
        every = 5 if width > 1 else 10
        marks = [" "] * total
        for col in range(left + -left % every, left + count, every):
            text, at = str(col), (col - left) * width
            if at + len(text) <= total:
                marks[at : at + len(text)] = text
        line = "".join(marks)
        if not left <= here < left + count:
            return [Segment(line, self.inks.faint)]
        label = plane.label(axis, here)
        label = fit(label, min(cells(label), LABEL, total))
        size = cells(label)
        at = max(0, min((here - left) * width, total - size))
        before, after = line[:at], line[at + size :]
        if before and before[-1] != " ":
            before = before.rstrip("0123456789").ljust(at)
        return [Segment(before, self.inks.faint), Segment(label, self.inks.strong), Segment(_after(after), self.inks.faint)]

    def on_click(self, event: Click) -> None:
        """A click on a cell moves the cursor there."""
        if self.plane is None:
            return
        rows, cols = self.plane.size
        row = event.y - 1 + self.scroll_offset.y if event.y else None
        col = (event.x - self._gutter) // self._width + self.first_column if event.x >= self._gutter else None
        row = row if row is None or row < rows else None
        col = col if col is None or col < cols else None
        if row is not None or col is not None:
            self.post_message(self.Picked(row, col))


def _gutter(plane: Plane) -> int:
    """The width of the row labels, the space after them included."""
    rows, axis = plane.size[0], plane.view.rows
    if axis not in TOKEN_AXES:
        return max(len(str(rows)), len(axis) + 1) + 1
    widest = max((cells(plane.label(axis, row)) for row in range(min(rows, 200))), default=1)
    return max(6, min(widest, LABEL)) + 1


def _after(text: str) -> str:
    """Without the rest of a number that a label covers."""
    bare = text.lstrip("0123456789")
    return bare.rjust(len(text))

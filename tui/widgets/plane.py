"""What all pictures share: a plane, the window of it that is here, and the cursor's cell."""

from __future__ import annotations

from rich.segment import Segment
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from tui.render.cells import Scale
from tui.state.block import Block
from tui.state.drawing import Drawing
from tui.state.views import Plane
from tui.text import centred, foreign
from tui.widgets.lines import LineView, wrap


class PlaneView(LineView, can_focus=True):
    """Draws a plane. ``show`` gives it all it knows; ``Wanted`` asks for cells, ``Picked`` tells of a click."""

    class Wanted(Message):
        """These cells are looked at and not here."""

        def __init__(self, plane: Plane, rows: tuple[int, int], cols: tuple[int, int]) -> None:
            super().__init__()
            self.plane, self.rows, self.cols = plane, rows, cols

    class Picked(Message):
        """Somebody clicked on a cell; an axis that was not meant is None. ``plane``: of which picture, once known."""

        def __init__(self, row: int | None, col: int | None) -> None:
            super().__init__()
            self.row, self.col = row, col
            self.plane: Plane | None = None

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.plane: Plane | None = None
        self.block: Block | None = None
        self.cell = (0, 0)
        self.trouble = ""
        self.drawing = Drawing()
        self._asked: object = None
        self._followed = False

    def show(self, plane: Plane, cell: tuple[int, int], block: Block | None) -> None:
        """Draw this plane with the cursor at ``cell``; ``block`` is what is here of it."""
        fresh = self.plane is None or plane.key != self.plane.key
        block = block if block is not None and block.key == plane.key else None
        changed = fresh or block is not self.block
        moved = cell != self.cell
        self.plane, self.block, self.cell = plane, block, cell
        size = self.virtual_size
        if changed:
            self._strips.clear()
            self._asked = None
            self.measure()
        resized = self.virtual_size != size  # by statistics that came: numbers may need wider cells
        if fresh or moved or resized:  # not for a window that came because somebody scrolled away from the cursor
            self._keep_in_sight(fresh or resized)
        if changed or moved:
            self.refresh()
        self.want()

    def _keep_in_sight(self, fresh: bool) -> None:
        """Follow the cursor, as soon as there is room to do so."""
        if self.room.height > 1:
            self.follow(fresh or not self._followed)
            self._followed = True

    def on_plane_view_picked(self, event: Picked) -> None:
        """On its way up it takes the plane along."""
        event.plane = self.plane

    @property
    def scale(self) -> Scale | None:
        """How its values become colours; None where they do not."""
        return None

    @property
    def marked(self) -> tuple[str, str]:
        """What a picture without cells marks, in words, and more about it."""
        return "", ""

    def restyle(self, drawing: Drawing) -> None:
        """Another way to draw cells."""
        if drawing != self.drawing:
            self.drawing = drawing
            self.measure()
            self.forget()

    def mark(self, value: float | None) -> None:
        """Mark a value, where the picture has no cell for it."""

    def complain(self, trouble: str) -> None:
        """Say why there is no picture, in its place; '' where there is one."""
        if trouble != self.trouble:
            self.trouble = trouble
            self.forget()

    def drawn(self, y: int) -> Strip:
        if not self.trouble:
            return self.strip(y)
        width = self.room.width
        lines = wrap(foreign(self.trouble), max(4, min(width - 4, 76)))
        place = y - max(0, (self.room.height - len(lines)) // 2)
        if not 0 <= place < len(lines):
            return self.blank(width)
        return self.cached(
            ("no", place, width), lambda: [Segment(centred(lines[place], width), self.inks.error)], width
        )

    def measure(self) -> None:
        """Set the virtual size from the plane and the room there is."""

    def follow(self, fresh: bool) -> None:
        """Scroll so that the cursor's cell can be seen."""

    def seen(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The half-open ranges of rows and columns that can be seen."""
        raise NotImplementedError

    def want(self) -> None:
        """Ask for what can be seen and is not here; once."""
        if self.plane is None or not self.display or self.room.width <= 0 or self.room.height <= 0:
            return
        rows, cols = self.seen()
        if rows[0] >= rows[1] or cols[0] >= cols[1] or (self.block and self.block.has(rows, cols)):
            return
        asked = (self.plane.key, rows, cols)
        if asked != self._asked:
            self._asked = asked
            self.post_message(self.Wanted(self.plane, rows, cols))

    def retry(self) -> None:
        """Ask again for what did not come."""
        self._asked = None
        self.want()

    def on_resize(self) -> None:
        """Another size: measure, keep the cursor in sight, ask for more."""
        self._strips.clear()
        if self.plane is not None:
            self.measure()
            self._keep_in_sight(False)
            self.refresh()
            self.call_after_refresh(self.want)

    def watch_scroll_x(self, old_value: float, new_value: float) -> None:
        """Another part is seen."""
        super().watch_scroll_x(old_value, new_value)
        self.want()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Another part is seen."""
        super().watch_scroll_y(old_value, new_value)
        self.want()

    def notify_style_update(self) -> None:
        """The theme changed: the cells' styles too."""
        super().notify_style_update()
        if self.plane is not None and self.is_attached:
            self.measure()
            self.refresh()

    def _virtual(self, width: int, height: int) -> None:
        self.reach(Size(max(0, width), max(0, height)))


class RowsView(PlaneView):
    """A picture with one line for each index of its row axis, and perhaps a heading."""

    HEADING = 0

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.plane.size[0] if self.plane else 0

    def measure(self) -> None:
        self._virtual(self.room.width, self.count + self.HEADING)

    def seen(self) -> tuple[tuple[int, int], tuple[int, int]]:
        top = self.scroll_offset.y
        return (min(top, self.count), min(self.count, top + max(0, self.room.height - self.HEADING))), (0, 1)

    def follow(self, fresh: bool) -> None:
        height = max(1, self.room.height - self.HEADING)
        row, top = self.cell[0], self.scroll_offset.y
        if row < top or row >= top + height:
            self.scroll_to(y=max(0, row - height // 2), animate=False, force=True, immediate=True)

    def on_click(self, event: object) -> None:
        """A click on a row picks it."""
        y = getattr(event, "y", 0) - self.HEADING
        row = y + self.scroll_offset.y
        if y >= 0 and row < self.count:
            self.post_message(self.Picked(row, None))

    def value(self, row: int) -> float | None:
        """The row's value; None while it is not here."""
        return self.block.value(row, 0) if self.block else None

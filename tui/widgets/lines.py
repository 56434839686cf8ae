"""What the virtual widgets share: lines drawn on demand, straight from cached strips."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip

from tui.render.palette import Inks, Palette, inks, palette
from tui.text import cells, fit
from tui.themes import THEMES
from tui.widgets.scrollbar import LineBar, filtered

MOST_STRIPS = 2000


def shortened(segments: list[Segment], width: int) -> list[Segment]:
    """A line whose last segment ends with … where it does not fit into ``width`` cells."""
    if not segments or sum(segment.cell_length for segment in segments) <= width:
        return segments
    *first, last = segments
    room = max(0, width - sum(segment.cell_length for segment in first))
    return [*first, Segment(fit(last.text, room), last.style)]


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, broken between words where that can be."""
    lines, line, used = [], "", 0
    for word in text.split(" "):
        size = cells(word)
        if used and used + 1 + size <= width:
            line, used = f"{line} {word}", used + 1 + size
            continue
        if line:
            lines.append(line)
        while size > width:
            head = fit(word, width, cut="").rstrip() or word[:1]
            lines.append(head)
            word = word[len(head) :]
            size = cells(word)
        line, used = word, size
    return [*lines, line] if line or not lines else lines


class LineView(ScrollView, inherit_bindings=False):
    """A widget of virtual lines. A subclass gives ``strip(y)``: what line ``y`` of the widget shows now."""

    ALLOW_SELECT = False
    ALLOW_MAXIMIZE = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._strips: dict[Hashable, Strip] = {}
        self._drawing: Size | None = None
        self._painted: tuple[Hashable, list[Strip]] = (None, [])

    def strip(self, y: int) -> Strip:
        """The line ``y`` of the widget (not of its content), ``self.room`` wide."""
        raise NotImplementedError

    def drawn(self, y: int) -> Strip:
        """The line ``y`` as it is drawn: ``strip(y)``, unless something else stands in its place."""
        return self.strip(y)

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        """The vertical scrollbar, made when it is first asked for."""
        if self._vertical_scrollbar is None:
            self._vertical_scrollbar = LineBar(True, "vertical", thickness=self.scrollbar_size_vertical)
            self._vertical_scrollbar.display = False
            self.app._start_widget(self, self._vertical_scrollbar)
        return self._vertical_scrollbar

    @property
    def room(self) -> Size:
        """The cells there are, without scrollbars."""
        return self._drawing or self.scrollable_content_region.size

    @property
    def inks(self) -> Inks:
        """The theme's text styles."""
        return inks(self.app.theme)

    @property
    def palette(self) -> Palette:
        """The theme's heatmap styles."""
        theme = THEMES.get(self.app.theme)
        return palette(theme.dark, theme.name) if theme else palette(True)

    def cached(self, key: Hashable, build: Callable[[], Iterable[Segment]], width: int) -> Strip:
        """A strip from the cache; built, cut and padded to ``width`` cells on a miss."""
        found = self._strips.get(key)
        if found is None:
            if len(self._strips) >= MOST_STRIPS:
                self._strips.clear()
            found = filtered(self, Strip(build()).adjust_cell_length(max(0, width), self.inks.text))
            self._strips[key] = found
        return found

    def forget(self) -> None:
        """Drop the cached strips and draw anew."""
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        """The theme changed: lines that were written hold its styles."""
        super().notify_style_update()
        self._strips.clear()
        if self.is_attached:
            self.lay_out()

    def lay_out(self) -> None:
        """Write the lines anew, for widgets that write them before they are drawn."""

    def reach(self, size: Size) -> None:
        """Have so much to scroll over. Where no scrollbar comes or goes the screen is not laid out for it."""
        if size != self.virtual_size:
            self.set_reactive(ScrollView.virtual_size, size)
            self._scroll_update(size)
            self.refresh()

    def _set_dirty(self, *regions: Region) -> None:
        self._painted = (None, [])
        super()._set_dirty(*regions)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of a region, without the detour through the styles cache.

        Textual asks every widget whose container was drawn on: where nothing changed, the lines are those of before.
        """
        state = (crop, self.size, *self.scroll_offset)
        if self._painted[0] != state:
            self._painted = (state, self._paint(crop))
        return self._painted[1]

    def _paint(self, crop: Region) -> list[Strip]:
        room = self.room
        if room.width <= 0 or room.height <= 0:
            return [self.blank(crop.width)] * crop.height
        lines, style = [], next(iter(self.blank(1))).style
        self._drawing = room  # it is asked for again and again, and costs a walk over the screen each time
        for y in range(crop.y, crop.bottom):
            line = self.drawn(y) if y < room.height else Strip.blank(room.width, style)
            if crop.x or line.cell_length != crop.width:
                line = line.crop_extend(crop.x, crop.right, style)
            lines.append(line)
        self._drawing = None
        return lines

    def blank(self, width: int, style: Style | None = None) -> Strip:
        """An empty line."""
        width, style = max(0, width), style or self.inks.text
        return self.cached(("blank", width, style), lambda: Strip.blank(width, style), width)

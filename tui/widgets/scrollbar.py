"""A vertical scrollbar from kept strips: Textual's own costs more than all the cells beside it, at every frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rich.color import Color
from rich.segment import Segment
from textual.filter import ANSIToTruecolor
from textual.geometry import Region
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip

if TYPE_CHECKING:
    from textual.widget import Widget


def filtered(widget: Widget, strip: Strip) -> Strip:
    """A line as the app's filters want it (NO_COLOR, dimming)."""
    for line_filter in widget.app.get_line_filters():
        if not isinstance(line_filter, ANSIToTruecolor):  # every colour here is a true one already
            strip = strip.apply_filter(line_filter, widget.background_colors[1])
    return strip


class LineBar(ScrollBar):
    """Looks and behaves as Textual's, vertical."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """One strip for each kind of line: of the track, of the thumb, of its ends."""
        bar = cast(ScrollBarRender, self.render())
        style = self.app.console.get_style(bar.style)
        drawn = bar.render_bar(
            self.size.height, bar.virtual_size, bar.window_size, bar.position, bar.thickness, True,
            style.bgcolor or Color.default(), style.color or Color.default(),
        )  # fmt: skip
        kept: dict[Segment, Strip] = {}
        lines = []
        for segment in list(drawn.segments)[crop.y : crop.bottom]:
            if segment not in kept:
                kept[segment] = filtered(self, Strip([segment], bar.thickness))
            lines.append(kept[segment])
        return lines if crop.width == bar.thickness else [line.crop(crop.x, crop.right) for line in lines]

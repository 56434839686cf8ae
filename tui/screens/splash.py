"""The first frame: painted before the rest of the app is imported."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.screen import Screen
from textual.strip import Strip

from tui.themes import DARK, THEMES

GREETING = ("layerstep", "the engine is starting …")


class SplashScreen(Screen[None]):
    """The top line, a greeting, and the one key that matters by then."""

    AUTO_FOCUS = ""
    BINDINGS = [Binding("q", "app.quit", "Quit", show=False)]  # noqa: RUF012

    def render_line(self, y: int) -> Strip:
        """One line of the frame."""
        width, height = self.size
        theme = THEMES.get(self.app.theme, DARK)
        strong, muted, name = (
            Style(color=colour, bgcolor=theme.background, bold=bold)
            for colour, bold in ((theme.foreground, True), (theme.variables["muted"], False), (theme.primary, True))
        )
        place = y - max(1, (height - len(GREETING)) // 2)
        if y == 0:
            segments = [Segment(" layerstep", name), Segment(" · starting", muted)]
        elif 0 <= place < len(GREETING):
            segments = [Segment(GREETING[place].center(width), muted if place else strong)]
        elif y == height - 1:
            segments = [Segment(" q", name), Segment(" quit", muted)]
        else:
            segments = []
        return Strip(segments).adjust_cell_length(width, muted)

"""A frame around a pane: a title at the left of its top edge, another at the right."""

from __future__ import annotations

from textual.color import Color
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.style import Style

from tui.text import cells, fit
from tui.themes import DARK, THEMES


class Pane(Vertical, can_focus=False):
    """Holds the widgets of a pane; the frame lights up while one of them has the focus."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._titles: tuple[str, ...] = ("", "")

    def titled(self, left: str, *right: str, short: str = "") -> None:
        """Set the titles; of those for the right the first that fits is shown, beside ``short`` if need be."""
        if (left, short, *right) != self._titles:
            self._titles = (left, short, *right)
            self._draw_title()

    def on_resize(self) -> None:
        """The rule between the titles has another length."""
        self._draw_title()

    def notify_style_update(self) -> None:
        """The theme or the focus changed the rule's colour."""
        super().notify_style_update()
        if self.is_attached:
            self._draw_title()

    def _draw_title(self) -> None:
        left, short, *rights = self._titles
        room = self.outer_size.width - 6
        if room <= 0 or not left:
            self._retitle(Content(""))
            return
        if short and cells(left) > room:
            left = short
        left = fit(left, min(cells(left), room))
        right = next((right for right in rights if cells(left) + cells(right) + 3 <= room), "")
        if rights and not right and short:  # without its middle there is room for more
            left = fit(short, min(cells(short), room))
            right = next((right for right in rights if cells(left) + cells(right) + 3 <= room), "")
        spare = room - cells(left) - cells(right) - 2
        if not right or spare < 1:
            self._retitle(Content(left))
            return
        theme = THEMES.get(self.app.theme, DARK)
        lit = self.has_pseudo_class("focus-within")
        rule = Style(foreground=Color.parse((theme.primary if lit else theme.variables["line"]) or "#888888"))
        line = Content.styled("─" * spare, rule)
        self._retitle(Content(f"{left} ") + line + Content(f" {fit(right, cells(right))}"))

    def _retitle(self, title: Content) -> None:
        """Draw the edge with the title. To set ``border_title`` would draw all of the pane anew."""
        self._border_title = title
        self.refresh(Region(-1, -1, self.outer_size.width, 1))

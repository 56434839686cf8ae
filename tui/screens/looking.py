"""The actions that change how the cursor's place is looked at: its picture, colours, cells, panes."""

from __future__ import annotations

from dataclasses import replace

from engine.views import View
from tui.actions import keymap_of
from tui.render.cells import WIDEST
from tui.screens.shared import Shared
from tui.state.drawing import MODES, SCALES
from tui.state.layout import WIDE, panes
from tui.state.looks import Thumbs
from tui.state.views import Plane, views_of
from tui.widgets.heatmap import Heatmap
from tui.widgets.stage import Stage


class Looking(Shared):
    """What is chosen holds for all steps of a kind, or for all pictures."""

    # pictures

    @property
    def views(self) -> tuple[View, ...]:
        """The pictures of the cursor's step."""
        trace, cursor = self.here
        return views_of(trace.step(cursor.step, cursor.at))

    def show_view(self, name: str) -> bool:
        """Show a picture of the step by its name; False where it has none of that name."""
        views = self.views
        if all(view.name != name for view in views):
            return False
        self.view_choice[views[0].kind] = name
        self.trouble = self.trouble_beside = ""
        self.place_panes()
        return True

    def _other_view(self, by: int) -> None:
        names = [view.name for view in self.views]
        assert self.plane is not None
        self.show_view(names[(names.index(self.plane.view.name) + by) % len(names)])

    def do_view_next(self) -> None:
        self._other_view(1)

    def do_view_previous(self) -> None:
        self._other_view(-1)

    def do_view(self, number: int) -> None:
        """The picture with this number below the stage."""
        names = [view.name for view in self.views]
        if number > len(names):
            self.say(f"this step has {len(names)} picture{'s' * (len(names) > 1)}: {', '.join(names)}")
        else:
            self.show_view(names[number - 1])

    def open_tile(self, plane: Plane, tile: int | None) -> None:
        """A thumbnail to full size."""
        trace, cursor = self.here
        told = self.told(plane)
        if not isinstance(told, Thumbs) or tile is None or tile >= len(told.tiles):
            return
        chosen = told.tiles[tile]
        if (step := trace.by_site.get(chosen.site)) is not None:
            self.cursor = replace(cursor, step=step.index, head=cursor.head if chosen.head is None else chosen.head)
            self.show_view(chosen.reduce or "heatmap")

    # colour scales

    def _scale(self, by: int) -> None:
        picture = self.query_one(Stage).picture
        scale = picture.scale if picture else None
        modes = [mode for mode in MODES if mode != "fixed" or scale is not None or mode == self.scale_mode]
        mode = modes[(modes.index(self.scale_mode) + by) % len(modes)]
        if mode == "fixed" and scale is not None:
            self.fixed_limit = replace(scale, mode=MODES[0]).limit  # not of the scale that comes before it
        self.scale_mode = mode
        self.say(f"colour scale: {SCALES[mode]}")
        self.show_all()

    def do_scale_next(self) -> None:
        self._scale(1)

    def do_scale_previous(self) -> None:
        self._scale(-1)

    def do_cells_style(self) -> None:
        self.shades = not (self.few_colours if self.shades is None else self.shades)
        self.show_all()

    def do_cells_wider(self) -> None:
        self._zoom(1)

    def do_cells_narrower(self) -> None:
        self._zoom(-1)

    def do_cells_auto(self) -> None:
        """The width that the numbers need, again."""
        self._set_zoom(0)

    def _zoom(self, by: int) -> None:
        picture = self.query_one(Stage).picture
        self._set_zoom(max(1, min(WIDEST, picture.cell_width + by)) if isinstance(picture, Heatmap) else 1)

    def _set_zoom(self, zoom: int) -> None:
        """Another width of the cells, and a word where it stays or cannot be."""
        picture = self.query_one(Stage).picture
        if not isinstance(picture, Heatmap):
            cells = any(view.kind in ("attention", "matrix") for view in self.views)
            key = keymap_of(self.app).key("view.next")
            self.say("no cells to widen" + (f" · {key} shows them" if cells else " or narrow here"))
            return
        if zoom == self.zoom:
            self.say("the width is automatic" if not zoom else f"cells are at their {'least' if zoom == 1 else 'most'}")
        elif not self.zoom:
            self.say(f"width {zoom} · {keymap_of(self.app).key('cells.auto')} is automatic")
        elif not zoom:
            self.say("automatic width")
        self.zoom = zoom
        self.show_all()

    # panes

    def do_pane_next(self) -> None:
        self.focus_next()

    def do_pane_previous(self) -> None:
        self.focus_previous()

    def _several_panes(self) -> None:
        if self.maximised:
            self.maximised = ""
            self.place_panes()

    def do_pane_why(self) -> None:
        self._several_panes()
        wanted = not self.query_one("#why-pane").display
        usual = panes(self.size.width, self.tree_wanted, None, self.two_stages).why
        self.why_wanted = None if wanted == usual else wanted
        self.place_panes()

    def do_pane_tree(self) -> None:
        self._several_panes()
        wanted = not self.query_one("#tree-pane").display
        usual = panes(self.size.width, None, None, self.two_stages).tree
        self.tree_wanted = None if wanted == usual else wanted
        if wanted and self.size.width < WIDE:
            self.why_wanted = None
        self.place_panes()

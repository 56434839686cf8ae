"""The actions that move the cursor and change how it is looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.views import DEPTH, HEAD_AXES
from tui.actions import keymap_of
from tui.render.cells import WIDEST
from tui.settings import Settings
from tui.state.cursor import Cursor
from tui.state.drawing import MODES
from tui.state.layout import WIDE, panes
from tui.state.looks import Look, Thumbs
from tui.state.trace import Trace
from tui.state.views import Plane, views_of
from tui.widgets.heatmap import Heatmap
from tui.widgets.listing import Listing
from tui.widgets.pass_tree import PassTree
from tui.widgets.stage import Stage
from tui.widgets.why import WhyPane

if TYPE_CHECKING:
    from textual.screen import Screen
    from textual.timer import Timer

    _Base = Screen[None]
else:
    _Base = object

ROW_AXES = ("query", "pos", "kv_pos", "src_query", "src")
SCALES = {
    "auto": "automatic, robust against single large values",
    "row": "each row up to its own largest magnitude",
    "symmetric": "symmetric about zero, up to the largest magnitude",
    "log": "logarithmic",
    "clipped": "clipped at twice the root mean square",
    "fixed": "fixed as it is here, for all pictures",
}
"""What the colour scales are, in words."""


class Walking(_Base):
    """``↑ ↓`` are the token, ``, .`` the key or dim, ``h`` the head, whatever the picture.

    Only where the vocabulary is listed they are the candidate and the token.
    """

    trace: Trace | None
    cursor: Cursor | None
    view_choice: dict[str, str]
    scale_mode: str
    fixed_limit: float
    shades: bool | None
    zoom: int
    tree_wanted: bool | None
    why_wanted: bool | None
    maximised: str
    settings: Settings
    _player: Timer | None = None

    if TYPE_CHECKING:

        @property
        def few_colours(self) -> bool: ...
        @property
        def plane(self) -> Plane | None: ...
        def move_to(self, cursor: Cursor) -> None: ...
        def show_all(self) -> None: ...
        def place_panes(self, width: int | None = None) -> None: ...
        def say(self, text: str, severity: str = "information") -> None: ...
        def ranked_ids(self) -> list[int]: ...
        def told(self, plane: Plane) -> Look | None: ...

    @property
    def here(self) -> tuple[Trace, Cursor]:
        """The trace and the cursor, when there are both."""
        assert self.trace is not None
        assert self.cursor is not None
        return self.trace, self.cursor

    # steps and layers

    def step(self, by: int) -> None:
        trace, cursor = self.here
        self.move_to(cursor.step_by(trace, by))

    def do_step_next(self) -> None:
        self.step(1)

    def do_step_previous(self) -> None:
        self.step(-1)

    def do_step_first(self) -> None:
        self.step(-(10**9))

    def do_step_last(self) -> None:
        self.step(10**9)

    def through_layers(self, by: int) -> None:
        trace, cursor = self.here
        self.move_to(cursor.layer_by(trace, by))

    def do_layer_next(self) -> None:
        self.through_layers(1)

    def do_layer_previous(self) -> None:
        self.through_layers(-1)

    def go_to_step(self, step: int) -> None:
        _, cursor = self.here
        self.move_to(replace(cursor, step=step))

    def do_play(self) -> None:
        """Walk on by itself, or stop."""
        if self._player is None:
            self._player = self.set_interval(self.settings.pace, self._play_on)
        else:
            self.pause()

    def _play_on(self) -> None:
        trace, cursor = self.here
        if cursor.step >= len(trace.steps) - 1:
            self.pause()
        self.step(1)

    def pause(self) -> None:
        """Stop walking by itself."""
        if self._player is not None:
            self._player.stop()
            self._player = None

    # rows, columns, heads

    def row(self, by: int) -> None:
        focused = self.focused
        if isinstance(focused, PassTree):
            self.step(by)
        elif isinstance(focused, WhyPane):
            focused.scroll_relative(y=by, animate=False)
        elif self.lists_candidates:
            self.candidate(by)
        else:
            self.along(self.row_axis(), by)

    def do_row_up(self) -> None:
        self.row(-1)

    def do_row_down(self) -> None:
        self.row(1)

    def do_row_page_up(self) -> None:
        self.row(-10)

    def do_row_page_down(self) -> None:
        self.row(10)

    def col(self, by: int) -> None:
        plane = self.plane
        if plane is not None and plane.view.kind == "list":
            self.query_one("#view-listing", Listing).choose(by)
            return
        if plane is not None and plane.view.cols == DEPTH:
            trace, cursor = self.here
            col = max(0, min(plane.cell(cursor)[1] + by, len(plane.depth) - 1))
            self.move_to(replace(cursor, step=trace.by_site[plane.depth[col]].index))
            return
        self.along(self.row_axis() if self.lists_candidates else self.col_axis(), by)

    @property
    def lists_candidates(self) -> bool:
        """Whether the vocabulary is listed downward: then ``↑ ↓`` are the candidate and ``, .`` the token."""
        plane = self.plane
        return plane is not None and plane.view.rows == "d_vocab"

    def candidate(self, by: int) -> None:
        """Down the list of candidates, by rank where they are ranked."""
        if not (ids := self.ranked_ids()):
            self.along("d_vocab", by)
            return
        _, cursor = self.here
        at = ids.index(cursor.vocab) if cursor.vocab in ids else 0
        self.move_to(replace(cursor, vocab=ids[max(0, min(at + by, len(ids) - 1))]))

    def do_col_next(self) -> None:
        self.col(1)

    def do_col_previous(self) -> None:
        self.col(-1)

    def do_col_page_next(self) -> None:
        self.col(16)

    def do_col_page_previous(self) -> None:
        self.col(-16)

    def head(self, by: int) -> None:
        trace, cursor = self.here
        axes = trace.steps[cursor.step].axes
        self.along(next((axis for axis in HEAD_AXES if axis in axes), ""), by)

    def do_head_next(self) -> None:
        self.head(1)

    def do_head_previous(self) -> None:
        self.head(-1)

    def do_batch_next(self) -> None:
        self.along("batch", 1)

    def do_batch_previous(self) -> None:
        self.along("batch", -1)

    def along(self, axis: str, by: int) -> None:
        """Along an axis of the step; nothing where it has none of that name."""
        trace, cursor = self.here
        if axis:
            self.move_to(cursor.move(trace, axis, by))

    def row_axis(self) -> str:
        """The axis of ``↑ ↓``: the token."""
        trace, cursor = self.here
        axes = trace.steps[cursor.step].axes
        return next((axis for axis in ROW_AXES if axis in axes), self.plane.view.rows if self.plane else "")

    def col_axis(self) -> str:
        """The axis of ``, .``: the key, the dim, the rank."""
        plane, row = self.plane, self.row_axis()
        if plane is None:
            return ""
        shown = [axis for axis in (plane.view.cols, plane.view.rows) if axis and axis != row]
        rest = [axis for axis in reversed(plane.step.axes) if axis not in (row, "batch", *HEAD_AXES)]
        return next(iter(shown + rest), "")

    def go_to_token(self, pos: int) -> None:
        trace, cursor = self.here
        self.move_to(replace(cursor, src=pos) if cursor.token_axis(trace) == "src" else cursor.to_pos(trace, pos))

    def go_to_cell(self, row: int | None, col: int | None) -> None:
        """A cell of the picture was chosen."""
        trace, cursor = self.here
        plane = self.plane
        if plane is None:
            return
        if plane.view.kind == "ranked":
            ids = self.ranked_ids()
            if row is not None and row < len(ids):
                self.move_to(replace(cursor, vocab=ids[row]))
            return
        if plane.view.kind == "thumbs":
            self.open_tile(plane, row)
            return
        if plane.view.cols == DEPTH and col is not None:
            cursor, col = replace(cursor, step=trace.by_site[plane.depth[col]].index), None
        if row is not None and plane.view.rows:
            cursor = cursor.put(trace, plane.view.rows, row)
        if col is not None and plane.view.cols:
            cursor = cursor.put(trace, plane.view.cols, col)
        self.move_to(cursor)

    def open_tile(self, plane: Plane, tile: int | None) -> None:
        """A thumbnail to full size."""
        trace, cursor = self.here
        told = self.told(plane)
        if not isinstance(told, Thumbs) or tile is None or tile >= len(told.tiles):
            return
        chosen = told.tiles[tile]
        head = cursor.head if chosen.head is None else chosen.head
        self.cursor = replace(cursor, step=trace.by_site[chosen.site].index, head=head)
        self.show_view(chosen.reduce or "heatmap")

    # looks

    def show_view(self, name: str) -> bool:
        """Show a picture of the step by its name; False where it has none of that name."""
        trace, cursor = self.here
        views = views_of(trace.step(cursor.step, cursor.at))
        if all(view.name != name for view in views):
            return False
        self.view_choice[views[0].kind] = name
        self.place_panes()
        return True

    def _other_view(self, by: int) -> None:
        trace, cursor = self.here
        names = [view.name for view in views_of(trace.step(cursor.step, cursor.at))]
        assert self.plane is not None
        self.show_view(names[(names.index(self.plane.view.name) + by) % len(names)])

    def do_view_next(self) -> None:
        self._other_view(1)

    def do_view_previous(self) -> None:
        self._other_view(-1)

    def do_view(self, number: int) -> None:
        """The picture with this number below the stage."""
        trace, cursor = self.here
        names = [view.name for view in views_of(trace.step(cursor.step, cursor.at))]
        if number > len(names):
            self.say(f"this step has {len(names)} picture{'s' * (len(names) > 1)}: {', '.join(names)}")
        else:
            self.show_view(names[number - 1])

    # the chain from score to weight

    def _along_chain(self, by: int) -> None:
        """The stage before or after in the way from scores to weights: other values in the same cells."""
        trace, cursor = self.here
        here = trace.steps[cursor.step]
        chain = [
            step
            for step in trace.steps
            if step.block == here.block and step.part == here.part and step.axes == here.axes
        ]
        if "query" not in here.axes and "src_query" not in here.axes:
            key = keymap_of(self.app).key("chain.next")
            self.say(f"{key} goes along scores, scaled, masked, pattern; go to one of them first")
            return
        self.go_to_step(chain[(chain.index(here) + by) % len(chain)].index)

    def do_chain_next(self) -> None:
        self._along_chain(1)

    def do_chain_previous(self) -> None:
        self._along_chain(-1)

    # colour scales

    def _scale(self, by: int) -> None:
        mode = MODES[(MODES.index(self.scale_mode) + by) % len(MODES)]
        scale = getattr(self.query_one(Stage).picture, "scale", None)
        if mode == "fixed" and scale is not None:
            self.fixed_limit = scale.limit
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
        picture, (trace, cursor) = self.query_one(Stage).picture, self.here
        if not isinstance(picture, Heatmap):
            cells = any(view.kind in ("attention", "matrix") for view in views_of(trace.step(cursor.step, cursor.at)))
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
        wanted, usual = not self.query_one("#why-pane").display, panes(self.size.width, self.tree_wanted, None).why
        self.why_wanted = None if wanted == usual else wanted
        self.place_panes()

    def do_pane_tree(self) -> None:
        self._several_panes()
        wanted, usual = not self.query_one("#tree-pane").display, panes(self.size.width, None, None).tree
        self.tree_wanted = None if wanted == usual else wanted
        if wanted and self.size.width < WIDE:
            self.why_wanted = None
        self.place_panes()

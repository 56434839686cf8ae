"""The actions that move the cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.sites import QUERIES
from engine.views import DEPTH, HEAD_AXES
from tui.actions import keymap_of
from tui.screens.shared import Shared
from tui.state.cursor import Cursor
from tui.state.trace import Trace
from tui.state.views import Plane
from tui.widgets.listing import Listing
from tui.widgets.pass_tree import PassTree
from tui.widgets.why import WhyPane

if TYPE_CHECKING:
    from textual.timer import Timer

ROW_AXES = ("query", "pos", "kv_pos", "src_query", "src")


class Walking(Shared):
    """``↑ ↓`` are the token, ``, .`` the key or dim, ``h`` the head, whatever the picture.

    Only where the vocabulary is listed they are the candidate and the token.
    """

    _player: Timer | None = None

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

    def go_to_cell(self, plane: Plane, row: int | None, col: int | None) -> None:
        """A cell of a picture was chosen, perhaps of the second one."""
        trace, cursor = self.here
        if plane.view.kind == "ranked":
            ids = self.ranked_ids(plane)
            if row is not None and row < len(ids):
                self.move_to(replace(cursor, vocab=ids[row]))
            return
        if plane.view.kind == "thumbs":
            self.open_tile(plane, row)
            return
        if plane.view.kind == "rotation" and col is not None:
            self.move_to(cursor.put(trace, plane.step.axes[-1], col))
            return
        if plane.view.cols == DEPTH and col is not None:
            step = trace.by_site.get(plane.depth[col])
            cursor, col = replace(cursor, step=step.index if step else cursor.step), None
        if row is not None and plane.view.rows:
            cursor = cursor.put(trace, plane.view.rows, row)
        if col is not None and plane.view.cols:
            cursor = cursor.put(trace, plane.view.cols, col)
        self.move_to(cursor)

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
        if not set(QUERIES) & set(here.axes):
            key = keymap_of(self.app).key("chain.next")
            self.say(f"{key} goes along scores, scaled, masked, pattern; go to one of them first")
            return
        self.go_to_step(chain[(chain.index(here) + by) % len(chain)].index)

    def do_chain_next(self) -> None:
        self._along_chain(1)

    def do_chain_previous(self) -> None:
        self._along_chain(-1)

"""The actions that arrange the app: panes, theme, settings, the last session."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from pathlib import Path

from engine.sites import Address
from tui.screens.shared import Shared
from tui.settings import Settings
from tui.state.cursor import Cursor
from tui.state.remembered import Remembered, recall
from tui.state.trace import Trace
from tui.themes import after
from tui.widgets.pass_tree import PassTree
from tui.widgets.why import WhyPane


class Arranging(Shared):
    """What a person set in a file, what they arranged, and where they left."""

    # panes

    def do_pane_maximise(self) -> None:
        self.maximised = "" if self.maximised else self.pane_in_use
        self.place_panes()

    @property
    def pane_in_use(self) -> str:
        """The pane that has the focus; the picture where none has."""
        nodes = list(self.focused.ancestors_with_self) if self.focused is not None else []
        if any(isinstance(node, PassTree) for node in nodes):
            return "tree"
        if any(isinstance(node, WhyPane) for node in nodes):
            return "why"
        return "beside" if self.two_stages and any(node.id == "beside" for node in nodes) else "stage"

    # theme and settings

    def do_theme(self) -> None:
        self.app.theme = after(self.app.theme)

    def do_settings(self) -> None:
        from tui.screens.settings import SettingsScreen

        self.app.push_screen(SettingsScreen(self.settings, self.memory))

    # what is remembered

    def do_session_restore(self) -> None:
        left, wrong = recall(self.memory)
        if not left.request:
            self.say(wrong or "no last session is remembered; the app remembers where it is left", "warning")
            return
        self.take_up(left)
        self.place_panes()
        self.open(dict(left.request))

    def settle(self, settings: Settings, memory: Path | None, left: Remembered) -> None:
        """Before the first frame: the looks that were set, and the panes as they were left."""
        self.settings, self.memory = settings, memory
        self.shades, self.zoom, self.scale_mode = settings.shades, settings.cell_width, settings.scale
        self.tree_wanted, self.why_wanted, self.maximised = left.tree, left.why, left.maximised

    def take_up(self, left: Remembered) -> None:
        """Be where the app was left; the trace is still to be opened."""
        self.start_address, self.view_choice = left.address, dict(left.views)
        self.shades, self.zoom, self.sampling = left.shades, left.zoom, left.sampling
        self.scale_mode, self.fixed_limit = left.scale or self.scale_mode, left.limit
        self.tree_wanted, self.why_wanted, self.maximised = left.tree, left.why, left.maximised

    def leaving(self) -> Remembered:
        """What is remembered of this moment; where no trace is open, of the last one only the panes change."""
        before, _ = recall(self.memory)
        tree, why, maximised = self.panes_wanted
        alone = "stage" if maximised == "beside" else maximised  # the second picture is not there again
        left = replace(before, tree=tree, why=why, maximised=alone)
        if self.trace is None or self.cursor is None:
            return left
        return replace(
            left,
            request=self.request,
            address=self._address_left(self.trace, self.cursor),
            views=self.view_choice,
            shades=self.shades,
            zoom=self.zoom,
            scale=self.scale_mode,
            limit=self.fixed_limit if isfinite(self.fixed_limit) else 0.0,
            sampling=self.sampling,
        )

    def _address_left(self, trace: Trace, cursor: Cursor) -> str:
        """The cursor's address. What was generated is not there again: then the site, and of it the head."""
        address = cursor.address(trace)
        if trace.from_file or len(trace.passes) == 1:
            return str(address)
        heads = tuple((axis, value) for axis, value in address.index if axis in ("h", "g", "head", "kv_head"))
        return str(Address(address.site, heads))

"""The middle pane: the picture of the cursor's step, whichever widget its axes call for."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from textual.app import ComposeResult

from tui.state.answers import Ranking
from tui.state.block import Block
from tui.state.cursor import Cursor
from tui.state.views import HEAD_AXES, Plane
from tui.widgets.pane import Pane
from tui.widgets.plane import PlaneView
from tui.widgets.ranked import Ranked
from tui.widgets.readout import Caption, Readout
from tui.widgets.welcome import Welcome

WIDGETS = {
    "attention": ("tui.widgets.heatmap", "Heatmap"),
    "matrix": ("tui.widgets.heatmap", "Heatmap"),
    "bars": ("tui.widgets.bars", "Bars"),
    "ranked": ("tui.widgets.ranked", "Ranked"),
    "tokens": ("tui.widgets.token_table", "TokenTable"),
}


class Stage(Pane):
    """Shows one picture; the widgets are made when they are first needed, and kept."""

    def compose(self) -> ComposeResult:
        """The caption, room for the picture, the readout."""
        yield Caption(id="caption")
        yield Welcome(id="welcome")
        yield Readout(id="readout")

    @property
    def picture(self) -> PlaneView | None:
        """The widget that is shown now."""
        return next((view for view in self.query(PlaneView) if view.display), None)

    def show(
        self,
        plane: Plane,
        cursor: Cursor,
        block: Block | None,
        ranking: Ranking | None,
        shades: bool,
        zoom: int,
        trouble: str = "",
        missing: str = "",
    ) -> None:
        """Draw a plane with what is here of it; ``missing`` is why there is nothing to draw."""
        view = self._widget(plane.view.kind)
        if view.display is False or self.query_one(Welcome).display:
            focused = any(other.has_focus for other in self.query(PlaneView))
            self.query_one(Welcome).display = False
            for other in self.query(PlaneView):
                other.display = other is view
            if focused:
                view.focus()
        view.complain(missing)
        if isinstance(view, Ranked):
            view.rank(plane, ranking, cursor.vocab)
        else:
            if getattr(view, "zoom", zoom) != zoom or getattr(view, "shades", shades) != shades:
                view.restyle(zoom, shades)  # type: ignore[attr-defined]
            view.show(plane, plane.cell(cursor), block)
        self.query_one(Readout).show(plane, cursor, block, getattr(view, "scale", None), ranking, trouble)
        self.query_one(Caption).show(plane.step.title or plane.step.label, plane.step.formula)
        self.titled(plane.step.where, *_heads(plane), short=plane.step.where_short)

    def greet(self, *lines: str) -> None:
        """What stands here while there is no picture."""
        self.query_one(Welcome).say(*lines)

    def _widget(self, kind: str) -> PlaneView:
        module, name = WIDGETS[kind]
        found = self.query(f"#view-{name.lower()}")
        if found:
            return cast(PlaneView, found.first())
        view = cast(PlaneView, getattr(import_module(module), name)(id=f"view-{name.lower()}"))
        view.display = False
        self.mount(view, before="#readout")
        return view


def _heads(plane: Plane) -> tuple[str, ...]:
    """``head 3 of 8`` where the step has heads, or chosen experts, and one is shown; longest first."""
    place = dict(plane.place)
    for axis in HEAD_AXES:
        if axis in place:
            total, shared = plane.step.size(axis), plane.trace.heads_per_kv
            if axis == "kv_head" and shared > 1:
                first = place[axis] * shared
                here = f"kv head {place[axis]} of {total}"
                return f"{here} · for heads {first}–{first + shared - 1}", here, f"kv {place[axis]}/{total}"
            return f"{axis.replace('_', ' ')} {place[axis]} of {total}", f"{axis[0]} {place[axis]}/{total}"
    return ()

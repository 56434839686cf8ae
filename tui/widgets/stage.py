"""The middle pane: the picture of the cursor's step, whichever widget its axes call for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult

from engine.views import HEAD_AXES, WHOLE_PASS
from tui.state.answers import Ranking
from tui.state.block import Block
from tui.state.cursor import Cursor
from tui.state.drawing import Drawing
from tui.state.looks import Chain
from tui.state.naming import explained, sides, titles
from tui.state.views import Plane, views_of
from tui.widgets.chain import ChainLine
from tui.widgets.pane import Pane
from tui.widgets.plane import PlaneView
from tui.widgets.ranked import Ranked
from tui.widgets.readout import Caption, Readout
from tui.widgets.view_tabs import ViewTabs
from tui.widgets.welcome import Welcome

if TYPE_CHECKING:
    from tui.widgets.listing import Listing

WIDGETS = {
    "attention": ("tui.widgets.heatmap", "Heatmap"),
    "matrix": ("tui.widgets.heatmap", "Heatmap"),
    "bars": ("tui.widgets.bars", "Bars"),
    "ranked": ("tui.widgets.ranked", "Ranked"),
    "tokens": ("tui.widgets.token_table", "TokenTable"),
    "grid": ("tui.widgets.heatmap", "Heatmap"),
    "arcs": ("tui.widgets.arcs", "Arcs"),
    "text": ("tui.widgets.weighted_text", "WeightedText"),
    "thumbs": ("tui.widgets.thumbs", "Thumbs"),
    "curves": ("tui.widgets.curves", "Curves"),
    "list": ("tui.widgets.listing", "Listing"),
    "rotation": ("tui.widgets.rotation", "RotationView"),
    "histogram": ("tui.widgets.histogram", "HistogramView"),
}


class Stage(Pane):
    """Shows one picture; the widgets are made when they are first needed, and kept."""

    def compose(self) -> ComposeResult:
        """The caption, room for the picture, the readout."""
        yield Caption(id="caption")
        yield ChainLine(id="chain")
        yield Welcome(id="welcome")
        yield Readout(id="readout")
        yield ViewTabs(id="views")

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
        drawing: Drawing,
        trouble: str = "",
        missing: str = "",
        chain: Chain | None = None,
        against: str = "",
        value: float | None = None,
    ) -> None:
        """Draw a plane with what is here of it; ``missing`` is why there is nothing to draw.

        ``chain``: the cell at the cursor from its score to its weight; ``against``: what the picture is compared with;
        ``value``: the one at the cursor, where the picture has no cell for it.
        """
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
            view.restyle(drawing)
            view.show(plane, plane.cell(cursor), block)
        view.mark(value)
        self.query_one(Readout).show(plane, cursor, block, view.scale, ranking, trouble, view.marked)
        self.query_one(Caption).show(*explained(plane, block)[:2])
        self.query_one(ChainLine).show(chain, plane.step.site)
        where, short = titles(plane)
        self.titled(_title(plane, against, where), *_right(plane, against), short=_title(plane, against, short))
        self.query_one(ViewTabs).show(views_of(plane.step), plane.view)

    def on_listing_marked(self, event: Listing.Marked) -> None:
        """Another row of a list was marked."""
        event.stop()
        if self.picture is not None:
            self.query_one(Readout).mark(*self.picture.marked)

    def greet(self, *lines: str) -> None:
        """What stands here while there is no picture."""
        self.query_one(Welcome).say(*lines)
        self.query_one(Welcome).display = True
        for view in self.query(PlaneView):
            view.display = False

    def _widget(self, kind: str) -> PlaneView:
        module, name = WIDGETS[kind]
        found = self.query(f"#view-{name.lower()}")
        if found:
            return cast(PlaneView, found.first())
        view = cast(PlaneView, getattr(import_module(module), name)(id=f"view-{name.lower()}"))
        view.display = False
        self.mount(view, before="#readout")
        return view


def _title(plane: Plane, against: str, where: str) -> str:
    """Where the picture is; of one of two, which; of a difference, what is taken from what."""
    if plane.minus is not None:
        return f"{where} · {' − '.join(sides(plane))}"
    if not against or plane.view.look in WHOLE_PASS:
        return f"{against} · {where}" if against else where
    inside = against.startswith("layer ") and not plane.step.block_name  # the layer is said already
    return f"{against} · {plane.step.place_inside if inside else plane.step.where_short}"


def _right(plane: Plane, against: str) -> tuple[str, ...]:
    """What is shown of the heads, unless the left title says it; longest first."""
    if plane.view.over:
        return f"over heads: {plane.view.over}", plane.view.over
    told = "head " in sides(plane)[0] if plane.minus is not None else bool(against)
    return () if told else _heads(plane)


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

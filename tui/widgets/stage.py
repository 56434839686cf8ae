"""The middle pane: the picture of the cursor's step, whichever widget its axes call for."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from textual.app import ComposeResult

from engine.views import HEAD_AXES
from tui.state.answers import Ranking
from tui.state.block import Block
from tui.state.cursor import Cursor
from tui.state.drawing import Drawing
from tui.state.looks import Chain
from tui.state.views import Plane, views_of
from tui.widgets.chain import ChainLine
from tui.widgets.histogram import HistogramView
from tui.widgets.listing import Listing
from tui.widgets.pane import Pane
from tui.widgets.plane import PlaneView
from tui.widgets.ranked import Ranked
from tui.widgets.readout import Caption, Readout
from tui.widgets.view_tabs import ViewTabs
from tui.widgets.welcome import Welcome

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
        if isinstance(view, HistogramView):
            view.mark(value)
        marked = getattr(view, "marked", ("", ""))
        self.query_one(Readout).show(plane, cursor, block, getattr(view, "scale", None), ranking, trouble, marked)
        self.query_one(Caption).show(*_words(plane, block))
        self.query_one(ChainLine).show(chain, plane.step.site)
        step, minus = plane.step, plane.minus
        named = bool(against) and (minus is None or "head " in _own(plane, minus))  # the head stands at the left then
        short = _title(plane, against, step.where_short)
        self.titled(_title(plane, against, step.where), *(() if named else _heads(plane)), short=short)
        self.query_one(ViewTabs).show(views_of(plane.step), plane.view)

    def on_listing_marked(self, event: Listing.Marked) -> None:
        """Another row of a list was marked."""
        event.stop()
        if isinstance(self.picture, Listing):
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


def _words(plane: Plane, block: Block | None) -> tuple[str, str]:
    """Title and formula: of what the engine derived, else of the step."""
    told = block.told if block else None
    if told is not None and told.title:
        return told.title, told.formula
    return plane.step.title or plane.step.label, plane.step.formula


def _title(plane: Plane, against: str, where: str) -> str:
    """Where the picture is; of one of two, which; of a difference, what is taken from what."""
    if plane.minus is not None:
        mine = _own(plane, plane.minus)
        return f"{where} · {mine} − {against}" if mine else f"{where} − {against}"
    return f"{against} · {plane.step.where_short}" if against else where


def _own(plane: Plane, other: Plane) -> str:
    """How a picture of one trace differs from the other that is taken from it; '' where they are of two traces."""
    if plane.trace is not other.trace:
        return ""
    parts = [f"layer {plane.step.block}"] if plane.step.block != other.step.block else []
    parts += [f"{axis} {n}" for axis, n in plane.place if axis in HEAD_AXES and (axis, n) not in other.place]
    parts += [f"pass @{plane.at}"] if plane.at != other.at else []
    return " · ".join(parts)


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

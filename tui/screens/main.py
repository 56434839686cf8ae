"""The main screen: three panes, the tokens, the keys. Its state is a trace and a cursor; all it shows follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.events import Key, Resize
from textual.geometry import Size
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from engine.views import View
from tui.actions import Action, bindings, keymap_of
from tui.client import EngineClient
from tui.screens.arranging import Arranging
from tui.screens.asking import Asking
from tui.screens.comparing import Comparing
from tui.screens.copying import Copying
from tui.screens.fetching import Fetching
from tui.screens.generating import Changes, Generating
from tui.screens.learning import Learning
from tui.screens.looking import Looking
from tui.screens.opening import Opening
from tui.screens.presenting import Presenting
from tui.screens.recording import Recording
from tui.screens.running import Running
from tui.screens.walking import Walking
from tui.session import Session
from tui.settings import Settings
from tui.state.beside import Beside, subtracts
from tui.state.cursor import Cursor
from tui.state.drawing import MODES, Drawing
from tui.state.layout import FLAT, LOW, NARROW, SMALLEST, STACKED, WIDE, panes
from tui.state.sampling import Sampling
from tui.state.trace import Trace
from tui.state.views import Plane, views_of
from tui.text import foreign
from tui.widgets.chain import ChainLine
from tui.widgets.footer import KeyLine
from tui.widgets.header import HeaderLine
from tui.widgets.job import JobLine
from tui.widgets.pane import Pane
from tui.widgets.pass_tree import PassTree
from tui.widgets.plane import PlaneView
from tui.widgets.readout import Caption
from tui.widgets.stage import Stage
from tui.widgets.timeline import Timeline
from tui.widgets.title_line import TitleLine
from tui.widgets.token_strip import TokenStrip
from tui.widgets.view_tabs import ViewTabs
from tui.widgets.welcome import Welcome
from tui.widgets.why import WhyPane


class MainScreen(
    Walking,
    Looking,
    Comparing,
    Opening,
    Asking,
    Generating,
    Copying,
    Presenting,
    Learning,
    Recording,
    Arranging,
    Fetching,
    Running,
    Screen[None],
):
    """Shows the walk. What a person does arrives as an action of the registry or as a widget's message."""

    CSS_PATH = "main.tcss"
    AUTO_FOCUS = ""
    BINDINGS = bindings()
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)  # widgets that look focused redraw themselves

    def __init__(self, client: EngineClient, request: dict[str, Any], address: str = "") -> None:
        super().__init__()
        self.client = client
        self.session = Session(client)
        self.request, self.other_request = request, {}
        self.start_address = address
        self.trace: Trace | None = None
        self.cursor: Cursor | None = None
        self.view_choice: dict[str, str] = {}
        self.shades: bool | None = None
        self.zoom = 0
        self.scale_mode, self.fixed_limit = MODES[0], 0.0
        self.beside: Beside | None = None
        self.difference = False
        self.tree_wanted: bool | None = None
        self.why_wanted: bool | None = None
        self.maximised = ""
        self.settings = Settings()
        self.memory: Path | None = None
        self.trouble = self.trouble_beside = ""
        self.sampling = Sampling()
        self.seed: int | None = None
        self.note = ""
        self._refused: set[str] = set()
        self.changes = Changes()
        self._asked: dict[str, object] = {}
        self.faults: list[Exception] = []

    def compose(self) -> ComposeResult:
        """The frame; it is whole before the engine answers."""
        yield TitleLine(id="title")
        yield HeaderLine(id="header")
        with Horizontal(id="body"):
            with Pane(id="tree-pane"):
                yield PassTree(id="tree")
            with Container(id="stages"):
                yield Stage(id="stage")
                yield Stage(id="beside")
            with Pane(id="why-pane"):
                yield WhyPane(id="why")
        yield JobLine(id="job")
        yield Timeline(id="passes")
        yield TokenStrip(id="tokens")
        yield KeyLine(id="keys")
        yield Welcome(id="small")
        yield Static("", id="blank")

    def on_mount(self) -> None:
        """Titles and the first words; the engine is talked to once the frame is painted."""
        for name in ("#job", "#passes", "#beside"):
            self.query_one(name).display = False
        self.query_one("#tree-pane", Pane).titled("pass")
        self.query_one("#why-pane", Pane).titled("why")
        stage = self.query_one(Stage)
        stage.titled("layerstep")
        stage.greet("layerstep", "the engine is starting …")
        self.query_one(HeaderLine).show(None, None, "starting")
        self.call_after_refresh(self.begin)

    # what is shown

    @property
    def view(self) -> View | None:
        """The picture chosen for the cursor's step."""
        if self.trace is None or self.cursor is None or not self.trace.steps:
            return None
        return self.view_of(self.trace, self.cursor)

    def view_of(self, trace: Trace, cursor: Cursor) -> View:
        """The picture chosen for the kind of step at a place; the first one where it does not have that."""
        views = views_of(trace.step(cursor.step, cursor.at))
        wanted = self.view_choice.get(views[0].kind, "")
        return next((view for view in views if view.name == wanted), views[0])

    @property
    def plane(self) -> Plane | None:
        """The picture at the cursor; of two things where their difference is looked at."""
        view = self.view
        if view is None or self.trace is None or self.cursor is None:
            return None
        plane = Plane.of(self.trace, self.cursor, view)
        other = self.plane_beside if self.difference and subtracts(view) else None
        return plane.without(other) if other and other.key != plane.key else plane

    @property
    def plane_beside(self) -> Plane | None:
        """The picture of what is beside; None where nothing is."""
        view = self.view
        place = self.beside_cursor()
        if view is None or place is None:
            return None
        trace, cursor = place
        alike = next((one for one in views_of(trace.step(cursor.step, cursor.at)) if one == view), None)
        return Plane.of(trace, cursor, alike) if alike else None

    @property
    def drawing(self) -> Drawing:
        """How cells are drawn."""
        shades = self.few_colours if self.shades is None else self.shades
        return Drawing(shades, self.zoom, self.scale_mode, self.fixed_limit)

    def move_to(self, cursor: Cursor) -> None:
        """Another place; everything follows."""
        if cursor != self.cursor:
            self.trouble = self.trouble_beside = ""
            self.cursor = cursor
            self.show_all()

    def show_all(self) -> None:
        """Give every widget what it draws."""
        if not self.alive:
            return
        trace, cursor, plane = self.trace, self.cursor, self.plane
        file = self.request.get("file", "")
        header = self.query_one(HeaderLine)
        header.show(trace, cursor, self.client.state, self.chosen_how, file, self.recording_words)
        self.query_one(KeyLine).show(*self.offers(trace))
        self.query_one(PassTree).show(trace, cursor)
        self.query_one(Timeline).show(trace, cursor, self.note)
        self.show_tour()
        self.show_title()
        if trace is None or cursor is None or plane is None:
            return
        plane = self.named(plane, cursor)
        block = self.session.known(plane) if plane.view.kind != "ranked" else None
        ranking = self.ranking_of(plane)
        missing = ranking.trouble if ranking else self.trouble if block is None else ""
        trouble = "there is no value here" if missing else self.trouble
        chain = self.chain_at(plane, cursor)
        self.query_one("#stage", Stage).show(
            plane, cursor, block, ranking, self.drawing, trouble, missing, chain, self.against(plane),
            self.value_at(plane, cursor),
        )  # fmt: skip
        self.show_beside(plane)
        self.query_one(TokenStrip).show(trace, cursor, self.next_token())
        if self.query_one("#why-pane").display:
            answer = block or ranking
            numbers = answer.numbers if answer else "" if missing else "…"
            self.query_one(WhyPane).show(plane, cursor, block, self.checks_here(plane), missing, numbers, chain)

    def offers(self, trace: Trace | None) -> tuple[bool, bool, bool, bool, bool]:
        """What the footer offers keys for: a trace, a target, passes, going on, choosing a candidate."""
        if trace is None:
            return False, False, False, False, False
        goes_on = not trace.from_file and trace.predicts == "next token"
        return True, bool(trace.source_tokens), len(trace.passes) > 1, goes_on, self.lists_candidates

    @property
    def alive(self) -> bool:
        """Whether there are widgets to show anything in: not while the app ends."""
        return self.is_attached and bool(self.query("#keys"))

    @property
    def few_colours(self) -> bool:
        """Whether the terminal has too few colours to fill cells with."""
        return self.app.console.color_system in (None, "standard", "windows")

    def _update_focus_styles(self, focused: Widget | None = None, blurred: Widget | None = None) -> None:
        """Styles hang on the pane that has the focus: another picture in the same one restyles nothing else."""
        if focused is None or blurred is None or focused.parent is not blurred.parent:
            super()._update_focus_styles(focused, blurred)

    # size

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        """Lay out, and tell who has another size. Textual tells those whose place on its map changed, but whoever asks
        for a place between a scroll and a layout has renewed that map, and then nobody is told."""
        before = {widget: widget.outer_size for widget in self._compositor._full_map}
        super()._refresh_layout(size, scroll)
        for widget, was in before.items():
            if (now := widget.outer_size) != was:
                widget.post_message(Resize(now, widget.virtual_size, widget.container_size))

    def on_resize(self, event: Resize) -> None:
        """Panes for this width; a notice where nothing fits."""
        width, height = event.size
        tiny = width < SMALLEST[0] or height < SMALLEST[1]
        self.set_class(tiny, "-tiny")
        self.set_class(width < WIDE, "-narrow")
        self.set_class(width < NARROW, "-slim")
        self.set_class(height < LOW, "-low")
        self.set_class(height < FLAT, "-flat")
        self.query_one("#small", Welcome).say("too small", f"{width}×{height}; {SMALLEST[0]}×{SMALLEST[1]} needed")
        self.place_panes(width)

    def place_panes(self, width: int | None = None) -> None:
        """Show and hide panes."""
        width = self.size.width if width is None else width
        shown = panes(width, self.tree_wanted, self.why_wanted, self.two_stages, self.maximised)
        focused = self.focused
        for name, on in (("#tree-pane", shown.tree), ("#stages", shown.stage), ("#why-pane", shown.why)):
            self.query_one(name).display = on
        self.query_one("#beside").display = self.beside_seen
        self.query_one("#stage").display = self.maximised != "beside" or not self.two_stages
        self.query_one("#stages").set_class(width < STACKED, "-stacked")
        self.set_class(self.maximised != "", "-alone")
        for caption in self.query(Caption):
            caption.display = not shown.why and not self.has_class("-low")
        if self.trace is not None:
            self.show_all()
        if focused is not None and not all(
            node.display for node in focused.ancestors_with_self if hasattr(node, "display")
        ):
            self.focus_picture()

    def focus_picture(self) -> None:
        """The focus to the picture, or where that is hidden to what is shown."""
        stages = [stage for stage in self.query(Stage) if stage.display and self.query_one("#stages").display]
        target = stages[0].picture if stages else self.query_one(PassTree if self.maximised == "tree" else WhyPane)
        if target is not None:
            self.set_focus(target)

    # what happens

    def action_do(self, name: str) -> None:
        """Do an action of the registry, unless a tour that is played takes its key."""
        if self.tour_does(name):
            return
        action = keymap_of(self.app).by_id[name]
        if action.needs_trace and (self.trace is None or self.cursor is None):
            self.refuse(action)
            return
        if name != "play":
            self.pause()
        getattr(self, action.method)(*action.arguments)

    def on_key(self, event: Key) -> None:
        """Whatever key is pressed, a blank screen comes back, and nothing else happens."""
        if self.blanked:
            event.stop()
            self.blank(False)

    def on_click(self) -> None:
        """A click brings a blank screen back, too."""
        if self.blanked:
            self.blank(False)

    def refuse(self, action: Action) -> None:
        """Say, once a key, that there is nothing yet to do it with."""
        if action.id not in self._refused:
            self._refused.add(action.id)
            self.say(f"{action.shown_keys}: not yet, there is no trace")

    def do_cache(self) -> None:
        """The KV cache on its own screen; it may lead to an address."""
        from tui.screens.cache import CacheScreen

        trace, cursor = self.here
        self.app.push_screen(CacheScreen(self.session, trace, cursor, self.faults), self._led_to)

    def _led_to(self, address: str | None) -> None:
        if address:
            self.go_to_address(address)

    def on_key_line_pressed(self, event: KeyLine.Pressed) -> None:
        """A hint in the footer was clicked."""
        self.action_do(event.action)

    def on_pass_tree_chosen(self, event: PassTree.Chosen) -> None:
        """A step was clicked."""
        self.go_to_step(event.step)

    def on_why_pane_chosen(self, event: WhyPane.Chosen) -> None:
        """An input of the step was clicked."""
        self.go_to_step(event.step)

    def on_token_strip_picked(self, event: TokenStrip.Picked) -> None:
        """A token was clicked."""
        self.go_to_token(event.pos)

    def on_plane_view_picked(self, event: PlaneView.Picked) -> None:
        """A cell was clicked."""
        if event.plane is not None:
            self.go_to_cell(event.plane, event.row, event.col)

    def on_view_tabs_picked(self, event: ViewTabs.Picked) -> None:
        """A picture was clicked."""
        self.show_view(event.name)

    def on_chain_line_chosen(self, event: ChainLine.Chosen) -> None:
        """A stage of the scores was clicked."""
        if self.trace is not None and event.site in self.trace.by_site:  # of a trace beside it may be another
            self.go_to_step(self.trace.by_site[event.site].index)

    def on_plane_view_wanted(self, event: PlaneView.Wanted) -> None:
        """Cells are looked at and not here."""
        self.fetch(event.plane, event.rows, event.cols)

    def say(self, text: str, severity: str = "information") -> None:
        """A short notice that goes away by itself."""
        self.notify(foreign(text), severity=severity, markup=False)  # type: ignore[arg-type]

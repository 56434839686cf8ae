"""The KV cache on a screen of its own: it grows pass by pass, and beside that what it costs, saves and would do."""

from __future__ import annotations

from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.events import DescendantFocus, Resize
from textual.screen import Screen
from textual.timer import Timer

from tui.actions import CACHE_ACTIONS, Action, bindings, keymap_of
from tui.screens.cache_asking import BYTES, DRIFT, GROWTH, MEASURED, NAMES, PAGES, QUANTISED, TIME, CacheAsking
from tui.session import Session
from tui.state.cache import Answer, CacheReport, Drift, Layer, Pages, Place, Quantised, Timing
from tui.state.cursor import Cursor
from tui.state.layout import SMALLEST
from tui.state.trace import Trace
from tui.text import foreign
from tui.themes import after
from tui.widgets.cache_bytes import CacheBytes
from tui.widgets.cache_drift import CacheDrift
from tui.widgets.cache_grid import CacheGrid
from tui.widgets.cache_pages import CachePages
from tui.widgets.cache_quantised import CacheQuantised
from tui.widgets.cache_section import Section
from tui.widgets.cache_tabs import CacheTabs
from tui.widgets.cache_time import CacheTime
from tui.widgets.footer import KeyLine
from tui.widgets.header import HeaderLine
from tui.widgets.job import JobLine
from tui.widgets.pane import Pane
from tui.widgets.welcome import Welcome

ALL_AT_ONCE = (144, 42)
"""From this size on all sections are shown; below it one."""
PACE = 0.5
RENEWAL = 0.2
"""Seconds after which it is seen that another trace is open."""
BY_ID = {action.id: action for action in CACHE_ACTIONS}
ALWAYS = ("cache.theme", "cache.help", "cache.back")
"""What can be done where there is no cache."""


class CacheScreen(CacheAsking, Screen[str]):
    """Its state is a pass, a layer and a kv head; the result is the address to go to, '' for none."""

    CSS_PATH = "cache.tcss"
    AUTO_FOCUS = ""
    BINDINGS = bindings(CACHE_ACTIONS)

    def __init__(self, session: Session, trace: Trace, cursor: Cursor, faults: list[Exception]) -> None:
        super().__init__()
        self.session, self.trace, self.faults = session, trace, faults
        newest = len(trace.passes) - 1
        at, head = newest if cursor.at is None else cursor.at, cursor.head // trace.heads_per_kv
        place = Place(GROWTH, at, 0, head, bits=8, page=16, site=0)
        self._site = trace.steps[cursor.step].site
        if session.cache_place is not None:
            of, left = session.cache_place
            if (of.model, of.prompt, of.file) == (trace.model, trace.prompt, trace.file):
                place, self._site = replace(left, at=newest if left.at < 0 else min(left.at, newest)), ""
        self.at, self.row, self.head = place.at, place.row, place.head
        self.section, self.bits, self.page = place.section, place.bits, place.page
        self._quantised_row = place.site
        self.troubles: dict[type[Answer], str] = {}
        self._before: CacheReport | None = None
        self._player: Timer | None = None

    def compose(self) -> ComposeResult:
        """The frame; it is whole before the engine answers."""
        yield HeaderLine(id="header")
        yield CacheTabs(id="cache-tabs")
        with Vertical(id="cache-body"):
            with Pane(id="growth-pane"):
                yield CacheGrid(id="growth")
            with Horizontal(id="cache-row"):
                with Pane(id="bytes-pane"):
                    yield CacheBytes(id="bytes")
                with Vertical(classes="column"):
                    with Pane(id="drift-pane"):
                        yield CacheDrift(id="drift")
                    with Pane(id="time-pane"):
                        yield CacheTime(id="time")
                with Vertical(classes="column"):
                    with Pane(id="quantised-pane"):
                        yield CacheQuantised(self._quantised_row, id="quantised")
                    with Pane(id="pages-pane"):
                        yield CachePages(id="pages")
        yield Welcome(id="cache-none")
        yield JobLine(id="job")
        yield KeyLine(id="keys")
        yield Welcome(id="small")

    def on_mount(self) -> None:
        """Titles, and the first questions."""
        self.query_one("#job").display = False
        self.query_one(KeyLine).show(has_trace=True)
        self.set_interval(RENEWAL, self._renew)
        self.begin()
        self.choose(self.section)

    def begin(self) -> None:
        """Ask for what needs no running."""
        self.troubles = {}
        self.show_all()
        self.ask(CacheReport)
        self.ask(Pages, size=self.page)

    def _renew(self) -> None:
        """Another trace may be open by now: a token more, or the engine was started again."""
        if self.session.trace is not None and self.session.trace is not self.trace:
            newest = self.at >= len(self.trace.passes) - 1
            self.trace = self.session.trace
            self.at = len(self.trace.passes) - 1 if newest else self.at
            self.begin()

    # what is shown

    @property
    def report(self) -> CacheReport | None:
        """The report, once it is here; until then the one before, so that a cache that grows does not flicker."""
        known = self.session.cache_known(CacheReport)
        if known is not None or CacheReport in self.troubles:
            self._before = known
        return self._before

    @property
    def here(self) -> Layer | None:
        """The layer at the cursor."""
        layers = self.report.layers if self.report else ()
        return layers[min(self.row, len(layers) - 1)] if layers else None

    @property
    def place_now(self) -> Place:
        """Where one is: to open here again."""
        at, site = -1 if self.at >= len(self.trace.passes) - 1 else self.at, self.query_one(CacheQuantised).row
        return Place(self.section, at, self.row, self.head, self.bits, self.page, site)

    @property
    def shown(self) -> Section:
        """The section that is chosen."""
        return self.query_one(f"#{NAMES[self.section]}", Section)

    def show_all(self) -> None:
        """Give every widget what it draws."""
        if not self.is_attached or not self.query("#small"):
            return
        known, report, wrong = self.session.cache_known, self.report, self.troubles.get
        self.query_one(HeaderLine).show(self.trace, None, "")
        self.set_class(report is not None and report.none != "", "-none")
        if report is not None and report.none:
            self.query_one("#cache-none", Welcome).say("no KV cache", report.none)
            self.query_one(KeyLine).offer(tuple(keymap_of(self.app).by_id[name] for name in ALWAYS))
            return
        for n, name in enumerate(NAMES, 1):
            words = (report.text,) if report and name == "growth" and report.text else ()
            key = keymap_of(self.app).key(f"cache.section_{n}")
            title = f"{key} growth of the KV cache" if name == "growth" else f"{key} {name}"
            self.query_one(f"#{name}-pane", Pane).titled(title, *map(foreign, words), short=f"{key} {name}")
        if report is not None and self._site:  # the layer that the walk is in
            starts = [self._site.startswith(f"blocks.{layer.layer}.") for layer in report.layers]
            self.row, self._site = starts.index(True) if True in starts else 0, ""
        layers = tuple(layer.layer for layer in report.layers) if report else self.trace.blocks
        place = (self.at, self.row)
        self.query_one(CacheGrid).show(self.trace, report, *place, self.head, wrong(CacheReport, ""))
        self.query_one(CacheBytes).show(report, wrong(CacheReport, ""))
        drift = known(Drift)
        self.query_one(CacheDrift).show(self.trace, layers, drift, *place, self.few_colours, wrong(Drift, ""))
        self.query_one(CacheTime).show(known(Timing), wrong(Timing, ""))
        quantised = known(Quantised, bits=self.bits)
        self.query_one(CacheQuantised).show(self.bits, quantised, wrong(Quantised, ""))
        self.query_one(CachePages).show(known(Pages, size=self.page), wrong(Pages, ""))
        self.place()

    @property
    def few_colours(self) -> bool:
        """Whether the terminal has too few colours to fill cells with."""
        return self.app.console.color_system in (None, "standard", "windows")

    # size

    def on_resize(self, event: Resize) -> None:
        """All sections or one; a notice where nothing fits."""
        width, height = event.size
        self.set_class(width < SMALLEST[0] or height < SMALLEST[1], "-tiny")
        self.set_class(width >= ALL_AT_ONCE[0] and height >= ALL_AT_ONCE[1], "-wide")
        self.query_one("#small", Welcome).say("too small", f"{width}×{height}; {SMALLEST[0]}×{SMALLEST[1]} needed")
        self.place()

    def place(self) -> None:
        """Which sections there are to see, and how high."""
        if self.has_class("-none"):
            return
        wide, body = self.has_class("-wide"), self.size.height - 2
        for n, name in enumerate(NAMES):
            self.query_one(f"#{name}-pane").display = wide or n == self.section
        self.query_one("#cache-row").display = wide or self.section != GROWTH
        for column in self.query(".column"):
            column.display = any(pane.display for pane in column.children)
        heights = {"growth": body * 9 // 20, "time": 8, "pages": body * 7 // 20}
        for name, most in heights.items():
            pane, needed = self.query_one(f"#{name}-pane"), self.query_one(f"#{name}", Section).needed
            pane.styles.height = max(4, min(most, needed + 2)) if wide else "1fr"
        self.query_one(CacheTabs).show(self.section)
        self.query_one(KeyLine).offer(self._hints())

    def _hints(self) -> tuple[Action, ...]:
        """The actions that do something in this section now, by what they do there."""
        known, several = self.session.cache_known, self.report is not None and len(self.report.growth) > 1
        drift, cut = known(Drift), known(Quantised, bits=self.bits)
        does: dict[str, str] = {}
        if self.section == GROWTH:
            does = {"down": "layer", "look": "keys", "values": "values"}
            if self.here is not None and self.here.kv_heads > 1:
                does["head_next"] = "head"
        elif self.section == DRIFT and drift is not None and drift.passes:
            does = {"down": "layer"} | ({"look": "look"} if drift.site else {})
        elif self.section == QUANTISED and cut is not None and cut.rows:
            does = {"down": "site", "look": "unquantised"}
        elif self.shown.scrolls:
            does = {"down": "scroll"}
        if several and (self.section == GROWTH or (self.section == DRIFT and "down" in does)):
            does |= {"pass_next": "pass", "play": "play"}
        if self.section in MEASURED:
            does["measure"] = "measure"
        if self.section == QUANTISED:
            does["bits"] = f"int{12 - self.bits}"
        if self.section == PAGES:
            does["pages_smaller"] = "size"
        always = {"section_next", "help", "back"}
        names = [(action, action.id.removeprefix("cache.")) for action in keymap_of(self.app).cache_actions]
        return tuple(
            replace(action, hint=does.get(name, action.hint)) for action, name in names if name in always | does.keys()
        )

    def choose(self, section: int) -> None:
        """Another section."""
        self.section = section
        self.place()
        self.set_focus(self.shown)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """A section was clicked."""
        if isinstance(event.widget, Section) and event.widget.id in NAMES:
            self.section = NAMES.index(event.widget.id)
            self.place()

    # the cursor

    def go(self, at: int | None = None, row: int | None = None, head: int | None = None) -> None:
        """Another pass, layer or kv head; stays inside."""
        report = self.report
        if report is None or report.none:
            return
        self.at = max(0, min(self.at if at is None else at, len(report.growth) - 1))
        self.row = max(0, min(self.row if row is None else row, len(report.layers) - 1))
        kv_heads = report.layers[self.row].kv_heads
        self.head = max(0, min(self.head if head is None else head, kv_heads - 1))
        self.show_all()

    def do_cache_pass_next(self) -> None:
        self.go(at=self.at + 1)

    def do_cache_pass_previous(self) -> None:
        self.go(at=self.at - 1)

    def do_cache_pass_first(self) -> None:
        self.go(at=0)

    def do_cache_pass_last(self) -> None:
        self.go(at=10**9)

    def do_cache_head_next(self) -> None:
        self.go(head=self.head + 1)

    def do_cache_head_previous(self) -> None:
        self.go(head=self.head - 1)

    def move(self, by: int) -> None:
        """``↑ ↓``: the layer where layers are shown, else a line."""
        if self.section in (GROWTH, DRIFT):
            self.go(row=self.row + by)
        else:
            self.shown.move(by)

    def do_cache_down(self) -> None:
        self.move(1)

    def do_cache_up(self) -> None:
        self.move(-1)

    def do_cache_page_down(self) -> None:
        self.move(10)

    def do_cache_page_up(self) -> None:
        self.move(-10)

    def do_cache_play(self) -> None:
        """Grow by itself, from the first pass if it is at the last one; or stop."""
        if self._player is not None:
            self.pause()
        elif self.report is not None:
            if self.at >= len(self.report.growth) - 1:
                self.go(at=0)
            self._player = self.set_interval(PACE, self._play_on)

    def _play_on(self) -> None:
        if self.report is None or self.at >= len(self.report.growth) - 1:
            self.pause()
        else:
            self.go(at=self.at + 1)

    def pause(self) -> None:
        """Stop growing by itself."""
        if self._player is not None:
            self._player.stop()
            self._player = None

    # where it leads

    def do_cache_look(self) -> None:
        """To the first site that differs, a quantised site, or the layer's keys; measures what was not measured yet."""
        known = self.session.cache_known
        if self.section == QUANTISED and known(Quantised, bits=self.bits):
            if self._leave_for(self.query_one(CacheQuantised).site, f"@{self.at}"):
                self.say(f"this site as the trace has it, not in int{self.bits}")
        elif self.section == DRIFT and (drift := known(Drift)) is not None:
            if drift.site is None:
                self.say("nothing differs, not by one bit")
            else:
                self._leave_for(drift.site.site, f"@{drift.site.at}")
        elif self.section in MEASURED:
            self.do_cache_measure()
        else:
            self._leave_for_rows("k")

    def do_cache_values(self) -> None:
        self._leave_for_rows("v")

    def _leave_for_rows(self, which: str) -> None:
        if (layer := self.here) is not None:
            head = min(self.head, layer.kv_heads - 1)
            self._leave_for(f"blocks.{layer.layer}.attn.cache_{which}", f"[g={head}]@{self.at}")

    def _leave_for(self, site: str, place: str) -> bool:
        """Whether the trace has the site."""
        known = site in self.trace.by_site
        if known:
            self.leave(site + place)
        else:
            self.say(f"this trace has no site {site}", "warning")
        return known

    def leave(self, address: str = "") -> None:
        """Back to the walk; once, however fast keys come."""
        if self.is_current:
            self.session.cache_place = (self.trace, self.place_now)
            self.dismiss(address)

    # the app

    def action_do(self, name: str) -> None:
        """Do an action of the registry."""
        self._renew()
        if self.has_class("-none") and name not in ALWAYS:
            return
        if name != "cache.play":
            self.pause()
        getattr(self, BY_ID[name].method)()

    def do_cache_section_next(self) -> None:
        self.choose((self.section + 1) % len(NAMES))

    def do_cache_section_previous(self) -> None:
        self.choose((self.section - 1) % len(NAMES))

    def do_cache_section_1(self) -> None:
        self.choose(GROWTH)

    def do_cache_section_2(self) -> None:
        self.choose(BYTES)

    def do_cache_section_3(self) -> None:
        self.choose(DRIFT)

    def do_cache_section_4(self) -> None:
        self.choose(TIME)

    def do_cache_section_5(self) -> None:
        self.choose(QUANTISED)

    def do_cache_section_6(self) -> None:
        self.choose(PAGES)

    def do_cache_theme(self) -> None:
        self.app.theme = after(self.app.theme)

    def do_cache_help(self) -> None:
        from tui.screens.help import HelpScreen, words_on

        self.app.push_screen(HelpScreen("In the cache view", words_on(self)))

    def do_cache_back(self) -> None:
        if self.working:
            self.stop_work()
        else:
            self.leave()

    def on_key_line_pressed(self, event: KeyLine.Pressed) -> None:
        """A hint in the footer was clicked."""
        self.action_do(event.action)

    def on_cache_tabs_picked(self, event: CacheTabs.Picked) -> None:
        """A section's name was clicked."""
        self.choose(event.section)

    def on_section_measured(self, event: Section.Measured) -> None:
        """A section has more or fewer lines: another height may fit it, and it may scroll or no longer."""
        self.place()

    def on_cache_grid_picked(self, event: CacheGrid.Picked) -> None:
        """A layer was clicked."""
        self.go(row=event.row)

    def say(self, text: str, severity: str = "information") -> None:
        """A short notice that goes away by itself."""
        self.notify(foreign(text), severity=severity, markup=False)  # type: ignore[arg-type]

"""The actions of a tour: which one, on and back along its stops, and leaving it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.errors import AddressError
from engine.markdown import parse, plain
from engine.tours import Mark, Value
from engine.views import View
from tui import paths
from tui.actions import keymap_of
from tui.client import EngineError, EngineGone, Stale
from tui.screens.shared import Shared
from tui.state.beside import Beside
from tui.state.cursor import Cursor
from tui.state.remembered import first_time, seen
from tui.widgets.stage import Stage

if TYPE_CHECKING:
    from engine.tours import Stop, Tour
    from tui.widgets.pick_list import Choice
    from tui.widgets.tour import Playing, TourPanel

OWN = "a file of one's own …"
"""The last entry of the list of tours."""


class Touring(Shared):
    """While a tour is played the keys of next, back, Enter and Esc are its own; all others do what they always do."""

    playing: Playing | None = None
    tour_file: str | None = None
    keeps_other = False
    _stop_place: tuple[Cursor | None, View | None, Beside | None] = (None, None, None)
    _quoted: dict[Mark, Value]

    starts_with: str | None = None

    # how it begins

    def starts(self, tour: str | None, present: bool) -> None:
        """What the app begins with, before its first frame: a tour, presented or not."""
        self.starts_with = tour
        if present:
            self.call_after_refresh(self.present, True)

    def do_tour(self) -> None:
        """Choose one: those that come along, the first walk first, and files."""
        from tui.screens.finder import FinderScreen, matching
        from tui.tours import offered
        from tui.widgets.pick_list import Choice

        known = [Choice(str(path), title, words) for path, title, words in offered()]

        def matches(text: str) -> Sequence[Choice]:
            typed = [Choice(str(paths.place(text).path), text, paths.unreadable(text) or "a file", middle=True)]
            return matching(known, text) or typed if text.strip() else [*known, Choice(OWN, OWN, "type its path")]

        def chosen(choice: Choice | None) -> None:
            if choice is not None:
                self._ask_tour() if choice.value == OWN else self.play_file(choice.value)

        self.app.push_screen(FinderScreen("tours", matches, "a title, or the path of a file"), chosen)

    def _ask_tour(self) -> None:
        from tui.screens.ask import AskScreen

        def given(path: str | None) -> None:
            if path is not None:
                self.play_file(str(paths.place(path).path))

        screen = AskScreen("a tour", "its file, TOML or Markdown", "", paths.unreadable, "tour.toml")
        self.app.push_screen(screen, given)

    def play_file(self, name: str, sure: bool = False) -> None:
        """Walk the tour in a file, or one that comes along, by its name."""
        from engine.tours import TourError, find_tour
        from tui.tours import read_tour

        try:
            file = find_tour(name)
            tour = read_tour(file)
        except TourError as error:
            self._failed_first(str(error))
            self.tell("no such tour", str(error))
        else:
            self.play_tour(tour, sure, str(file))

    def offer_tour(self) -> None:
        """Offer the guided walk to who is here for the first time and opens no file; never again."""
        if "file" not in self.request and first_time(self.memory):
            from tui.screens.offer import OfferScreen

            seen(self.memory)
            keymap = keymap_of(self.app)
            self.app.push_screen(OfferScreen(keymap.by_id["tour"].keys, keymap.key("tour")), self._offered)

    def _offered(self, wanted: bool | None) -> None:
        if wanted:
            from engine.tours import FIRST

            self.play_file(FIRST, sure=True)

    def play_tour(self, tour: Tour, sure: bool = False, file: str | None = None) -> None:
        """Walk a tour. Where something else is open it is asked whether that may go, unless one is sure."""
        if self._is_open(tour) and self.trace is not None and self.trace.branches == 1:
            self._begin(tour, file)
        elif self.trace is None or sure:
            self._open_for(tour, file)
        else:
            opens = f"It opens “{tour.prompt}” in the model {tour.model}; what is open now is left and not saved."
            words = " ".join([*plain(parse(tour.about)), opens])
            self.tell(tour.title, words, (("enter", "walks"), ("w", "")), lambda: self._open_for(tour, file))

    def _is_open(self, tour: Tour) -> bool:
        """Whether the traces of a tour are here."""
        here = self.trace is not None and self.request == tour.request
        return here and (tour.other is None or (self.keeps_other and self.session.other is not None))

    def _open_for(self, tour: Tour, file: str | None) -> None:
        async def opening() -> None:
            self.keeps_other = False
            self.put_beside(None)
            if self.trace is None or self.request != tour.request or self.trace.branches > 1:
                await self._open(tour.request)
            if tour.other is not None and self.trace is not None and self.request == tour.request:
                self.keeps_other = await self.opened_beside(tour.other.request) is not None
            if self._is_open(tour):
                self._begin(tour, file)

        self._in_background(opening, "open")

    def _begin(self, tour: Tour, file: str | None) -> None:
        from tui.tours import trouble

        assert self.trace is not None
        if wrong := trouble(tour, self.trace, self.session.other if tour.other else None):
            self.keeps_other = False
            self.put_beside(None)
            self.tell("this tour does not fit its model", wrong)
            return
        self.tour_file = file
        self._quoted = {}
        self.tour_began(tour)
        self._stop_at(tour, 0)

    # on the way

    def tour_does(self, name: str) -> bool:
        """Whether an action of the registry leads along the tour that is played; if so it is done."""
        if self.playing is None or (name == "back" and (self.working or self.presenting)):
            return False
        ways = {"step.next": self.tour_on, "step.previous": self.tour_back, "back": self.leave_tour,
                "generate.branch": self.tour_enter}  # fmt: skip
        if self.presenting:  # the keys of a presenter's remote
            ways |= {"row.page_down": self.tour_on, "row.page_up": self.tour_back}
        if (way := ways.get(name)) is None:
            return False
        self.pause()
        way()
        return True

    def tour_on(self) -> None:
        """The next stop; after the last one it ends, but who presents is not thrown out of it."""
        assert self.playing is not None
        if not self.playing.last:
            self._stop_at(self.playing.tour, self.playing.at + 1)
        elif self.presenting:
            self.say(f"this is the last stop; {keymap_of(self.app).key('back')} ends the presentation")
        else:
            self.leave_tour()

    def tour_back(self) -> None:
        """The stop before."""
        assert self.playing is not None
        self._stop_at(self.playing.tour, max(0, self.playing.at - 1))

    def tour_enter(self) -> None:
        """What comes next: the words below; the answer, beside what one went to see for it; back to the stop; on."""
        assert self.playing is not None
        panel = self._panel()
        if panel is not None and panel.unread:
            panel.read_on()
        elif self.playing.asks:
            self.playing = replace(self.playing, answered=True)
            self.show_tour()
            self.call_after_refresh(self._make_room)
            if panel is not None:
                self.call_after_refresh(panel.see_answer)
        elif self.playing.away:
            self._stop_at(self.playing.tour, self.playing.at, self.playing.answered)
        else:
            self.tour_on()

    def leave_tour(self) -> None:
        """End it; one stays where one is."""
        self.playing = self.tour_file = None
        self.keeps_other = False
        if self.beside is None or self.beside.of is None:
            self.put_beside(self.beside)  # the other trace is let go
        if (panel := self._panel()) is not None:
            panel.display = False
            self.call_after_refresh(self._make_room)
        self.tour_moved()

    def on_tour_panel_clicked(self) -> None:
        """The panel was clicked."""
        if self.playing is not None:
            self.tour_enter()

    def _in_sight(self) -> None:
        """The cell that is spoken of is seen, whatever room the words took from the picture."""
        if self.alive and (picture := self.query_one(Stage).picture) is not None:
            picture.on_resize()

    def _make_room(self) -> None:
        """Lay out anew, all of it: Textual does so in part only where something was scrolled just before."""
        self.refresh(layout=True)
        self.call_after_refresh(self._in_sight)

    def _stop_at(self, tour: Tour, at: int, answered: bool = False) -> None:
        from tui.widgets.tour import Playing, TourPanel

        self.playing = None  # on the way there nothing is away
        stop = tour.stops[at]
        if self.maximised in ("tree", "why"):
            self.maximised = ""
        self.go_to_address(str(stop.address))
        self.show_view(stop.view)
        self.put_beside(self._beside_of(stop))
        if not self.query_one("#stages").display:
            self.tree_wanted = self.why_wanted = None
            self.place_panes()
        self._stop_place = self.cursor, self.view, self.beside
        self.playing = Playing(tour, at, answered)
        if (panel := self._panel()) is None:
            self.mount(TourPanel(id="tour"), before="#job")
        else:
            panel.display = True
        self.show_tour()
        self.call_after_refresh(self._make_room)
        wanted = [mark for one in tour.stops[at : at + 2] for mark in one.marks if mark.kind != "key"]
        self._in_background(lambda: self._quote(wanted), "tour")

    def _beside_of(self, stop: Stop) -> Beside | None:
        if stop.beside is None:
            return None
        try:
            return Beside.of_address(*self.here, stop.beside, self.session.other if self.keeps_other else None)
        except (KeyError, AddressError) as error:  # the trace has changed since the tour began
            self.say(str(error), "warning")
            return None

    def show_tour(self) -> None:
        """Give the panel what it draws. Where its trace is gone, the tour is over."""
        if self.playing is None or not self.alive:
            return
        if not self._is_open(self.playing.tour):
            self.leave_tour()
            return
        self.playing = replace(self.playing, away=(self.cursor, self.view, self.beside) != self._stop_place)
        if (panel := self._panel()) is not None:
            panel.show(self.playing, self._quoted, self.presenting)
        self.tour_moved()

    def _panel(self) -> TourPanel | None:
        from tui.widgets.tour import TourPanel

        return next(iter(self.query(TourPanel)), None)

    async def _quote(self, wanted: list[Mark]) -> None:
        """Ask for what is quoted and not here."""
        for mark in wanted:
            if mark in self._quoted:
                continue
            try:
                self._quoted[mark] = await self._quotation(mark)
            except (Stale, EngineGone):
                return
            except EngineError:
                self._quoted[mark] = None
            self.show_tour()

    async def _quotation(self, mark: Mark) -> Value:
        """What stands at a mark. Raises EngineError."""
        from tui.tours import token_at

        if mark.kind == "token":
            return token_at(mark.address, self.here[0])
        if mark.kind == "top":
            ranking = await self.session.ranking(self.here[0], mark.what)
            return ranking.rows[0].label if ranking.rows else None
        which: dict[str, Any] = {"trace": "other"} if mark.kind == "other" else {}
        values = (await self.client.request("window", address=mark.what, **which)).values
        return values[0] if len(values) == 1 else None

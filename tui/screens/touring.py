"""The actions of a tour: the guided walk, on and back along its stops, and leaving it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.sites import Address
from engine.views import View
from tui.actions import keymap_of
from tui.client import EngineError, EngineGone, Stale
from tui.screens.shared import Shared
from tui.state.cursor import Cursor
from tui.state.remembered import first_time, seen
from tui.widgets.stage import Stage

if TYPE_CHECKING:
    from tui.tours import Tour
    from tui.widgets.tour import Playing, TourPanel


class Touring(Shared):
    """While a tour is played the keys of next, back, Enter and Esc are its own; all others do what they always do."""

    playing: Playing | None = None
    _stop_place: tuple[Cursor | None, View | None] = (None, None)
    _quoted: dict[Address, float | None]

    # how it begins

    def do_tour(self, sure: bool = False) -> None:
        """The guided walk, from its beginning."""
        from tui.tours import TourError, first_tour

        try:
            tour = first_tour()
        except TourError as error:
            self.tell("no guided walk", str(error))
        else:
            self.play_tour(tour, sure)

    def offer_tour(self) -> None:
        """Offer the guided walk to who is here for the first time and opens no file; never again."""
        if "file" not in self.request and first_time(self.memory):
            from tui.screens.offer import OfferScreen

            seen(self.memory)
            keymap = keymap_of(self.app)
            self.app.push_screen(OfferScreen(keymap.by_id["tour"].keys, keymap.key("tour")), self._offered)

    def _offered(self, wanted: bool | None) -> None:
        if wanted:
            self.do_tour(sure=True)

    def play_tour(self, tour: Tour, sure: bool = False) -> None:
        """Walk a tour. Where something else is open it is asked whether that may go, unless one is sure."""
        if self._is_open(tour):
            self._begin(tour)
        elif self.trace is None or sure:
            self._open_for(tour)
        else:
            words = f"It opens “{tour.prompt}” in the model {tour.model}; what is open now is left and not saved."
            self.tell(tour.title, words, (("enter", "walks"), ("w", "")), lambda: self._open_for(tour))

    def _is_open(self, tour: Tour) -> bool:
        return self.trace is not None and self.request == tour.request

    def _open_for(self, tour: Tour) -> None:
        async def opening() -> None:
            await self._open(tour.request)
            if self._is_open(tour):
                self._begin(tour)

        self._in_background(opening, "open")

    def _begin(self, tour: Tour) -> None:
        assert self.trace is not None
        if wrong := tour.trouble(self.trace):
            self.tell("this tour does not fit its model", wrong)
            return
        self.one_alone()
        self._quoted = {}
        self._stop_at(tour, 0)

    # on the way

    def tour_does(self, name: str) -> bool:
        """Whether an action of the registry leads along the tour that is played; if so it is done."""
        if self.playing is None or (name == "back" and self.working):
            return False
        ways = {"step.next": self.tour_on, "step.previous": self.tour_back, "back": self.leave_tour,
                "generate.branch": self.tour_enter}  # fmt: skip
        if (way := ways.get(name)) is None:
            return False
        self.pause()
        way()
        return True

    def tour_on(self) -> None:
        """The next stop; after the last one it ends."""
        assert self.playing is not None
        if self.playing.last:
            self.leave_tour()
        else:
            self._stop_at(self.playing.tour, self.playing.at + 1)

    def tour_back(self) -> None:
        """The stop before."""
        assert self.playing is not None
        self._stop_at(self.playing.tour, max(0, self.playing.at - 1))

    def tour_enter(self) -> None:
        """What comes next: the answer, beside whatever one went to see for it; back to the stop; on."""
        assert self.playing is not None
        if self.playing.asks:
            self.playing = replace(self.playing, answered=True)
            self.show_tour()
            self.call_after_refresh(self._make_room)
        elif self.playing.away:
            self._stop_at(self.playing.tour, self.playing.at, self.playing.answered)
        else:
            self.tour_on()

    def leave_tour(self) -> None:
        """End it; one stays where one is."""
        self.playing = None
        if (panel := self._panel()) is not None:
            panel.display = False
            self.call_after_refresh(self._make_room)

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
        if not self.query_one("#stages").display:
            self.tree_wanted = self.why_wanted = None
            self.place_panes()
        self._stop_place = self.cursor, self.view
        self.playing = Playing(tour, at, answered)
        if (panel := self._panel()) is None:
            self.mount(TourPanel(id="tour"), before="#job")
        else:
            panel.display = True
        self.show_tour()
        self.call_after_refresh(self._make_room)
        wanted = [place for one in tour.stops[at : at + 2] for place in one.values]
        self._in_background(lambda: self._quote(wanted), "tour")

    def show_tour(self) -> None:
        """Give the panel what it draws. Where its trace is gone, the tour is over."""
        if self.playing is None or not self.alive:
            return
        if not self._is_open(self.playing.tour):
            self.leave_tour()
            return
        self.playing = replace(self.playing, away=(self.cursor, self.view) != self._stop_place)
        self.playing = replace(self.playing, keys=tuple(self._tour_keys(self.playing)))
        if (panel := self._panel()) is not None:
            panel.show(self.playing, self._quoted)

    def _tour_keys(self, playing: Playing) -> list[tuple[str, str]]:
        key = keymap_of(self.app).key
        on, enter = key("step.next"), key("generate.branch")
        if playing.asks:
            ways = [(enter, "answer"), (on, "next")]
        elif playing.away:
            ways = [(enter, "comes back"), (on, "next")]
        else:
            ways = [(f"{on}/{enter}", "ends" if playing.last else "next")]
        back = [(key("step.previous"), "back")] if playing.at else []
        return [*ways, *back, (key("back"), "leaves")]

    def _panel(self) -> TourPanel | None:
        from tui.widgets.tour import TourPanel

        return next(iter(self.query(TourPanel)), None)

    async def _quote(self, places: list[Address]) -> None:
        """Ask for the numbers that are quoted and not here."""
        for place in places:
            if place in self._quoted:
                continue
            try:
                values = (await self.client.request("window", address=str(place))).values
            except (Stale, EngineGone):
                return
            except EngineError:
                self._quoted[place] = None
            else:
                self._quoted[place] = values[0] if len(values) == 1 else None
            self.show_tour()

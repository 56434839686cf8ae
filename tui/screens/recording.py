"""The action that records a tour by walking: each place that is worth showing becomes a stop, with a line about it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.tours import Other, Stop, Tour, to_toml
from tui import paths
from tui.actions import keymap_of
from tui.screens.shared import Shared
from tui.state import recorded
from tui.state.naming import explained, file_of_words
from tui.state.recorded import Unrecordable

if TYPE_CHECKING:
    from tui.widgets.pick_list import Choice


class Recording(Shared):
    """``r`` records this place as the first stop; then it adds, takes one back, writes the tour or gives it up."""

    recorded: Tour | None = None
    _draft: Path | None = None
    _kept = True

    # what a person does

    def do_record(self) -> None:
        """Ask what; where nothing is recorded yet and nothing was left, this place is the first stop."""
        from tui.screens.choose import ChooseScreen

        if self.recorded is None and not self._drafts:
            self._ask_stop()
            return
        ways = {"r": self._ask_stop, "u": self._take_back, "w": self._ask_title, "x": self._ask_give_up}
        ways |= {str(n): partial(self._go_on, *draft) for n, draft in enumerate(self._drafts, 1)}
        screen = ChooseScreen(self.recording_words or "record a tour", self._ways())
        self.app.push_screen(screen, lambda key: ways[key]() if key else None)

    def _ways(self) -> list[Choice]:
        from tui.widgets.pick_list import Choice

        if self.recorded is None:
            drafts = (
                Choice(str(n), f"go on with “{tour.prompt}”", f"{len(tour.stops)} stops, left")
                for n, (_, tour) in enumerate(self._drafts, 1)
            )
            return [Choice("r", "begin with this place", "its first stop"), *drafts]
        last = self.recorded.stops[-1]
        return [
            Choice("r", "add this place", f"stop {len(self.recorded.stops) + 1}"),
            Choice("w", "write the tour to a file", "TOML"),
            Choice("u", f"take back “{last.title}”", f"stop {len(self.recorded.stops)}"),
            Choice("x", "give up the recording", ""),
        ]

    @property
    def recording_words(self) -> str:
        """What the header says of it."""
        if self.recorded is None:
            return ""
        stops = len(self.recorded.stops)
        return f"recording, {stops} stop{'s' * (stops != 1)}"

    @property
    def _drafts(self) -> list[tuple[Path, Tour]]:
        return recorded.left(self._drafts_in)[:9] if self.recorded is None else []

    @property
    def _drafts_in(self) -> Path | None:
        return self.memory.parent if self.memory is not None else None

    # a stop

    def _ask_stop(self) -> None:
        from tui.screens.stop import StopScreen

        try:
            tour, place = self._tour_here(), self._place()
        except Unrecordable as error:
            self.tell("this place cannot be recorded", str(error))
            return
        plane = self.plane
        assert plane is not None
        usual = explained(plane, None).title
        beside = f", beside it {place.beside}" if place.beside else ""

        def check(text: str) -> str:
            return recorded.trouble(recorded.said(text, place.address))

        def given(words: tuple[str, str] | None) -> None:
            if words is not None:
                title, text = words
                self._add(tour, replace(place, title=title, narration=recorded.said(text or usual, place.address)))

        heading = f"stop {len(tour.stops) + 1} of the tour that is recorded"
        words = f"{place.address} as {place.view}{beside}"
        self.app.push_screen(StopScreen(heading, words, plane.step.name, check), given)

    def _tour_here(self) -> Tour:
        """The tour that this place would be a stop of. Raises Unrecordable."""
        tour = self.recorded or recorded.begun(self.request)
        if not recorded.fits(tour, self.request):
            key = keymap_of(self.app).key("record")
            raise Unrecordable(
                f"the recording is of “{tour.prompt}” in {tour.model}, and a tour has one prompt; {key} writes it"
            )
        return tour

    def _place(self) -> Stop:
        """A stop without words: the place, the picture, and what is beside. Raises Unrecordable."""
        trace, cursor = self.here
        view, beside = self.view, self.beside_cursor()
        assert view is not None
        if self.plane is not None and self.plane.minus is not None:
            raise Unrecordable("a tour cannot show a difference yet; put the two beside each other")
        self._other_run()
        place = beside[1].address(beside[0]) if beside is not None else None
        return Stop("", cursor.address(trace), view.name, "", beside=place)

    def _other_run(self) -> Other | None:
        """The run of the other trace, where that is beside. Raises Unrecordable."""
        if self.beside is None or self.beside.of is None:
            return None
        return replace(recorded.run_of(self.other_request), generate=_generated(self.beside.of.tokens))

    def _add(self, tour: Tour, stop: Stop) -> None:
        trace, _ = self.here
        generated = _generated(trace.tokens)
        try:
            self._record(recorded.added(tour, stop, generated, self._other_run()))
        except Unrecordable as error:
            self.tell("this place cannot be recorded", str(error))
            return
        if generated and (not self.sampling.greedy or trace.branches > 1):
            self.say("a tour generates the likeliest tokens, so what was drawn here may not come again", "warning")
        key = keymap_of(self.app).key("record")
        self.say(f"stop {len(tour.stops) + 1} is recorded; {key} adds another, and writes the tour")

    def _take_back(self) -> None:
        assert self.recorded is not None
        stops = self.recorded.stops[:-1]
        self._record(replace(self.recorded, stops=stops) if stops else None)

    def _ask_give_up(self) -> None:
        words = f"{self.recording_words}: nothing of it is in a file"
        self.tell("give up the recording", words, (("x", "gives it up"),), lambda: self._record(None))

    def _go_on(self, draft: Path, tour: Tour) -> None:
        """Take up a draft that was left; what it is of is opened."""
        self._draft = draft
        self._record(tour)
        here = _generated(self.trace.tokens) if self.trace is not None else 0
        if not recorded.fits(tour, self.request) or here < tour.generate:
            self.open(tour.request)

    def _record(self, tour: Tour | None) -> None:
        """Another state of the recording; the draft follows."""
        self.recorded = tour
        if (folder := self._drafts_in) is not None:
            try:
                self._kept = True
                if tour is None:
                    recorded.forget(folder)
                else:
                    recorded.keep(folder, tour)
                if self._draft is not None:
                    recorded.forget(folder, self._draft)
                    self._draft = None
            except OSError as error:
                self._kept = False
                self.say(f"no draft of the recording can be kept: {(error.strerror or str(error)).lower()}", "warning")
        else:
            self._kept = tour is None
        self.show_all()

    # the file

    def _ask_title(self) -> None:
        from tui.screens.ask import AskScreen

        assert self.recorded is not None
        tour = self.recorded

        def given(title: str | None) -> None:
            if title is not None:
                self._record(replace(tour, title=title.strip()))
                self._ask_file(recorded.finished(tour, title.strip()))

        def check(text: str) -> str:
            return "" if text.strip() else "a tour has a title"

        words = "the title of the tour"
        self.app.push_screen(AskScreen("write the tour", words, tour.title, check), given)

    def _ask_file(self, tour: Tour) -> None:
        from tui.screens.ask import AskScreen

        def given(path: str | None) -> None:
            if path is not None:
                self._write_tour(str(paths.place(path).path), tour)

        name = f"{file_of_words(tour.title, 'tour')}.toml"
        words = "the file to write; `layerstep tour FILE` plays it"
        self.app.push_screen(AskScreen("write the tour", words, name, _no_toml), given)

    def _write_tour(self, path: str, tour: Tour, force: bool = False) -> None:
        self._in_background(lambda: self._writing(Path(path), tour, force), "save")

    async def _writing(self, path: Path, tour: Tour, force: bool) -> None:
        from tui.saving import new_file, why_not

        try:
            async with new_file(path, force) as file:
                file.write(to_toml(tour).encode())
        except FileExistsError:
            words = f"{path} exists already; choose another name, or overwrite it"
            self.tell("could not write the tour", words, (("f", "overwrites it"),),
                      lambda: self._write_tour(str(path), tour, force=True))  # fmt: skip
        except OSError as error:
            self.tell("could not write the tour", why_not(error, path))
        else:
            self._record(None)
            self.say(f"saved {path}; {keymap_of(self.app).key('tour')} plays it")

    def unkept(self) -> bool:
        """Whether there is a recording that would be lost with the app."""
        return self.recorded is not None and not self._kept

    def tell_of_drafts(self) -> None:
        """Say that a recording was left, once the app has begun."""
        if drafts := self._drafts:
            stops, key = len(drafts[0][1].stops), keymap_of(self.app).key("record")
            self.say(f"a recording of {stops} stop{'s' * (stops != 1)} was left; {key} goes on with it")


def _no_toml(text: str) -> str:
    """What is wrong with a path for a tour."""
    return paths.unwritable(text) or ("" if text.strip().endswith(".toml") else "a tour's file ends with .toml")


def _generated(tokens: tuple[tuple[object, ...], ...]) -> int:
    return sum(getattr(token, "origin", "") == "generated" for token in (tokens[0] if tokens else ()))

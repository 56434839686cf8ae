"""The actions of a presentation: full screen for a projector, the screen blanked, and word to a second terminal."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from engine.markdown import markdown
from engine.tours import filled
from tui.actions import keymap_of
from tui.screens.shared import Shared
from tui.state.presented import Presented, publish, withdraw
from tui.widgets.title_line import TitleLine

if TYPE_CHECKING:
    from engine.tours import Tour

Panes = tuple[bool | None, bool | None, str]


class Presenting(Shared):
    """``P`` leaves the picture and a tour's words on the screen; all keys do what they always do."""

    presenting = blanked = False
    _panes_before: Panes = (None, None, "")
    _tour_began = _stop_began = 0.0
    _told_stop: int | None = None
    _to_tell: Presented | None = None
    _telling = False
    _untold = ""

    # the screen

    def do_present(self) -> None:
        """Full screen, or the app as it was."""
        self.present(not self.presenting)

    def present(self, on: bool) -> None:
        """Begin to present, or end it."""
        if on == self.presenting:
            return
        self.presenting = on
        if on:
            self._panes_before = self.tree_wanted, self.why_wanted, self.maximised
            self.tree_wanted, self.why_wanted, self.maximised = False, False, ""
        else:
            self.tree_wanted, self.why_wanted, self.maximised = self._panes_before
        self.set_class(on, "-present")
        self.place_panes()
        self.show_tour()
        self.show_title()
        self.call_after_refresh(self._make_room)

    @property
    def panes_wanted(self) -> Panes:
        """Tree, explanation and the pane that is maximised, as they are wanted outside a presentation."""
        return self._panes_before if self.presenting else (self.tree_wanted, self.why_wanted, self.maximised)

    def do_present_blank(self) -> None:
        """Nothing on the screen, until a key is pressed."""
        self.blank(True)

    def blank(self, on: bool) -> None:
        """Blank the screen, or show it again."""
        self.blanked = on
        self.query_one("#blank").display = on
        self.tour_moved()

    def show_title(self) -> None:
        """The line at the top: the stop, or the step where no tour is played."""
        if not self.presenting or not self.alive:
            return
        line, playing, plane = self.query_one(TitleLine), self.playing, self.plane
        if playing is not None:
            line.show(playing.tour.title, playing.stop.title, f"{playing.at + 1}/{len(playing.tour.stops)}")
        elif plane is not None:
            line.show(plane.trace.model, plane.step.where, f"{plane.step.index + 1}/{len(plane.trace.steps)}")

    # the second terminal

    @property
    def _folder(self) -> Path | None:
        return self.memory.parent if self.memory is not None else None

    def tour_began(self, tour: Tour) -> None:
        """A tour begins: the clock of who presents it, too."""
        self._tour_began, self._told_stop = time.time(), None

    def tour_moved(self) -> None:
        """Tell what is shown now to whoever follows it; that nothing is, where no tour is played."""
        self.show_title()
        if (folder := self._folder) is None:
            return
        if self.playing is None:
            if self._told_stop is not None:
                self._told_stop = self._to_tell = None
                if not self._telling:
                    withdraw(folder, os.getpid())
            return
        if self._told_stop != self.playing.at:
            self._told_stop, self._stop_began = self.playing.at, time.time()
        if (shown := self._shown()) != self._to_tell:
            self._to_tell = shown
            if not self._telling:
                self._telling = True
                self.run_worker(self._tell(folder), group="presenting")

    def _shown(self) -> Presented:
        assert self.playing is not None
        playing, stop, keys = self.playing, self.playing.stop, keymap_of(self.app).key

        def said(text: str) -> str:
            return markdown(filled(text, self._quoted, keys))

        return Presented(
            process=os.getpid(),
            title=playing.tour.title,
            stops=len(playing.tour.stops),
            file=self.tour_file or "",
            began=self._tour_began,
            at=playing.at,
            arrived=self._stop_began,
            stop=stop.title,
            narration=said(stop.narration),
            question=said(stop.question),
            answer=said(stop.answer),
            answered=playing.answered,
            notes=said(stop.notes),
            following=playing.following.title if playing.following else "",
            blank=self.blanked,
        )

    async def _tell(self, folder: Path) -> None:
        """Write the newest, and again while something newer has come meanwhile."""
        try:
            told: Presented | None = None
            while (shown := self._to_tell) is not None and shown != told:
                await asyncio.to_thread(publish, folder, shown)
                told = shown
        except OSError as error:
            if not self._untold:
                self._untold = (error.strerror or str(error)).lower()
                self.say(f"the notes on another terminal cannot follow: {self._untold}", "warning")
        finally:
            self._telling = False
            if self._to_tell is None:
                withdraw(folder, os.getpid())

    def end_presenting(self) -> None:
        """The app ends, and so does whatever it presents."""
        self._to_tell = None
        if self._told_stop is not None and (folder := self._folder) is not None:
            withdraw(folder, os.getpid())

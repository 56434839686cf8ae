"""The engine's coming and going, and which trace is open."""

from __future__ import annotations

import asyncio
from typing import Any

from engine.sites import Address
from tui.actions import keymap_of
from tui.client import EngineError, EngineGone, Stale
from tui.screens.shared import Shared
from tui.state.cursor import carry, goto
from tui.state.trace import Trace
from tui.widgets.job import Job, JobLine
from tui.widgets.plane import PlaneView
from tui.widgets.stage import Stage
from tui.wire import Header

FIRST_KEYS = (("trace.prompt", "prompt"), ("trace.open", "open"), ("trace.model", "model"), ("quit", "quit"))


class Running(Shared):
    """Opens traces, stops what runs, and says why there is none."""

    async def begin(self) -> None:
        """Attach to the engine and open what was asked for: a tour, or a trace."""
        await self.client.attach(self._engine_says)
        self.tell_of_drafts()
        if self.starts_with is not None:
            self.play_file(self.starts_with, sure=True)
        else:
            self.open(self.request)

    def open(self, request: dict[str, Any]) -> None:
        """Open a prompt or a file; what ran for another one stops."""
        self._in_background(lambda: self._open(request), "open")

    async def _open(self, request: dict[str, Any]) -> None:
        await self.changes_ended()
        what = "opening" if "file" in request else "recording the pass"
        self._work(Job(what if self.client.state == "ready" else f"starting the engine, then {what}"))
        try:
            trace = await self.session.open(
                lambda done, total, step: self._work(Job(what, done, total, step)), **request
            )
        except Stale:
            return
        except EngineGone as gone:
            self._failed_first(str(gone))
            return
        except EngineError as error:
            if self.trace is not None:
                self.start_address = ""  # it was of what could not be opened
            self._failed_first(str(error))
            self._ask_again()
            if error.kind != "Cancelled":
                self.tell("could not open", str(error))
            return
        except asyncio.CancelledError:
            prompt, file, models = map(keymap_of(self.app).key, ("trace.prompt", "trace.open", "trace.model"))
            words = f"press {prompt} for a prompt, {file} to open a trace, {models} for the models"
            self._failed_first(f"cancelled; {words}")
            self._ask_again()
            raise
        finally:
            self._work(None)
        self.request = request
        self._arrived(trace)

    def _arrived(self, trace: Trace) -> None:
        cursor = carry(self.trace, self.cursor, trace)
        newcomer = self.trace is None and not self.start_address and self.starts_with is None
        if self.trace is None and self._refused:
            self.app.clear_notifications()  # what was refused is done from now on
        self.trace, self.cursor, self.note, self._asked = trace, cursor, "", {}
        self.trouble = self.trouble_beside = ""
        first = not any(view.has_focus for view in self.query(PlaneView))
        if self.start_address:
            text, self.start_address = self.start_address, ""
            self.go_to_address(text)
        self.show_all()
        if first and self.focused is None:
            self.call_after_refresh(self.focus_picture)
        for notice in trace.notices:
            self.say(notice, "warning")
        if newcomer:
            self.offer_tour()

    def go_to_address(self, text: str) -> str:
        """Move to an address; what is wrong with it, or ''."""
        wrong = self.address_trouble(text)
        if not wrong and self.trace is not None and self.cursor is not None:
            self.move_to(goto(self.trace, self.cursor, Address.parse(text)))
        elif wrong:
            self.say(wrong, "warning")
        return wrong

    def address_trouble(self, text: str) -> str:
        """What is wrong with an address in this trace, in one line; '' where nothing is."""
        if self.trace is None or self.cursor is None:
            return "there is no trace yet"
        try:
            goto(self.trace, self.cursor, Address.parse(text))
        except KeyError as error:
            return f"this trace has no site {error.args[0]!r}; press {keymap_of(self.app).key('find.site')} to find one"
        except Exception as error:  # an address is typed by hand: whatever is wrong is said
            return str(error)
        return ""

    def _ask_again(self) -> None:
        """What was asked for the trace that stays was dropped when another one was to be opened."""
        self._asked = {}
        if self.alive and self.trace is not None:
            if (picture := self.query_one(Stage).picture) is not None:
                picture.retry()
            self.show_all()

    def _failed_first(self, message: str) -> None:
        if self.trace is None and self.alive:
            keymap = keymap_of(self.app)
            keys = [f"{keymap.key(name)} {words}" for name, words in FIRST_KEYS]
            self.query_one(Stage).greet("no trace", *message.split("\n")[:3], " · ".join(keys))
            self.show_all()

    def _engine_says(self, header: Header) -> None:
        if header["event"] == "gone":
            self._work(None)
            self._asked = {}
            self._failed_first("the engine is not running")
            self.tell_gone(str(header.get("message", "the engine ended")))
        elif header["event"] == "moved" and self.trace is not None:
            self.open(self.request)  # what is shown must be what is asked about
        self.show_all()

    async def restart(self) -> None:
        """Start another engine and open the same again. What was opened beside is gone with the old one."""
        await self.client.restart()
        self._asked = {}
        if self.session.other is not None:
            self.session.other = None
            if self.beside is not None and self.beside.of is not None:
                self.one_alone()
                self.say(f"{keymap_of(self.app).key('beside.choose')} opens again what was beside")
        self.open(self.request)

    @property
    def working(self) -> bool:
        """Whether something runs that Esc can stop."""
        return self.query_one(JobLine).job is not None or self.changing

    def stop_work(self) -> None:
        """Cancel what runs."""
        for lane in ("open", "open beside", "window", "window beside", "save"):
            self.workers.cancel_group(self, lane)
        self.stop_changes()

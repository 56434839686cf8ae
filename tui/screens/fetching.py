"""What the main screen asks the engine for. Workers never touch a widget: they end in ``show_all``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.sites import Address
from tui.client import EngineClient, EngineError, EngineGone, Stale
from tui.session import Session
from tui.state.answers import Check, Ranking
from tui.state.cursor import Cursor, carry, goto
from tui.state.sampling import Sampling
from tui.state.trace import Trace
from tui.state.views import Plane, views_of
from tui.widgets.job import Job, JobLine
from tui.widgets.plane import PlaneView
from tui.widgets.stage import Stage
from tui.wire import Header

if TYPE_CHECKING:
    from textual.screen import Screen

    _Base = Screen[None]
else:
    _Base = object

REST = 0.06
"""Seconds that the cursor rests on a step before its checks are asked for."""


class Fetching(_Base):
    """Opening, windows, rankings, checks, and the engine's coming and going."""

    client: EngineClient
    session: Session
    request: dict[str, str]
    start_address: str
    trace: Trace | None
    cursor: Cursor | None
    trouble: str
    note: str
    sampling: Sampling
    _asked: dict[str, object]
    faults: list[Exception]

    if TYPE_CHECKING:

        @property
        def plane(self) -> Plane | None: ...
        @property
        def alive(self) -> bool: ...
        def show_all(self) -> None: ...
        def say(self, text: str, severity: str = "information") -> None: ...
        def tell(self, title: str, message: str) -> None: ...
        def tell_gone(self, message: str) -> None: ...
        def focus_picture(self) -> None: ...
        @property
        def changing(self) -> bool: ...
        def stop_changes(self) -> None: ...
        async def changes_ended(self) -> None: ...

    # the engine and the trace

    async def begin(self) -> None:
        """Attach to the engine and open what was asked for."""
        await self.client.attach(self._engine_says)
        self.open(self.request)

    def open(self, request: dict[str, str]) -> None:
        """Open a prompt or a file; what ran for another one stops."""
        self._in_background(lambda: self._open(request), "open")

    async def _open(self, request: dict[str, str]) -> None:
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
            self._failed_first(str(error))
            self._ask_again()
            if error.kind != "Cancelled":
                self.tell("could not open", str(error))
            return
        except asyncio.CancelledError:
            self._failed_first("cancelled; press p for a prompt, o to open a trace, m for the models")
            self._ask_again()
            raise
        finally:
            self._work(None)
        self.request = request
        self._arrived(trace)

    def _arrived(self, trace: Trace) -> None:
        cursor = carry(self.trace, self.cursor, trace)
        self.trace, self.cursor, self.trouble, self.note, self._asked = trace, cursor, "", "", {}
        first = not any(view.has_focus for view in self.query(PlaneView))
        if self.start_address:
            text, self.start_address = self.start_address, ""
            self.go_to_address(text)
        self.show_all()
        if first and self.focused is None:
            self.call_after_refresh(self.focus_picture)
        for notice in trace.notices:
            self.say(notice, "warning")

    def go_to_address(self, text: str) -> str:
        """Move to an address; what is wrong with it, or ''."""
        wrong = self.address_trouble(text)
        if not wrong and self.trace is not None and self.cursor is not None:
            self.cursor = goto(self.trace, self.cursor, Address.parse(text))
            self.show_all()
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
            return f"this trace has no site {error.args[0]!r}; press / to find one"
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
            self.query_one(Stage).greet("no trace", *message.split("\n")[:3], "p prompt · o open · m model · q quit")
            self.show_all()

    def _engine_says(self, header: Header) -> None:
        if header["event"] == "gone":
            self._work(None)
            self._asked = {}
            self._failed_first("the engine is not running")
            self.tell_gone(str(header.get("message", "the engine ended")))
        self.show_all()

    async def restart(self) -> None:
        """Start another engine and open the same again."""
        await self.client.restart()
        self._asked = {}
        self.open(self.request)

    # what is looked at

    def fetch(self, plane: Plane, rows: tuple[int, int], cols: tuple[int, int]) -> None:
        """Ask for a window; only the newest one matters."""
        self._in_background(lambda: self._fetch(plane, rows, cols), "window")

    async def _fetch(self, plane: Plane, rows: tuple[int, int], cols: tuple[int, int]) -> None:
        try:
            await self.session.block(plane, rows, cols)
        except (Stale, EngineGone):
            return
        except EngineError as error:
            self.trouble = str(error)
        if self.plane is not None and self.plane.key == plane.key:
            self.show_all()

    def named(self, plane: Plane) -> Plane:
        """The plane with the expert's number where the cursor is on one that a router chose."""
        step, trace = plane.step, plane.trace
        chosen = trace.by_site.get(f"{step.site.rpartition('.')[0]}.expert_indices")
        if self.cursor is None or chosen is None or chosen.site == step.site or "choice" not in step.axes:
            return plane
        there = replace(self.cursor, step=chosen.index)
        indices = Plane.of(trace, there, views_of(chosen)[0])
        (row, col), block = indices.cell(there), self.session.known(indices)
        expert = block.value(row, col) if block else None
        if expert is not None:
            return replace(plane, names=(("choice", f"expert {expert:.0f}"),))
        rows, cols = (row, row + 1), (col, col + 1)
        if self._first_time("expert", (indices.key, row, col)):
            self._in_background(lambda: self._ask(lambda: self.session.block(indices, rows, cols)), "expert")
        return plane

    def next_token(self) -> Ranking | None:
        """What comes after the cursor's token, or what an encoder would put there; None while that is not here."""
        if self.trace is None or self.cursor is None or not (address := self.following(self.trace, self.cursor)):
            return Ranking()
        return self._ranking(address, "top")

    def following(self, trace: Trace, cursor: Cursor) -> str:
        """Where the candidates after the cursor's token are ranked; '' where nothing is predicted."""
        if "logits" not in trace.by_site:
            return ""
        logits = replace(cursor, step=trace.by_site["logits"].index)
        return str(logits.address(trace).with_index(v=None))

    def ranking_here(self, plane: Plane) -> Ranking | None:
        """The ranking that a ranked picture shows."""
        if plane.view.kind != "ranked":
            return None
        return self._ranking(self.candidates(plane), "rank")

    def candidates(self, plane: Plane) -> str:
        """Where the candidates of a ranked picture are ranked."""
        return str(Address.parse(plane.address((0, 0), (0, 0))).with_index(v=None))

    def ranked_ids(self) -> list[int]:
        """The ids of the ranking that is shown, best first."""
        plane = self.plane
        ranking = self.ranking_here(plane) if plane else None
        return [row.id for row in ranking.rows] if ranking else []

    @property
    def scoring(self) -> dict[str, Any]:
        """How candidates are scored where a next token is chosen."""
        return self.sampling.scoring if self.trace and self.trace.predicts == "next token" else {}

    def candidate_here(self) -> int | None:
        """The id of the token that the cursor is on in a picture of the vocabulary."""
        plane, cursor = self.plane, self.cursor
        if plane is None or cursor is None or "d_vocab" not in plane.step.axes:
            return None
        if plane.view.kind != "ranked":
            return cursor.index(plane.trace, "d_vocab")
        ids = self.ranked_ids()
        return cursor.vocab if cursor.vocab in ids else next(iter(ids), None)

    def _ranking(self, address: str, lane: str) -> Ranking | None:
        scoring = self.scoring
        known = self.session.ranking_known(address, **scoring)
        if known is None and self._first_time(lane, (address, scoring)):
            self._in_background(lambda: self._ask(lambda: self.session.ranking(address, **scoring)), lane)
        return known

    def checks_here(self, plane: Plane) -> tuple[Check, ...] | None:
        """The checks of a step, in the pass that is looked at; None while they are not here."""
        site, at = plane.step.site, plane.at if len(plane.trace.passes) > 1 else None
        known = self.session.checks_known(site, at)
        if known is None and self._first_time("checks", (site, at)):
            self._in_background(lambda: self._ask(lambda: self.session.checks(site, at), REST), "checks")
        return known

    async def _ask(self, question: Callable[[], Awaitable[object]], rest: float = 0.0) -> None:
        try:
            if rest:
                await asyncio.sleep(rest)
            await question()
        except (Stale, EngineGone):
            return
        except EngineError as error:
            self.trouble = str(error)
        self.show_all()

    def _first_time(self, lane: str, what: object) -> bool:
        if self.client.state == "gone" or self._asked.get(lane) == what or self.trace is not self.session.trace:
            return False  # in the last case another trace is about to be drawn
        self._asked[lane] = what
        return True

    def _in_background(self, work: Callable[[], Awaitable[None]], lane: str) -> None:
        """Run ``work`` in its lane; what ran there before is cancelled."""

        async def run() -> None:
            try:
                await work()
            except Exception as fault:  # a mistake of ours is a dialog too, never a dead app
                self.faults.append(fault)
                self.tell("a fault in layerstep, please report it", f"{type(fault).__name__}: {fault}")

        self.run_worker(run, name=lane, group=lane, exclusive=True)  # type: ignore[arg-type]

    def _work(self, job: Job | None) -> None:
        if self.alive:
            self.query_one(JobLine).show(job)

    @property
    def working(self) -> bool:
        """Whether something runs that Esc can stop."""
        return self.query_one(JobLine).job is not None or self.changing

    def stop_work(self) -> None:
        """Cancel what runs."""
        self.workers.cancel_group(self, "open")
        self.workers.cancel_group(self, "save")
        self.stop_changes()

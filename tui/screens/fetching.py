"""What the main screen asks the engine for. Workers never touch a widget: they end in ``show_all``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from engine.sites import Address
from tui.actions import keymap_of
from tui.client import EngineClient, EngineError, EngineGone, Stale
from tui.session import Session
from tui.state.answers import Check, Ranking
from tui.state.cursor import Cursor, carry, goto
from tui.state.looks import Chain, Look
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

FIRST_KEYS = (("trace.prompt", "prompt"), ("trace.open", "open"), ("trace.model", "model"), ("quit", "quit"))
PATIENCE = 0.25
"""Seconds that the numbers of a picture may take before the line of long work appears."""
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
        def plane_beside(self) -> Plane | None: ...
        @property
        def alive(self) -> bool: ...
        def show_all(self) -> None: ...
        def say(self, text: str, severity: str = "information") -> None: ...
        def tell(self, title: str, message: str) -> None: ...
        def tell_gone(self, message: str) -> None: ...
        def focus_picture(self) -> None: ...
        def offer_tour(self) -> None: ...
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
        newcomer = self.trace is None and not self.start_address
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
        if newcomer:
            self.offer_tour()

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
        self.show_all()

    async def restart(self) -> None:
        """Start another engine and open the same again."""
        await self.client.restart()
        self._asked = {}
        self.open(self.request)

    # what is looked at

    def fetch(self, plane: Plane, rows: tuple[int, int], cols: tuple[int, int]) -> None:
        """Ask for a window; only the newest one of a picture matters."""
        other = self.plane_beside
        lane = "window beside" if other is not None and other.key == plane.key else "window"
        self._in_background(lambda: self._fetch(plane, rows, cols), lane)

    async def _fetch(self, plane: Plane, rows: tuple[int, int], cols: tuple[int, int]) -> None:
        began = monotonic()
        shown: Job | None = None

        def watch(done: int, total: int, what: str) -> None:
            nonlocal shown
            if monotonic() - began > PATIENCE and self.query_one(JobLine).job == shown:
                shown = Job(f"deriving {plane.view.name}", done, total, what)
                self._work(shown)

        try:
            await self.session.block(plane, rows, cols, watch)
        except (Stale, EngineGone):
            return
        except EngineError as error:
            self.trouble = str(error)
        except asyncio.CancelledError:
            if shown is not None and self.alive:
                self.trouble = "cancelled; v and V ask again"
                self.show_all()
            raise
        finally:
            if shown is not None and self.alive and self.query_one(JobLine).job == shown:
                self._work(None)
        if any(shown is not None and shown.key == plane.key for shown in (self.plane, self.plane_beside)):
            self.show_all()

    def told(self, plane: Plane) -> Look | None:
        """What the engine derived for a picture, where it is here."""
        block = self.session.known(plane)
        return block.told if block else None

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
        return self._ranking(self.trace, address, "top")

    def following(self, trace: Trace, cursor: Cursor) -> str:
        """Where the candidates after the cursor's token are ranked; '' where nothing is predicted."""
        if "logits" not in trace.by_site:
            return ""
        logits = replace(cursor, step=trace.by_site["logits"].index)
        return str(logits.address(trace).with_index(v=None))

    def ranking_here(self, plane: Plane) -> Ranking | None:
        """The ranking that a ranked picture at the cursor shows."""
        return self.ranking_of(plane, "rank")

    def ranking_of(self, plane: Plane, lane: str) -> Ranking | None:
        """The ranking that a ranked picture shows."""
        return self._ranking(plane.trace, self.candidates(plane), lane) if plane.view.kind == "ranked" else None

    def chain_at(self, plane: Plane, cursor: Cursor) -> Chain | None:
        """The way of the cell at a cursor from its score to its weight, empty where it has none; None: not here yet."""
        axes = plane.step.axes
        if plane.view.look or plane.view.over or plane.minus or not ({"query", "src_query"} & set(axes)):
            return Chain()
        of, address = plane.trace, str(cursor.address(plane.trace))
        known = self.session.chain_known(of, address)
        lane = "chain" if of is self.trace and cursor == self.cursor else "chain beside"
        if known is None and self._first_time(lane, (of.run, address)):
            self._in_background(lambda: self._ask(lambda: self.session.chain(of, address)), lane)
        return known

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

    def _ranking(self, of: Trace, address: str, lane: str) -> Ranking | None:
        scoring = self.scoring
        known = self.session.ranking_known(of, address, **scoring)
        if known is None and self._first_time(lane, (of.run, address, scoring)):
            self._in_background(lambda: self._ask(lambda: self.session.ranking(of, address, **scoring)), lane)
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
        for lane in ("open", "open beside", "window", "window beside"):
            self.workers.cancel_group(self, lane)
        self.workers.cancel_group(self, "save")
        self.stop_changes()

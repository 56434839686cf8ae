"""What the main screen asks about the place that is looked at. Workers touch no widget: they end in ``show_all``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from engine.sites import QUERIES, Address
from tui.actions import keymap_of
from tui.client import EngineError, EngineGone, Stale
from tui.screens.shared import Shared
from tui.state.answers import Check, Ranking
from tui.state.cursor import Cursor
from tui.state.looks import Chain, Look
from tui.state.trace import Trace
from tui.state.views import Plane, views_of
from tui.widgets.job import Job, JobLine

PATIENCE = 0.25
"""Seconds that the numbers of a picture may take before the line of long work appears."""
REST = 0.06
"""Seconds that the cursor rests on a step before its checks are asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A window on its way."""

    plane: tuple[object, ...]
    rows: tuple[int, int]
    cols: tuple[int, int]

    def holds(self, rows: tuple[int, int], cols: tuple[int, int]) -> bool:
        """Whether the cells of a half-open range are all in it."""
        spans = ((self.rows, rows), (self.cols, cols))
        return all(mine[0] <= span[0] and span[1] <= mine[1] for mine, span in spans)


class Fetching(Shared):
    """Windows, rankings, chains and checks; each is asked for once, in a lane of its own."""

    # what is looked at

    def _lane(self, name: str, plane: Plane) -> str:
        """The lane of a question about a picture: one for the second picture does not end one for the first."""
        other = self.plane_beside
        return f"{name} beside" if other is not None and other.key == plane.key else name

    def fetch(self, plane: Plane, rows: tuple[int, int], cols: tuple[int, int]) -> None:
        """Ask for a window; only the newest one of a picture matters, unless what is on its way will do.

        The line of long work takes room from the picture: a window asked anew for that would never be there.
        """
        lane = self._lane("window", plane)
        rows, cols = plane.window(rows, cols)
        known = self._asked.get(lane)
        if isinstance(known, Asked) and known.plane == plane.key and known.holds(rows, cols):
            return
        self._asked[lane] = mine = Asked(plane.key, rows, cols)
        self._in_background(lambda: self._fetch(plane, mine, lane), lane)

    async def _fetch(self, plane: Plane, asked: Asked, lane: str) -> None:
        began = monotonic()
        shown: Job | None = None

        def watch(done: int, total: int, what: str) -> None:
            nonlocal shown
            if monotonic() - began > PATIENCE and self.alive and self.query_one(JobLine).job == shown:
                shown = Job(f"deriving {plane.view.name}", done, total, what)
                self._work(shown)

        slow = self.set_timer(1.1 * PATIENCE, lambda: watch(0, 0, ""))  # where the engine does not say how far it is
        try:
            await self.session.block(plane, asked.rows, asked.cols, watch)
        except (Stale, EngineGone):
            return
        except EngineError as error:
            self._complain(plane, str(error))
        except asyncio.CancelledError:
            newest = self._asked.get(lane) is asked  # it did not give way to another one, which is on its way
            if shown is not None and self.alive and newest:
                key = keymap_of(self.app).key
                self._complain(plane, f"cancelled; {key('view.next')} and {key('view.previous')} ask again")
                self.show_all()
            raise
        finally:
            slow.stop()
            if self._asked.get(lane) is asked:
                del self._asked[lane]
            if shown is not None and self.alive and self.query_one(JobLine).job == shown:
                self._work(None)
        if any(shown is not None and shown.key == plane.key for shown in (self.plane, self.plane_beside)):
            self.show_all()

    def _complain(self, plane: Plane, words: str) -> None:
        """Why a picture is not here, unless another one is looked at by now."""
        if (shown := self.plane) is not None and shown.key == plane.key:
            self.trouble = words
        elif (other := self.plane_beside) is not None and other.key == plane.key:
            self.trouble_beside = words

    def told(self, plane: Plane) -> Look | None:
        """What the engine derived for a picture, where it is here."""
        block = self.session.known(plane)
        return block.told if block else None

    def named(self, plane: Plane, cursor: Cursor) -> Plane:
        """The plane with the expert's number where its cursor is on one that a router chose."""
        step, trace = plane.step, plane.trace
        chosen = trace.by_site.get(f"{step.site.rpartition('.')[0]}.expert_indices")
        if chosen is None or chosen.site == step.site or "choice" not in step.axes:
            return plane
        there = replace(cursor, step=chosen.index)
        indices = Plane.of(trace, there, views_of(chosen)[0])
        (row, col), block = indices.cell(there), self.session.known(indices)
        expert = block.value(row, col) if block else None
        if expert is not None:
            return replace(plane, names=(("choice", f"expert {expert:.0f}"),))
        self._ask_cell(self._lane("expert", plane), indices, row, col)
        return plane

    def value_at(self, plane: Plane, cursor: Cursor) -> float | None:
        """The value at a cursor for a picture that has no cell for it; None while that is not here."""
        if plane.view.kind != "histogram":
            return None
        cells = Plane.of(plane.trace, cursor, views_of(plane.step)[0])
        (row, col), block = cells.cell(cursor), self.session.known(cells)
        value = block.value(row, col) if block else None
        if value is None:
            self._ask_cell(self._lane("value", plane), cells, row, col)
        return value

    def _ask_cell(self, lane: str, plane: Plane, row: int, col: int) -> None:
        """Ask for a cell of a picture that is not drawn."""
        if self._first_time(lane, (plane.key, row, col)):
            rows, cols = plane.window((row, row + 1), (col, col + 1))
            self._in_background(lambda: self._ask(lambda: self.session.block(plane, rows, cols)), lane)

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

    def ranking_of(self, plane: Plane) -> Ranking | None:
        """The ranking that a ranked picture shows."""
        if plane.view.kind != "ranked":
            return None
        return self._ranking(plane.trace, self.candidates(plane), self._lane("rank", plane))

    def chain_at(self, plane: Plane, cursor: Cursor) -> Chain | None:
        """The way of the cell at a cursor from its score to its weight, empty where it has none; None: not here yet."""
        axes = plane.step.axes
        if plane.view.look or plane.view.over or plane.minus or not set(QUERIES) & set(axes):
            return Chain()
        of, address = plane.trace, str(cursor.address(plane.trace))
        known = self.session.chain_known(of, address)
        if known is None and self._first_time(lane := self._lane("chain", plane), (of.run, address)):
            self._in_background(lambda: self._ask(lambda: self.session.chain(of, address)), lane)
        return known

    def candidates(self, plane: Plane) -> str:
        """Where the candidates of a ranked picture are ranked."""
        return str(Address.parse(plane.address((0, 0), (0, 0))).with_index(v=None))

    def ranked_ids(self, plane: Plane | None = None) -> list[int]:
        """The ids of the ranking that is shown, best first; of that in ``plane``."""
        plane = plane or self.plane
        ranking = self.ranking_of(plane) if plane else None
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

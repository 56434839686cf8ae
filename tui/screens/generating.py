"""The actions that make the trace longer, shorter or another one, and those that move along its passes.

Changes of the trace are done one after the other, however fast keys come; Esc ends the one under way and drops those
that wait. What a change made is drawn together with its numbers, so that a picture grows and does not flicker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tui.actions import keymap_of
from tui.client import EngineError, EngineGone, Stale
from tui.screens.shared import Shared
from tui.state.answers import Generated, Ranking
from tui.state.cursor import Cursor, follow
from tui.state.sampling import Sampling
from tui.state.trace import Trace
from tui.state.views import Plane
from tui.widgets.job import Job
from tui.widgets.stage import Stage
from tui.widgets.timeline import Timeline

PATIENCE = 0.3
"""Seconds that a change may take before the line of long work appears, and that its numbers are waited for."""
CHANGES = {
    "generate": ("generating", "generate"),
    "branch": ("taking that token", "take that token"),
    "crop": ("going back", "go back"),
    "switch": ("switching", "switch"),
}
"""What the engine is asked for, in words."""


@dataclass(slots=True)
class Run:
    """A change under way. ``many``: a run of tokens; ``text`` is what it wrote so far."""

    work: Callable[[Run], Awaitable[object]]
    many: bool = False
    stopped: bool = False
    done: int = 0
    text: str = ""


@dataclass(slots=True)
class Changes:
    """The change under way and those that wait."""

    waiting: deque[Run] = field(default_factory=deque)
    now: Run | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Generating(Shared):
    """``g`` a token, ``G`` a run, Enter another candidate, Backspace a pass back, ``u`` the branches."""

    changes: Changes

    # what a person does

    def do_generate_token(self) -> None:
        """One token more."""
        self._end_run()
        self._queue(Run(lambda run: self._generate(run, 1)))

    def do_generate_run(self) -> None:
        """Token after token; while that goes on, the end of it."""
        if not self._end_run():
            self._queue(Run(lambda run: self._generate(run, self.sampling.tokens), many=True))

    def do_generate_branch(self) -> None:
        """The candidate at the cursor as the next token of its position; a small picture to full size."""
        trace, cursor = self.here
        plane, token = self.plane, self.candidate_here()
        if plane is not None and plane.view.kind == "thumbs":
            self.open_tile(plane, plane.cell(cursor)[0])
            return
        if plane is None or token is None:
            key = keymap_of(self.app).key("generate.branch")
            self.say(f"at logits or probs, {key} takes the candidate at the cursor as the next token")
            return
        pos = plane.step.first("pos") + cursor.index(trace, "pos") + 1
        line = trace.line(cursor.batch)
        if pos < len(line) and line[pos].id == token:
            self.say(f"the text goes on with {line[pos].label} already")
            return
        self._end_run()
        self._queue(Run(lambda run: self._change(run, "branch", pos=pos, id=token)))

    def do_generate_back(self) -> None:
        """Without the last pass."""
        self._end_run()
        self._queue(Run(self._back))

    def do_generate_branches(self) -> None:
        """The branches as a tree."""
        self._in_background(self._ask_branches, "branches")

    def do_generate_sampling(self) -> None:
        """How tokens are chosen."""
        from tui.screens.sampling import SamplingScreen

        before = self.sampling

        def given(sampling: Sampling | None) -> None:
            self._sample(sampling or before)
            self.note = self.note if sampling is None else ""

        tried = self._sample if self.lists_candidates else None
        self.app.push_screen(SamplingScreen(before, self.session.check_sampling, self.seed, tried), given)

    def _sample(self, sampling: Sampling) -> None:
        """Choose tokens like that; what is listed shows it."""
        self.sampling = sampling
        self.show_all()

    def do_pass_next(self) -> None:
        """The next pass, after the last one all of them together."""
        self._along_passes(1)

    def do_pass_previous(self) -> None:
        """The pass before."""
        self._along_passes(-1)

    def _along_passes(self, by: int) -> None:
        trace, cursor = self.here
        if len(trace.passes) == 1:
            key = keymap_of(self.app).key("generate.token")
            more = f"; {key} adds one of one token" if trace.predicts == "next token" else ""
            self.say(f"there is one pass{more}")
        self.move_to(cursor.pass_by(trace, by))

    def on_timeline_picked(self, event: Timeline.Picked) -> None:
        """A pass was clicked."""
        trace, cursor = self.here
        self.move_to(cursor.in_pass(trace, event.at))

    async def _ask_branches(self) -> None:
        from tui.screens.branches import BranchScreen

        try:
            current, rows = await self.session.branches()
        except (Stale, EngineGone):
            return
        except EngineError as error:
            self.tell("branches", str(error))
            return

        def chosen(branch: int | None) -> None:
            if branch is not None and branch != current:
                self._end_run()
                self._queue(Run(lambda run: self._change(run, "switch", branch=branch)))

        self.app.push_screen(BranchScreen(current, rows), chosen)

    # one change after the other

    @property
    def changing(self) -> bool:
        """Whether the trace is being changed."""
        return self.changes.now is not None

    def stop_changes(self) -> None:
        """End what is under way and drop what waits. What was generated stays."""
        self.changes.waiting.clear()
        if (run := self.changes.now) is not None and not run.stopped:
            run.stopped = True
            self._work(Job("stopping after this token" if run.many else "stopping", ends=""))
            self.client.hasten()

    async def changes_ended(self) -> None:
        """End what is under way, and wait until it has."""
        self.stop_changes()
        if self.changing:
            await self.changes.ended.wait()

    def _end_run(self) -> bool:
        """End a run of many tokens, so that what is asked for now comes next; whether there was one."""
        run = self.changes.now
        if run is None or not run.many or run.stopped:
            return False
        run.stopped = True
        self.client.hasten()
        return True

    def _queue(self, run: Run) -> None:
        self.changes.waiting.append(run)
        if not self.changing:
            self.changes.now = run
            self.changes.ended.clear()
            self._in_background(self._work_off, "change")

    async def _work_off(self) -> None:
        changes = self.changes
        try:
            while changes.waiting:
                changes.now = changes.waiting.popleft()
                await changes.now.work(changes.now)
        finally:
            changes.waiting.clear()
            changes.now = None
            changes.ended.set()
            self._work(None)

    async def _generate(self, run: Run, count: int) -> None:
        while run.done < count and not run.stopped:
            made = await self._change(run, "generate", n=1, **self.sampling.params)
            if made is None:
                return
            run.done += made.count
            run.text += made.text
            if made.stopped not in ("", "cancelled", "length"):
                self._remark(f"stopped: {made.why}")
            if made.stopped or not made.count:
                return

    def _remark(self, note: str) -> None:
        """Say something of the passes, beside them; in a notice where there is one pass."""
        self.note = note
        self.show_all()
        if not self.query_one(Timeline).display:
            self.say(note)

    @property
    def chosen_how(self) -> str:
        """How tokens are chosen, in a few characters, with the seed that was drawn."""
        drawn = self.seed is not None and self.sampling.seed is None and not self.sampling.greedy
        return f"{self.sampling.words} seed {self.seed}" if drawn else self.sampling.words

    async def _back(self, run: Run) -> None:
        trace, _ = self.here
        if len(trace.passes) == 1:
            self.say(f"this is the first pass; {keymap_of(self.app).key('trace.prompt')} changes the prompt")
        else:
            await self._change(run, "crop", n=trace.passes[-1].start)

    async def _change(self, run: Run, method: str, **params: Any) -> Generated | None:
        """Ask for another trace, and draw it once it is here with its numbers; None where there is none."""
        if self.client.state == "gone":
            key = keymap_of(self.app).key("engine.restart")
            self.say(f"the engine is not running; press {key} to start it again", "warning")
            return None
        title, verb = CHANGES[method]
        slow = self.set_timer(PATIENCE, lambda: self._report(run, title))
        if run.many:
            slow.stop()
            self._report(run, title)
        try:
            trace, made = await self.session.change(method, **params)
        except (Stale, EngineGone):
            return None
        except EngineError as error:
            if error.kind != "Cancelled":
                self.changes.waiting.clear()  # it would say the same again
                self.tell(f"stopped after {run.done} tokens" if run.done else f"could not {verb}", str(error))
            return None
        finally:
            slow.stop()
        self.seed = self.seed if made.seed is None else made.seed
        await self._renew(trace, stays=method == "generate" and (not made.count or (run.done > 0 and self._looks_back)))
        return made

    def _report(self, run: Run, title: str) -> None:
        if run is self.changes.now and not run.stopped:
            total = self.sampling.tokens if run.many else 0
            self._work(Job(title, run.done, total, run.text, tail=True, ends="stops"))

    @property
    def _looks_back(self) -> bool:
        """Whether the cursor was moved away from the end: then a run goes on behind it."""
        trace, cursor = self.here
        return cursor.pos < len(trace.line(cursor.batch)) - 1

    async def _renew(self, trace: Trace, stays: bool) -> None:
        """Another trace of the same prompt."""
        old = self.trace

        def place() -> Cursor:
            was, cursor = self.here
            if not stays:
                return follow(was, cursor, trace)
            return replace(cursor, at=trace.usual_at) if len(was.passes) == 1 else cursor

        await self._fetch_ahead(trace, place())
        self.cursor = place()  # from where it is by now
        self.trace, self.note, self._asked = trace, "", {}
        self.trouble = self.trouble_beside = ""
        self.show_all()
        for notice in trace.notices:
            if old is None or notice not in old.notices:
                self.say(notice, "warning")

    async def _fetch_ahead(self, trace: Trace, cursor: Cursor) -> None:
        """Get what will be drawn of a trace that is not drawn yet."""
        plane = Plane.of(trace, cursor, self.view_of(trace, cursor))
        questions: list[Awaitable[Ranking | object]] = []
        if plane.view.kind == "ranked":
            questions.append(self.session.ranking(trace, self.candidates(plane), **self.scoring))
        else:
            questions.append(self.session.block(plane, *plane.window(*self._about(plane, cursor))))
        if following := self.following(trace, cursor):
            questions.append(self.session.ranking(trace, following, **self.scoring))
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*questions, return_exceptions=True)

    def _about(self, plane: Plane, cursor: Cursor) -> tuple[tuple[int, int], tuple[int, int]]:
        """As many rows and columns around the cursor as the picture shows now."""
        picture = self.query_one(Stage).picture
        spans = picture.seen() if picture is not None and picture.plane is not None else ((0, 1), (0, 1))
        if plane.view.kind == "thumbs":
            return spans
        (rows, cols), cell = plane.size, plane.cell(cursor)
        return _around(spans[0], cell[0], rows), _around(spans[1], cell[1], cols)


def _around(span: tuple[int, int], at: int, size: int) -> tuple[int, int]:
    """A range as long as ``span`` that holds ``at``, moved as little as can be, inside ``size``."""
    length = max(1, span[1] - span[0])
    start = max(at - length + 1, min(span[0], at))
    return max(0, min(start, size - length)), min(size, max(0, min(start, size - length)) + length)

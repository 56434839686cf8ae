"""The actions for two things side by side: what is beside, and the difference of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tui.actions import keymap_of
from tui.client import EngineError, EngineGone, Stale
from tui.screens.shared import Shared
from tui.state.beside import Beside, subtracts, usual
from tui.state.cursor import Cursor
from tui.state.naming import name_of
from tui.state.trace import Trace
from tui.state.views import Plane
from tui.widgets.job import Job
from tui.widgets.pick_list import Choice
from tui.widgets.stage import Stage


class Comparing(Shared):
    """``d`` shows a second picture, then the difference, then one again; ``D`` chooses; ``f`` flips the sides."""

    other_request: dict[str, Any]

    @property
    def two_stages(self) -> bool:
        """Whether there are two pictures."""
        return self.beside is not None and (not self.difference or (self.plane is not None and not self.plane.minus))

    @property
    def beside_seen(self) -> bool:
        """Whether the second picture is to be seen."""
        return self.two_stages and self.maximised != "stage"

    def beside_cursor(self) -> tuple[Trace, Cursor] | None:
        """The place of what is beside, and its trace."""
        if self.beside is None or self.trace is None or self.cursor is None:
            return None
        if self.beside.of is not None and self.beside.of is not self.session.other:
            return None
        return self.beside.cursor(self.trace, self.cursor)

    def against(self, plane: Plane) -> str:
        """What the picture at the cursor is called beside another one; of a difference, what is taken from it."""
        place = self.beside_cursor()
        if place is None or self.beside is None:
            return ""
        trace, cursor = self.here
        if plane.minus is not None:
            return self.beside.words(trace, cursor)
        sides = self.beside.flipped(trace, cursor)
        return sides[0].words(*place) if sides else self._name_of_other(trace)

    def _name_of_other(self, trace: Trace) -> str:
        other = self.beside.of if self.beside else None
        return trace.prompt if other is None else name_of(trace, other)

    def show_beside(self, plane: Plane) -> None:
        """Draw the second picture, or say why there is none."""
        stage = self.query_one("#beside", Stage)
        if stage.display != self.beside_seen:
            self.place_panes()
        if not self.beside_seen or self.beside is None:
            return
        trace, cursor = self.here
        words = self.beside.words(trace, cursor)
        other, place = self.plane_beside, self.beside_cursor()
        if other is None or place is None or other.key == plane.key:
            key = keymap_of(self.app).key
            stage.titled(words)
            ways = f"{key('beside.choose')} chooses another · {key('beside')} one alone"
            stage.greet(words, "has no such picture" if other is None else "is the same here", ways)
            return
        other = self.named(other, place[1])
        block = self.session.known(other) if other.view.kind != "ranked" else None
        ranking, chain, value = self.ranking_of(other), self.chain_at(other, place[1]), self.value_at(other, place[1])
        missing = ranking.trouble if ranking else self.trouble_beside if block is None else ""
        stage.show(
            other, place[1], block, ranking, self.drawing, missing=missing, chain=chain, against=words, value=value
        )

    # what a person does

    def do_beside(self) -> None:
        """A second picture, the difference, one alone."""
        trace, cursor = self.here
        plane, other = self.plane, self.plane_beside
        if self.beside is None:
            if (beside := usual(trace, cursor)) is None:
                self.do_beside_choose()
            else:
                self.put_beside(beside)
        elif not self.difference and plane and other and other.key != plane.key and subtracts(plane.view):
            self.difference = True
            self.place_panes()
        else:
            self.one_alone()

    def one_alone(self) -> None:
        """Nothing beside any more."""
        self.put_beside(None)

    def put_beside(self, beside: Beside | None) -> None:
        """Something else beside; another trace that is not looked at any more is let go."""
        self.beside, self.difference = beside, False
        self.maximised = "" if beside else self.maximised
        wanted = self.keeps_other or (beside is not None and beside.of is not None)
        if self.session.other is not None and not wanted:
            self._in_background(self.session.close_other, "close beside")
        self.place_panes()

    def do_beside_flip(self) -> None:
        """What is beside takes the cursor, and the other way round."""
        trace, cursor = self.here
        sides = self.beside.flipped(trace, cursor) if self.beside else None
        if sides is None:
            key = keymap_of(self.app).key("beside")
            none = f"two sides of one trace can be flipped; {key} puts a head or a layer beside"
            self.say("the two sides are two traces, and stay where they are" if self.beside else none)
            return
        self.beside = sides[0]
        self.move_to(sides[1])
        self.show_all()

    def do_beside_choose(self) -> None:
        from tui.screens.finder import FinderScreen, starting

        choices = _choices(*self.here)

        def matches(text: str) -> Sequence[Choice]:
            return starting(choices, text)

        self.app.push_screen(FinderScreen("what is beside", matches, "head 3, layer 2, prompt …"), self._beside_chosen)

    def _beside_chosen(self, choice: Choice | None) -> None:
        kind, _, value = choice.value.partition(" ") if choice else ("", "", "")
        if kind in ("head", "block", "at"):
            places = {kind: int(value)}
            self.put_beside(Beside(None, places.get("head"), places.get("block"), places.get("at")))
        elif kind == "prompt":
            self._ask_prompt_beside()
        elif kind == "model":
            self.ask_model("another model beside", self._open_beside)
        elif kind == "file":
            self.ask_file("a saved trace beside", "", self._open_beside)

    def _ask_prompt_beside(self) -> None:
        from tui.screens.ask import AskScreen

        def given(text: str | None) -> None:
            if text is not None:
                self._open_beside(self.recording(text))

        if self.has_model("a prompt beside needs one"):
            screen = AskScreen("another prompt beside", "for the same model", self.prompt_asked())
            self.app.push_screen(screen, given)

    def _open_beside(self, request: dict[str, Any]) -> None:
        self._in_background(lambda: self._opening_beside(request), "open beside")

    async def _opening_beside(self, request: dict[str, Any]) -> None:
        if (other := await self.opened_beside(request)) is not None:
            self.put_beside(Beside(of=other))

    async def opened_beside(self, request: dict[str, Any]) -> Trace | None:
        """Open a second trace; None where it could not be opened, which is said."""
        await self.changes_ended()  # each of them would make the answer stale
        what = "opening what is beside"
        self._work(Job(what))
        try:
            other = await self.session.open_other(
                lambda done, total, step: self._work(Job(what, done, total, step)), **request
            )
        except EngineGone:
            return None
        except Stale:
            self.say(f"what was opened beside is given up: {Stale()}")
            return None
        except EngineError as error:
            if error.kind != "Cancelled":
                self.tell("could not open what is beside", str(error))
            return None
        finally:
            self._work(None)
            self.show_all()  # what was beside may be gone
        self.other_request = request
        return other


def _choices(trace: Trace, cursor: Cursor) -> list[Choice]:
    """What can be beside."""
    step = trace.steps[cursor.step]
    found = [Choice(f"head {n}", f"head {n}", "of this layer") for n in range(trace.heads(step)) if n != cursor.head]
    layers = trace.blocks_with(step.inner) if step.block is not None else ()
    found += [Choice(f"block {n}", f"layer {n}", step.inner) for n in layers if n != step.block]
    if len(trace.passes) > 1:
        found += [Choice(f"at {n}", f"pass @{n}", "of this text") for n in range(len(trace.passes)) if n != cursor.at]
    return [
        *found,
        Choice("prompt", "another prompt …", "for the same model"),
        Choice("model", "another model …", "for the same prompt"),
        Choice("file", "a saved trace …", "from a file"),
    ]

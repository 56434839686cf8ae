"""The actions for two things side by side: what is beside, and the difference of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from engine.views import HEAD_AXES
from tui.actions import keymap_of
from tui.client import EngineError, EngineGone, Stale
from tui.session import Session
from tui.state.answers import Ranking
from tui.state.beside import Beside, usual
from tui.state.cursor import Cursor
from tui.state.drawing import Drawing
from tui.state.looks import Chain
from tui.state.trace import Trace
from tui.state.views import Plane
from tui.widgets.job import Job
from tui.widgets.stage import Stage

if TYPE_CHECKING:
    from textual.screen import Screen

    from tui.widgets.pick_list import Choice

    _Base = Screen[None]
else:
    _Base = object


class Comparing(_Base):
    """``d`` shows a second picture, then the difference, then one again; ``D`` chooses; ``f`` flips the sides."""

    session: Session
    trace: Trace | None
    cursor: Cursor | None
    beside: Beside | None
    difference: bool
    maximised: str

    if TYPE_CHECKING:

        @property
        def here(self) -> tuple[Trace, Cursor]: ...
        @property
        def plane(self) -> Plane | None: ...
        @property
        def plane_beside(self) -> Plane | None: ...
        @property
        def drawing(self) -> Drawing: ...
        def show_all(self) -> None: ...
        def place_panes(self, width: int | None = None) -> None: ...
        def say(self, text: str, severity: str = "information") -> None: ...
        def tell(
            self, title: str, message: str, choices: tuple[tuple[str, str], ...] = (), then: object = None
        ) -> None: ...
        def move_to(self, cursor: Cursor) -> None: ...
        def named(self, plane: Plane) -> Plane: ...
        def ranking_of(self, plane: Plane, lane: str) -> Ranking | None: ...
        def chain_at(self, plane: Plane, cursor: Cursor) -> Chain | None: ...
        def _in_background(self, work: Callable[[], Awaitable[None]], lane: str) -> None: ...
        def _work(self, job: Job | None) -> None: ...
        def _model(self) -> dict[str, str]: ...
        def _chat(self) -> dict[str, str]: ...
        def _prompt(self) -> str: ...

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
        return trace.model if other is not None and other.model != trace.model else trace.prompt

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
        if other is None or place is None:
            key = keymap_of(self.app).key
            stage.titled(words)
            ways = f"{key('beside.choose')} chooses another · {key('beside')} one alone"
            stage.greet(words, "has no such picture", ways)
            return
        other = self.named(other)
        block = self.session.known(other) if other.view.kind != "ranked" else None
        ranking = self.ranking_of(other, "rank beside")
        stage.show(other, place[1], block, ranking, self.drawing, chain=self.chain_at(other, place[1]), against=words)

    # what a person does

    def do_beside(self) -> None:
        """A second picture, the difference, one alone."""
        trace, cursor = self.here
        if self.beside is None:
            if (other := usual(trace, cursor)) is None:
                self.do_beside_choose()
                return
            self._put_beside(other)
        elif not self.difference and self.plane_beside is not None and not self.plane_beside.view.look:
            self.difference = True
            self.place_panes()
        else:
            self.one_alone()

    def one_alone(self) -> None:
        """Nothing beside any more."""
        self.beside, self.difference = None, False
        self.place_panes()

    def _put_beside(self, other: Beside) -> None:
        self.beside, self.difference, self.maximised = other, False, ""
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
        from tui.screens.finder import FinderScreen
        from tui.widgets.pick_list import Choice

        trace, cursor = self.here
        choices = [Choice(value, text, note) for value, text, note in _choices(trace, cursor)]

        def matches(text: str) -> Sequence[Choice]:
            words = text.casefold().split()
            return [one for one in choices if all(word in f"{one.text} {one.note}".casefold() for word in words)]

        self.app.push_screen(FinderScreen("what is beside", matches, "head 3, layer 2, prompt …"), self._beside_chosen)

    def _beside_chosen(self, choice: Choice | None) -> None:
        if choice is None:
            return
        kind, _, value = choice.value.partition(" ")
        if kind in ("head", "block", "at"):
            places = {kind: int(value)}
            self._put_beside(Beside(None, places.get("head"), places.get("block"), places.get("at")))
        elif kind == "model":
            self._in_background(self._ask_model_beside, "models")
        else:
            self._ask_beside(kind)

    def _ask_beside(self, kind: str) -> None:
        from tui.screens.ask import AskScreen
        from tui.screens.asking import file_at, file_trouble

        if kind == "prompt":
            if not self._model():
                self.tell("no model", "a trace file holds no model, and a prompt needs one; choose a model beside")
                return
            screen = AskScreen("another prompt beside", "for the same model", self._prompt())
            self.app.push_screen(
                screen,
                lambda text: (
                    self._open_beside({"prompt": text} | self._model() | self._chat()) if text is not None else None
                ),
            )
        else:
            screen = AskScreen(
                "a saved trace beside", "the path of a saved trace", "", file_trouble, "lecture.trace.safetensors"
            )
            self.app.push_screen(
                screen, lambda path: self._open_beside({"file": file_at(path)}) if path is not None else None
            )

    async def _ask_model_beside(self) -> None:
        from tui.screens.finder import FinderScreen
        from tui.widgets.pick_list import Choice

        models = await self.session.models()
        choices = [Choice(model["name"], model["name"], model["text"]) for model in models]

        def matches(text: str) -> Sequence[Choice]:
            found = [one for one in choices if text.casefold() in f"{one.text} {one.note}".casefold()]
            return found or ([Choice(text.strip(), text, "a folder, a GGUF file or a hub id")] if text.strip() else [])

        def chosen(choice: Choice | None) -> None:
            if choice is not None:
                self._open_beside({"model": choice.value, "prompt": self._prompt()} | self._chat())

        self.app.push_screen(FinderScreen("another model beside", matches, "a name, a folder, a hub id"), chosen)

    def _open_beside(self, request: dict[str, str]) -> None:
        self._in_background(lambda: self._opening_beside(request), "open beside")

    async def _opening_beside(self, request: dict[str, str]) -> None:
        what = "opening what is beside"
        self._work(Job(what))
        try:
            other = await self.session.open_other(
                lambda done, total, step: self._work(Job(what, done, total, step)), **request
            )
        except (Stale, EngineGone):
            return
        except EngineError as error:
            if error.kind != "Cancelled":
                self.tell("could not open what is beside", str(error))
            return
        finally:
            self._work(None)
        self._put_beside(Beside(of=other))


def _choices(trace: Trace, cursor: Cursor) -> list[tuple[str, str, str]]:
    """What can be beside: value, words, note."""
    step = trace.steps[cursor.step]
    heads = int(trace.config.get("n_heads") or 1) if any(axis in step.axes for axis in HEAD_AXES[:2]) else 0
    found = [(f"head {n}", f"head {n}", "of this layer") for n in range(heads) if n != cursor.head]
    layers = trace.blocks_with(step.inner) if step.block is not None else ()
    found += [(f"block {n}", f"layer {n}", step.inner) for n in layers if n != step.block]
    if len(trace.passes) > 1:
        found += [(f"at {n}", f"pass @{n}", "of this text") for n in range(len(trace.passes)) if n != cursor.at]
    return [
        *found,
        ("prompt", "another prompt …", "for the same model"),
        ("model", "another model …", "for the same prompt"),
        ("file", "a saved trace …", "from a file"),
    ]

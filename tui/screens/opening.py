"""The actions that open another trace, and save the one at hand: prompt, target, file, model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tui import paths
from tui.actions import keymap_of
from tui.client import EngineError
from tui.screens.shared import Shared
from tui.state.naming import file_of_words
from tui.state.numbers import size

if TYPE_CHECKING:
    from tui.widgets.pick_list import Choice

Then = Callable[[dict[str, str]], None]
"""What becomes of a request that was asked for."""


class Opening(Shared):
    """Dialogs are imported when they are first opened."""

    # prompt and target

    def do_trace_prompt(self) -> None:
        from tui.screens.ask import AskScreen

        if self.has_model("a prompt needs one"):
            model = self.trace.model if self.trace else self.request["model"]
            key = keymap_of(self.app).key
            words = f"for the model {model}" + (
                f", with the target {target} ({key('trace.target')} changes it)" if (target := self._target()) else ""
            )
            self.app.push_screen(AskScreen("new prompt", words, self.prompt_asked()), self._prompted)

    def _prompted(self, prompt: str | None) -> None:
        if prompt is not None:
            self.open(self.recording(prompt))

    def do_trace_target(self) -> None:
        from tui.screens.ask import AskScreen

        assert self.trace is not None
        if not self.trace.source_tokens:
            self.say(f"{self.trace.model} is no encoder-decoder, so it has no target", "warning")
        elif self.has_model("a target needs one"):
            words = "what the decoder has written so far; nothing is its start token alone"
            self.app.push_screen(AskScreen("target", words, self._target()), self._target_given)

    def _target_given(self, target: str | None) -> None:
        if target is not None:
            self.open(self.recording(self.prompt_asked(), target))

    def recording(self, prompt: str, target: str | None = None) -> dict[str, str]:
        """What is asked for to run the same model again; with the same target where none is given."""
        target = self._target() if target is None else target
        return self._model() | self._chat() | ({"target": target} if target else {}) | {"prompt": prompt}

    def _target(self) -> str:
        """What the decoder beside an encoder was given."""
        if self.trace is None or not self.trace.source_tokens:
            return ""
        return str(self.request.get("target", self.trace.target))

    def prompt_asked(self) -> str:
        """What was typed last: not what a chat template made of it, nor what was generated after it."""
        return str(self.request.get("prompt", self.trace.prompt if self.trace else ""))

    def _chat(self) -> dict[str, str]:
        """A chat stays one when the prompt or the model is another."""
        return {"chat": "yes"} if self.request.get("chat") else {}

    def _model(self) -> dict[str, str]:
        """The model that was asked for. A trace file has only a name, and others may have the same."""
        asked = ("model", "allow_pickle") if "model" in self.request else ()
        return {key: self.request[key] for key in asked if key in self.request}

    def has_model(self, why: str) -> bool:
        """Whether there is a model to run; where there is none it says so."""
        if not self._model():
            keymap = keymap_of(self.app)
            words = f"a trace file holds no model, and {why}; choose one with {keymap.key('trace.model')}"
            choices = tuple((key, "chooses one") for key in keymap.by_id["trace.model"].keys[:1])
            self.tell("no model", words, choices, self.do_trace_model)
        return bool(self._model())

    # files

    def do_trace_open(self) -> None:
        self.ask_file("open", self.request.get("file", ""), self.open)

    def ask_file(self, title: str, value: str, then: Then) -> None:
        """Ask for a saved trace."""
        from tui.screens.ask import AskScreen

        def given(path: str | None) -> None:
            if path is not None:
                then({"file": str(paths.place(path).path)})

        words = "the path of a saved trace"
        self.app.push_screen(AskScreen(title, words, value, paths.unreadable, "lecture.trace.safetensors"), given)

    def do_trace_save(self) -> None:
        from tui.screens.ask import AskScreen

        words = "one safetensors file; it opens without the model too"
        name = file_of_words(self.trace.prompt if self.trace else "", "pass") + ".trace.safetensors"
        self.app.push_screen(AskScreen("save this trace", words, name, paths.unwritable), self._save_to)

    def _save_to(self, path: str | None, force: bool = False) -> None:
        if path is not None:
            self._in_background(lambda: self._save(str(paths.place(path).path), force), "save")

    async def _save(self, path: str, force: bool) -> None:
        from tui.widgets.job import Job

        self._work(Job("saving", what=path))
        try:
            written, length = await self.session.save(path, force)
        except EngineError as error:
            if not force and paths.place(path).kind == "file":
                words = f"{path} exists already; choose another name, or overwrite it"
                self.tell("could not save", words, (("f", "overwrites it"),), lambda: self._save_to(path, force=True))
            else:
                self.tell("could not save", str(error))
        else:
            self.say(f"saved {written} ({size(length)})")
        finally:
            self._work(None)

    # models

    def do_trace_model(self) -> None:
        self.ask_model("model", self._model_given)

    def _model_given(self, request: dict[str, str]) -> None:
        if self._target():
            key = keymap_of(self.app).key("trace.target")
            self.say(f"the target was that of the other model; {key} gives this one its own")
        self.open(request)

    def ask_model(self, title: str, then: Then) -> None:
        """Ask for another model for the same prompt."""
        self._in_background(lambda: self._ask_model(title, then), "models")

    async def _ask_model(self, title: str, then: Then) -> None:
        from tui.screens.finder import FinderScreen, matching
        from tui.widgets.pick_list import Choice

        try:
            models = await self.session.models()
        except EngineError as error:
            self.tell("models", str(error))
            return
        choices = [Choice(model["name"], model["name"], model["text"]) for model in models]

        def matches(text: str) -> Sequence[Choice]:
            typed = [Choice(paths.at_home(text), text, paths.model_kind(text))] if text.strip() else []
            return matching(choices, text) or typed

        def chosen(choice: Choice | None) -> None:
            if choice is not None:
                then({"model": choice.value, "prompt": self.prompt_asked()} | self._chat())

        words = "a name, a folder, a GGUF file or a hub id"
        self.app.push_screen(FinderScreen(title, matches, words, self._model().get("model", "")), chosen)

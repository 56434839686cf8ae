"""The actions that ask something first: prompt, file, model, site, address, save, help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING

from tui.actions import keymap_of
from tui.client import EngineClient, EngineError
from tui.session import Session
from tui.state.cursor import Cursor, sites_like
from tui.state.numbers import size
from tui.state.trace import Step, Trace
from tui.text import foreign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.screen import Screen

    from tui.state.beside import Beside
    from tui.widgets.job import Job
    from tui.widgets.pick_list import Choice

    _Base = Screen[None]
else:
    _Base = object


HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]*/)?\w[\w.-]*(@\S+)?", re.ASCII)
"""``owner/name``, the old ones ``name``, perhaps of one revision."""


class Asking(_Base):
    """Dialogs are imported when they are first opened."""

    client: EngineClient
    session: Session
    request: dict[str, str]
    trace: Trace | None
    cursor: Cursor | None
    maximised: str
    beside: Beside | None

    if TYPE_CHECKING:

        @property
        def working(self) -> bool: ...
        def one_alone(self) -> None: ...
        def open(self, request: dict[str, str]) -> None: ...
        def say(self, text: str, severity: str = "information") -> None: ...
        def action_do(self, name: str) -> None: ...
        def go_to_step(self, step: int) -> None: ...
        def go_to_address(self, text: str) -> str: ...
        def address_trouble(self, text: str) -> str: ...
        async def restart(self) -> None: ...
        def stop_work(self) -> None: ...
        def do_pane_maximise(self) -> None: ...
        def _in_background(self, work: Callable[[], Awaitable[None]], lane: str) -> None: ...
        def _work(self, job: Job | None) -> None: ...

    # the trace

    def do_trace_prompt(self) -> None:
        from tui.screens.ask import AskScreen

        if self._has_model("a prompt needs one"):
            model = self.trace.model if self.trace else self.request["model"]
            key = keymap_of(self.app).key
            words = f"for the model {model}" + (
                f", with the target {target} ({key('trace.target')} changes it)" if (target := self._target()) else ""
            )
            self.app.push_screen(AskScreen("new prompt", words, self._prompt()), self._prompted)

    def _prompted(self, prompt: str | None) -> None:
        if prompt is not None:
            self._record(prompt, self._target())

    def do_trace_target(self) -> None:
        from tui.screens.ask import AskScreen

        assert self.trace is not None
        if not self.trace.source_tokens:
            self.say(f"{self.trace.model} is no encoder-decoder, so it has no target", "warning")
        elif self._has_model("a target needs one"):
            words = "what the decoder has written so far; nothing is its start token alone"
            self.app.push_screen(AskScreen("target", words, self._target()), self._target_given)

    def _target_given(self, target: str | None) -> None:
        if target is not None:
            self._record(self._prompt(), target)

    def _record(self, prompt: str, target: str) -> None:
        """Run the same model again."""
        self.open(self._model() | self._chat() | ({"target": target} if target else {}) | {"prompt": prompt})

    def _target(self) -> str:
        """What the decoder beside an encoder was given."""
        if self.trace is None or not self.trace.source_tokens:
            return ""
        return str(self.request.get("target", self.trace.target))

    def _prompt(self) -> str:
        """What was typed last: not what a chat template made of it, nor what was generated after it."""
        return str(self.request.get("prompt", self.trace.prompt if self.trace else ""))

    def _chat(self) -> dict[str, str]:
        """A chat stays one when the prompt or the model is another."""
        return {"chat": "yes"} if self.request.get("chat") else {}

    def _model(self) -> dict[str, str]:
        """The model that was asked for. A trace file has only a name, and others may have the same."""
        asked = ("model", "allow_pickle") if "model" in self.request else ()
        return {key: self.request[key] for key in asked if key in self.request}

    def _has_model(self, why: str) -> bool:
        """Whether there is a model to run; where there is none it says so."""
        if not self._model():
            keymap = keymap_of(self.app)
            words = f"a trace file holds no model, and {why}; choose one with {keymap.key('trace.model')}"
            choices = tuple((key, "chooses one") for key in keymap.by_id["trace.model"].keys[:1])
            self.tell("no model", words, choices, self.do_trace_model)
        return bool(self._model())

    def do_trace_open(self) -> None:
        from tui.screens.ask import AskScreen

        value = self.request.get("file", "")
        words = "the path of a saved trace"
        self.app.push_screen(
            AskScreen("open", words, value, file_trouble, "lecture.trace.safetensors"), self._file_chosen
        )

    def _file_chosen(self, path: str | None) -> None:
        if path is not None:
            self.open({"file": file_at(path)})

    def do_trace_model(self) -> None:
        self._in_background(self._ask_model, "models")

    async def _ask_model(self) -> None:
        from tui.screens.finder import FinderScreen
        from tui.widgets.pick_list import Choice

        try:
            models = await self.session.models()
        except EngineError as error:
            self.tell("models", str(error))
            return
        choices = [Choice(model["name"], model["name"], model["text"]) for model in models]

        def matches(text: str) -> Sequence[Choice]:
            words = text.casefold().split()
            found = [
                choice for choice in choices if all(word in f"{choice.text} {choice.note}".casefold() for word in words)
            ]
            return found or ([Choice(_at_home(text), text, _model_kind(text))] if text.strip() else [])

        screen = FinderScreen(
            "model", matches, "a name, a folder, a GGUF file or a hub id", self._model().get("model", "")
        )
        self.app.push_screen(screen, self._model_chosen)

    def _model_chosen(self, choice: Choice | None) -> None:
        if choice is not None:
            if self._target():
                key = keymap_of(self.app).key("trace.target")
                self.say(f"the target was that of the other model; {key} gives this one its own")
            self.open({"model": choice.value, "prompt": self._prompt()} | self._chat())

    def do_trace_save(self) -> None:
        from tui.screens.ask import AskScreen

        words = "one safetensors file; it opens without the model too"
        self.app.push_screen(AskScreen("save this trace", words, _file_name(self.trace), _place_trouble), self._save_to)

    def _save_to(self, path: str | None, force: bool = False) -> None:
        if path is not None:
            self._in_background(lambda: self._save(_path(path)[0], force), "save")

    async def _save(self, path: Path, force: bool) -> None:
        from tui.widgets.job import Job

        self._work(Job("saving", what=str(path)))
        try:
            written, length = await self.session.save(str(path), force)
        except EngineError as error:
            if not force and _path(str(path))[1] == "file":
                words = f"{path} exists already; choose another name, or overwrite it"
                self.tell(
                    "could not save", words, (("f", "overwrites it"),), lambda: self._save_to(str(path), force=True)
                )
            else:
                self.tell("could not save", str(error))
        else:
            self.say(f"saved {written} ({size(length)})")
        finally:
            self._work(None)

    # finding

    def do_find_site(self) -> None:
        self._find("find a step", actions=False)

    def do_find_any(self) -> None:
        self._find("go to, or do", actions=True)

    def _find(self, title: str, actions: bool) -> None:
        from tui.screens.finder import FinderScreen
        from tui.widgets.pick_list import Choice

        able = [
            action
            for action in keymap_of(self.app).actions
            if actions and not action.id.startswith("find.any") and (self.trace or not action.needs_trace)
        ]

        def matches(text: str) -> Sequence[Choice]:
            words = text.casefold().split()
            steps = sites_like(self.trace, words) if self.trace else []
            steps.sort(key=lambda step: not step.site.casefold().endswith(words[-1]) if words else False)
            found = [Choice(f"step {step.index}", step.site, _step_note(step)) for step in steps]
            found += [
                Choice(f"do {action.id}", action.label, action.shown_keys)
                for action in able
                if all(word in f"{action.label} {action.help}".casefold() for word in words)
            ]
            if "[" in text or not found:
                found = [Choice(f"address {text}", text, "address"), *found]
            return found

        start = f"step {self.cursor.step}" if self.cursor else ""
        placeholder = "pattern, mlp 2, resid …" if not actions else "a step or an action"
        self.app.push_screen(FinderScreen(title, matches, placeholder, start), self._found)

    def _found(self, choice: Choice | None) -> None:
        if choice is None:
            return
        kind, _, value = choice.value.partition(" ")
        if kind == "step":
            self.go_to_step(int(value))
        elif kind == "do":
            self.action_do(value)
        else:
            self.go_to_address(value)

    def do_find_address(self) -> None:
        from tui.screens.ask import AskScreen

        assert self.trace is not None
        assert self.cursor is not None
        here = str(self.cursor.address(self.trace))
        self.app.push_screen(
            AskScreen("go to an address", "site[axis=index,…]@pass", here, self.address_trouble), self._address_given
        )

    def _address_given(self, text: str | None) -> None:
        if text is not None:
            self.go_to_address(text)

    # the app

    def do_trace_about(self) -> None:
        from tui.screens.about import AboutScreen

        if self.trace is not None:
            self.app.push_screen(AboutScreen(self.trace))

    def do_engine_restart(self) -> None:
        if self.client.state == "gone":
            self._in_background(self.restart, "restart")
        else:
            self.say("the engine is running")

    def do_back(self) -> None:
        if self.working:
            self.stop_work()
        elif self.maximised:
            self.do_pane_maximise()
        elif self.beside is not None:
            self.one_alone()

    def do_quit(self) -> None:
        self.app.exit()

    def tell(self, title: str, message: str, choices: tuple[tuple[str, str], ...] = (), then: object = None) -> None:
        """A dialog with one line."""
        from tui.screens.notice import NoticeScreen

        def done(key: str | None) -> None:
            if key is not None and callable(then):
                then()

        self.app.push_screen(NoticeScreen(title, message, choices), done)

    def tell_gone(self, message: str) -> None:
        """The engine ended; the app goes on."""
        keys = keymap_of(self.app).by_id["engine.restart"].keys[:1]
        self.tell("the engine ended", message, tuple((key, "starts it again") for key in keys), self.do_engine_restart)


def _path(text: str) -> tuple[Path, str, str]:
    """A typed path, what is there (file, folder, other, nothing), and what is wrong with it, in one line, or ''."""
    typed = text.strip()
    path = Path(typed)
    try:
        path = path.expanduser()
        mode = path.stat().st_mode
    except FileNotFoundError:
        return path, "nothing", ""
    except OSError as error:
        return path, "nothing", f"{_shown(typed)}: {(error.strerror or str(error)).lower()}"
    except RuntimeError:  # expanduser
        return path, "nothing", f"{_shown(typed)}: there is no such user"
    except ValueError as error:
        return path, "nothing", f"that is no path: {error}"
    return path, "file" if S_ISREG(mode) else "folder" if S_ISDIR(mode) else "other", ""


def file_at(text: str) -> str:
    """A typed path as the engine is given it."""
    return str(_path(text)[0])


def _at_home(text: str) -> str:
    """A typed path with ``~`` spelled out. Else as it was typed: ``./modern`` is not the sample ``modern``."""
    return str(_path(text)[0]) if text.startswith("~") else text


def _model_kind(text: str) -> str:
    """What a typed model is, in words: a place on the disk comes before an id of the hub."""
    typed = text.strip()
    kind = "nothing" if (found := _path(typed))[2] else found[1]
    gguf = typed.lower().endswith(".gguf")
    if kind != "nothing":
        return (
            "a folder" if kind == "folder" else "a GGUF file" if gguf else "no model: neither a folder nor a GGUF file"
        )
    if HUB_ID.fullmatch(typed) and not gguf:
        return "from the hub"
    return "no such file" if gguf else "no such folder"


def file_trouble(text: str) -> str:
    """Why a typed path cannot be opened; '' where it can."""
    _, kind, wrong = _path(text)
    return wrong or _not_a_file(text, kind) or (f"there is no file {_shown(text)}" if kind == "nothing" else "")


def _place_trouble(text: str) -> str:
    """Why a typed path is no place for a file; '' where it may be one."""
    _, kind, wrong = _path(text)
    return wrong or _not_a_file(text, kind)


def _not_a_file(text: str, kind: str) -> str:
    if not text.strip():
        return "write a path"
    what = {"folder": "a folder", "other": "no ordinary file"}.get(kind)
    return f"{_shown(text)} is {what}" if what else ""


def _shown(text: str) -> str:
    text = text.strip()
    return foreign(text if len(text) <= 80 else f"{text[:60]} …")


def _file_name(trace: Trace | None) -> str:
    words = "".join(
        char if char.isalnum() and char.isascii() else " " for char in (trace.prompt if trace else "")[:80]
    ).split()[:5]
    return "-".join(word.lower() for word in words or ["pass"]) + ".trace.safetensors"


def _step_note(step: Step) -> str:
    return f"{step.title}  {'●' if step.on_path else '○'}"

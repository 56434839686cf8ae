"""The actions that ask where to go, and those of the app: site, address, palette, what the engine said, quit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui.actions import keymap_of
from tui.screens.shared import Shared
from tui.state.cursor import sites_like
from tui.state.trace import Step

if TYPE_CHECKING:
    from tui.widgets.pick_list import Choice


class Asking(Shared):
    """Dialogs are imported when they are first opened."""

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
        elif self.presenting:
            self.present(False)
        elif self.maximised:
            self.do_pane_maximise()
        elif self.beside is not None:
            self.one_alone()

    def do_quit(self) -> None:
        if self.unkept():
            words = "the tour that is recorded is in no file, and no draft of it can be kept"
            self.tell("quit", words, (("q", "quits"),), self.app.exit)
        else:
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


def _step_note(step: Step) -> str:
    return f"{step.title}  {'●' if step.on_path else '○'}"

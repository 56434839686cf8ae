"""The settings that count, the file they are from, and a file to begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding

from tui.actions import BY_ID, CACHE_ACTIONS, keymap_of
from tui.keys import printed
from tui.screens.dialog import Box, Dialog
from tui.screens.help import HelpLines
from tui.settings import Settings
from tui.settings_file import write_default
from tui.text import cells, fit, foreign
from tui.widgets.lines import wrap

USUAL = BY_ID | {action.id: action for action in CACHE_ACTIONS}


class SettingsLines(HelpLines):
    """The text, scrollable."""

    def __init__(self, settings: Settings, memory: Path | None) -> None:
        super().__init__()
        self._settings, self._memory = settings, memory
        self.said = ""
        self.wrong = False

    def tell(self, words: str, wrong: bool = False) -> None:
        """Say what became of the file."""
        self.said, self.wrong = words, wrong
        self.on_resize()

    def _write(self) -> Iterator[list[Segment]]:
        inks, settings = self.inks, self._settings
        yield [Segment(" File", inks.strong)]
        yield from self._told(str(settings.path) if settings.path else "none counts here")
        there = settings.path is not None and settings.path.exists()
        if self.said:
            yield from self._told(self.said, wrong=self.wrong)
        elif settings.path is not None:
            none = "there is none yet; w writes one, with everything in it as it is"
            yield from self._told("read when the app starts" if there else none)
        yield []
        yield [Segment(" What is set", inks.strong)]
        theme = self.app.theme.removeprefix("layerstep-")
        usual = settings.theme.removeprefix("layerstep-")
        rows = (
            ("theme", usual + ("" if theme == usual else f", for now {theme}")),
            ("cells", settings.cells),
            ("scale", settings.scale),
            ("pace", f"{settings.pace:g} s a step"),
            ("cell_width", str(settings.cell_width or "what the numbers need")),
            ("mouse", "the app's" if settings.mouse else "the terminal's"),
            ("restore", "the last session at each start" if settings.restore else "only when asked for"),
        )
        for name, words in rows:
            yield [Segment(f"   {fit(name, 12)}", inks.muted), Segment(words, inks.text)]
        yield []
        yield [Segment(" Keys of your own", inks.strong)]
        if not settings.keys:
            yield from self._told("none")
        for name in settings.keys:
            keys, before = keymap_of(self.app).by_id[name].shown_keys, USUAL[name]
            was = " ".join(map(printed, before.keys))
            yield [
                Segment(f"   {fit(keys, max(10, cells(keys)))} ", inks.primary),
                Segment(fit(before.label, 28), inks.text),
                Segment(f" {name}, else {was}", inks.muted),
            ]
        yield []
        yield [Segment(" Remembered", inks.strong)]
        yield from self._told(str(self._memory) if self._memory else "nothing is, here")

    def _told(self, words: str, wrong: bool = False) -> Iterator[list[Segment]]:
        for line in wrap(foreign(words), max(20, self.room.width - 5)):
            yield [Segment(f"   {line}", self.inks.error if wrong else self.inks.text)]

    def on_resize(self) -> None:
        """Lines break elsewhere."""
        self.on_mount()
        self.forget()


class SettingsScreen(Dialog[str]):
    """The dialog; its own key leaves."""

    CSS_PATH = ["dialog.tcss", "help.tcss", "settings.tcss"]  # noqa: RUF012
    AUTO_FOCUS = "SettingsLines"
    BINDINGS = [  # noqa: RUF012
        Binding("O", "leave", show=False, id="settings"),
        Binding("q,enter", "leave", show=False),
        Binding("w", "write", show=False),
    ]

    def __init__(self, settings: Settings, memory: Path | None) -> None:
        super().__init__()
        self._settings, self._memory = settings, memory

    def compose(self) -> ComposeResult:
        """The box."""
        with Box("settings", "w writes a file to begin with · ↑↓ scroll · Esc closes"):
            yield SettingsLines(self._settings, self._memory)

    def action_write(self) -> None:
        """Write a file in which everything is commented out; what is there is never written over."""
        lines, path = self.query_one(SettingsLines), self._settings.path
        if path is None:
            lines.tell("no file counts here, so none is written", wrong=True)
            return
        try:
            write_default(path)
        except FileExistsError:
            lines.tell("there is a file already, and it stays as it is", wrong=True)
        except OSError as error:
            lines.tell(f"could not write it: {(error.strerror or str(error)).lower()}", wrong=True)
        else:
            lines.tell("written; take the # off what you change, and start the app again")

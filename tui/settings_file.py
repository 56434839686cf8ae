"""A settings file: read into settings, each mistake with its line; and a file to begin with."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.text import display
from engine.tomltext import Unreadable, bounds, decoded, loads
from tui import themes
from tui.actions import ACTIONS, ALWAYS, CACHE_ACTIONS, Keymap
from tui.keys import KeyTrouble, parse, printed
from tui.render.cells import WIDEST
from tui.settings import Settings, SettingsError
from tui.state.drawing import MODES

WHAT = "settings file"

THEMES = tuple(name.removeprefix("layerstep-") for name in themes.THEMES)
CELLS = ("auto", "digits", "shades")
SCALES = tuple(mode for mode in MODES if mode != "fixed")
"""Colour scales to start with; a fixed one is fixed at a picture."""
PACES = (0.1, 60.0)


class Reader:
    """One file on its way to settings."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.text = ""
        self.data = data

    def wrong(self, words: str, table: str = "", key: str = "") -> SettingsError:
        """The error about a key, with its line where it can be found."""
        line = self.line(table, key) if key else 0
        where = display(str(self.path)) + (f":{line}" if line else "")
        return SettingsError(f"{where}: {words}")

    def line(self, table: str, key: str) -> int:
        """The line that sets a key; 0 where it is not written plainly."""
        at, spelled = "", re.compile(rf"""\s*(["']?){re.escape(key)}\1\s*=""")
        whole = re.compile(rf"""\s*\[\s*(["']?){re.escape(key)}\1\s*\]""")
        for number, line in enumerate(self.text.splitlines(), 1):
            if heading := re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line):
                at = heading[1].strip()
                if not table and whole.match(line):
                    return number
            elif at == table and spelled.match(line):
                return number
        return 0

    def settings(self) -> Settings:
        try:
            self.text = decoded(self.data, WHAT)
            with bounds(WHAT):
                return self.read(loads(self.text, WHAT))
        except Unreadable as error:
            where = f":{error.line}" if error.line else ""
            raise SettingsError(f"{display(str(self.path))}{where}: {display(str(error))}") from None

    def read(self, found: Mapping[str, Any]) -> Settings:
        self.known(found, "", ("theme", "mouse", "restore", "look", "keys"))
        look = self.table(found, "look")
        self.known(look, "look", ("cells", "scale", "pace", "cell_width"))
        theme = self.one_of(found, "", "theme", THEMES)
        return Settings(
            theme=f"layerstep-{theme}",
            cells=self.one_of(look, "look", "cells", CELLS),
            scale=self.one_of(look, "look", "scale", SCALES),
            pace=self.number(look, "pace", PACES, Settings().pace),
            cell_width=self.width(look),
            mouse=self.switch(found, "mouse", True),
            restore=self.switch(found, "restore", False),
            keys=MappingProxyType(self.keys(self.table(found, "keys"))),
            path=self.path,
        )

    def known(self, table: Mapping[str, Any], name: str, keys: tuple[str, ...]) -> None:
        for key in table:
            if key not in keys:
                where = f"in [{name}]" if name else "here"
                raise self.wrong(f"{_shown(key)} is not known {where}; known are {', '.join(keys)}", name, key)

    def table(self, found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        value = found.get(name, {})
        if not isinstance(value, dict):
            raise self.wrong(f"{name} is a table: write [{name}] on a line of its own", "", name)
        return value

    def one_of(self, table: Mapping[str, Any], name: str, key: str, values: tuple[str, ...]) -> str:
        value = table.get(key, values[0])
        if value not in values:
            raise self.wrong(f"{key} is {_shown(value)}; it can be {', '.join(values)}", name, key)
        return str(value)

    def switch(self, found: Mapping[str, Any], key: str, default: bool) -> bool:
        value = found.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(f"{key} is {_shown(value)}; it can be true or false", "", key)
        return value

    def number(self, look: Mapping[str, Any], key: str, ends: tuple[float, float], default: float) -> float:
        value = look.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not ends[0] <= value <= ends[1]:
            raise self.wrong(f"{key} is {_shown(value)}; it can be {ends[0]:g} to {ends[1]:g} seconds", "look", key)
        return float(value)

    def width(self, look: Mapping[str, Any]) -> int:
        value = look.get("cell_width", 0)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= WIDEST:
            words = f"cell_width is {_shown(value)}; it can be 1 to {WIDEST} columns, or 0: what the numbers need"
            raise self.wrong(words, "look", "cell_width")
        return value

    def keys(self, table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The keys of the actions that are named, each of them once in its table."""
        known = [action.id for action in (*ACTIONS, *CACHE_ACTIONS)]
        changed: dict[str, tuple[str, ...]] = {}
        for name, value in _flat(table).items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 3, 0.5) or known[:3]
                words = f"{_shown(name)} is no action; near are {', '.join(near)}; the help lists all"
                raise self.wrong(words, *self.place(name))
            changed[name] = self.keys_of(name, value)
        keymap = Keymap(changed)
        for actions in (keymap.actions, keymap.cache_actions):
            has: dict[str, str] = {}
            for action in sorted(actions, key=lambda action: action.id in changed and action.id not in ALWAYS):
                for key in action.keys:
                    other = has.setdefault(key, action.id)
                    if other != action.id:
                        words = f"{action.id}: {printed(key)} is the key of {other} too"
                        raise self.wrong(words, *self.place(action.id))
        return changed

    def keys_of(self, name: str, value: object) -> tuple[str, ...]:
        written: list[Any] = value if isinstance(value, list) else [value]
        if not all(isinstance(key, str) for key in written):
            words = f'{name} is {_shown(value)}; it can be a key, "x", a list of keys, ["x", "ctrl+x"], or none, []'
            raise self.wrong(words, *self.place(name))
        keys = []
        for key in written:
            try:
                keys.append(parse(key))
            except KeyTrouble as trouble:
                raise self.wrong(f"{name}: {_shown(key)} {trouble}", *self.place(name)) from None
        return tuple(dict.fromkeys(keys))

    def place(self, name: str) -> tuple[str, str]:
        """Where an action's keys may be written: under its id in [keys], or under its last word in a deeper table."""
        for cut in range(name.count(".") + 1):
            parts = name.split(".")
            table, key = ".".join(["keys", *parts[:cut]]), ".".join(parts[cut:])
            if self.line(table, key):
                return table, key
        return "keys", name


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """``step.next = "n"`` is a table in TOML, ``"step.next" = "n"`` is not; both are the action ``step.next``."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, dict) and value else {before + key: value}
    return flat


def _shown(value: object) -> str:
    """A value of the file as TOML has it, printable and short."""
    words = {True: "true", False: "false"}.get(value, "") if isinstance(value, bool) else ""
    text = words or (f'"{value}"' if isinstance(value, str) else str(value))
    return display(text if len(text) <= 60 else f"{text[:60]} …")


def default_text() -> str:
    """A settings file in which everything is there, as it is without one, behind a #."""
    usual = Settings()
    lines = [
        "# layerstep's settings. Without the # a line counts; the app reads them when it starts.",
        "",
        f'# theme = "{THEMES[0]}"          # {", ".join(THEMES)}',
        "# mouse = true            # false leaves the mouse to the terminal",
        "# restore = false         # true: where the app was left is opened, where nothing else is asked for",
        "",
        "[look]",
        f'# cells = "{usual.cells}"          # {", ".join(CELLS)}',
        f'# scale = "{usual.scale}"          # {", ".join(SCALES)}',
        f"# pace = {usual.pace}              # seconds a step stays when the pass plays by itself",
        f"# cell_width = {usual.cell_width}          # columns of a cell, 1 to {WIDEST}; 0: what the numbers need",
        "",
        "[keys]                    # a key, a list of keys, or [] for none; Esc always goes back, ^C always quits",
    ]
    for action in (*ACTIONS, *CACHE_ACTIONS):
        own = [key for key in action.keys if key != "ctrl+c"]
        keys = [printed(key).replace("\\", "\\\\").replace('"', '\\"') for key in own]
        value = f'"{keys[0]}"' if len(keys) == 1 else "[" + ", ".join(f'"{key}"' for key in keys) + "]"
        lines.append(f'# "{action.id}" = {value}'.ljust(40) + f"# {action.label}")
    return "\n".join(lines) + "\n"


def write_default(path: Path) -> None:
    """Write the commented file, whole, where there is none yet. Raises OSError; FileExistsError where there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(default_text())

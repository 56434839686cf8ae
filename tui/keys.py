"""Keys: by the names Textual has for them, as people read them, and which of them every terminal can send."""

from __future__ import annotations

import string
import unicodedata

SHOWN = {
    "left": "←", "right": "→", "up": "↑", "down": "↓", "pageup": "PgUp", "pagedown": "PgDn", "home": "Home",
    "end": "End", "tab": "Tab", "escape": "Esc", "enter": "Enter", "space": "Space", "backspace": "Backspace",
    "delete": "Del", "insert": "Ins", **{f"f{n}": f"F{n}" for n in range(1, 13)},
}  # fmt: skip
"""Keys that are no character, and how they are printed."""

_MOVES = frozenset(["left", "right", "up", "down", "home", "end", "pageup", "pagedown"])
_SHORTER = {"esc": "escape", "return": "enter", "pgup": "pageup", "pgdn": "pagedown", "pgdown": "pagedown",
            "page_up": "pageup", "page_down": "pagedown", "del": "delete", "ins": "insert"}  # fmt: skip
_CALLED = {"hyphen_minus": "minus", "plus_sign": "plus", "solidus": "slash", "reverse_solidus": "backslash",
           "commercial_at": "at", "low_line": "underscore"}  # fmt: skip
_TAKEN = {
    "a": "is what GNU screen takes for itself", "b": "is what tmux takes for itself",
    "q": "can go on with stopped output and not reach the app", "s": "can stop the terminal's output",
    "c": "always quits", "z": "always goes to the shell", "h": "is sent as Backspace", "i": "is sent as Tab",
    "j": "is sent as Enter", "m": "is sent as Enter",
}  # fmt: skip


class KeyTrouble(ValueError):
    """A text that is no key, or a key that does not reach the app everywhere; the message says which and why."""


def of_character(char: str) -> str:
    """The name of the key that types a character."""
    if char.isalnum():
        return char
    name = unicodedata.name(char, char).lower().replace("-", "_").replace(" ", "_")
    return _CALLED.get(name, name)


_PUNCTUATION = {of_character(char): char for char in string.punctuation}
_NAMED = {shown.casefold(): key for key, shown in SHOWN.items()} | {key: key for key in SHOWN} | _SHORTER


def printed(key: str) -> str:
    """A key as it is printed on a keyboard: ``→``, ``?``, ``^P``, ``⇧Tab``."""
    *modifiers, last = key.split("+")
    name = SHOWN.get(last) or _PUNCTUATION.get(last) or last
    if not modifiers:
        return name if len(name) == 1 or name != last else _by_name(last)
    mark = "".join({"ctrl": "^", "shift": "⇧"}.get(modifier, f"{modifier}+") for modifier in modifiers)
    return mark + (name.upper() if len(name) == 1 else name)


def _by_name(key: str) -> str:
    try:
        return unicodedata.lookup(key.replace("_", " "))
    except KeyError:
        return key


def parse(text: str) -> str:
    """The key that a person wrote, as ``question_mark``, ``?``, ``ctrl+p`` or ``^P``. Raises KeyTrouble."""
    word = text.strip() if len(text) > 1 else text
    if word == " ":
        return "space"
    if len(word) == 1:
        if word.casefold() in _NAMED:
            return _NAMED[word.casefold()]
        if not word.isprintable() or unicodedata.combining(word) or printed(of_character(word)) != word:
            raise KeyTrouble("is not one key")
        return of_character(word)
    if word.startswith(("^", "⇧")):
        word = f"{'ctrl' if word[0] == '^' else 'shift'}+{word[1:]}"
    *modifiers, last = [part.strip() for part in word.split("+")] if not word.endswith("+") else [*word[:-1].split("+")]
    return _modified([modifier.casefold() for modifier in modifiers], last, word)


def _modified(modifiers: list[str], last: str, word: str) -> str:
    lower = last.casefold()
    key = last if len(last) == 1 and last.isalnum() else _NAMED.get(lower) or (lower if lower in _PUNCTUATION else "")
    if len(last) == 1 and not key:
        key = of_character(last)
    if not key:
        raise KeyTrouble("is no key; write a character, or left, right, up, down, home, end, pageup, pagedown, tab, "
                         "enter, space, backspace, delete, f1 … f12, ctrl+letter")  # fmt: skip
    if not modifiers:
        return key
    if modifiers == ["shift"] and len(key) == 1 and key.isalpha():
        return key.upper()
    if modifiers in (["ctrl"], ["shift"]) and key in _MOVES:
        return f"{modifiers[0]}+{key}"
    if modifiers == ["shift"] and key == "tab":
        return "shift+tab"
    if modifiers == ["ctrl"] and len(key) == 1 and key.isascii() and key.isalpha():
        if reason := _TAKEN.get(key.lower()):
            raise KeyTrouble(reason)
        return f"ctrl+{key.lower()}"
    raise KeyTrouble("cannot be sent by every terminal; take a character, a named key or ctrl+letter")

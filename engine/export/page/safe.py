"""JSON inside of HTML."""

from __future__ import annotations

from engine.jsontext import for_anyone

_UNSAFE = {char: f"\\u{ord(char):04x}" for char in "<>&"}
"""What could end the element that holds it, or begin a comment or another element. Line separators, and all else that
is not ASCII, JSON itself has escaped already."""


def safe(data: object) -> str:
    """JSON in ASCII that no HTML parser takes for markup."""
    text = for_anyone(data)
    for char, escaped in _UNSAFE.items():
        text = text.replace(char, escaped)
    return text

"""A chat as the text that a model reads: messages through the model's chat template, and which of it was typed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from engine import templating
from engine.errors import PromptError, TokenizerError
from engine.text import MAX_PROMPT_CHARS, clean_prompt, display

Messages = Sequence[Mapping[str, Any]]
"""Messages as chat APIs have them: `{"role": "user", "content": "Hello"}`."""

SECONDS: Final = 10
"""A template that computes for longer is stopped, and so is one that takes half as long again, computing or not."""

NO_TEMPLATE: Final = "this model has no chat template; give the prompt as plain text, without chat (--chat)"
_UNKNOWN: Final = "the chat template changes the messages, so what was typed cannot be told from what it added"


@dataclass(frozen=True, slots=True)
class Chat:
    """A rendered chat. ``typed`` are the character spans from the messages; None where they cannot be told."""

    text: str
    typed: tuple[tuple[int, int], ...] | None
    notices: tuple[str, ...] = ()

    def is_typed(self, start: int, end: int) -> bool:
        """Whether any character of this span was typed."""
        return any(first < end and start < last for first, last in self.typed or ())


def as_messages(prompt: object) -> list[dict[str, Any]]:
    """Checked messages from a text, which is one message of the user, or from messages. Raises PromptError."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, Sequence) or not prompt:
        raise PromptError("a chat is a text, or a list of messages with role and content")
    return [_message(number, message) for number, message in enumerate(prompt, 1)]


def messages_of(text: str) -> str | list[dict[str, Any]]:
    """The messages that a text spells as a JSON list; any other text is itself, and so one message of the user."""
    if not text.lstrip().startswith("["):
        return text
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_chat = isinstance(rows, list) and rows and all(isinstance(row, dict) and "role" in row for row in rows)
    return rows if is_chat else text


def is_mistyped(text: str) -> bool:
    """Whether a text looks as if it were to be a JSON list of messages, and is none."""
    return re.match(r"\s*\[\s*\{", text) is not None and messages_of(text) is text


def _message(number: int, message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
        raise PromptError(f"message {number} is not an object of role and content")
    role, content = message["role"], message["content"]
    # A role is written between control tokens, so it must not be able to spell one.
    if not isinstance(role, str) or not role.replace("_", "").replace("-", "").isalnum():
        raise PromptError(f"message {number} has the role {display(repr(role))[:40]}; write a word, such as user")
    parts = content if isinstance(content, list) else []
    if not isinstance(content, str) and (not parts or not all(map(_is_text, parts))):
        raise PromptError(f"message {number} has content that is no text")
    return {"role": role, "content": content}


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and set(part) == {"type", "text"} and isinstance(part["text"], str)


def render(
    templates: Mapping[str, str],
    messages: str | Messages,
    names: Mapping[str, str | None],
    add_generation_prompt: bool = True,
) -> Chat:
    """Render messages through the default of the templates. ``names`` are special tokens such as `bos_token`.

    Raises PromptError where the messages are none or the template refuses them, TokenizerError where it fails.
    """
    if "default" not in templates:
        known = ", ".join(sorted(templates))
        raise TokenizerError(f"no chat template is the default among {display(known)[:200]}" if known else NO_TEMPLATE)
    notices: list[str] = []
    checked = [_mapped(message, lambda text: _clean(text, notices)) for message in as_messages(messages)]
    template = templates["default"]
    opening, closing = _unused(template + json.dumps(checked, ensure_ascii=False))

    def mark(text: str) -> str:
        # Inside the blanks at its ends, since many templates strip a message.
        core = text.strip()
        if not core:
            return text
        start = text.index(core)
        return text[:start] + opening + core + closing + text[start + len(core) :]

    variables: dict[str, Any] = {name: token for name, token in names.items() if token is not None}
    variables |= {"add_generation_prompt": add_generation_prompt, "tools": None, "documents": None}
    marked = [_mapped(message, mark) for message in checked]
    text, shown = _run(template, [variables | {"messages": messages} for messages in (checked, marked)])
    _refuse_unusable(text)
    contents = [content for message in checked for content in _contents(message)]
    typed = _between(shown, opening, closing, text)
    if typed is None and (typed := _searched(text, contents)) is None:
        return Chat(text, None, (*notices, _UNKNOWN))
    return Chat(text, tuple(_with_blanks(text, span, contents) for span in typed), tuple(notices))


def _clean(text: str, notices: list[str]) -> str:
    text, said = clean_prompt(text)
    notices += said
    return text


def _mapped(message: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """The message with every text in its content changed."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": change(content)}
    return {**message, "content": [{**part, "text": change(part["text"])} for part in content]}


def _contents(message: Mapping[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


def _unused(text: str) -> tuple[str, str]:
    """Two private-use characters that are not in the text."""
    used = set(text)
    first, second = islice((char for code in range(0xF0000, 0xFFFFE) if (char := chr(code)) not in used), 2)
    return first, second


def _run(template: str, renders: Sequence[Mapping[str, Any]]) -> list[str]:
    """Render in a process of its own."""
    limits = {"limit": MAX_PROMPT_CHARS, "seconds": SECONDS}
    job = json.dumps({"template": template, "renders": renders, **limits}).encode()
    command = [sys.executable, "-P", templating.__file__]
    try:
        done = subprocess.run(command, input=job, capture_output=True, timeout=1.5 * SECONDS)
        reply = json.loads(done.stdout) if done.returncode == 0 else None
    except subprocess.TimeoutExpired:
        reply = None
    except (OSError, ValueError) as error:
        raise TokenizerError(f"the chat template could not be run: {display(str(error))[:200]}") from None
    if reply is None:
        raise TokenizerError(f"the model's chat template takes more than {SECONDS} s, or all memory; stopped")
    if "error" in reply:
        why = display(" ".join(reply["error"].split()))[:300]
        raise (PromptError if why.startswith("refuses") else TokenizerError)(f"the model's chat template {why}")
    texts: list[str] = reply["texts"]
    return texts


def _refuse_unusable(text: str) -> None:
    """Refuse a text that is no prompt, where the messages were such: it is the template's doing."""
    if not text:
        raise TokenizerError("the model's chat template writes nothing for these messages")
    if half := re.search("[\ud800-\udfff]", text):
        raise TokenizerError(
            f"the model's chat template writes half a character (U+{ord(half[0]):04X} at {half.start():,})"
        )


def _between(shown: str, opening: str, closing: str, text: str) -> list[tuple[int, int]] | None:
    """The spans between the marks, as places in the text without marks; None where the marks changed what was said."""
    spans, at, start = [], 0, None
    for char in shown:
        if char == opening and start is None:
            start = at
        elif char == closing and start is not None:
            spans.append((start, at))
            start = None
        elif char in (opening, closing):
            return None
        else:
            at += 1
    same = shown.replace(opening, "").replace(closing, "") == text
    return spans if same and start is None and all(start < end for start, end in spans) else None


def _searched(text: str, contents: Sequence[str]) -> list[tuple[int, int]] | None:
    """The spans of contents that are in the text exactly once; None where one is not, or several times."""
    spans = []
    for core in filter(None, (content.strip() for content in contents)):
        if text.count(core) != 1:
            return None
        spans.append((text.index(core), text.index(core) + len(core)))
    return spans


def _with_blanks(text: str, span: tuple[int, int], contents: Sequence[str]) -> tuple[int, int]:
    """The span with the blanks that the message had at its ends, where the template kept them."""
    start, end = span
    for content in contents:
        core = content.strip()
        if core == text[start:end]:
            before, _, after = content.partition(core)
            start -= len(before) * text.endswith(before, 0, start)
            end += len(after) * text.startswith(after, end)
            break
    return start, end

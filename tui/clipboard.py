"""The clipboard: the terminal's by OSC 52, tmux's buffer, the desktop's by pyperclip; whichever there are.

A terminal never answers OSC 52, so the other ways are tried too. Under tmux, whose default is to ignore OSC 52 of
programs, ``tmux load-buffer -w`` hands the text on to the terminal around it. Over ssh the desktop is another
machine's, so pyperclip is left alone there; it runs in a process of its own, since ``xclip`` may hang, and what it
complains of would be written over the screen.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.app import App

LIMIT = 74_994
"""Characters of base64 that terminals take: longer ones are cut by many."""
PATIENCE = 1.5
"""Seconds that another program has for it."""
PYPERCLIP = (sys.executable, "-P", "-c", "import sys, pyperclip; pyperclip.copy(sys.stdin.buffer.read().decode())")
TMUX = ("tmux", "load-buffer", "-w", "-")
OVER_SSH = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")


def short_enough(text: str) -> bool:
    """Whether terminals take a text by OSC 52."""
    return len(b64encode(text.encode())) <= LIMIT


async def copy(app: App[Any], text: str, env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Put a text on each clipboard that there is; their names, none where it is on none."""
    short, found = short_enough(text), []
    if short and env.get("TMUX") and await _given(TMUX, text):
        found.append("tmux buffer and terminal clipboard")
    elif short:
        app.copy_to_clipboard(text)
        found.append("terminal clipboard")
    if not any(env.get(name) for name in OVER_SSH) and await _given(PYPERCLIP, text):
        found.append("system clipboard")
    return tuple(found)


async def _given(command: Sequence[str], text: str) -> bool:
    """Whether a program took the text on its stdin, in time and without an error."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # with what it starts it can be ended
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(PATIENCE):
            await process.communicate(text.encode())
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return process.returncode == 0

"""From the shell to the app: a terminal, an engine, and only then textual."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, TextIO

from tui.settings import SettingsError, memory_path, read_settings
from tui.spawn import start_engine

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tui.client import EngineClient

NO_TERMINAL = "layerstep needs a terminal here; use `layerstep show PROMPT --at ADDRESS` to print instead"
DUMB_TERMINAL = (
    "this terminal cannot place a cursor (TERM=dumb); use `layerstep show PROMPT --at ADDRESS` to print instead"
)


def run(
    prompt: str | None = None,
    model: str | None = None,
    address: str | None = None,
    file: str | None = None,
    *,
    chat: bool = False,
    target: str | None = None,
    allow_pickle: bool = False,
    mouse: bool = True,
    light: bool = False,
    config: str | None = None,
    last: bool = False,
    tour: str | None = None,
    present: bool = False,
) -> int:
    """Open the app; returns the exit code. A prompt may come through a pipe; keys then come from the terminal.

    ``config``: a settings file in place of the usual one; ``last``: be where the app was left; ``tour``: play this one,
    a file or the name of one that comes along; ``present``: full screen, for a projector.
    """
    if not _is_terminal(sys.stdout):
        return _refuse(NO_TERMINAL)
    if os.environ.get("TERM") in ("dumb", "unknown"):
        return _refuse(DUMB_TERMINAL)
    if not _is_terminal(sys.stderr):
        sys.__stderr__ = sys.__stdout__  # type: ignore[misc]  # Textual draws on this one
    piped = not _is_terminal(sys.stdin)
    if piped and not _has_keyboard():
        return _refuse(NO_TERMINAL)
    engine = start_engine()
    try:
        settings = read_settings(config)
        if piped:
            if prompt is None and file is None and tour is None:
                prompt, trouble = _read_prompt()
                if trouble:
                    return _refuse(trouble)
            _keys_from_terminal()
        gc.disable()  # nothing of what is imported now is ever freed
        from tui.app import PROMPT, LayerstepApp
        from tui.themes import LIGHT

        gc.freeze()
        gc.set_threshold(5_000, 10, 100)  # a collection in a frame is a pause: small ones often, the whole heap seldom
        gc.enable()
        bare = prompt is model is address is file is target is tour is None and not chat
        if tour is not None and (wrong := _unplayable(tour)):
            return _refuse(wrong, 1)
        if file is not None:
            request = {"file": file} | ({"model": model} if model else {})
        else:
            request = {"model": model or "modern", "prompt": PROMPT if prompt is None else prompt}
            request |= {"chat": "yes"} if chat else {}
            request |= {"target": target} if target is not None else {}
        request |= {"allow_pickle": "yes"} if allow_pickle else {}
        if last and not bare:
            return _refuse("--last opens what was open; leave out what else there is to open")
        memory = memory_path()
        if last and not _has_session(memory):
            return _refuse("there is no last session yet; the app remembers where it is left", 1)
        app = LayerstepApp(
            lambda: _client(engine),
            request,
            address or "",
            LIGHT.name if light else "",
            settings,
            memory,
            last or (bare and settings.restore),
            tour,
            present,
        )
        signal.signal(signal.SIGINT, lambda *_: app.interrupt())  # Ctrl+C, until the terminal gives it as a key
        app.run(mouse=mouse and settings.mouse)
        return app.return_code or 0
    except SettingsError as error:
        return _refuse(str(error))
    finally:
        if engine.poll() is None:
            engine.kill()
            engine.wait()


def notes(*, mouse: bool = True, light: bool = False, config: str | None = None) -> int:
    """Show the speaker's notes of a tour that is played in another terminal; returns the exit code."""
    if not _is_terminal(sys.stdout) or not _is_terminal(sys.stdin):
        return _refuse("the notes need a terminal of their own, beside that of the presentation")
    if os.environ.get("TERM") in ("dumb", "unknown"):
        return _refuse("this terminal cannot place a cursor (TERM=dumb), so no notes can be shown on it")
    if not _is_terminal(sys.stderr):
        sys.__stderr__ = sys.__stdout__  # type: ignore[misc]  # Textual draws on this one
    try:
        settings = read_settings(config)
    except SettingsError as error:
        return _refuse(str(error))
    from tui.notes import NotesApp
    from tui.themes import LIGHT

    app = NotesApp(memory_path().parent, LIGHT.name if light else settings.theme)
    signal.signal(signal.SIGINT, lambda *_: app.exit())  # Ctrl+C, until the terminal gives it as a key
    app.run(mouse=mouse and settings.mouse)
    return app.return_code or 0


def _unplayable(tour: str) -> str:
    """Why a tour cannot be played; '' where it can."""
    from engine.errors import TourError
    from tui.tours import read_tour

    try:
        read_tour(tour)
    except TourError as error:
        return str(error)
    return ""


def _has_session(memory: Path) -> bool:
    from tui.state.remembered import recall

    return bool(recall(memory)[0].request)


def _client(engine: subprocess.Popen[bytes]) -> EngineClient:
    """A client of the engine that was started already; later ones start their own."""
    from tui.client import EngineClient
    from tui.link import ProcessLink

    first = iter([ProcessLink(engine)])
    return EngineClient(lambda: next(first, None) or ProcessLink())


def _refuse(message: str, code: int = 2) -> int:
    if sys.stderr is not None:
        print(f"layerstep: {message}", file=sys.stderr)
    return code


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is open and a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _has_keyboard() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _read_prompt() -> tuple[str | None, str]:
    """The prompt from a pipe, and what is wrong with it. A closed stdin and an empty pipe are no prompt."""
    from engine.errors import LayerstepError
    from engine.text import MAX_PROMPT_BYTES, decode_bytes

    if sys.stdin is None:
        return None, ""
    try:
        data = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
        text, _ = decode_bytes(data)
    except LayerstepError as error:
        return None, str(error)
    except (OSError, ValueError):
        return None, ""
    text = text.removesuffix("\n").removesuffix("\r")
    return text or None, ""


def _keys_from_terminal() -> None:
    """Make the terminal file descriptor 0, where Textual reads keys."""
    terminal = os.open("/dev/tty", os.O_RDWR)
    if terminal != 0:
        os.dup2(terminal, 0)
        os.close(terminal)
    stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stdin = sys.__stdin__ = stdin  # type: ignore[misc]

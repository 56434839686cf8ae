"""The real program in a pseudo-terminal: settings, the last session, and terminals with few colours or none."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from test_app_pty import Program, plain, program

from tui.state.remembered import Remembered, recall, remember

TRUE, INDEXED, BASIC = (
    re.compile(rb"[34]8;2;"),
    re.compile(rb"[34]8;5;"),
    re.compile(rb"\x1b\[[0-9;]*\b(3|4|9|10)[0-7]m"),
)


def rest(app: Program, seconds: float = 0.4) -> None:
    """Let it draw, and an Esc be no start of something longer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        app.read(0.05)


def quit_of(app: Program) -> None:
    app.press("q")
    app.ended()
    assert app.process.returncode == 0
    assert "Traceback" not in plain(app.output)


def test_a_settings_file_counts_from_the_first_frame(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('theme = "contrast"\nmouse = false\n[keys]\n"step.next" = "X"\n')
    with program(arguments=f"config={str(file)!r}") as app:
        app.until("step 1/45")
        assert b"48;2;0;0;0" in app.output
        assert b"\x1b[?1003h" not in app.output
        app.until("←/X step")
        app.press("X")
        app.until("step 2/45")
        app.press("?")
        app.until("help")
        app.press("\x1b")
        rest(app)
        quit_of(app)
    assert [found.name for found in tmp_path.iterdir()] == ["settings.toml"]


@pytest.mark.parametrize("how", ["option", "environment", "usual"])
def test_a_settings_file_that_is_wrong_keeps_the_app_from_starting(how: str, tmp_path: Path) -> None:
    file = tmp_path / "layerstep" / "settings.toml"
    file.parent.mkdir()
    file.write_text('\n[keys]\n"step.nxt" = "N"\n')
    env = {"environment": {"LAYERSTEP_CONFIG": str(file)}, "usual": {"XDG_CONFIG_HOME": str(tmp_path)}}.get(how, {})
    with program(arguments=f"config={str(file)!r}" if how == "option" else "", **env) as app:
        app.ended()
        assert app.process.returncode == 2
        [said] = plain(app.output).strip().splitlines()
        assert said.startswith(f'layerstep: {file}:3: "step.nxt" is no action; near are step.next, ')
        assert b"\x1b[?1049h" not in app.output
    assert file.read_text() == '\n[keys]\n"step.nxt" = "N"\n'
    assert recall(app.state) == (Remembered(seen=True), "")


def test_where_the_app_was_left_is_there_again(tmp_path: Path) -> None:
    with program(arguments="prompt='dog bites man', model='classic'", size=(130, 30)) as app:
        app.until("step 1/")
        app.press("/0.attn.pattern\r")
        app.until("attention · pattern")
        app.press("h")
        app.until("head 1 of 4")
        app.press("\x03")
        app.ended()
        left, state = recall(app.state)[0], app.state
    assert left.request == {"model": "classic", "prompt": "dog bites man"}
    assert left.address.startswith("blocks.0.attn.pattern[b=0,h=1,")
    file = tmp_path / "settings.toml"
    file.write_text("restore = true")
    for arguments in ("last=True", f"config={str(file)!r}"):
        with program(arguments=arguments, XDG_STATE_HOME=str(state.parents[1])) as app:
            app.until("head 1 of 4")
            assert "classic" in plain(app.output)
            quit_of(app)
    with program(arguments=f"'other words', config={str(file)!r}", XDG_STATE_HOME=str(state.parents[1])) as app:
        app.until("␣words")
        quit_of(app)


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        ("last=True", "there is no last session yet; the app remembers where it is left", 1),
        ("'a prompt', last=True", "--last opens what was open; leave out what else there is to open", 2),
    ],
)
def test_a_last_session_that_is_not_there_is_one_line(arguments: str, words: str, code: int) -> None:
    with program(arguments=arguments) as app:
        app.ended()
        assert app.process.returncode == code
        assert plain(app.output).strip().splitlines() == [f"layerstep: {words}"]


def test_a_session_of_something_else_is_said_and_the_app_starts() -> None:
    with program() as app:
        app.until("step 1/45")
        quit_of(app)
    remember(app.state, Remembered())
    app.state.write_bytes(b"\xff")
    with program(XDG_STATE_HOME=str(app.state.parents[1])) as again:
        again.until("is no session of layerstep's")
        again.until("step 1/45")
        quit_of(again)


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_without_a_cursor_is_refused(term: str) -> None:
    with program(TERM=term) as app:
        app.ended()
        assert app.process.returncode == 2
        assert b"\x1b" not in app.output
        assert "no cursor" in plain(app.output) or "cannot place a cursor" in plain(app.output)
        assert "layerstep show" in plain(app.output)


WALK = ("/0.attn.pattern\r", "T", "T", "c", "l", "O", "\x1b")


def walked(**env: str) -> Program:
    """The program after a walk through pictures, themes and a dialog."""
    with program(size=(110, 34), **env) as app:
        app.until("step 1/45")
        for keys in WALK:
            app.press(keys)
            rest(app)
        app.until("attention · pattern")
        app.until("settings")
        quit_of(app)
    return app


def test_with_no_color_there_is_no_hue_and_every_value_is_still_there() -> None:
    app = walked(NO_COLOR="1")
    for found in re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)", app.output):
        assert len(set(found)) == 1, found
    assert not INDEXED.search(app.output)
    text = plain(app.output)
    assert ".182" in text
    assert "█" in text


def test_in_256_colours_no_other_is_asked_for() -> None:
    app = walked(COLORTERM="", TERM="xterm-256color")
    assert not TRUE.search(app.output)
    assert INDEXED.search(app.output)


def test_in_16_colours_no_other_is_asked_for_and_cells_are_shades() -> None:
    app = walked(COLORTERM="", TERM="xterm")
    assert not TRUE.search(app.output)
    assert not INDEXED.search(app.output)
    assert BASIC.search(app.output)
    assert "░" in plain(app.output)


def test_the_command_line_takes_them_all(tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    for command in (["-m", "engine", "hi"], ["-m", "tui", "hi"]):
        app = Program([sys.executable, *command, "--config", str(file), "--no-mouse", "--light"])
        app.ended(20)
        assert app.process.returncode == 2
        assert plain(app.output).strip() == f"layerstep: {file}: there is no such settings file"

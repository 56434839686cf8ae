"""A presentation and its notes as two real programs, each in a terminal of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

from test_app_present import TEXT, tour_file
from test_app_pty import HARMFUL, ROOT, Program, plain, program

NOTES = [sys.executable, "-m", "tui.notes"]


def test_the_notes_follow_from_another_terminal_until_the_end(tmp_path: Path) -> None:
    text = TEXT.replace("Begin", "Begin \\u001b]52;c;x\\u0007 \\u202e").replace(
        "Ask *them*", "Ask \\u001b]0;PWNED\\u0007 *them*"
    )
    with program(arguments=f"tour={str(tour_file(tmp_path, text))!r}, present=True") as app:
        notes = Program(NOTES, XDG_STATE_HOME=str(app.state.parent.parent))
        notes.until("No presentation runs.")
        app.until("1/3")
        notes.until("on the screen")
        assert "PWNED" in plain(notes.output)
        app.press("\x1b[6~")  # PageDown, as a presenter's remote sends it
        app.until("See.")
        notes.until("the answer, hidden yet")
        os.kill(app.process.pid, signal.SIGKILL)
        app.process.wait()
        notes.output = b""
        notes.until("No presentation runs.")
        notes.press("\x03")
        assert notes.ended() < 3
        assert notes.process.returncode == 0
        assert termios.tcgetattr(notes.theirs) == notes.before
        assert "Traceback" not in plain(notes.output + app.output)
        assert not [harm for harm in HARMFUL if harm in notes.output + app.output]


def test_what_cannot_be_shown_is_one_line(tmp_path: Path) -> None:
    made = subprocess.run(NOTES, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert made.returncode == 2
    assert made.stderr.startswith("layerstep: the notes need a terminal")
    with program(arguments=f"tour={str(tmp_path / 'none.toml')!r}") as app:
        app.ended()
        assert app.process.returncode == 1
        assert "none.toml: no such file" in plain(app.output)

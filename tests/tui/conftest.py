"""Tests of the app: none of the user's settings, clipboard or folders, no resting."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import _wait
from textual.pilot import Pilot

_wait.SLEEP_GRANULARITY, _wait.SLEEP_IDLE = 1 / 125, 1 / 2500
"""A pilot waits until the app was idle for so long: two fifths of what Textual has it wait, which was half of the time
that these tests took."""
_resize = Pilot.resize_terminal


async def _resized(pilot: Pilot[object], width: int, height: int) -> None:
    """Wait for the screen as well: the app puts a new size off a little, since another may follow."""
    await _resize(pilot, width, height)
    while pilot.app._resize_timer is not None or pilot.app._resize_event is not None:
        await pilot.pause(0.004)
    await pilot.pause()


Pilot.resize_terminal = _resized  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def _hermetic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # random keys export files, too
    monkeypatch.setattr("tui.screens.fetching.REST", 0.0)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setenv("SSH_CONNECTION", "a test")  # the clipboard of whoever runs them stays as it is
    monkeypatch.delenv("TMUX", raising=False)

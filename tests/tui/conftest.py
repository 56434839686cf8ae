"""Tests of the app: none of the user's settings, clipboard or folders, no resting."""

from __future__ import annotations

from pathlib import Path

import pytest


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

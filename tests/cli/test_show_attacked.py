"""Hostile names and numbers on the command line of ``show --view``: one line, nothing raw, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from calls import Call

PATTERN = "blocks.1.attn.pattern"
NASTY = "\x1b]0;x\x07[/]\u202e"


@pytest.mark.parametrize(
    "more",
    [
        ("--at", PATTERN, "--view", NASTY),
        ("--at", f"{PATTERN}{NASTY}", "--view", "arcs"),
        ("--at", f"{PATTERN}[h={'9' * 5000}]", "--view", "heatmap"),
        ("--at", f"{PATTERN}@{'9' * 5000}", "--view", "heads"),
        ("--at", f"{PATTERN}[h=99]", "--view", "heatmap"),
        ("--at", PATTERN, "--over", f"head={NASTY}"),
        ("--at", PATTERN, "--over", f"{NASTY}=mean"),
        ("--at", PATTERN, "--over", ""),
        ("--at", f"{PATTERN}[h=0]", "--minus", NASTY),
        ("--at", f"{PATTERN}[h=0]", "--minus", f"{PATTERN}[h=99]"),
        ("--at", f"{PATTERN}[h=0]", "--other", f"/{NASTY}.safetensors"),
        ("--at", f"{PATTERN}[h=0]", "--other-model", NASTY),
    ],
)
def test_what_cannot_be_shown_is_one_clean_line(more: tuple[str, ...], call: Call, tiny: Path) -> None:
    done = call("show", "the disk", "--model", tiny, *more)
    assert done.code in (1, 2)
    assert done.out == ""
    line = done.err.splitlines()[-1]
    assert line.startswith("layerstep: ")
    assert "unexpected" not in line
    assert line.isprintable()

"""Casts: a terminal emulator that is not ours plays them, and shows what the app showed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyte
import pytest
from fake_engine import FakeEngine, MemoryLink
from test_app_present import TEXT, tour_file

from engine.errors import Cancelled, LayerstepError
from tui import casting
from tui.client import EngineClient

CONTROL = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
SENT = re.compile(r"\x1b\[(\?25[lh]|2J|\d+;1H|[\d;]*m)")
"""All that a terminal is told beside text: the cursor's mark and place, colours."""


def recorded(
    folder: Path, request: dict[str, Any] | None = None, engine: FakeEngine | None = None, **how: Any
) -> list[Any]:
    """The lines of a cast, as JSON."""
    path, link = folder / "walk.cast", MemoryLink(engine)
    size = casting.write(request or {}, path, make_client=lambda: EngineClient(lambda: link), **how)
    assert link.closed
    assert path.stat().st_size == size
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def played(lines: list[Any]) -> dict[float, str]:
    """What stands on the screen of a foreign terminal after each moment."""
    screen = pyte.Screen(lines[0]["width"], lines[0]["height"])
    stream, shown = pyte.Stream(screen), {}
    for seconds, kind, data in lines[1:]:
        if kind == "o":
            stream.feed(data)
            shown[seconds] = "\n".join(screen.display)
    return shown


def test_a_tour_is_played_stop_by_stop_in_the_time_that_it_takes_to_be_read(tmp_path: Path) -> None:
    text = TEXT.replace('"See."', f'"{"word " * 99}"')
    seen: list[tuple[int, int, str]] = []
    lines = recorded(tmp_path, tour=str(tour_file(tmp_path, text)), watch=lambda *told: seen.append(told))
    assert lines[0] == {"version": 2, "width": 100, "height": 30, "title": "layerstep · Two [/]",
                        "env": {"TERM": "xterm-256color"}}  # fmt: skip
    times = [seconds for seconds, _, _ in lines[1:]]
    assert times == sorted(times)
    assert [data for _, kind, data in lines[1:] if kind == "m"] == ["Begin", "Both", "Alone"]
    assert seen == [(0, 3, "Begin"), (1, 3, "Both"), (2, 3, "Alone")]
    first, both, answer, last, end = played(lines).items()
    assert "After “␣server” comes" in first[1]
    assert "1 of 3" in first[1]
    assert "not edited" not in first[1]
    assert "word word" in both[1]
    assert "Because." not in both[1]
    assert "→ Because." in answer[1]
    assert "3 of 3" in last[1]
    assert answer[0] - both[0] == pytest.approx(100 / casting.WORDS, abs=0.01)
    assert last[0] - answer[0] == casting.LEAST
    assert end[1] == last[1]
    assert len(set(re.findall(r"48;2;(\d+;\d+;\d+)", "".join(data for _, _, data in lines[1:])))) > 10


def test_without_a_tour_it_goes_through_the_steps(tmp_path: Path) -> None:
    request = {"model": "modern", "prompt": "dog bites man"}
    lines = recorded(tmp_path, request, address="blocks.1.resid_post", size=(80, 24), pace=2)
    shown = list(played(lines).items())
    assert [re.search(r"step (\d+)/45", text)[1] for _, text in shown[:-1]] == ["42", "43", "44", "45"]  # type: ignore[index]
    assert shown[1][0] - shown[0][0] == casting.STEP / 2
    assert {len(line) for _, text in shown for line in text.split("\n")} == {80}


def test_hostile_text_is_text(tmp_path: Path) -> None:
    lines = recorded(tmp_path, {"model": "modern", "prompt": "x"}, FakeEngine(hostile=True), address="logits")
    for _, kind, data in lines[1:]:
        rest = SENT.sub("", data) if kind == "o" else data
        assert "\x1b" not in rest
        assert not CONTROL.search(rest)
        assert "PWNED" not in data or "]0;PWNED" in data


@pytest.mark.parametrize(
    ("request_", "how", "words"),
    [
        ({"model": "missing", "prompt": "x"}, {}, "there is no model"),
        ({"file": "nothing.txt"}, {}, "is no trace file"),
        ({"model": "modern", "prompt": "x"}, {"size": (1, 1)}, "ask for 40×10 to 400×120"),
        ({"model": "modern", "prompt": "x"}, {"pace": 0}, "out of range"),
    ],
)
def test_what_cannot_be_recorded_is_said(
    request_: dict[str, Any], how: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(LayerstepError, match=words):
        recorded(tmp_path, request_, **how)


def test_a_tour_that_does_not_fit_is_said(tmp_path: Path) -> None:
    text = TEXT.replace('address = "tokens[b=0,p=2]"', 'address = "tokens[b=0,p=99]"')
    with pytest.raises(LayerstepError, match=r"stop 1, Begin: tokens\[b=0,p=99\]: pos 99 is outside"):
        recorded(tmp_path, tour=str(tour_file(tmp_path, text)))


def test_it_is_cancelled_from_outside(tmp_path: Path) -> None:
    def watch(done: int, total: int, what: str) -> None:
        if done == 2:
            raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        recorded(tmp_path, {"model": "modern", "prompt": "dog"}, watch=watch)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "walk.cast").write_text("mine")
    with pytest.raises(LayerstepError, match="exists already"):
        recorded(tmp_path, {"model": "modern", "prompt": "dog"})
    assert (tmp_path / "walk.cast").read_text() == "mine"
    assert len(recorded(tmp_path, {"model": "modern", "prompt": "dog"}, address="probs", force=True)) > 2

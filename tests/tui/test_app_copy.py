"""Copying: what is copied, by which way, and that nothing foreign goes out with it."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import re
import select
import shutil
import subprocess
import time
from array import array
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from fake_engine import FakeEngine
from helpers import go, main_of, running, settled, text_of
from test_app_pty import HARMFUL, program
from textual.widgets import Input

from tui import clipboard
from tui.screens.ask import AskScreen
from tui.screens.choose import ChooseScreen
from tui.screens.notice import NoticeScreen
from tui.settings import memory_path
from tui.state.remembered import seen
from tui.widgets.pick_list import PickList

PATTERN = "blocks.0.attn.pattern"
NOT_FOR_A_TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\ud800-\udfff]")


def single(value: float) -> float:
    return array("f", [value])[0]


async def copied(app: object, pilot: object, key: str) -> str:
    app._clipboard = ""  # type: ignore[attr-defined]
    await pilot.press("C", key)  # type: ignore[attr-defined]
    await settled(pilot)  # type: ignore[arg-type]
    return app.clipboard  # type: ignore[attr-defined, no-any-return]


async def test_a_value_a_row_and_a_column_are_the_engine_s_numbers() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, PATTERN)
        main.go_to_address(f"{PATTERN}[h=2,q=5,k=3]")
        await settled(pilot)

        def value(q: int, k: int) -> float:
            return single(engine.value(PATTERN, {"batch": 0, "head": 2, "query": q, "key": k}))

        assert single(float(await copied(app, pilot, "v"))) == value(5, 3)
        head, row = (line.split("\t") for line in (await copied(app, pilot, "r")).split("\n"))
        words = ["<|bos|>", "The", "␣server", "␣crashed", "␣because", "␣the", "␣disk", "␣was", "␣full"]
        assert head == ["query/key", *words]
        assert row[0] == "␣the"
        assert [single(float(cell)) for cell in row[1:]] == [value(5, k) for k in range(9)]
        head, *column = (line.split("\t") for line in (await copied(app, pilot, "c")).split("\n"))
        assert head == ["query/key", "␣crashed"]
        assert [name for name, _ in column] == words
        assert [single(float(cell)) for _, cell in column] == [value(q, 3) for q in range(9)]


async def test_cells_that_are_not_here_are_fetched() -> None:
    engine = FakeEngine()
    engine.d |= {"d_vocab": 2400}
    request = {"model": "modern", "prompt": " ".join(["word"] * 30)}
    async with running(size=(90, 30), engine=engine, request=request) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, "logits")
        main.do_view(3)  # positions × vocabulary
        await settled(pilot)
        known = main.session.known(main.plane)
        assert known is not None
        assert known.cols < 2400
        line = (await copied(app, pilot, "c")).split("\n")[1].split("\t")
        assert len(line) == 2
        head, row = (line.split("\t") for line in (await copied(app, pilot, "r")).split("\n"))
        assert len(head) == len(row) == 2401
        at = {"batch": 0, "pos": 30, "d_vocab": 2345}
        assert single(float(row[2346])) == single(engine.value("logits", at))
        assert main.session.known(main.plane) is known


async def test_an_address_leads_back_and_a_summary_says_what_the_picture_is() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (app, pilot):
        main = main_of(app)
        main.go_to_address("blocks.1.resid_post[p=4,d=7]")
        await settled(pilot)
        there, address = main.cursor, await copied(app, pilot, "a")
        main.go_to_address("tokens[p=1]")
        main.go_to_address(address)
        assert main.cursor == there
        summary = dict(line.split("\t") for line in (await copied(app, pilot, "s")).split("\n"))
        values = [
            single(engine.value("blocks.1.resid_post", {"batch": 0, "pos": p, "d_model": d}))
            for p in range(9)
            for d in range(32)
        ]
        assert float(summary["mean"]) == pytest.approx(math.fsum(values) / len(values))
        assert float(summary["norm"]) == pytest.approx(math.hypot(*values))
        assert (float(summary["min"]), float(summary["max"])) == pytest.approx((min(values), max(values)))
        assert summary["address"] == "blocks.1.resid_post[b=0,p=0:9,d=0:32]@0"
        assert (summary["size"], summary["axes"], summary["values"]) == ("9 × 32", "pos × d_model", "288")
        assert await copied(app, pilot, "l") == "␣because"


async def test_a_candidate_and_the_table_of_them() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, "logits")
        await pilot.press("down")
        await settled(pilot)
        head, *rows = (line.split("\t") for line in (await copied(app, pilot, "t")).split("\n"))
        assert head[:5] == ["rank", "token", "id", "logit", "probability"]
        assert [row[0] for row in rows] == [str(n) for n in range(1, len(rows) + 1)]
        assert await copied(app, pilot, "l") == rows[1][1]
        assert await copied(app, pilot, "v") == rows[1][4]
        assert (await copied(app, pilot, "r")).split("\n")[1].split("\t") == rows[1]


@pytest.mark.parametrize("site", ["tokens", PATTERN, "blocks.0.attn.z", "blocks.0.ln1.scale", "logits"])
async def test_nothing_foreign_is_copied(site: str) -> None:
    async with running(engine=FakeEngine(hostile=True)) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, site)
        for pos in range(31):
            main.go_to_token(pos)
            assert main.plane is not None
            choices = main._copies(main.plane, main.here[1])
            assert not [one for one in choices if NOT_FOR_A_TERMINAL.search(one.note)]
            for choice in choices:
                what, text = await main._copied(choice.value, main.plane, main.here[1])
                assert text
                assert not NOT_FOR_A_TERMINAL.search(what + text), (choice, text)


async def test_the_choices_by_arrows_click_and_in_one_cell() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("C", "down", "down", "down", "down", "up", "enter")
        await settled(pilot)
        assert app.clipboard.startswith("address\t")
        await pilot.press("C")
        await pilot.click(PickList, offset=(5, 4))
        await settled(pilot)
        assert app.clipboard.startswith(PATTERN)
        await pilot.press("C")
        await pilot.pause()
        for size in ((1, 1), (30, 2), (120, 40)):
            await pilot.resize_terminal(*size)
        assert isinstance(app.screen, ChooseScreen)
        await pilot.press("x", "escape")
        assert app.screen is main_of(app)


async def test_what_is_too_long_for_terminals_can_be_saved_instead() -> None:
    engine = FakeEngine()
    engine.d |= {"d_vocab": 9000}
    async with running(engine=engine) as (app, pilot):
        await go(app, pilot, "logits")
        main_of(app).do_view(2)
        await settled(pilot)
        assert await copied(app, pilot, "c") == ""
        assert isinstance(app.screen, NoticeScreen)
        assert "74,994" in "\n".join(text_of(app))
        await pilot.press("e")
        await settled(pilot)
        assert isinstance(app.screen, AskScreen)
        assert app.screen.query_one(Input).value.endswith(".csv")


def test_terminals_take_what_is_below_their_limit() -> None:
    assert clipboard.short_enough("a" * 56_244)
    assert not clipboard.short_enough("a" * 56_245)
    assert not clipboard.short_enough("漢" * 18_749)


# the ways


@pytest.fixture
def terminal() -> SimpleNamespace:
    """An app that only notes what it is given for the terminal's clipboard."""
    taken: list[str] = []
    return SimpleNamespace(copy_to_clipboard=taken.append, taken=taken)


def desktop(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> Path:
    """A pyperclip that does ``code``; where it may leave a note."""
    (folder / "pyperclip.py").write_text(f"def copy(text):\n    note = {str(folder / 'note')!r}\n    {code}\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder / "note"


async def test_the_desktop_s_clipboard_and_the_terminal_s(
    terminal: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = desktop(tmp_path, monkeypatch, "open(note, 'w', encoding='utf-8').write(text)")
    assert await clipboard.copy(terminal, "␣漢字\t1", {}) == ("terminal clipboard", "system clipboard")
    assert note.read_text(encoding="utf-8") == "␣漢字\t1"
    assert terminal.taken == ["␣漢字\t1"]
    assert await clipboard.copy(terminal, "a" * 60_000, {}) == ("system clipboard",)
    assert note.read_text() == "a" * 60_000


@pytest.mark.parametrize("name", ["SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"])
async def test_over_ssh_the_desktop_is_another_machine_s(
    name: str, terminal: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = desktop(tmp_path, monkeypatch, "open(note, 'w').write(text)")
    assert await clipboard.copy(terminal, "1", {name: "x"}) == ("terminal clipboard",)
    assert await clipboard.copy(terminal, "a" * 60_000, {name: "x"}) == ()
    assert not note.exists()


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_desktop_that_hangs_or_fails_costs_little_time_and_is_silent(
    terminal: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clipboard, "PATIENCE", 1.0)
    hang = "import os, subprocess; p = subprocess.Popen(['sleep', '60']); open(note, 'w').write(str(p.pid)); p.wait()"
    note = desktop(tmp_path, monkeypatch, hang)
    started = time.monotonic()
    assert await clipboard.copy(terminal, "1", {}) == ("terminal clipboard",)
    assert time.monotonic() - started < 2.5
    await asyncio.sleep(0.1)
    assert not runs(int(note.read_text()))
    desktop(tmp_path, monkeypatch, "import sys; print('Error: \\x1b[31m', file=sys.stderr); print('x'); raise OSError")
    assert await clipboard.copy(terminal, "1", {}) == ("terminal clipboard",)
    assert capfd.readouterr() == ("", "")


async def test_a_pyperclip_in_the_folder_one_is_in_is_not_run(
    terminal: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyperclip.py").write_text("open('run', 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no xclip either: the clipboard of whoever runs this stays as it is
    await clipboard.copy(terminal, "1", {})
    assert not (tmp_path / "run").exists()


async def test_under_tmux_it_is_asked_and_else_the_terminal(
    terminal: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"TMUX": "x", "SSH_TTY": "x"}
    tmux = tmp_path / "tmux"
    tmux.write_text(f"#!/bin/sh\necho $@ > {tmp_path}/asked\n/bin/cat > {tmp_path}/got\n")
    tmux.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await clipboard.copy(terminal, "␣a", env) == ("tmux buffer and terminal clipboard",)
    assert (tmp_path / "asked").read_text() == "load-buffer -w -\n"
    assert (tmp_path / "got").read_text(encoding="utf-8") == "␣a"
    assert terminal.taken == []
    tmux.write_text("#!/bin/sh\nexit 1\n")  # one that does not know -w
    assert await clipboard.copy(terminal, "b", env) == ("terminal clipboard",)
    tmux.unlink()
    assert await clipboard.copy(terminal, "c", env) == ("terminal clipboard",)
    assert terminal.taken == ["b", "c"]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
async def test_the_real_tmux_hands_it_to_the_terminal_around_it(
    terminal: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = str(tmp_path / "s")
    command = ["tmux", "-S", socket, "-f", os.devnull, "new-session", "-s", "x", "sleep 60"]
    ours, theirs = os.openpty()
    client = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    try:
        read_until(ours, b"\x1b[?1049h")
        monkeypatch.setenv("TMUX", f"{socket},1,0")
        found = await clipboard.copy(terminal, "␣full", {"TMUX": "x", "SSH_TTY": "x"})
        assert found == ("tmux buffer and terminal clipboard",)
        read_until(ours, base64.b64encode("␣full".encode()))
        shown = subprocess.run(["tmux", "-S", socket, "show-buffer"], capture_output=True, check=True).stdout
        assert shown.decode() == "␣full"
    finally:
        subprocess.run(["tmux", "-S", socket, "kill-server"], check=False)
        client.wait()
        os.close(ours)
        os.close(theirs)


def read_until(fd: int, wanted: bytes, seconds: float = 10.0) -> None:
    data, end = b"", time.monotonic() + seconds
    while wanted not in data:
        assert time.monotonic() < end, data
        if select.select([fd], [], [], 0.1)[0]:
            data += os.read(fd, 65536)


def test_the_terminal_gets_one_osc_52_and_no_foreign_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    seen(memory_path())
    with program(options=("--hostile",), size=(120, 40), TMUX="") as app:
        app.until("step 1/")
        app.press("C")
        app.until("a letter, or")
        app.press("l")
        app.until("copied")
        app.press("\x03")
        app.ended()
        sent = re.findall(rb"\x1b\]52;c;([^\x07]*)\x07", app.output)
        assert len(sent) == 1
        text = base64.b64decode(sent[0], validate=True).decode()
        assert text == "‹U+200D›" * 3 + "a" * 79
        assert not NOT_FOR_A_TERMINAL.search(text)
        rest = app.output.replace(b"\x1b]52;c;" + sent[0] + b"\x07", b"")
        for bad in HARMFUL:
            assert bad not in rest, bad


async def test_the_address_of_heads_together_and_of_a_difference_gives_their_value_again() -> None:
    async with running() as (app, pilot):
        main = main_of(app)
        main.go_to_address(f"{PATTERN}[h=2,q=5,k=3]")
        main.show_view("max")
        await settled(pilot)
        assert await copied(app, pilot, "a") == f"{PATTERN}[b=0,q=5,k=3]@0 --over head=max"
        main.show_view("heatmap")
        await pilot.press("d", "d")
        await settled(pilot)
        assert await copied(app, pilot, "a") == f"{PATTERN}[b=0,h=2,q=5,k=3]@0 --minus {PATTERN}[b=0,h=3,q=5,k=3]@0"


async def test_the_summary_of_a_derived_picture_has_its_own_numbers() -> None:
    engine = FakeEngine(rotary=True)
    async with running(engine=engine) as (app, pilot):

        async def summary(site: str, view: str) -> dict[str, str]:
            await go(app, pilot, site)
            assert main_of(app).show_view(view)
            await settled(pilot)
            return dict(line.split("\t") for line in (await copied(app, pilot, "s")).split("\n"))

        of = await summary("blocks.1.resid_post", "histogram")
        place = {"batch": 0}
        values = [
            single(engine.value("blocks.1.resid_post", {**place, "pos": pos, "d_model": dim}))
            for pos in range(9)
            for dim in range(32)
        ]
        assert (of["axes"], of["size"], of["values"]) == ("pos × d_model", "9 × 32", "288")
        assert (single(float(of["min"])), single(float(of["max"]))) == (min(values), max(values))
        assert float(of["mean"]) == pytest.approx(math.fsum(values) / len(values))
        assert float(of["median"]) == pytest.approx(sorted(values)[143], rel=1e-6)
        of = await summary(PATTERN, "heads")
        assert (of["axes"], of["size"], of["tiles"]) == ("head × query × key", "4 × 9 × 9", "6")
        assert 0 < float(of["least entropy in bits"]) <= float(of["most entropy in bits"])
        of = await summary("blocks.0.mlp.post", "neurons")
        assert (of["axes"], of["size"], of["rows"]) == ("d_mlp", "64", "50")
        assert of["columns"] == "neuron, post, pre, pre_linear, ‖w_out‖, contribution, promotes"
        of = await summary("blocks.0.attn.rot_q", "rotation")
        assert (of["position"], of["pairs"], of["dims turned"], of["of dims"]) == ("8", "4", "8", "8")

"""The real program in a pseudo-terminal: what reaches the terminal, how it begins and how it ends."""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tui.state.remembered import seen

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).parent / "fake_engine.py"
HAS_ENGINE = (ROOT / "engine" / "service.py").exists() and (
    ROOT / "samples" / "models" / "modern" / "model.safetensors"
).exists()

HARMFUL = (
    b"\x1b]52", b"\x1b]0;", b"\x1b]8;", b"\x1bP", b"\x1b(0", b"\x1b[5;5H", b"\x07BB", b"\x00", b"\x9b31m", b"\xc2\x9b",
    b"PWNED\x07", "\u202e".encode(), "\u200b".encode(),
)  # fmt: skip

RUN = """
import sys
sys.path[:0] = [{root!r}]
import tui.spawn, tui.start
engine = tui.spawn.start_engine
tui.start.start_engine = lambda: engine([sys.executable, {fake!r}, *{options!r}])
code = tui.start.run({arguments})
print("torch" in sys.modules, "numpy" in sys.modules, file=open({report!r}, "w"))
sys.exit(code)
"""


def been_here() -> Path:
    """A folder of what is remembered, of somebody who was here before: no tour is offered to them."""
    home = Path(tempfile.mkdtemp(prefix="layerstep-state-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    seen(home / "layerstep" / "session.json")
    return home


class Program:
    """A program on a pseudo-terminal."""

    def __init__(
        self, command: list[str], size: tuple[int, int] = (100, 30), stdin: int | None = None, **env: str
    ) -> None:
        self.ours, theirs = os.openpty()
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        home = been_here()
        self.state = home / "layerstep" / "session.json"
        usual = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
        theirs_not = ("COLUMNS", "LINES", "NO_COLOR")  # a test runner's
        env = {**os.environ, **usual, "XDG_STATE_HOME": str(home), **dict.fromkeys(theirs_not), **env}
        env = {name: value for name, value in env.items() if value is not None}
        self.process = subprocess.Popen(
            command, stdin=theirs if stdin is None else stdin, stdout=theirs, stderr=theirs, env=env, cwd=ROOT,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.output = b""

    def read(self, seconds: float = 0.05) -> bytes:
        while select.select([self.ours], [], [], seconds)[0]:
            try:
                data = os.read(self.ours, 65536)
            except OSError:
                break
            if not data:
                break
            self.output += data
            seconds = 0.0
        return self.output

    def until(self, text: str, seconds: float = 20.0) -> None:
        """Read on until the text was drawn, control sequences aside."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read()
            if text in plain(self.output):
                return
            if self.process.poll() is not None:
                break
        raise AssertionError(f"{text!r} was not drawn:\n{plain(self.output)[-3000:]}")

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def ended(self, seconds: float = 8.0) -> float:
        """Wait for the end; how long it took."""
        start = time.monotonic()
        while self.process.poll() is None:
            self.read(0.02)
            assert time.monotonic() - start < seconds, plain(self.output)[-2000:]
        self.read()
        return time.monotonic() - start


def plain(data: bytes) -> str:
    return re.sub(r"\x1b(\[[0-9;?<>=$]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\))", "", data.decode("utf-8", "replace"))


@contextmanager
def program(
    arguments: str = "", options: tuple[str, ...] = (), report: str = os.devnull, **more: object
) -> Iterator[Program]:
    code = RUN.format(root=str(ROOT), fake=str(FAKE), options=options, arguments=arguments, report=report)
    made = Program([sys.executable, "-c", code], **more)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()
        os.close(made.ours)
        os.close(made.theirs)


def test_keys_of_generating_reach_it_and_quitting_mid_token_is_quick() -> None:
    with program(options=("--pace", "0.3")) as running:
        running.until("step 1/")
        running.press("g")
        running.until("all 2 passes")
        running.press("{")
        running.until("pass @1")
        running.press("}\x7f")  # and backspace, as terminals send it
        running.press("G")
        running.until("generating")
        running.press("q")
        assert running.ended() < 2
        assert running.process.returncode == 0


def test_from_start_to_quit_without_torch(tmp_path: Path) -> None:
    report = tmp_path / "modules"
    with program(report=str(report), size=(120, 30)) as app:
        app.until("the engine is starting")
        app.until("step 1/45")
        app.press("/pattern\r")
        app.until("attention · pattern")
        app.press("\x1b[B\x1b[Ah")
        app.until("head 1 of 4")
        app.press("q")
        assert app.ended() < 4
        assert app.process.returncode == 0
        assert termios.tcgetattr(app.theirs) == app.before
        assert b"\x1b[?1049l" in app.output
        assert app.output.rfind(b"\x1b[?1003l") > app.output.rfind(b"\x1b[?1003h")
    assert report.read_text() == "False False\n"


@pytest.mark.parametrize("key", ["q", "\x03", "\x11"])
def test_quit_while_a_trace_is_opened_for_ages(key: str) -> None:
    with program(options=("--slow", "60", "--deaf")) as app:
        app.until("recording the pass")
        app.press(key)
        app.ended()
        assert app.process.returncode == 0


def test_the_mouse_can_be_left_to_the_terminal() -> None:
    with program(arguments="light=True, mouse=False") as app:
        app.until("step 1/45")
        assert b"\x1b[?1003h" not in app.output
        assert b"48;2;251;250;247" in app.output  # the light theme's ground
        app.press("q")
        app.ended()


def test_a_polite_kill_gives_the_terminal_back() -> None:
    with program() as app:
        app.until("step 1/45")
        app.process.send_signal(signal.SIGTERM)
        app.ended()
        assert termios.tcgetattr(app.theirs) == app.before
        assert app.output.rfind(b"\x1b[?1003l") > app.output.rfind(b"\x1b[?1003h")


def test_no_hostile_byte_reaches_the_terminal() -> None:
    with program(options=("--hostile",), size=(120, 40)) as app:
        app.until("step 1/45")
        app.press("/pattern\r")
        app.until("attention · pattern")
        walk = ("vh", "\x1b[A" * 12, "v", "/logits\r", "m", "\x1b", "?", "\x1b", "T", "p\r", ":\x1b", "s\x1b")
        generate = ("gg", "{{", "/logits\r", "\x1b[A.\r", "u", "\x1b", "x\x1b")
        cache = ("K", *(f"{n}m" for n in range(1, 7)), "1\x1b[D", "\x1b")
        views = ("/embed\r", *"234", "/1.mlp.post\r", *"34", "/1.resid_post\r", *"234", "/1.attn.pattern\r", *"3456789")
        dialogs = ("d", "d", "d", "D\x1b", "C\x1b", "e\x1b", "O\x1b", "W\x1b", "\x1b", "n", "l", "z", "z")
        for keys in (*walk, *generate, *cache):
            app.press(keys)
            app.read(0.25)
        for keys in (*views, *dialogs):
            app.press(keys)
            app.read(0.1)
        app.press("\x03")
        app.ended()
        for bad in HARMFUL:
            assert bad not in app.output, bad
        assert "␛]52;c" in plain(app.output)


def refused(command: list[str], **more: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, timeout=20, cwd=ROOT, start_new_session=True, **more)  # type: ignore[call-overload, no-any-return]


def test_without_a_terminal_it_says_what_to_do() -> None:
    for stdin in (subprocess.DEVNULL, subprocess.PIPE):
        done = refused([sys.executable, "-m", "tui", "hello"], stdin=stdin)
        assert done.returncode == 2
        assert done.stdout == b""
        assert done.stderr.count(b"\n") == 1
        assert b"needs a terminal" in done.stderr


def test_with_everything_closed_it_ends_with_2() -> None:
    done = refused(["sh", "-c", f'"{sys.executable}" -m tui hello <&- >&- 2>&-'])
    assert done.returncode == 2


@pytest.mark.parametrize("how", ["printf 'a piped prompt\\n' |", "cat /dev/null |", "<&-", "2>/dev/null"])
def test_a_piped_prompt_is_read_and_keys_come_from_the_terminal(how: str) -> None:
    code = RUN.format(root=str(ROOT), fake=str(FAKE), options=(), arguments="", report=os.devnull)
    run = f'"{sys.executable}" -c "$CODE"'
    app = Program(["sh", "-c", f"{how} {run}" if "|" in how else f"{run} {how}"], CODE=code)
    try:
        app.until("step 1/")
        app.until("␣piped" if "printf" in how else "␣server")
        app.press("q")
        app.ended()
        assert app.process.returncode == 0
        assert termios.tcgetattr(app.theirs) == app.before
    finally:
        if app.process.poll() is None:
            app.process.kill()
        app.process.wait()
        os.close(app.ours)
        os.close(app.theirs)


def test_a_prompt_that_is_no_text_is_refused() -> None:
    code = RUN.format(root=str(ROOT), fake=str(FAKE), options=(), arguments="", report=os.devnull)
    app = Program(["sh", "-c", f'printf "\\377\\000\\201" | "{sys.executable}" -c "$CODE"'], CODE=code)
    try:
        app.ended()
        assert app.process.returncode == 2
        assert "layerstep: the prompt is no text" in plain(app.output)
    finally:
        os.close(app.ours)
        os.close(app.theirs)


@pytest.mark.skipif(not HAS_ENGINE, reason="needs engine/service.py and samples/models/modern")
def test_the_real_program_walks_the_real_prompt() -> None:
    app = Program([sys.executable, "-m", "tui", "The server crashed because the disk was full"], size=(120, 56))
    try:
        app.until("step 1/", 60)
        app.press("/2.attn.pattern\r")
        app.until("Softmax over keys")
        app.until("rows sum to 1")
        app.press("/logits\r")
        app.until("probability")
        app.press("p")
        app.until("new prompt")
        app.press("dog bites man")  # the old prompt is selected, so it is replaced
        app.until("dog bites man")
        app.press("\r")
        app.until("␣man", 20)
        app.press("q")
        assert app.ended() < 4
        assert app.process.returncode == 0
        assert "Traceback" not in plain(app.output)
    finally:
        if app.process.poll() is None:
            app.process.kill()
        app.process.wait()
        os.close(app.ours)
        os.close(app.theirs)


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_leaving_at_any_moment_of_the_start(key: str) -> None:
    for tenths in range(0, 8, 2):
        with program() as app:
            if key == "\x03":  # typed before the terminal is the app's, it is a signal like any other program's
                app.until("quit")
            time.sleep(tenths / 10)
            app.press(key)
            app.ended()
            assert app.process.returncode == 0
            assert "Error" not in plain(app.output)


def test_an_interrupt_before_the_first_frame_is_silent() -> None:
    code = (
        "import sys, time, tui.start, tui.__main__ as main\n"
        "def run():\n    print('started')\n    time.sleep(20)\n"
        "tui.start.run = run\nsys.exit(main.main([]))"
    )
    app = Program([sys.executable, "-c", code])
    try:
        app.until("started")
        app.press("\x03")
        app.ended()
        assert app.process.returncode == 130
        assert "Traceback" not in plain(app.output)
    finally:
        os.close(app.ours)
        os.close(app.theirs)


def test_an_interrupt_just_before_the_first_frame_leaves() -> None:
    code = (
        "import os, signal, sys, tui.app, tui.__main__ as main\n"
        "run = tui.app.LayerstepApp.run\n"
        "tui.app.LayerstepApp.run = lambda app, **options: (os.kill(os.getpid(), signal.SIGINT), run(app, **options))\n"
        "sys.exit(main.main([]))"
    )
    app = Program([sys.executable, "-c", code])
    try:
        app.ended()
        assert app.process.returncode == 0
        assert "Error" not in plain(app.output)
    finally:
        os.close(app.ours)
        os.close(app.theirs)

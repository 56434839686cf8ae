"""Headless Chromium for tests, driven through its debugging pipe: NUL-separated JSON over descriptors 3 and 4.

No port, no websocket, no library. Whatever a test does, the browser and its profile are gone afterwards.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=Translate,MediaRouter,OptimizationHints",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # whatever a page asks for, there is no network
    "--hide-scrollbars",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-proxy-server",
    "--password-store=basic",
    "--use-mock-keychain",
    "about:blank",
)

KEYS = {
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Escape": 27, "Tab": 9,
    "Home": 36, "End": 35, "PageUp": 33, "PageDown": 34, "Backspace": 8, " ": 32,
}  # fmt: skip
"""Windows key codes of the keys that have a name."""

MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}

Json = dict[str, Any]


class ChromiumError(AssertionError):
    """The browser did not answer in time, died, or said that something cannot be done."""


class Browser:
    """One browser. Everything is synchronous: events are taken in while an answer is waited for."""

    def __init__(self, program: str, timeout: float = 30.0) -> None:
        self.timeout, self._ids, self._buffer = timeout, 0, bytearray()
        self._answers: dict[int, Json] = {}
        self._pages: dict[str, Page] = {}
        self.profile = tempfile.mkdtemp(prefix="layerstep-chromium-")
        their_in, self._write = os.pipe()
        self._read, their_out = os.pipe()
        # Above 4, so that neither of the two copies below overwrites the other.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (their_in, their_out)]
        os.close(their_in)
        os.close(their_out)
        os.set_blocking(self._write, False)
        flags = [*FLAGS[:-1], f"--user-data-dir={self.profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        environment = {**os.environ, "HOME": self.profile}
        environment.pop("DISPLAY", None)
        try:
            self.pid = os.posix_spawn(
                program,
                [program, *flags, FLAGS[-1]],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, ends[0], 3),
                    (os.POSIX_SPAWN_DUP2, ends[1], 4),
                ],
                setpgroup=0,
            )
        finally:
            for end in ends:
                os.close(end)

    # -- the conversation ------------------------------------------------------------------------------------------

    def send(self, method: str, session: str | None = None, timeout: float | None = None, **params: Any) -> Json:
        """Ask for something and wait for its answer. Raises ChromiumError for an error, a death, and a silence."""
        number = self.post(method, session, **params)
        until = time.monotonic() + (timeout or self.timeout)
        while number not in self._answers:
            self._take(until, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise ChromiumError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def post(self, method: str, session: str | None = None, **params: Any) -> int:
        """Ask for something and do not wait."""
        self._ids += 1
        message: Json = {"id": self._ids, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = memoryview(json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.timeout
        while data:
            _, ready, _ = select.select([], [self._write], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise ChromiumError(f"{method}: the browser takes nothing in")
            data = data[os.write(self._write, data[:65536]) :]
        return self._ids

    def listen(self, seconds: float) -> None:
        """Take in what happens for a while."""
        until = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            while True:
                self._take(until, None)

    def _take(self, until: float, waiting_for: str | None) -> None:
        """Read once, and hand out whole messages. TimeoutError where nobody waits for an answer."""
        ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            if waiting_for is None:
                raise TimeoutError
            raise ChromiumError(f"{waiting_for}: no answer in time")
        got = os.read(self._read, 1 << 20)
        if not got:
            raise ChromiumError(f"{waiting_for}: the browser died")
        self._buffer += got
        *messages, rest = self._buffer.split(b"\0") if b"\0" in got else [self._buffer]
        self._buffer = bytearray(rest)
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
                page.happened(message["method"], message["params"])

    # -- pages -----------------------------------------------------------------------------------------------------

    def page(self, width: int = 1280, height: int = 800, *, dark: bool = False, touch: bool = False) -> Page:
        """A new empty page of this size in CSS pixels."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        self._pages[session] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        page.send("Emulation.setFocusEmulationEnabled", enabled=True)  # it draws, whichever page is in front
        page.look(width, height, dark=dark, touch=touch)
        return page

    def open(self, path: Path | str, width: int = 1280, height: int = 800, **look: bool) -> Page:
        """A file in a new page (``#fragment`` and all in a str), loaded."""
        page = self.page(width, height, **look)
        page.go(path)
        return page

    def close(self) -> None:
        """Politely first, so that the browser reaps its own; then by force."""
        with contextlib.suppress(ChromiumError, OSError):
            self.send("Browser.close", timeout=3)
        for end in (self._read, self._write):
            os.close(end)
        if not self._ended(5):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._ended(5)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _ended(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                return True
            time.sleep(0.02)
        return False


class Page:
    """One page, and what happened in it: ``requests`` but for the page itself, ``errors`` that the console was told
    (uncaught exceptions and what the Content-Security-Policy refused among them), ``dialogs`` (closed at once)."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self.browser, self.session, self.target = browser, session, target
        self.url, self._loaded = "", False
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.dialogs: list[str] = []

    def send(self, method: str, timeout: float | None = None, **params: Any) -> Json:
        """Any command of the protocol, to this page."""
        return self.browser.send(method, self.session, timeout, **params)

    def happened(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            if (url := params["request"]["url"]) != self.url:
                self.requests.append(url)
        elif method == "Runtime.exceptionThrown":
            told = params["exceptionDetails"]
            self.errors.append(told.get("exception", {}).get("description") or told["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
            self.browser.post("Page.handleJavaScriptDialog", self.session, accept=False)
        elif method == "Page.loadEventFired":
            self._loaded = True

    def go(self, path: Path | str, timeout: float | None = None) -> float:
        """Open a file and wait for its load event; the seconds that it took."""
        name, _, fragment = str(path).partition("#")
        url = Path(name).resolve().as_uri()
        self.url, self._loaded, before = url, False, time.monotonic()
        self.send("Page.navigate", timeout, url=f"{url}#{fragment}" if fragment else url)
        until = before + (timeout or self.browser.timeout)
        while not self._loaded:
            self.browser._take(until, f"loading {path}")
        return time.monotonic() - before

    def look(
        self, width: int, height: int, *, dark: bool = False, touch: bool = False, media: str = "", calm: bool = False
    ) -> None:
        """Size in CSS pixels, colour scheme, medium ('print'), and whether less motion is asked for."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        features += [{"name": "prefers-reduced-motion", "value": "reduce"}] if calm else []
        self.send("Emulation.setEmulatedMedia", media=media, features=features)

    def evaluate(self, expression: str, timeout: float | None = None) -> Any:
        """The value of a JavaScript expression, of a promise what it resolves to. A throw is a ChromiumError."""
        told = self.send(
            "Runtime.evaluate", timeout, expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in told:
            details = told["exceptionDetails"]
            raise ChromiumError(details.get("exception", {}).get("description") or details["text"])
        return told["result"].get("value")

    def wait(self, expression: str, seconds: float = 10.0) -> Any:
        """The first true value of an expression, asked for again and again. ChromiumError where there is none."""
        until = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            if time.monotonic() > until:
                raise ChromiumError(f"never true in {seconds} s: {expression}; errors: {self.errors}")
            self.browser.listen(0.01)
        return value

    def painted(self) -> None:
        """Wait until what was changed is on the screen. A page behind another one would draw once in a second."""
        self.send("Page.bringToFront")
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def press(self, *keys: str) -> None:
        """Press and release keys by their names in the DOM ('ArrowRight', 'a', '?', 'Shift+Tab'), one by one."""
        for one in keys:
            *held, key = one.split("+") if len(one) > 1 else [one]
            bits = sum(MODIFIERS[name] for name in held)
            text = "\r" if key == "Enter" else key if len(key) == 1 and not bits & 7 else ""
            code = KEYS.get(key) or (ord(key.upper()) if key.isalnum() and len(key) == 1 else 0)
            about: Json = {"key": key, "modifiers": bits, "windowsVirtualKeyCode": code}
            if len(key) == 1 and key.isalpha():
                about["code"] = f"Key{key.upper()}"
            elif len(key) > 1:
                about["code"] = key
            more = {"text": text} if text else {}
            self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **about, **more)
            self.send("Input.dispatchKeyEvent", type="keyUp", **about)
        self.painted()

    def click(self, selector: str) -> None:
        """Click in the middle of the first element that a selector finds."""
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'nearest'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.painted()

    def swipe(self, start: tuple[float, float], stop: tuple[float, float], steps: int = 6) -> None:
        """One finger from here to there."""
        (x0, y0), (x1, y1) = start, stop
        self.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x0, "y": y0}])
        for i in range(1, steps + 1):
            point = {"x": x0 + (x1 - x0) * i / steps, "y": y0 + (y1 - y0) * i / steps}
            self.send("Input.dispatchTouchEvent", type="touchMove", touchPoints=[point])
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.painted()

    def screenshot(self, path: Path | str, *, whole: bool = False) -> None:
        """A PNG of what is seen, or of the ``whole`` page."""
        told = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(told["data"]))

    def pdf(self, path: Path | str | None = None, **options: Any) -> bytes:
        """What would be printed."""
        data = base64.b64decode(self.send("Page.printToPDF", printBackground=True, **options)["data"])
        if path is not None:
            Path(path).write_bytes(data)
        return data

    def read_aloud(self) -> list[tuple[str, str]]:
        """Role and name of all that a screen reader is told of, in order."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]

    def close(self) -> None:
        self.browser._pages.pop(self.session, None)
        self.browser.send("Target.closeTarget", targetId=self.target)


def program() -> str | None:
    """Where Chromium is; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextlib.contextmanager
def chromium(timeout: float = 30.0) -> Iterator[Browser]:
    """A browser for the length of a ``with``. The test is skipped where there is none."""
    found = program()
    if found is None:
        pytest.skip("no Chromium on this machine")
    browser = Browser(found, timeout)
    try:
        yield browser
    finally:
        browser.close()

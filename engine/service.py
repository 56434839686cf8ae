"""The engine as a process: the public API over a pipe.

Frames go both ways: a 4-byte big-endian length, a JSON header of that length, then ``header["bytes"]`` raw bytes.
A request ``{"id", "run", "method", "params"}`` is answered by ``{"id", "run", "ok": true, "result", "bytes"}`` or by
``{"id", "run", "ok": false, "error": {"kind", "message"}}``. Events are ``hello`` (at once), ``ready`` (torch is
there) and ``progress``. ``cancel`` is heard while another request runs; the end of the input ends the process.
A number that is not finite is null.

Only this module knows frames; what it answers with is the public API's, and nothing is computed here.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from engine.errors import Cancelled, LayerstepError, is_out_of_memory
from engine.jsontext import Json, for_ourselves
from engine.text import display

if TYPE_CHECKING:
    from engine.browse import Session

MAX_HEADER = 16 * 1024 * 1024
PROGRESS_SECONDS = 0.05


class Channel:
    """Frames out; safe from several threads."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def send(self, header: Json, payload: bytes | memoryview = b"") -> None:
        self.write(encoded(header, payload), payload)

    def write(self, text: bytes, payload: bytes | memoryview = b"") -> None:
        """A frame whose header is encoded already."""
        with self._lock:
            self._out.write(struct.pack(">I", len(text)))
            self._out.write(text)
            self._out.write(payload)
            self._out.flush()


def encoded(header: Json, payload: bytes | memoryview = b"") -> bytes:
    """A frame's header as it is sent."""
    return for_ourselves(header | {"bytes": len(payload)} if len(payload) else header).encode()


def receive(source: BinaryIO) -> Json | None:
    """The next frame's header; None at the end of the input. Raises ValueError where it is no frame."""
    head = source.read(4)
    if len(head) < 4:
        return None
    (size,) = struct.unpack(">I", head)
    if size > MAX_HEADER:
        raise ValueError(f"a frame of {size} bytes")
    header = json.loads(source.read(size))
    if not isinstance(header, dict):
        raise ValueError("a frame that is no object")
    return header


class Service:
    """Hears requests on one thread, answers them in order on another."""

    def __init__(self, source: BinaryIO, out: BinaryIO) -> None:
        self._source = source
        self._channel = Channel(out)
        self._requests: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._session: Session | None = None

    def serve(self) -> None:
        """Answer until the input ends."""
        self._channel.send({"event": "hello"})
        threading.Thread(target=self._listen, daemon=True).start()
        from engine.browse import Session  # imports torch, while the listener already hears

        self._session = Session()
        self._channel.send({"event": "ready", **self._session.about()})
        while (request := self._requests.get()) is not None:
            self._answer(request)
            if request.get("method") == "shutdown":
                return

    def _listen(self) -> None:
        try:
            while (request := receive(self._source)) is not None:
                if request.get("method") == "cancel":
                    self._cancelled.add(int(request["params"]["id"]))
                else:
                    self._requests.put(request)
        except (ValueError, KeyError, TypeError, OSError):
            print("engine: the conversation broke off", file=sys.stderr)
        os._exit(0)  # nobody listens any more; a computation on the other thread must not keep the process

    def _answer(self, request: Json) -> None:
        head = {"id": request.get("id"), "run": request.get("run")}
        try:
            result, payload = self._perform(request, self._watch(head))
            text = encoded(head | {"ok": True, "result": result}, payload)
        except BrokenPipeError:  # nobody listens any more
            raise
        except Exception as error:  # a failed request, or a result that cannot be said, must not end the engine
            payload = b""
            text = encoded(head | {"ok": False, "error": {"kind": kind_of(error), "message": line_of(error)}})
        self._channel.write(text, payload)
        if isinstance(head["id"], int):
            self._cancelled.discard(head["id"])

    def _perform(self, request: Json, watch: Callable[[int, int, str], None]) -> tuple[Any, bytes | memoryview]:
        session, method, params = self._session, request.get("method"), request.get("params") or {}
        assert session is not None
        watch(0, 1, str(method))
        match method:
            case "open":
                return session.open(params, watch), b""
            case "window":
                return session.window(params["address"], params, watch)
            case "look":
                return session.look(params, watch)
            case "top":
                return session.top(params["address"], int(params.get("k", 10)), params), b""
            case "checks":
                return session.checks(params.get("site"), watch, params.get("at"), params.get("trace") or "main"), b""
            case "close_other":
                return session.close_other(), b""
            case "models":
                return session.models(), b""
            case "save":
                return session.save(Path(params["path"]), bool(params.get("force", False))), b""
            case "export":
                return session.export(params, watch), b""
            case "generate":
                return session.generate(params, watch), b""
            case "branch":
                return session.branch(params["pos"], params["id"], watch), b""
            case "crop":
                return session.crop(params["n"], watch), b""
            case "branches":
                return session.branches.rows(), b""
            case "switch":
                return session.switch(params["branch"]), b""
            case "cache":
                return session.cache(params.get("tokens")), b""
            case "drift":
                return session.drift(watch), b""
            case "quantised":
                return session.quantised(params.get("bits", 8), watch), b""
            case "pages":
                return session.pages(params.get("size", 16)), b""
            case "timing":
                return session.timing(watch), b""
            case "shutdown":
                return {}, b""
        raise LayerstepError(f"the engine knows no method {display(str(method))!r}")

    def _watch(self, head: Json) -> Callable[[int, int, str], None]:
        """Reports progress now and then, and stops the work of a request that was cancelled."""
        last = time.monotonic()

        def watch(done: int, total: int, what: str) -> None:
            nonlocal last
            if head["id"] in self._cancelled:
                raise Cancelled("cancelled")
            if (now := time.monotonic()) - last > PROGRESS_SECONDS:
                last = now
                self._channel.send({"event": "progress", **head, "done": done, "total": total, "what": what})

        return watch


def kind_of(error: Exception) -> str:
    """The error's name in an answer; every way of running out of memory is one."""
    return "OutOfMemory" if is_out_of_memory(error) else type(error).__name__


def line_of(error: Exception) -> str:
    """One printable line of an error."""
    text = display(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, LayerstepError):
        return text
    if is_out_of_memory(error):
        return "out of memory; shorten the prompt or keep less"
    return f"{type(error).__name__}: {text}"[:300]


def main() -> None:
    """Speak frames on stdin and stdout. Whatever else prints to stdout goes to stderr."""
    from engine.runtime import prepare

    prepare()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            Service(sys.stdin.buffer, out).serve()
    except Exception:
        traceback.print_exc()
        os._exit(1)  # an orderly end would wait for the listener, and abort with words about that
    os._exit(0)


if __name__ == "__main__":
    main()

"""The app's side of the conversation with the engine.

Requests are coroutines; cancelling the coroutine cancels the request over there. Each ``open`` is a new run, and so is
each ``change`` of the trace; what is asked meanwhile still belongs to the run that is looked at: it is stale once the
new one is there, and good if the new one failed. A dead engine fails what waits, is told once to ``on_event``, and
``restart`` starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tui.link import Link, ProcessLink
from tui.wire import Header, floats, pack

OnProgress = Callable[[int, int, str], None]
OnEvent = Callable[[Header], None]


class EngineError(Exception):
    """What the engine could not do: its kind and one clear line."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Stale(EngineError):
    """The answer would belong to a trace that is no longer looked at."""

    def __init__(self) -> None:
        super().__init__("Stale", "another trace was opened meanwhile")


class EngineGone(EngineError):
    """The engine's process has ended."""

    def __init__(self, message: str) -> None:
        super().__init__("EngineGone", message)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: the result and, for windows, the values."""

    result: dict[str, Any]
    values: array[float] = field(repr=False)


@dataclass(slots=True)
class _Pending:
    run: int
    renews: bool  # its answer is another trace
    answer: asyncio.Future[Reply]
    on_progress: OnProgress | None


class EngineClient:
    """Asks an engine; never blocks the event loop."""

    def __init__(self, make_link: Callable[[], Link] = ProcessLink) -> None:
        self._make_link = make_link
        self._link = make_link()
        self._pending: dict[int, _Pending] = {}
        self._given_up: set[int] = set()
        self._last_id = 0
        self._on_event: OnEvent = lambda header: None
        self.run = 0
        self.looked_at = 0
        self.state = "starting"
        self.dropped = 0

    async def attach(self, on_event: OnEvent) -> None:
        """Begin to listen; events (hello, ready, gone) are handed to ``on_event``.

        There is one more, ``moved``: another trace is open over there, since an ``open`` was cancelled too late.
        """
        self._on_event = on_event
        await self._attach()

    async def request(self, method: str, on_progress: OnProgress | None = None, **params: Any) -> Reply:
        """Ask and wait. Raises EngineError with one clear line where it could not be done."""
        return await self._ask(method, self.looked_at, on_progress, params)

    async def open(self, on_progress: OnProgress | None = None, **params: Any) -> dict[str, Any]:
        """Open a trace: a new run. What waits for the older one is told that it is stale."""
        self.run += 1
        for number, waiting in list(self._pending.items()):
            if not waiting.answer.done():
                waiting.answer.set_exception(Stale())
            self._cancel(number)
        return (await self._ask("open", self.run, on_progress, params)).result

    async def change(self, method: str, on_progress: OnProgress | None = None, **params: Any) -> dict[str, Any]:
        """Make another trace of the open one: a new run. What was asked before is answered before it."""
        self.run += 1
        return (await self._ask(method, self.run, on_progress, params)).result

    def hasten(self) -> None:
        """Have the changes under way end early. Their answers, with what was done by then, still come."""
        for number, waiting in self._pending.items():
            if waiting.renews and self.state != "gone":
                self._send_cancel(number)

    async def _ask(self, method: str, run: int, on_progress: OnProgress | None, params: dict[str, Any]) -> Reply:
        if self.state == "gone":
            raise EngineGone("the engine is not running; it can be started again")
        self._last_id += 1
        number = self._last_id
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._pending[number] = _Pending(run, run > self.looked_at, answer, on_progress)
        self._link.send(pack({"id": number, "run": run, "method": method, "params": params}))
        try:
            return await answer
        except asyncio.CancelledError:
            self._cancel(number)
            raise
        finally:
            self._pending.pop(number, None)

    async def restart(self) -> None:
        """Start the engine again after it ended."""
        await self._link.close()
        self._link = self._make_link()
        self._given_up.clear()
        self.state = "starting"
        await self._attach()

    async def close(self) -> None:
        """End the engine; at most about a second."""
        self.state = "gone"
        self._fail(EngineGone("the engine was closed"))
        with contextlib.suppress(OSError):
            self._link.send(pack({"id": 0, "run": self.run, "method": "shutdown", "params": {}}))
        await self._link.close()

    def kill(self) -> None:
        """End the engine now, without an event loop."""
        self._link.kill()

    async def _attach(self) -> None:
        link = self._link
        await link.attach(self._received, lambda words: self._gone(link, words))

    def _cancel(self, number: int) -> None:
        if (waiting := self._pending.pop(number, None)) and self.state != "gone":
            self._send_cancel(number)
            if waiting.renews:
                self._given_up.add(number)

    def _send_cancel(self, number: int) -> None:
        self._link.send(pack({"id": 0, "run": self.run, "method": "cancel", "params": {"id": number}}))

    def _received(self, header: Header, payload: bytes) -> None:
        event = header.get("event")
        if event is not None and event != "progress":
            self.state = "ready" if event == "ready" else self.state
            self._on_event(header)
            return
        number = header.get("id", 0)
        if number in self._given_up and event is None:
            self._given_up.discard(number)
            if header.get("ok") and header.get("run") == self.run:  # it was done before the cancel was heard
                self._on_event({"event": "moved"})
        waiting = self._pending.get(number)
        if waiting is None or waiting.answer.done() or header.get("run") != waiting.run:
            self.dropped += 1
        elif event == "progress":
            if waiting.on_progress:
                waiting.on_progress(int(header["done"]), int(header["total"]), str(header.get("what", "")))
        elif header.get("ok"):
            if waiting.renews:
                self._arrived(waiting.run)
            waiting.answer.set_result(Reply(header.get("result") or {}, floats(payload)))
        else:
            error = header.get("error") or {}
            waiting.answer.set_exception(
                EngineError(str(error.get("kind", "Error")), str(error.get("message", "the engine gave no reason")))
            )

    def _arrived(self, run: int) -> None:
        """Another trace is looked at from now on, so the answers that still come for one before it are stale."""
        self.looked_at = run
        for waiting in self._pending.values():
            if waiting.run < run and not waiting.answer.done():
                waiting.answer.set_exception(Stale())

    def _gone(self, link: Link, words: str) -> None:
        if link is not self._link or self.state == "gone":
            return
        self.state = "gone"
        self._fail(EngineGone(words))
        self._on_event({"event": "gone", "message": words})

    def _fail(self, error: EngineError) -> None:
        for waiting in self._pending.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(error)

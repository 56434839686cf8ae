"""The pipes to the engine's process, read and written by the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from tui.spawn import start_engine
from tui.wire import Header, WireError, read_frame

OnFrame = Callable[[Header, bytes], None]
OnGone = Callable[[str], None]

KEPT_LINES = 200
_TELLING = re.compile(r"(\w+\.)*\w*(Error|Exception)\b|Fatal |.*\b(error|killed)\b", re.IGNORECASE)
"""Lines of stderr that say why a process ended, better than its very last line does."""


class Link(Protocol):
    """A way to an engine: bytes out, frames in, and word when it is gone."""

    async def attach(self, on_frame: OnFrame, on_gone: OnGone) -> None:
        """Begin to read; ``on_gone(last words)`` is called once, when the other side ended."""

    def send(self, data: bytes) -> None:
        """Queue bytes for the engine; never waits."""

    async def close(self, patience: float = 0.3) -> None:
        """End it within two seconds."""

    def kill(self) -> None:
        """End it now; works without an event loop."""


class ProcessLink:
    """An engine as a child process, over stdin, stdout and stderr."""

    def __init__(self, process: subprocess.Popen[bytes] | None = None) -> None:
        self._process = process or start_engine()
        self._words: deque[str] = deque(maxlen=KEPT_LINES)
        self._waiting: list[bytes] = []
        self._input: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.ReadTransport] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    async def attach(self, on_frame: OnFrame, on_gone: OnGone) -> None:
        """Connect the pipes to the running event loop."""
        loop = asyncio.get_running_loop()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        frames, words = asyncio.StreamReader(limit=2**20), asyncio.StreamReader(limit=2**16)
        for reader, pipe in ((frames, process.stdout), (words, process.stderr)):
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            self._outputs.append(transport)
        self._input, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        for data in self._waiting:
            self._input.write(data)
        self._waiting.clear()
        listening = asyncio.create_task(self._listen(words))
        self._tasks = [listening, asyncio.create_task(self._read(frames, listening, on_frame, on_gone))]

    def send(self, data: bytes) -> None:
        """Queue bytes; they are kept until the pipes are attached."""
        if self._input is None:
            self._waiting.append(data)
        elif not self._input.is_closing():
            self._input.write(data)

    async def close(self, patience: float = 0.3) -> None:
        """Close its stdin, then terminate, then kill; at most about a second."""
        self._closing = True
        if self._input is not None:
            self._input.close()
        elif self._process.stdin is not None:
            self._process.stdin.close()
        for end in (None, self._process.terminate, self._process.kill):
            if end is not None:
                end()
            if await self._ended(patience):
                break
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._release()

    def kill(self) -> None:
        """End the process at once and reap it."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._release()

    def _release(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        for transport in self._outputs:
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                transport.close()

    async def _ended(self, patience: float) -> bool:
        until = asyncio.get_running_loop().time() + patience
        while self._process.poll() is None:
            if asyncio.get_running_loop().time() >= until:
                return False
            await asyncio.sleep(0.01)
        return True

    async def _listen(self, words: asyncio.StreamReader) -> None:
        rest = b""
        while data := await words.read(2**16):
            *lines, rest = (rest + data).split(b"\n")
            self._words.extend(line.decode("utf-8", "replace") for line in lines if line.strip())
            rest = rest[-(2**16) :]
        if rest.strip():
            self._words.append(rest.decode("utf-8", "replace"))

    async def _read(
        self, frames: asyncio.StreamReader, listening: asyncio.Task[None], on_frame: OnFrame, on_gone: OnGone
    ) -> None:
        wrong = ""
        try:
            while True:
                on_frame(*await read_frame(frames))
        except asyncio.IncompleteReadError:
            pass
        except WireError as error:
            wrong = f"the engine sent {error}"
            self._process.kill()
        await asyncio.wait([listening], timeout=0.5)
        await self._ended(0.5)
        if not self._closing:
            on_gone(wrong or self._last_words())

    def _last_words(self) -> str:
        code = self._process.poll()
        told = [word for word in self._words if _TELLING.match(word)] or list(self._words)
        end = "ended" if code is None else f"ended with signal {-code}" if code < 0 else f"ended with code {code}"
        return f"the engine {end}" + (f": {told[-1].strip()}" if told else "")

"""The conversation with the engine: frames, cancelling, staleness, crashes, endings."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_engine import FakeEngine, MemoryLink

from tui.client import EngineClient, EngineError, EngineGone, Stale
from tui.link import ProcessLink
from tui.spawn import start_engine
from tui.wire import WireError, floats, pack, read_frame

FAKE = Path(__file__).parent / "fake_engine.py"


def process(*options: str) -> ProcessLink:
    return ProcessLink(start_engine([sys.executable, str(FAKE), *options]))


async def reading(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def test_a_frame_comes_back_as_it_went() -> None:
    payload = b"\0\0\x80?\0\0\0@"
    header, data = await read_frame(await reading(pack({"id": 1, "text": "\ud800 ü"}, payload)))
    assert header == {"id": 1, "text": "\ud800 ü", "bytes": 8}
    assert list(floats(data)) == [1.0, 2.0]


@pytest.mark.parametrize(
    "data",
    [
        b"Traceback (most recent call last)",
        pack([1]),
        b"\0\0\0\x02{]",
        pack({"bytes": -1}),
        pack({"bytes": "x"}),
        pack({"bytes": 1 << 40}),
    ],  # type: ignore[arg-type]
)
async def test_what_is_no_frame_is_said(data: bytes) -> None:
    with pytest.raises(WireError):
        await read_frame(await reading(data))


async def test_a_cut_frame_is_the_end() -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        await read_frame(await reading(pack({"id": 1, "x": "y"})[:-2]))


async def test_open_and_window_through_a_process() -> None:
    client = EngineClient(lambda: process())
    events: list[str] = []
    await client.attach(lambda header: events.append(header["event"]))
    summary = await client.open(model="modern", prompt="The server crashed")
    assert [token["label"] for token in summary["tokens"][0]] == ["<|bos|>", "The", "␣server", "␣crashed"]
    reply = await client.request("window", address="blocks.0.attn.pattern[b=0,h=1,q=0:4,k=0:2]@0")
    assert reply.result["axes"] == ["query", "key"]
    assert len(reply.values) == 8
    assert reply.values[1] == 0.0
    assert reply.values[0] == pytest.approx(1.0)
    assert events == ["hello", "ready"]
    assert client.state == "ready"
    started = time.monotonic()
    await client.close()
    assert time.monotonic() - started < 2


async def test_an_error_is_one_line_with_a_kind() -> None:
    client = EngineClient(MemoryLink)
    await client.attach(lambda header: None)
    with pytest.raises(EngineError, match="empty") as caught:
        await client.open(model="modern", prompt="")
    assert caught.value.kind == "PromptError"
    await client.close()


async def test_progress_reaches_its_request() -> None:
    client = EngineClient(MemoryLink)
    await client.attach(lambda header: None)
    seen: list[tuple[int, int, str]] = []
    await client.open(lambda *progress: seen.append(progress), model="modern", prompt="a b")
    assert seen[0] == (0, 20, "blocks.0.step0")
    assert len(seen) == 20
    await client.close()


async def test_cancelling_the_coroutine_cancels_over_there() -> None:
    client = EngineClient(lambda: process("--slow", "30"))
    await client.attach(lambda header: None)
    task = asyncio.create_task(client.open(model="modern", prompt="x"))
    await asyncio.sleep(0.3)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await client.request("models")).result["rows"]  # the engine is free again
    assert time.monotonic() - started < 4
    await client.close()


async def test_a_change_that_is_hastened_still_answers_with_what_it_did() -> None:
    client = EngineClient(lambda: process("--pace", "0.2"))
    await client.attach(lambda header: None)
    await client.open(model="modern", prompt="x")
    change = asyncio.create_task(client.change("generate", n=100))
    await asyncio.sleep(0.5)
    started = time.monotonic()
    client.hasten()
    answer = await change
    assert time.monotonic() - started < 0.5
    assert answer["generated"]["stopped"] == "cancelled"
    assert len(answer["tokens"][0]) == 2 + len(answer["generated"]["tokens"])
    assert client.looked_at == client.run
    await client.close()


async def test_what_was_asked_before_a_change_is_answered_and_what_was_asked_during_it_is_stale() -> None:
    link = MemoryLink(hold=True)
    client = EngineClient(lambda: link)
    await client.attach(lambda header: None)
    opening = asyncio.create_task(client.open(model="modern", prompt="one"))
    await asyncio.sleep(0)
    link.release()
    await opening
    link.hold = True
    before = asyncio.create_task(client.request("models"))
    await asyncio.sleep(0)
    changes = [asyncio.create_task(client.change("generate", n=1)) for _ in range(2)]
    await asyncio.sleep(0)
    during = asyncio.create_task(client.request("models"))
    await asyncio.sleep(0)
    link.release()
    assert (await before).result["rows"]
    assert [len((await change)["tokens"][0]) for change in changes] == [3, 4]
    with pytest.raises(Stale):
        await during
    assert (await client.request("models")).result["rows"]
    await client.close()


async def test_a_new_run_makes_the_older_answers_stale() -> None:
    link = MemoryLink(hold=True)
    client = EngineClient(lambda: link)
    await client.attach(lambda header: None)
    first = asyncio.create_task(client.open(model="modern", prompt="one"))
    await asyncio.sleep(0)
    old = asyncio.create_task(client.request("models"))
    await asyncio.sleep(0)
    second = asyncio.create_task(client.open(model="modern", prompt="two"))
    await asyncio.sleep(0)
    link.release()
    assert (await second)["prompt"] == "two"
    for task in (first, old):
        with pytest.raises(Stale):
            await task
    assert client.dropped > 0
    await client.close()


async def test_a_reply_of_an_older_run_is_dropped_even_with_a_known_id() -> None:
    link = MemoryLink()
    client = EngineClient(lambda: link)
    await client.attach(lambda header: None)
    await client.open(model="modern", prompt="one")
    waiting = asyncio.create_task(client.request("models"))
    await asyncio.sleep(0)
    client._received({"id": client._last_id, "run": client.run - 1, "ok": True, "result": {"rows": "old"}}, b"")
    assert (await waiting).result["rows"] != "old"
    await client.close()


async def test_a_dead_engine_says_its_last_words_and_starts_again() -> None:
    links = [process("--die-on", "models"), process()]
    client = EngineClient(lambda: links.pop(0))
    events: list[dict[str, object]] = []
    await client.attach(events.append)
    with pytest.raises(EngineGone, match="out of memory"):
        await client.request("models")
    assert events[-1]["event"] == "gone"
    assert "out of memory" in str(events[-1]["message"])
    with pytest.raises(EngineGone):
        await client.request("models")
    await client.restart()
    assert (await client.request("models")).result["rows"]
    await client.close()


async def test_something_that_is_no_engine_is_said() -> None:
    command = [sys.executable, "-c", "print('hello, I am no engine at all'); import time; time.sleep(60)"]
    client = EngineClient(lambda: ProcessLink(start_engine(command)))
    await client.attach(lambda header: None)
    with pytest.raises(EngineGone, match="the engine sent"):
        await client.request("models")
    await client.close()


async def test_an_engine_that_cannot_start_is_said() -> None:
    client = EngineClient(lambda: ProcessLink(start_engine([sys.executable, "-c", "import nothing_of_that_name"])))
    await client.attach(lambda header: None)
    with pytest.raises(EngineGone, match="nothing_of_that_name"):
        await client.request("models")
    await client.close()


async def test_a_deaf_engine_is_ended_within_two_seconds() -> None:
    client = EngineClient(lambda: process("--deaf"))
    ready = asyncio.Event()
    await client.attach(lambda header: ready.set() if header["event"] == "ready" else None)
    await asyncio.wait_for(ready.wait(), 5)
    started = time.monotonic()
    await client.close()
    assert time.monotonic() - started < 2


async def test_closing_before_attaching_leaves_no_process() -> None:
    child = start_engine([sys.executable, str(FAKE)])
    client = EngineClient(lambda: ProcessLink(child))
    await client.close()
    assert child.poll() is not None


def test_the_engine_hears_no_signal_of_the_terminal() -> None:
    child = start_engine([sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"])
    out, _ = child.communicate(timeout=10)
    assert out.strip() == b"True"


def test_fake_engine_is_deterministic() -> None:
    one, two = FakeEngine(), FakeEngine()
    for engine in (one, two):
        engine.answer("open", {"model": "modern", "prompt": "a b c"}, lambda *progress: None, lambda: False)
    ask = ("window", {"address": "blocks.1.attn.scores[b=0,h=0]"}, lambda *progress: None, lambda: False)
    assert one.answer(*ask)[1] == two.answer(*ask)[1]


def test_nothing_of_the_client_imports_torch_or_textual() -> None:
    seen = "print([m for m in ('torch', 'numpy', 'textual') if m in sys.modules])"
    code = f"import sys, tui.client, tui.link, tui.session; {seen}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=FAKE.parents[2])
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("late", [True, False])
async def test_an_open_that_was_done_before_its_cancel_was_heard_is_told(late: bool) -> None:
    link, events = MemoryLink(), []
    client = EngineClient(lambda: link)
    await client.attach(lambda header: events.append(header["event"]))
    link.hold = True
    opening = asyncio.create_task(client.open(prompt="a", model="modern"))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    if late:
        link._cancelled.clear()
    link.release()
    assert ("moved" in events) == late
    await client.close()

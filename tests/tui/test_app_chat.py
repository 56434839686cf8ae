"""A chat in the app: the engine is told so, also of the next prompt."""

from __future__ import annotations

from typing import Any

from fake_engine import FakeEngine
from helpers import main_of, running, settled


async def test_a_chat_stays_one_when_the_prompt_is_another() -> None:
    engine = FakeEngine()
    asked: list[dict[str, Any]] = []
    opened = engine._open

    def spy(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return opened(params) | {"prompt": "<|user|>hello<|end|>"}

    engine._open = spy  # type: ignore[method-assign]
    request = {"model": "modern", "prompt": "hello", "chat": "yes"}
    async with running(engine=engine, request=request) as (app, pilot):
        await pilot.press("p")
        await pilot.pause()
        assert main_of(app).prompt_asked() == "hello"  # and not what the template made of it
        await pilot.press("end", *" you", "enter")
        await settled(pilot)
    assert [(params["prompt"], params.get("chat")) for params in asked] == [("hello", "yes"), ("hello you", "yes")]


async def test_a_plain_prompt_is_no_chat() -> None:
    engine = FakeEngine()
    asked: list[dict[str, Any]] = []
    opened = engine._open

    def spy(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return opened(params)

    engine._open = spy  # type: ignore[method-assign]
    async with running(engine=engine):
        pass
    assert "chat" not in asked[0]

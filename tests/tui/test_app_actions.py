"""Every action of the registry, by its key: something changes, something is asked, or it is said why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fake_engine import FakeEngine, MemoryLink
from helpers import main_of, running, settled
from textual.pilot import Pilot

from tui.actions import ACTIONS, Action
from tui.app import LayerstepApp

PATTERN = "blocks.0.attn.pattern"
FIRST = {
    "back": ("d",), "beside.flip": ("d",), "layer.previous": ("right_square_bracket",), "head.previous": ("h",),
    "view.previous": ("v",),
}  # fmt: skip
"""Keys before the one of an action, where it needs something to do."""
SILENT = ("batch.next", "batch.previous")
"""Without a batch they move nothing, as the cursor does at an end."""


def state(app: LayerstepApp, link: MemoryLink) -> dict[str, Any]:
    """All that an action may change."""
    main = main_of(app)
    chosen = (
        "cursor",
        "scale_mode",
        "shades",
        "zoom",
        "beside",
        "difference",
        "maximised",
        "tree_wanted",
        "why_wanted",
    )
    return {name: getattr(main, name) for name in chosen} | {
        "views": dict(main.view_choice), "sampling": main.sampling, "theme": app.theme, "screen": type(app.screen),
        "focus": app.focused, "said": [said.identity for said in app._notifications], "plays": main._player,
        "tour": main.playing, "presents": main.presenting, "blank": main.blanked, "sent": len(link.sent),
        "left": app._exit,
    }  # fmt: skip


async def test_every_key_does_something_or_says_why_not() -> None:
    link, quiet = MemoryLink(FakeEngine()), list[str]()
    async with running(size=(140, 40), link=lambda: link) as (app, pilot):
        for action in sorted(ACTIONS, key=lambda action: action.id == "quit"):
            if action.id not in SILENT and not await does_something(action, app, pilot, link):
                quiet.append(action.id)
    assert not quiet


async def does_something(action: Action, app: LayerstepApp, pilot: Pilot[None], link: MemoryLink) -> bool:
    main = main_of(app)
    for _ in range(4):
        if app.screen is not main or main.beside or main.playing or main.presenting or main.blanked:
            await pilot.press("escape")
            await settled(pilot)
    assert app.screen is main, action.id
    main.view_choice.clear()
    main.move_to(replace(main.here[1], step=main.here[0].by_site[PATTERN].index, head=0, pos=4, key=4))
    main.focus_picture()
    await pilot.press(*FIRST.get(action.id, ()))
    await settled(pilot)
    before = state(app, link)
    if action.keys:
        await pilot.press(action.keys[0])
    else:
        main.action_do(action.id)
    await pilot.pause()
    return state(app, link) != before

"""Draws the README's pictures: the real app on the real engine and a sample model, and a figure, as SVG.

python docs/pictures.py
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from engine import load_model, save_as, trace
from engine.export.formats import FigureStyle
from tui.app import LayerstepApp
from tui.client import EngineClient
from tui.link import ProcessLink

FOLDER = Path(__file__).parent / "pictures"
PROMPT = "The server crashed because the disk was full. It"

PICTURES = {
    "app": ("modern", "blocks.1.attn.pattern[h=7,q=10,k=2]@0", (132, 38), ()),
    "values": ("modern", "blocks.2.mlp.post[p=10,d=0]@0", (132, 38), ()),
    "logits": ("classic", "logits[p=10]@0", (132, 38), ()),
    "arcs": ("modern", "blocks.1.attn.pattern[h=5,q=7,k=6]@0", (132, 38), ("3",)),
    "lens": ("modern", "blocks.3.resid_post[p=10]@0", (160, 36), ("3",)),
    "beside": ("modern", "blocks.1.attn.pattern[h=6,q=10,k=2]@0", (160, 36), ("d",)),
    "rotation": ("modern", "blocks.1.attn.rot_q[h=3,p=5]@0", (132, 38), ("4",)),
    "generated": ("modern", "blocks.1.attn.pattern[h=7]", (132, 38), ("g",) * 6),
    "cache": ("modern", "tokens", (160, 45), (*("g",) * 6, "K", "left", "3", "m", "4", "m", "5", "m", "1")),
}
"""File name -> model, the place looked at, size in cells, keys that are pressed then."""
FIGURE = ("The server crashed because the disk was full", "blocks.1.attn.pattern[h=5]")
"""The prompt and the place of the figure."""
PRESENTED = ("heads", (132, 38), ("right",) * 2)
"""The tour that is presented, the size in cells, keys that are pressed then."""


async def draw(name: str, app: LayerstepApp, size: tuple[int, int], keys: tuple[str, ...]) -> None:
    async with app.run_test(size=size) as pilot:
        for _ in range(600):
            await pilot.pause(0.1)
            strips = app.screen._compositor.render_strips()
            if strips and re.search(r"\d+/\d+", strips[0].text) and not len(app.screen.workers):
                break
        else:
            raise SystemExit(f"{name}: the app did not open it within a minute")
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.7)  # it asks the engine
        await pilot.pause(1.5)
        svg = app.export_screenshot(title="layerstep")
    (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
    print(FOLDER / f"{name}.svg")


def main() -> None:
    os.environ |= {"COLORTERM": "truecolor", "TERM": "xterm-256color"}  # cells filled with colour, whoever draws
    FOLDER.mkdir(exist_ok=True)
    for name, (model, address, size, keys) in PICTURES.items():
        app = LayerstepApp(lambda: EngineClient(ProcessLink), {"model": model, "prompt": PROMPT}, address)
        asyncio.run(draw(name, app, size, keys))
    tour, size, keys = PRESENTED
    asyncio.run(draw("presented", LayerstepApp(lambda: EngineClient(ProcessLink), tour=tour, present=True), size, keys))
    trace_of = trace(load_model("modern"), FIGURE[0])
    save_as(trace_of, FOLDER / "figure.svg", at=FIGURE[1], style=FigureStyle(size="page"), force=True)


if __name__ == "__main__":
    main()

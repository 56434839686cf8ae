"""Draws the README's pictures: the real app on the real engine and a sample model, as SVG.

python docs/pictures.py
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tui.app import LayerstepApp
from tui.client import EngineClient
from tui.link import ProcessLink

FOLDER = Path(__file__).parent / "pictures"
PROMPT = "The server crashed because the disk was full. It"

PICTURES = {
    "app": (("modern", PROMPT), "blocks.1.attn.pattern[h=7,q=10,k=2]@0", (132, 38)),
    "values": (("modern", PROMPT), "blocks.2.mlp.post[p=10,d=0]@0", (132, 38)),
    "logits": (("classic", PROMPT), "logits[p=10]@0", (132, 38)),
}
"""File name -> model and prompt, the place looked at, size in cells."""


async def draw(name: str, model: str, prompt: str, address: str, size: tuple[int, int]) -> None:
    app = LayerstepApp(lambda: EngineClient(ProcessLink), {"model": model, "prompt": prompt}, address)
    async with app.run_test(size=size) as pilot:
        for _ in range(600):
            await pilot.pause(0.1)
            strips = app.screen._compositor.render_strips()
            if strips and re.search(r"step \d+/", strips[0].text) and not len(app.screen.workers):
                break
        else:
            raise SystemExit(f"{name}: the app did not open {prompt!r} within a minute")
        await pilot.pause(1.5)
        svg = app.export_screenshot(title="layerstep")
    (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
    print(FOLDER / f"{name}.svg")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, ((model, prompt), address, size) in PICTURES.items():
        asyncio.run(draw(name, model, prompt, address, size))


if __name__ == "__main__":
    main()

"""Markdown as lines of segments, in a theme's inks."""

from __future__ import annotations

from collections.abc import Iterator

from rich.segment import Segment
from rich.style import Style

from engine.markdown import Tree
from tui.render.palette import Inks
from tui.render.prose import lines_of


def said(
    inks: Inks, tree: Tree, width: int, margin: str = "  ", mark: str = "", roomy: bool = False
) -> Iterator[list[Segment]]:
    """The lines of a text of at most ``width`` cells behind a margin, the first of them with a mark of its own."""
    tones = {"strong": inks.strong, "em": inks.text + Style(italic=True), "code": inks.accent}
    for line in lines_of(tree, width - len(mark), roomy):
        words = (Segment(text, tones.get(how, inks.text)) for text, how in line)
        yield [Segment(margin + mark, inks.primary), *words]
        mark = " " * len(mark)

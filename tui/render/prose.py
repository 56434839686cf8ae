"""Markdown in lines of cells: paragraphs, lists and code of a tree of ``engine.markdown``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from engine.markdown import Block, Inline, Tree
from tui.text import cells, fit

Piece = tuple[str, str]
"""Some text and how it is set: ``""``, ``"strong"``, ``"em"``, ``"code"``."""
NARROWEST = 4


def lines_of(tree: Tree, width: int, roomy: bool = False) -> Iterator[list[Piece]]:
    """The lines of a text, each of at most ``width`` cells; ``roomy``: an empty one between its paragraphs.

    Code is quoted, since colour alone says nothing.
    """
    for n, block in enumerate(tree):
        if n and roomy:
            yield []
        yield from _block(block, max(NARROWEST, width))


def _block(block: Block, width: int) -> Iterator[list[Piece]]:
    kind, inside = block
    if kind == "p":
        yield from _wrapped(_words(_pieces(inside, "")), width)
    elif kind == "pre":
        for line in inside.split("\n"):
            yield [(fit(line, min(width, cells(line))), "code")] if line else []
    else:
        for number, item in enumerate(inside, 1):
            point = f"{number}. " if kind == "ol" else "• "
            for n, line in enumerate(lines_of(item, width - len(point))):
                yield [(point if n == 0 else " " * len(point), ""), *line]


def _pieces(inlines: Iterable[Inline], kind: str) -> Iterator[Piece]:
    """Texts and how each is set; of two ways that lie in each other the inner one counts."""
    for node in inlines:
        match node[0]:
            case "text":
                yield node[1], kind
            case "code":
                yield f"“{node[1]}”", "code"
            case "mark":
                yield f"{{{node[1]}:{node[2]}}}", kind
            case inner:
                yield from _pieces(node[1], inner)


def _words(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """The words of a text; one is of several pieces where it is set in several ways."""
    word: list[Piece] = []
    for piece, kind in pieces:
        for n, part in enumerate(piece.split(" ")):
            if n and word:
                yield word
                word = []
            if part:
                word.append((part, kind))
    if word:
        yield word


def _wrapped(words: Iterator[list[Piece]], width: int) -> Iterator[list[Piece]]:
    line: list[Piece] = []
    used = 0
    for word in chain.from_iterable(_cut(word, width) for word in words):
        size = sum(cells(text) for text, _ in word)
        if used and used + 1 + size > width:
            yield line
            line, used = [], 0
        line += [(" ", ""), *word] if used else word
        used += size + (used > 0)
    if line:
        yield line


def _cut(word: list[Piece], width: int) -> Iterator[list[Piece]]:
    """A word in parts of at most ``width`` cells."""
    if sum(cells(text) for text, _ in word) <= width:
        yield word
        return
    for text, kind in word:
        while text:
            head = fit(text, min(width, cells(text)), cut="").rstrip() or text[:1]
            yield [(head, kind)]
            text = text[len(head) :]

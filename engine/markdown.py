"""Narration in Markdown as a small tree of texts, which the app, the page, the handout and the shell draw alike.

A tree is a list of blocks, in plain lists so that it is JSON as it stands:

| block | |
| --- | --- |
| ``["p", inlines]`` | a paragraph; a heading is one in bold |
| ``["ul", items]``, ``["ol", items]`` | a list; an item is a list of blocks |
| ``["pre", text]`` | code over some lines |

| inline | |
| --- | --- |
| ``["text", text]``, ``["code", text]`` | |
| ``["strong", inlines]``, ``["em", inlines]`` | |
| ``["mark", kind, what]`` | ``{kind:what}``, which somebody fills in (`replaced`) |

The text may be foreign: HTML in it is text, links and images are their words, and every text has passed `display`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from engine.text import display

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

Inline = list[Any]
Block = list[Any]
Tree = list[Block]

DEEPEST = 20
"""So many emphases are told apart inside each other."""

_MARK = re.compile(r"\{(\w*):([^{}\n]*)\}")
_PLAIN_LINK = re.compile(r"https?://", re.IGNORECASE)


def parse(text: str) -> Tree:
    """The tree of a text."""
    tree: Tree = []
    stack: list[list[Any]] = [tree]
    for token in _parser().parse(text):
        if token.type in ("fence", "code_block"):
            lines = token.content.rstrip("\n").expandtabs(4).split("\n")
            stack[-1].append(["pre", "\n".join(map(display, lines))])
        elif token.type == "inline":
            stack[-1].extend(_inlines(token.children or []))
        elif token.nesting == 1:
            stack.append(_opened(token.type, stack[-1]))
        elif token.nesting == -1 and not stack.pop() and token.type == "heading_close":
            stack[-1].pop()
    return tree


def replaced(tree: Tree, put: Callable[[str, str], Inline]) -> Tree:
    """The tree with something in the place of each mark."""

    def anew(node: Any) -> Any:
        if not isinstance(node, list):
            return node
        return put(node[1], node[2]) if node[:1] == ["mark"] else _joined([anew(part) for part in node])

    return [anew(block) for block in tree]


def _joined(parts: list[Any]) -> list[Any]:
    """The same, with texts that are neighbours now as one."""
    joined: list[Any] = []
    for part in parts:
        if part[:1] == ["text"] and joined and joined[-1][:1] == ["text"]:
            joined[-1] = ["text", joined[-1][1] + part[1]]
        else:
            joined.append(part)
    return joined


def marks(tree: Tree) -> Iterator[tuple[str, str]]:
    """What is to be filled in, in order: (kind, what) of each mark."""
    for node in tree:
        if node[:1] == ["mark"]:
            yield node[1], node[2]
        elif isinstance(node, list):
            yield from marks([part for part in node if isinstance(part, list)])


def texts(tree: Tree) -> Iterator[str]:
    """The prose of a tree, piece by piece, without its code."""
    for node in tree:
        if node[:1] == ["text"]:
            yield node[1]
        elif node[:1] not in (["code"], ["pre"]):
            yield from texts([part for part in node if isinstance(part, list)])


def plain(tree: Tree) -> list[str]:
    """The tree as lines of text, one for each paragraph or point, with ```code``` as it is written."""
    return list(_lines(tree, _as_text))


def markdown(tree: Tree) -> str:
    """The tree as Markdown in which nothing is markup that was none before."""
    return "\n\n".join(_lines(tree, _as_markdown))


# --- reading ----------------------------------------------------------------------------------------------

_LISTS = {"bullet_list_open": "ul", "ordered_list_open": "ol"}


def _opened(kind: str, here: list[Any]) -> list[Any]:
    """Begin a block here; the list that its parts go to. A list after another one of its kind goes on with that."""
    inside: list[Any] = []
    if kind in _LISTS and here and here[-1][:1] == [_LISTS[kind]]:
        return here[-1][1]  # type: ignore[no-any-return]
    if kind in _LISTS:
        here.append([_LISTS[kind], inside])
    elif kind == "list_item_open":
        here.append(inside)
    else:
        here.append(["p", [["strong", inside]] if kind == "heading_open" else inside])
    return inside


def _inlines(tokens: list[Token]) -> list[Inline]:
    root: list[Inline] = []
    stack = [root]
    links: list[str] = []
    for token in tokens:
        kind, here = token.type, stack[-1]
        if kind in ("strong_open", "em_open"):
            inside: list[Inline] = here if len(stack) > DEEPEST else []
            if inside is not here:
                here.append([kind.removesuffix("_open"), inside])
            stack.append(inside)
        elif kind in ("strong_close", "em_close"):
            stack.pop()
        elif kind == "mark":
            here.append(["mark", token.meta["kind"], token.meta["what"]])
        elif kind == "code_inline":
            here.append(["code", display(token.content)])
        elif kind == "link_open":
            links.append("" if token.markup == "autolink" else str(token.attrs.get("href", "")))
        elif kind == "link_close":
            if _PLAIN_LINK.match(address := links.pop()):
                _say(here, f" ({address})")
        elif kind == "image":
            _say(here, _said(_inlines(token.children or [])))
        elif kind in ("softbreak", "hardbreak"):
            _say(here, " " if root else "")
        else:
            _say(here, token.content)
    _show(root)
    return root


def _say(here: list[Inline], text: str) -> None:
    """Add a piece to a text, where there is one just before."""
    if here and here[-1][0] == "text":
        here[-1][1].append(text)
    elif text:
        here.append(["text", [text]])


def _show(inlines: list[Inline]) -> None:
    """Make the texts of their pieces, printable."""
    for node in inlines:
        if node[0] == "text":
            node[1] = display("".join(node[1]))
        elif node[0] in ("strong", "em"):
            _show(node[1])


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False})
    parser.disable(["html_block", "html_inline", "hr", "lheading", "reference", "blockquote"])
    parser.inline.ruler.before("escape", "mark", _mark)
    return parser


def _mark(state: StateInline, silent: bool) -> bool:
    found = _MARK.match(state.src, state.pos)
    if not found:
        return False
    if not silent:
        state.push("mark", "", 0).meta = {"kind": found[1], "what": found[2].strip()}
    state.pos = found.end()
    return True


# --- writing ----------------------------------------------------------------------------------------------

_SPECIAL = re.compile(r"[\\`*_\[\]<>{&|~$#]")
_AT_START = re.compile(r"(?:([-+=])|(\d+)([.)]))")
"""What begins a list, or a line that makes a heading of the one before."""


def _lines(tree: Tree, write: Callable[[Block], str], indent: str = "") -> Iterator[str]:
    for block in tree:
        if block[0] in ("p", "pre"):
            yield "\n".join(indent + line for line in write(block).split("\n"))
            continue
        for number, item in enumerate(block[1], 1):
            point = "- " if block[0] == "ul" else f"{number}. "
            inner = " " * len(point)
            first, *rest = list(_lines(item, write, indent + inner)) or [""]
            yield indent + point + first[len(indent + inner) :]
            yield from rest


def _as_text(block: Block) -> str:
    return f"    {block[1]}".replace("\n", "\n    ") if block[0] == "pre" else _said(block[1])


def _said(inlines: list[Inline]) -> str:
    return "".join(
        f"`{node[1]}`" if node[0] == "code"
        else node[1] if node[0] == "text"
        else _unfilled(node) if node[0] == "mark"
        else _said(node[1])
        for node in inlines
    )  # fmt: skip


def _as_markdown(block: Block) -> str:
    if block[0] == "pre":
        fence = _ticks(block[1], 3)
        return f"{fence}\n{block[1]}\n{fence}"
    text = _marked_up(block[1])
    found = _AT_START.match(text)
    return text if not found else f"\\{text}" if found[1] else f"{found[2]}\\{text[len(found[2]) :]}"


def _marked_up(inlines: list[Inline], within: tuple[str, ...] = ()) -> str:
    said, before = "", ""
    for kind, *what in inlines:
        if kind == "text":
            said += _SPECIAL.sub(lambda found: f"\\{found[0]}", what[0])
        elif kind == "code":
            said += _code(what[0])
        elif kind == "mark":
            said += _unfilled([kind, *what])
        else:
            star = "_" if before in ("strong", "em") else "*"
            around = "" if kind in within else star * 2 if kind == "strong" else star
            said += around + _marked_up(what[0], (*within, kind)) + around
        before = kind
    return said


def _unfilled(mark: Inline) -> str:
    return f"{{{mark[1]}:{mark[2]}}}"


def _code(text: str) -> str:
    """A code span: between more backticks than there are in it."""
    ticks = _ticks(text, 1)
    space = " " if text.strip() and (text[0] in "` " or text[-1] in "` ") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _ticks(text: str, least: int) -> str:
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))

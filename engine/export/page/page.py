"""Writes a page: the template with its style and script, and between them the tensors and the document.

Nothing in a page comes from outside and nothing in it may ask for anything: its Content-Security-Policy allows the
one script and the one style that are in it, by their hashes, and no more. Foreign text is data in it, never markup.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from engine.export.order import Order
from engine.export.page import document, planned
from engine.export.page.blocks import Blocks
from engine.export.page.safe import safe
from engine.runtime import Watch

if TYPE_CHECKING:
    from jinja2 import Template

_OPEN, _CLOSE = '<script type="application/json" id="layerstep">', "</script>\n"
_POLICY = (
    "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def write(order: Order, file: BinaryIO, watch: Watch | None = None) -> None:
    """Write the page. Raises what `document.document` raises, and what ``watch`` does."""
    before, between, after = _frame(document.title(order))
    file.write(before)
    data = document.document(order, Blocks(file, order.dtype), watch)
    file.write(between)
    file.write(f"{_OPEN}{safe(data)}{_CLOSE}".encode("ascii"))
    file.write(after)


def size(order: Order) -> int:
    """How many bytes the page will be: its tensors to the byte, the rest about."""
    return planned.tensors(order) + planned.told(order) + _around(order)


def cheaper(order: Order, limit: int) -> str:
    """What to choose so that the page fits into so many bytes, in words."""
    return planned.cheaper(order, limit, planned.told(order) + _around(order))


def _around(order: Order) -> int:
    return sum(map(len, _frame(document.title(order))))


class _Assets(NamedTuple):
    """What is in every page. ``policy`` allows just this script and this style."""

    template: Template
    style: str
    script: str
    policy: str


@cache
def _assets() -> _Assets:
    from jinja2 import Environment, StrictUndefined

    folder = files("engine.export.page") / "assets"

    def read(name: str) -> str:  # a browser takes the hash after it has made every line end "\n"
        return (folder / name).read_text(encoding="utf-8").replace("\r\n", "\n")

    names = read("scripts.txt").split()
    script = '(() => {\n"use strict";\n' + "\n".join(lean(read(name)) for name in names) + "\n})();"
    style = read("page.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    template = environment.from_string(read("page.html.jinja"))
    return _Assets(template, style, script, _POLICY.format(_hash(script), _hash(style)))


def lean(script: str) -> str:
    """A script without its margins and without the lines that are a comment: a seventh less in every page. No text of
    ours runs over the end of a line."""
    lines = (line.strip() for line in script.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/**")))


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _frame(title: str) -> tuple[bytes, bytes, bytes]:
    """The page around what is written as it comes: before the tensors, between them and the document, after it."""
    from markupsafe import Markup

    assets = _assets()
    blocks, data = Markup("<!--blocks-->"), Markup("<!--document-->")  # a title cannot hold them: it is escaped
    page = assets.template.render(
        title=title,
        csp=Markup(assets.policy),
        style=Markup(assets.style),
        script=Markup(assets.script),
        blocks=blocks,
        document=data,
    )
    before, rest = page.split(blocks)
    between, after = rest.split(data)
    return before.encode(), between.encode(), after.encode()

"""HTML for notebooks: elements whose every text is foreign text, and colours that suit a light and a dark page.

It is built as a tree, so that nothing can be forgotten to be escaped: a text is text, an attribute an attribute. There
is no script, no style sheet and no link, since notebooks take them out; MathJax is told to leave it alone.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

from engine.text import display

Inside = Element | str
POSITIVE, NEGATIVE = (31, 119, 180), (213, 94, 0)
"""Red, green and blue of what is above zero and below it: told apart by the colour-blind, and on paper by its sign."""
STRONGEST = 0.9
"""How much of the ground a colour covers at most: so the page's own ink, dark or light, is read on it (5 : 1)."""
FONT = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:12px;line-height:1.35"
CELL = "padding:1px 5px;text-align:right;white-space:nowrap;border:0;"
HEAD = CELL + "font-weight:normal;opacity:.7;"
NOT_FINITE = CELL + "background:rgba(204,0,90,.85);color:#fff;font-weight:bold;"


def el(tag: str, *inside: Inside, style: str = "", **attributes: str) -> Element:
    """An element. Texts are made printable here, and escaped when it is written."""
    node = Element(tag, {"style": style} if style else {})
    for name, value in attributes.items():
        node.set(name, display(value))
    last: Element | None = None
    for one in inside:
        if isinstance(one, Element):
            node.append(last := one)
        elif last is None:
            node.text = (node.text or "") + display(one)
        else:
            last.tail = (last.tail or "") + display(one)
    return node


def page(*inside: Inside) -> str:
    """What a notebook is handed."""
    node = el("div", *inside, style=FONT + ";overflow-x:auto;max-width:100%")
    node.set("class", "layerstep tex2jax_ignore mathjax_ignore")
    return tostring(node, "unicode", "html")


def title(text: str, more: str = "") -> Element:
    rest = (el("span", f"  {more}", style="opacity:.7;white-space:pre-wrap"),) if more else ()
    return el("div", el("strong", text), *rest, style="margin:2px 0 4px")


def line(*inside: Inside, faint: bool = False) -> Element:
    wrapped = "margin:2px 0;white-space:pre-wrap;overflow-wrap:anywhere;max-width:100ch"
    return el("div", *inside, style=wrapped + (";opacity:.7" if faint else ""))


def folded(what: str, *inside: Inside) -> Element:
    """Something to be opened by a click."""
    return el("details", el("summary", what, style="cursor:pointer"), *inside, style="margin:4px 0")


def table(heads: Sequence[str], rows: Iterable[Sequence[Inside]], left: Sequence[int] = ()) -> Element:
    """A table; the columns numbered in ``left`` are of words."""

    def cell(tag: str, one: Inside, column: int, style: str) -> Element:
        if isinstance(one, Element) and one.tag == "td":
            return one
        return el(tag, one, style=style + ("text-align:left;" if column in left else ""))

    top = [el("tr", *(cell("th", head, i, HEAD) for i, head in enumerate(heads)))] if any(heads) else []
    body = [el("tr", *(cell("td", one, i, CELL) for i, one in enumerate(row)), style="background:none") for row in rows]
    return el("table", *top, *body, style="border-collapse:collapse;margin:4px 0;color:inherit;" + FONT)


def heat(value: float, limit: float, text: str, what: str = "") -> Element:
    """A cell of a heatmap: the colour covers the ground by how large the value is, so that zero is the page itself."""
    if not math.isfinite(value):
        return el("td", text, style=NOT_FINITE, title=what)
    share, (red, green, blue) = STRONGEST * _share(value, limit), NEGATIVE if value < 0 else POSITIVE
    return el("td", text, style=f"{CELL}background:rgba({red},{green},{blue},{share:.2f})", title=what)


def hidden(what: str = "masked") -> Element:
    """A masked cell."""
    return el("td", "·", style=CELL + "opacity:.35;text-align:center;", title=what)


def bar(value: float, limit: float) -> Element:
    """A bar as long as the value is large."""
    red, green, blue = NEGATIVE if value < 0 else POSITIVE
    wide = round(160 * _share(value, limit)) if math.isfinite(value) else 0
    drawn = f"display:inline-block;height:.8em;width:{wide}px;background:rgb({red},{green},{blue})"
    return el("td", el("span", style=drawn), style=CELL + "text-align:left;")


def pixels(values: Sequence[Sequence[float]], limit: float, what: str, width: int) -> Element:
    """A picture of one dot per value, so many points wide: as colours over whatever is below it."""
    data = base64.b64encode(_png(values, limit)).decode()
    style = f"width:{width}px;image-rendering:pixelated;border:1px solid rgba(128,128,128,.5);background:none"
    return el("img", style=style, alt=what, src=f"data:image/png;base64,{data}")


def ends(size: int, most: int) -> list[int]:
    """Indices of so many of ``size``, the middle left out; −1 stands for it."""
    if size <= most:
        return list(range(size))
    first = most // 2
    return [*range(first), -1, *range(size - (most - first), size)]


def short(value: float) -> str:
    """A number to three digits."""
    if math.isnan(value):
        return "NaN"
    return f"{value:.3g}" if math.isfinite(value) else "∞" if value > 0 else "−∞"


def largest(values: Iterable[float]) -> float:
    """The largest finite magnitude; 0 of nothing."""
    return max((abs(value) for value in values if math.isfinite(value)), default=0.0)


def _share(value: float, limit: float) -> float:
    return min(1.0, abs(value) / limit) if limit else 0.0


def _png(values: Sequence[Sequence[float]], limit: float) -> bytes:
    """A PNG of red, green, blue and how much of it covers the ground (its specification, sections 5 and 11)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + b"".join(_dot(value, limit) for value in row) for row in values)
    size = struct.pack(">IIBBBBB", len(values[0]) if values else 0, len(values), 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def _dot(value: float, limit: float) -> bytes:
    if math.isnan(value) or value == math.inf:
        return bytes((204, 0, 90, 255))
    if value == -math.inf:  # masked, or told beside the picture
        return bytes(4)
    return bytes((*(NEGATIVE if value < 0 else POSITIVE), round(255 * _share(value, limit))))

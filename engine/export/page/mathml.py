"""Formulas as trees that a page can build safely: lists of a tag, its attributes, and trees or texts inside."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

Tree = list[Any]

ATTRIBUTES = frozenset({"stretchy", "fence", "form", "displaystyle", "scriptlevel", "width"})
"""What is kept of a tag; the letters' own shapes follow from how many stand together."""
TAGS = frozenset(
    {"math", "mi", "mn", "mo", "mrow", "msub", "msup", "msubsup", "mfrac", "msqrt", "mroot", "mspace", "mtext",
     "mstyle", "mtable", "mtr", "mtd", "mover", "munder", "munderover"}
)  # fmt: skip


def trees(formulas: Iterable[str]) -> dict[str, Tree]:
    """Each formula's tree, by its LaTeX; what is no LaTeX that is understood is left out."""
    found = {latex: tree(latex) for latex in dict.fromkeys(formulas) if latex}
    return {latex: made for latex, made in found.items() if made is not None}


@lru_cache(maxsize=512)
def tree(latex: str) -> Tree | None:
    """The tree of a formula in LaTeX; None where it is not understood."""
    from xml.etree.ElementTree import fromstring

    from latex2mathml.converter import convert

    try:
        root = fromstring(convert(latex, display="block"))
    except Exception:  # the converter has no error of its own; the formula is then shown as text
        return None
    return _tree(root)


def _tree(element: Element) -> Tree | None:
    tag = element.tag.rpartition("}")[2]
    if tag not in TAGS:
        return None
    about = {name: value for name, value in element.attrib.items() if name in ATTRIBUTES}
    if tag == "math":
        about["display"] = "block"
    text = (element.text or "").replace(" ", "\N{NO-BREAK SPACE}") if tag == "mtext" else (element.text or "").strip()
    inside: list[Any] = [text] if text else []
    for letters, children in groupby(element, _is_letter):
        if letters and tag == "mrow":  # \mathrm{softmax} comes letter by letter, and would be read aloud so
            name = "".join(child.text or "" for child in children)
            inside.append(["mi", {"mathvariant": "normal"} if len(name) == 1 else {}, [name]])
            continue
        for child in children:
            made = _tree(child)
            if made is None:
                return None
            inside.append(made)
    return [tag, about, inside]


def _is_letter(element: Element) -> bool:
    return element.tag.endswith("mi") and element.get("mathvariant") == "normal"

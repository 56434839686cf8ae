"""Names of tensors and places in them.

A *site* is a named tensor with named axes: ``blocks.3.attn.pattern`` over (batch, head, query, key). An
*address* is a place in a trace as text, ``blocks.3.attn.pattern[h=3,q=8,k=2]@1``: site, index by axis, pass.
The names are TransformerLens's with ``hook_`` left out; ``normalise`` drops it where somebody writes it.

Nothing here imports torch: the app, the command line and the engine share these words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from engine.errors import AddressError

LETTERS: Mapping[str, str] = {
    "batch": "b",
    "pos": "p",
    "kv_pos": "k",
    "past": "k",
    "head": "h",
    "kv_head": "g",
    "query": "q",
    "key": "k",
    "src": "p",
    "src_query": "q",
    "src_key": "k",
    "d_model": "d",
    "d_embed": "d",
    "d_head": "d",
    "d_mlp": "d",
    "d_rot": "d",
    "d_vocab": "v",
    "scale": "d",
    "expert": "e",
    "choice": "c",
    "d_expert": "d",
    **{f"d_pool{i}": "d" for i in range(8)},
}
"""Axis name -> its letter in an address. No site has two axes with one letter."""


@dataclass(frozen=True, slots=True)
class Site:
    """A named tensor: ``name`` and the names of its axes, outermost first.

    ``window`` is the sliding window of its layer, where that decides how many earlier positions it has: those that no
    later query sees are not held.
    """

    name: str
    axes: tuple[str, ...]
    window: int | None = None

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Its shape for these sizes of axes (``ModelConfig.axis_sizes``)."""
        if self.window is not None:
            past = self.held(sizes["past"])
            sizes = {**sizes, "past": past, "kv_pos": past + sizes["pos"], "key": past + sizes["pos"]}
        return tuple(sizes[axis] for axis in self.axes)

    def held(self, past: int) -> int:
        """How many of so many earlier positions it has: a causal window of W reaches W − 1 back."""
        return past if self.window is None else min(past, self.window - 1)

    @property
    def block(self) -> int | None:
        """The layer it belongs to; None outside the blocks."""
        return block_of(self.name)


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range ``start:stop`` along one axis; None is an open end. It keeps its axis."""

    start: int | None = None
    stop: int | None = None

    def __str__(self) -> str:
        return f"{'' if self.start is None else self.start}:{'' if self.stop is None else self.stop}"


Index = int | Span

ENCODER = "encoder."
"""What the names of an encoder-decoder's encoder begin with."""
SOURCE_AXES: Mapping[str, str] = {"pos": "src", "query": "src_query", "key": "src_key"}
"""A decoder's axes -> the same in the encoder beside it."""
QUERIES, KEYS = ("query", "src_query"), ("key", "src_key")
PASS_AXES, HELD_AXES = ("pos", "query"), ("key", "kv_pos", "past")
"""Axes over the tokens of a pass, and over those that it looks back at."""
TOKEN_AXES = (*PASS_AXES, *HELD_AXES, *SOURCE_AXES.values())
"""Axes along which the tokens of a text stand."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_0-9]+)*")
_ADDRESS = re.compile(r"(?P<site>[^\[\]@\s]+)(?:\[(?P<index>[^\[\]]*)\])?(?:@(?P<at>\d{1,9}))?", re.ASCII)
_TERM = re.compile(
    r"(?P<axis>[A-Za-z_][A-Za-z_0-9]*)=(?P<start>-?\d{1,12})?(?:(?P<colon>:)(?P<stop>-?\d{1,12})?)?", re.ASCII
)


def normalise(name: str) -> str:
    """The site name meant by ``name``: TransformerLens's ``hook_`` prefixes are dropped."""
    return ".".join(part.removeprefix("hook_") for part in name.split("."))


def block_of(name: str) -> int | None:
    """The layer in ``blocks.L.…`` or ``encoder.blocks.L.…``, or None."""
    parts = name.removeprefix(ENCODER).split(".", 2)
    return int(parts[1]) if len(parts) == 3 and parts[0] == "blocks" and parts[1].isdecimal() else None


def within_block(name: str) -> str:
    """What a block's site is called inside its block: ``attn.q`` of ``blocks.3.attn.q``; the name itself elsewhere."""
    return name.removeprefix(ENCODER).split(".", 2)[2] if block_of(name) is not None else name


def depth_name(name: str) -> str:
    """What a place along depth is called: ``2.mid`` of ``blocks.2.resid_mid``, ``2.mlp`` of ``blocks.2.mlp_out``."""
    inner, block = within_block(name).removeprefix("resid_").removesuffix("_out"), block_of(name)
    return inner if block is None else f"{block}.{inner}"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a site name matches one of the patterns (``blocks.*.attn.q``)."""
    return any(fnmatchcase(name, normalise(pattern)) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Address:
    """A place in a trace: ``site[axis=index,…]@pass``.

    ``index`` holds (axis, index) pairs as they were written, an axis by its name or its letter; ``at`` is the
    pass, None for the passes stitched together.
    """

    site: str
    index: tuple[tuple[str, Index], ...] = field(default=())
    at: int | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address. Raises AddressError where the text is none."""
        found = _ADDRESS.fullmatch(text.strip())
        if not found or not _NAME.fullmatch(normalise(found["site"])):
            raise AddressError(f"{_short(text)} is not an address; write e.g. blocks.2.attn.pattern[h=3,q=8]@0")
        index = (
            tuple(_term(text, term.strip()) for term in found["index"].split(",") if term.strip())
            if found["index"]
            else ()
        )
        letters = [LETTERS.get(axis, axis) for axis, _ in index]
        if len(set(letters)) < len(letters):
            raise AddressError(f"{_short(text)} names an axis twice")
        return cls(normalise(found["site"]), index, int(found["at"]) if found["at"] else None)

    def __str__(self) -> str:
        index = ",".join(f"{LETTERS.get(axis, axis)}={value}" for axis, value in self.index)
        return self.site + (f"[{index}]" if index else "") + ("" if self.at is None else f"@{self.at}")

    def with_index(self, **index: Index | None) -> Address:
        """The same place with some axes set anew (by letter); None removes an axis."""
        merged: dict[str, Index | None] = {LETTERS.get(axis, axis): value for axis, value in self.index}
        merged.update(index)
        return Address(self.site, tuple((a, v) for a, v in merged.items() if v is not None), self.at)

    def resolve(self, axes: tuple[str, ...], shape: tuple[int, ...]) -> dict[str, Index]:
        """The index by axis name, non-negative and inside ``shape``. Raises AddressError naming axis and size."""
        by_key = {axis: axis for axis in axes} | {LETTERS[axis]: axis for axis in axes}
        sizes = dict(zip(axes, shape, strict=True))
        resolved: dict[str, Index] = {}
        for key, value in self.index:
            if key not in by_key:
                known = ", ".join(f"{LETTERS[axis]} ({axis})" for axis in axes)
                raise AddressError(f"{self}: {self.site} has no axis {key!r}; its axes are {known}")
            axis = by_key[key]
            resolved[axis] = _inside(self, axis, value, sizes[axis])
        return resolved


def _short(text: str) -> str:
    """A text as an error quotes it."""
    text = text.strip()
    return repr(text if len(text) <= 120 else f"{text[:119]}…")


def _term(text: str, term: str) -> tuple[str, Index]:
    found = _TERM.fullmatch(term)
    if not found or not (found["colon"] or found["start"]):
        raise AddressError(
            f"{_short(text)}: {_short(term)} is no index; write an axis and a number or a range, e.g. h=3 or q=0:8"
        )
    start = int(found["start"]) if found["start"] else None
    if not found["colon"]:
        assert start is not None
        return found["axis"], start
    return found["axis"], Span(start, int(found["stop"]) if found["stop"] else None)


def _inside(address: Address, axis: str, value: Index, size: int) -> Index:
    if isinstance(value, Span):
        start, stop, _ = slice(value.start, value.stop).indices(size)
        return Span(start, max(start, stop))
    if not -size <= value < size:
        raise AddressError(f"{address}: {axis} {value} is outside 0…{size - 1}")
    return value % size

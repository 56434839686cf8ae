"""What the engine derived from a trace, as ``look`` answers it: read once, then frozen.

``read`` takes the answer and its float32 payload. A number that is not finite is null on the wire and NaN here, or None
where its absence means something (an entropy that there is none of, an empty cell of a table). What is malformed
raises KeyError, TypeError or ValueError; labels are foreign text.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from tui.state.block import Stats

Answer = Mapping[str, Any]
Cell = str | int | float | tuple[str, ...] | None
"""Of a table: a label, a whole number, a number, some labels; None where there is none."""


@dataclass(frozen=True, slots=True)
class Look:
    """What all of them share: the name that was asked for, and words for people."""

    KIND: ClassVar[str] = ""

    look: str = ""
    title: str = ""
    formula: str = ""
    story: str = ""
    numbers: str = ""

    @classmethod
    def read(cls, result: Answer, values: Sequence[float] = ()) -> Self:
        """From the engine's answer and its payload."""
        words = {name: _text(result.get(name)) for name in ("look", "title", "formula", "story", "numbers")}
        return cls(**words, **cls._fields(result, values))

    @classmethod
    def _fields(cls, result: Answer, values: Sequence[float]) -> dict[str, Any]:
        """What this kind has more."""
        return {}


@dataclass(frozen=True, slots=True)
class Grid(Look):
    """Positions × depth: ``values`` [rows, columns], a column for each of ``sites``, perhaps a label for each cell."""

    KIND: ClassVar[str] = "grid"

    axis: str = "pos"
    start: int = 0
    size: int = 0
    sites: tuple[str, ...] = ()
    values: array[float] = field(default_factory=lambda: array("f"), repr=False)
    texts: tuple[tuple[str, ...], ...] = ()
    stats: Stats = field(default_factory=Stats)

    def text(self, row: int, col: int) -> str:
        """The label in a cell (``row`` of this answer); '' where there is none."""
        return self.texts[row][col] if 0 <= row < len(self.texts) and 0 <= col < len(self.texts[row]) else ""

    @classmethod
    def _fields(cls, result: Answer, values: Sequence[float]) -> dict[str, Any]:
        rows, sites = result["rows"], _texts(result["cols"]["sites"])
        size = int(rows["size"])
        texts = tuple(map(_texts, result.get("texts") or ()))
        _expect(len(values), size * len(sites), f"values of {size} × {len(sites)} cells")
        if texts:
            _expect(len(texts), size, "rows of labels")
            for row in texts:
                _expect(len(row), len(sites), "labels in a row")
        return {
            "axis": str(rows.get("axis") or "pos"), "start": int(rows.get("start") or 0), "size": size, "sites": sites,
            "values": array("f", values), "texts": texts, "stats": Stats.read(result.get("stats") or {}),
        }  # fmt: skip


class Tile(NamedTuple):
    """A small picture: of which site and head, or how the heads were put together. ``entropy`` is in bits."""

    title: str
    site: str
    head: int | None
    reduce: str
    entropy: float | None


@dataclass(frozen=True, slots=True)
class Thumbs(Look):
    """Small pictures of query × key planes: ``values`` [n, height, width].

    ``columns`` are side by side, 0: as many as there is room for.
    """

    KIND: ClassVar[str] = "thumbs"

    tiles: tuple[Tile, ...] = ()
    shape: tuple[int, int, int] = (0, 0, 0)
    columns: int = 0
    values: array[float] = field(default_factory=lambda: array("f"), repr=False)

    def row(self, tile: int, y: int) -> Sequence[float]:
        """One line of one tile."""
        _, height, width = self.shape
        start = (tile * height + y) * width
        return self.values[start : start + width]

    @classmethod
    def _fields(cls, result: Answer, values: Sequence[float]) -> dict[str, Any]:
        count, height, width = map(int, result["shape"])
        tiles = tuple(
            Tile(_text(t["title"]), str(t["site"]), _whole(t.get("head")), str(t.get("reduce") or ""),
                 _number(t.get("entropy")))
            for t in result["tiles"]
        )  # fmt: skip
        _expect(len(tiles), count, "tiles")
        _expect(len(values), count * height * width, f"values of {count} × {height} × {width} cells")
        columns = int(result.get("columns") or 0)
        return {"tiles": tiles, "shape": (count, height, width), "columns": columns, "values": array("f", values)}


class Column(NamedTuple):
    """A column of a table; ``kind`` is ``label``, ``int``, ``number``, ``bar`` (a number to be drawn) or ``labels``."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Table(Look):
    """A ranked table, the best row first."""

    KIND: ClassVar[str] = "list"

    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()

    @classmethod
    def _fields(cls, result: Answer, values: Sequence[float]) -> dict[str, Any]:
        columns = tuple(Column(_text(c["name"]), str(c["kind"])) for c in result["columns"])
        for row in result["rows"]:
            _expect(len(row), len(columns), "cells in a row")
        rows = tuple(
            tuple(READERS[column.kind](cell) for column, cell in zip(columns, row, strict=True))
            for row in result["rows"]
        )
        return {"columns": columns, "rows": rows}


class Pair(NamedTuple):
    """Two dims that RoPE turns together: by which angle, and the vector in their plane before and after."""

    pair: int
    dims: tuple[int, int]
    inv_freq: float
    angle: float
    cos: float
    sin: float
    before: tuple[float, float]
    after: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rotation(Look):
    """RoPE of one head's q or k at one position: all its pairs, and how many dims of how many are turned at all.

    ``pair`` is the one that holds the cursor's dim, None where that is not turned.
    """

    KIND: ClassVar[str] = "rotation"

    pairs: tuple[Pair, ...] = ()
    pair: int | None = None
    convention: str = ""
    theta: float = math.nan
    scaling: str = ""
    position: int = 0
    rotated: int = 0
    of: int = 0

    @property
    def chosen(self) -> Pair | None:
        """The pair that holds the cursor's dim."""
        return next((pair for pair in self.pairs if pair.pair == self.pair), None)

    @classmethod
    def _fields(cls, result: Answer, values: Sequence[float]) -> dict[str, Any]:
        return {
            "pairs": tuple(map(_pair, result["pairs"])), "pair": _whole(result["pair"]),
            "convention": _text(result.get("convention")), "theta": _finite(result.get("theta")),
            "scaling": _text(result.get("scaling")), "position": int(result["position"]),
            "rotated": int(result["rotated"]), "of": int(result["of"]),
        }  # fmt: skip


class Stage(NamedTuple):
    """One stop of a cell from score to weight. ``state`` is '', ``masked``, ``nan``, ``+inf`` or ``-inf``."""

    site: str
    label: str
    value: float | None
    state: str
    words: str


@dataclass(frozen=True, slots=True)
class Chain(Look):
    """One query × key cell through scores, scaling, cap, mask and softmax."""

    KIND: ClassVar[str] = "chain"

    stages: tuple[Stage, ...] = ()

    @classmethod
    def _fields(cls, result: Answer, values: Sequence[float]) -> dict[str, Any]:
        return {
            "stages": tuple(
                Stage(str(s["site"]), _text(s["label"]), _number(s["value"]), str(s.get("state") or ""),
                      _text(s.get("words")))
                for s in result["stages"]
            )
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Histogram(Look):
    """How many values lie between each two of ``edges``, what lies outside them, and quantiles of the finite ones."""

    KIND: ClassVar[str] = "histogram"

    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    nan: int = 0
    above: int = 0
    below: int = 0
    masked: int = 0
    q01: float | None = None
    q50: float | None = None
    q99: float | None = None
    stats: Stats = field(default_factory=Stats)

    @classmethod
    def _fields(cls, result: Answer, values: Sequence[float]) -> dict[str, Any]:
        edges, counts = tuple(map(_finite, result["edges"])), tuple(map(int, result["counts"]))
        if counts or edges:  # a plane without a finite value has neither
            _expect(len(edges), len(counts) + 1, f"edges of {len(counts)} bins")
        beyond = {name: int(result.get(name) or 0) for name in ("nan", "above", "below", "masked")}
        quantiles = {name: _number(result.get(name)) for name in ("q01", "q50", "q99")}
        stats = Stats.read(result.get("stats") or {})
        return {"edges": edges, "counts": counts, **beyond, **quantiles, "stats": stats}


KINDS: dict[str, type[Look]] = {kind.KIND: kind for kind in (Grid, Thumbs, Table, Rotation, Chain, Histogram)}


def read(result: Answer, values: Sequence[float] = ()) -> Look:
    """The answer in the class of its kind. Raises KeyError, TypeError or ValueError where it makes no sense."""
    return KINDS[result["kind"]].read(result, values)


def _pair(entry: Answer) -> Pair:
    (one, other), (x, y), (u, v) = entry["dims"], entry["before"], entry["after"]
    return Pair(
        pair=int(entry["pair"]),
        dims=(int(one), int(other)),
        inv_freq=_finite(entry["inv_freq"]),
        angle=_finite(entry["angle"]),
        cos=_finite(entry["cos"]),
        sin=_finite(entry["sin"]),
        before=(_finite(x), _finite(y)),
        after=(_finite(u), _finite(v)),
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError("one text came where there should be several")
    return tuple(map(_text, values))


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _finite(value: Any) -> float:
    """A number, NaN for null."""
    return math.nan if value is None else float(value)


def _expect(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise ValueError(f"{found} {what} came, {expected} were expected")


READERS: dict[str, Any] = {
    "label": _text, "int": _whole, "number": _number, "bar": _number,
    "labels": lambda cell: () if cell is None else _texts(cell),
}  # fmt: skip
"""How a cell of each kind of column is read."""

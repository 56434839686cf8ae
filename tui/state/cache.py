"""The engine's answers about the KV cache: its report, time, drift and what-ifs. Read once, then frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Any, ClassVar, Protocol, Self

from tui.state.numbers import count, rounded


class Answer(Protocol):
    """What the engine answers to one of these questions."""

    METHOD: ClassVar[str]

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        """From the engine's answer."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer's cache holds after the last pass, in rows (positions) and bytes."""

    layer: int
    kind: str
    window: int | None
    heads: int
    kv_heads: int
    group: int
    d_head: int
    stored: int
    dropped: int
    bytes: int
    allocated: int
    formula: int

    def rows(self, positions: int) -> int:
        """How many rows it holds once ``positions`` have been seen: all, unless its window has dropped some."""
        return min(positions, self.stored) if self.dropped else positions

    def held_bytes(self, positions: int) -> int:
        """Their bytes."""
        return round(self.bytes * self.rows(positions) / self.stored) if self.stored else 0


@dataclass(frozen=True, slots=True)
class Growth:
    """One pass: how many positions there are after it, how many of them it added, and the bytes then."""

    at: int
    positions: int
    new: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Share:
    """A key/value head and the query heads that read it."""

    kv_head: int
    heads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What the cache would take if something were otherwise. ``this``: so it is; ``beyond``: over ``n_ctx``.

    ``more`` is what is counted beside the numbers themselves.
    """

    name: str
    bytes: int
    this: bool = False
    beyond: bool = False
    more: str = ""


@dataclass(frozen=True, slots=True)
class CacheReport:
    """The whole report. ``none`` is why there is no cache, '' where there is one."""

    METHOD: ClassVar[str] = "cache"

    none: str = ""
    text: str = ""
    dtype: str = ""
    itemsize: int = 0
    device: str = ""
    tokens: int = 0
    layers: tuple[Layer, ...] = ()
    sharing: tuple[Share, ...] = ()
    growth: tuple[Growth, ...] = ()
    per_token: int = 0
    bytes: int = 0
    allocated: int = 0
    formula: int = 0
    formula_text: str = ""
    kinds: tuple[Cost, ...] = ()
    dtypes: tuple[Cost, ...] = ()
    lengths: tuple[Cost, ...] = ()
    fits: str = ""

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> CacheReport:
        """From the engine's answer. Raises what ``understood`` understands."""
        if answer.get("none"):
            return cls(none=str(answer.get("text") or "this model keeps no cache"))
        report = cls(
            text=str(answer.get("text") or ""),
            dtype=str(answer["dtype"]),
            itemsize=int(answer["itemsize"]),
            device=str(answer.get("device") or ""),
            tokens=int(answer["tokens"]),
            layers=tuple(map(_layer, answer["layers"])),
            sharing=tuple(Share(int(row["kv_head"]), tuple(map(int, row["heads"]))) for row in answer["sharing"]),
            growth=tuple(
                Growth(*(int(row[key]) for key in ("at", "positions", "new", "bytes"))) for row in answer["growth"]
            ),
            per_token=int(answer["per_token"]),
            bytes=int(answer["bytes"]),
            allocated=int(answer["allocated"]),
            formula=int(answer["formula"]),
            formula_text=str(answer.get("formula_text") or ""),
            kinds=tuple(_cost(str(row["name"]), row) for row in answer.get("as_kinds") or ()),
            dtypes=tuple(_cost(str(row["name"]), row) for row in answer.get("as_dtypes") or ()),
            lengths=tuple(
                Cost(
                    count(int(row["tokens"])),
                    int(row["bytes"]),
                    int(row["tokens"]) == int(answer["tokens"]),
                    bool(row.get("beyond")),
                )
                for row in answer.get("at_lengths") or ()
            ),
            fits=_fits(answer.get("fits") or {}),
        )
        if not report.layers or not report.growth:
            raise ValueError("a cache without layers or passes")
        return report

    def at_pass(self, at: int) -> Growth:
        """The pass, or the last one where there are not so many."""
        return self.growth[max(0, min(at, len(self.growth) - 1))]


@dataclass(frozen=True, slots=True)
class Timing:
    """A token's time with the cache and without it, in milliseconds."""

    METHOD: ClassVar[str] = "timing"

    cached: float
    uncached: float
    tokens: int

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Timing:
        """From the engine's answer."""
        return cls(float(answer["cached_ms"]), float(answer["uncached_ms"]), int(answer["tokens"]))

    @property
    def ratio(self) -> float:
        """How many times longer it takes without."""
        return self.uncached / self.cached if self.cached > 0 else nan


@dataclass(frozen=True, slots=True)
class Gap:
    """A site at which the cached and the uncached run differ."""

    site: str
    at: int
    gap: float


@dataclass(frozen=True, slots=True)
class Drift:
    """Cached against uncached: the largest difference per pass and layer, and in the logits of each pass.

    Each site has a tolerance of its own; ``tolerance`` is that of ``first``, else that of ``worst``, the nearest to it.
    """

    METHOD: ClassVar[str] = "drift"

    tolerance: float
    dtype: str
    ok: bool
    first: Gap | None
    first_bit: Gap | None
    passes: tuple[int, ...]
    gaps: tuple[tuple[float, ...], ...]
    logits: tuple[float, ...]
    text: str = ""
    worst: Gap | None = None

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Drift:
        """From the engine's answer. A difference that is no number is NaN."""
        rows = answer["rows"]
        return cls(
            float(answer["tolerance"]),
            str(answer.get("dtype") or ""),
            bool(answer["ok"]),
            _gap(answer.get("first")),
            _gap(answer.get("first_bit")),
            tuple(int(row["at"]) for row in rows),
            tuple(tuple(_real(gap) for gap in row["gaps"]) for row in rows),
            tuple(_real(gap) for gap in answer.get("logits") or ()),
            str(answer.get("text") or ""),
            _gap(answer.get("worst")),
        )

    @property
    def site(self) -> Gap | None:
        """The site to look at: the first beyond the tolerance, else the first that differs at all."""
        return self.first or self.first_bit


@dataclass(frozen=True, slots=True)
class Damage:
    """What a coarser cache does to one site: the largest error, and its share of the site's norm."""

    site: str
    error: float
    relative: float


@dataclass(frozen=True, slots=True)
class Quantised:
    """The same trace with keys and values in few bits."""

    METHOD: ClassVar[str] = "quantised"

    bits: int
    group: int
    bytes: int
    before: int
    rows: tuple[Damage, ...]
    same_top: int
    of: int
    kl: float

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Quantised:
        """From the engine's answer; the sites stay in its order, which is that of the pass."""
        tokens = answer["tokens"]
        return cls(
            int(answer["bits"]),
            int(answer.get("group") or 0),
            int(answer["bytes"]),
            int(answer["bytes_before"]),
            tuple(Damage(str(row["site"]), _real(row["error"]), _real(row["relative"])) for row in answer["rows"]),
            int(tokens["same_top"]),
            int(tokens["of"]),
            _real(tokens["kl"]),
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where somebody is in the cache view: a section, a pass (-1: the newest), a layer's row, a kv head, what-ifs."""

    section: int
    at: int
    row: int
    head: int
    bits: int
    page: int
    site: int


@dataclass(frozen=True, slots=True)
class PageRow:
    """One layer in pages: how many, how many rows of them are used, and what stays empty."""

    layer: int
    pages: int
    used: int
    waste: int


@dataclass(frozen=True, slots=True)
class Pages:
    """The cache cut into pages of ``size`` positions."""

    METHOD: ClassVar[str] = "pages"

    size: int
    rows: tuple[PageRow, ...]
    waste: int
    share: float
    text: str = ""

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Pages:
        """From the engine's answer."""
        return cls(
            int(answer["size"]),
            tuple(
                PageRow(*(int(row[key]) for key in ("layer", "pages", "used", "waste_bytes"))) for row in answer["rows"]
            ),
            int(answer["waste"]),
            _real(answer["share"]),
            str(answer.get("text") or ""),
        )


def _layer(row: Mapping[str, Any]) -> Layer:
    window = row.get("window")
    numbers = {key: int(row[key]) for key in Layer.__dataclass_fields__ if key not in ("kind", "window")}
    return Layer(kind=str(row["kind"]), window=None if window is None else int(window), **numbers)


def _cost(name: str, row: Mapping[str, Any]) -> Cost:
    more = str(row.get("counted") or "").partition(", and ")[2]
    return Cost(name, int(row["bytes"]), bool(row.get("this")), more=more)


def _fits(fits: Mapping[str, Any]) -> str:
    """The engine's words, with the number of positions rounded: the free memory is another one a moment later."""
    text, tokens = str(fits.get("text") or ""), fits.get("tokens")
    if not isinstance(tokens, int) or (about := rounded(tokens)) == count(tokens):
        return text
    return text.replace(f"until {count(tokens)} ", f"until about {about} ")


def _gap(row: Mapping[str, Any] | None) -> Gap | None:
    return None if row is None else Gap(str(row["site"]), int(row["at"]), _real(row["gap"]))


def _real(number: object) -> float:
    """A number of the answer; what JSON has no number for is NaN."""
    return float(number) if isinstance(number, int | float) else nan

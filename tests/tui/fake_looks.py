"""The part of the fake engine that answers ``look``, windows over heads or minus another one, and a second trace.

All of it is made up of ``value(site, index)``: what a look says of a cell is what a window says of it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fake_generation import FakeError, labelled

from engine.sites import Address, Span, within_block

Json = dict[str, Any]
Answered = tuple[Json, "array[float]"]
STAGES = {
    "scores": "q · k", "scaled": "× 0.353553 = 1/√8", "masked": "the key is not after the query",
    "pattern": "e^s / Σ e^s",
}  # fmt: skip
HEAD_QUERY = ("head", "query")
THETA = 10_000.0


@dataclass
class Cells:
    """A window of a site: the axes it keeps, their ranges in it and whole sizes, and the values in order."""

    axes: tuple[str, ...]
    ranges: tuple[range, ...]
    full: tuple[int, ...]
    origin: tuple[int, ...]
    values: array[float]

    @property
    def shape(self) -> list[int]:
        return [len(one) for one in self.ranges]


class FakeLooks:
    """Mixed into the fake engine, which has ``value``, ``steps``, ``tokens`` and the sizes ``d``."""

    d: dict[str, int]
    layers: int
    heads: int
    hostile: bool
    mask: int | None
    tokens: list[str]
    steps: dict[str, Json]
    vocabulary: Sequence[str]
    ranked: Callable[[int], Sequence[tuple[int, str, float]]]
    value: Callable[[str, dict[str, int]], float]
    in_pass: Callable[[Json, int | None], tuple[tuple[int, ...], tuple[int, ...]]]
    statistics: Callable[[str, Sequence[float]], Json]
    _bad: Any  # what is foreign in a text of the hostile engine

    # what there is

    def looks_of(self, site: str, axes: Sequence[str]) -> list[str]:
        """The derived pictures of a step, as the engine lists them."""
        name = within_block(site)
        if tuple(axes[1:3]) == HEAD_QUERY:
            more = ["arcs", "text"] if name.endswith("pattern") else []
            return [*more, "heads", "layers", "mean", "max"]
        if "resid_" in name:
            return ["lens", "norms"] if "pos" in axes else ["norms"]
        if name in ("attn_out", "mlp_out"):
            return ["added"]
        found = {"embed": "neighbours", "mlp.post": "neurons", "attn.rot_q": "rotation", "attn.rot_k": "rotation"}
        curves = {"rotary_cos": "curves", "rotary_sin": "curves", "pos_embed": "curves"}
        return [(found | curves)[name]] if name in found | curves else []

    def depth(self) -> list[str]:
        """The residual points in order."""
        sites = [site for site in self.steps if "resid_" in site]
        own = [site for site in sites if not site.startswith("encoder.")]
        return [
            site for n, site in enumerate(own) if n == 0 or not site.endswith("resid_pre")
        ] + [site for site in sites if site not in own]  # fmt: skip

    # windows

    def cells(self, address: Address, over: Mapping[str, str] | None = None) -> Cells:
        """The values at an address, ``over`` a head axis: its mean or its largest one."""
        step = self.steps.get(address.site)
        if step is None:
            raise FakeError("AddressError", f"there is no site {address.site!r}")
        axes, (shape, origin) = tuple(step["axes"]), self.in_pass(step, address.at)
        index = address.resolve(axes, shape)
        reduced = next(iter(over or {}), "")
        if reduced and (reduced not in axes or reduced in index):
            raise FakeError("AddressError", f"{address} cannot be taken over {reduced}")
        ranges, kept = [], []
        for axis, size in zip(axes, shape, strict=True):
            at = index.get(axis, Span(0, size))
            ranges.append(
                range(at, at + 1) if isinstance(at, int) else range(at.start or 0, size if at.stop is None else at.stop)
            )
            if not isinstance(at, int) and axis != reduced:
                kept.append(axis)

        def one(places: Sequence[int]) -> float:
            return self.value(address.site, {a: i + o for a, i, o in zip(axes, places, origin, strict=True)})

        where = axes.index(reduced) if reduced else -1

        def reduce(places: tuple[int, ...]) -> float:
            values = [one((*places[:where], head, *places[where + 1 :])) for head in range(shape[where])]
            return max(values) if (over or {})[reduced] == "max" else sum(values) / len(values)

        if reduced:
            ranges[where] = range(1)
        values = array("f", (reduce(places) if reduced else one(places) for places in product(*ranges)))
        keep = [axes.index(axis) for axis in kept]
        return Cells(
            tuple(kept), tuple(ranges[i] for i in keep), tuple(shape[i] for i in keep),
            tuple(origin[i] for i in keep), values,
        )  # fmt: skip

    def difference(self, params: Json, other: FakeLooks) -> tuple[Cells, Json]:
        """A window minus another one, over the part that both have; and what is told of the whole difference."""
        one, two = Address.parse(params["address"]), Address.parse(params["minus"]["address"])
        over = params.get("over")
        mine, its = self.cells(_whole(one), over), other.cells(_whole(two), over)
        if mine.axes != its.axes:
            raise FakeError("AddressError", f"{one} has the axes {mine.axes}, {two} {its.axes}")
        common = [min(pair) for pair in zip(mine.full, its.full, strict=True)]
        both = [_part(cells, common) for cells in (mine, its)]
        weights = all(address.site.endswith(".attn.pattern") for address in (one, two))
        hidden = [weights and self._later(one, at) and other._later(two, at) for at in _places(mine.axes, common)]
        whole = array("f", (-math.inf if h else a - b for a, b, h in zip(*both, hidden, strict=True)))
        shown = self.cells(one, over)
        ranges = tuple(range(min(r.start, n), min(r.stop, n)) for r, n in zip(shown.ranges, common, strict=True))
        strides = [math.prod(common[i + 1 :]) for i in range(len(common))]
        values = array(
            "f", (whole[sum(i * s for i, s in zip(places, strides, strict=True))] for places in product(*ranges))
        )
        told = {"common": common, "stats": self.statistics("masked" if weights else "", whole)}
        return Cells(shown.axes, ranges, tuple(common), shown.origin, values), told

    def _later(self, address: Address, at: Mapping[str, int]) -> bool:
        """Whether the key at a place of a pattern is after its query."""
        step = self.steps[address.site]
        shape, origin = self.in_pass(step, address.at)
        index = {**address.resolve(step["axes"], shape), **at}
        query, key = (int(index[axis]) + origin[step["axes"].index(axis)] for axis in ("query", "key"))  # type: ignore[arg-type]
        return key > query

    # looks

    def _look(self, params: Json) -> Answered:
        name, address = params["name"], Address.parse(params["address"])
        step = self.steps.get(address.site)
        if step is None:
            raise FakeError("AddressError", f"there is no site {address.site!r}")
        answer = getattr(self, f"_look_{name}", None)
        if answer is None or (name not in step["looks"] and name not in ("chain", "histogram")):
            raise FakeError("AddressError", f"{address.site} has no look {name!r}")
        result, values = answer(address, params)
        bad = f" {self._bad}" if self.hostile else ""
        words = {
            "look": name, "title": f"The {name} of {address.site}{bad}", "formula": f"{name} = f(x){bad}",
            "story": f"What {name} is. It is made up, and so are its numbers.{bad}",
            "numbers": f"{len(self.tokens)} tokens, d_model = {self.d['d_model']}{bad}",
        }  # fmt: skip
        return words | result, values

    def _foreign(self, number: int, text: str = "") -> str:
        """A label: of the hostile engine something nasty."""
        word = self.vocabulary[number % len(self.vocabulary)]
        return word if self.hostile else text or labelled(word, number)

    def _grid(self, address: Address, sites: list[str], cell: Callable[[str, int], tuple[float, str]]) -> Answered:
        step = self.steps[address.site]
        axis = step["axes"][1]
        shape, origin = self.in_pass(step, address.at)
        span = address.resolve(tuple(step["axes"]), shape).get(axis, Span(0, shape[1]))
        start, stop = (span, span + 1) if isinstance(span, int) else (span.start or 0, span.stop)
        whole = [[cell(site, pos + origin[1]) for site in sites] for pos in range(shape[1])]
        shown = whole[start:stop]
        return {
            "kind": "grid", "rows": {"axis": axis, "start": start, "size": len(shown)},
            "cols": {"axis": "depth", "sites": sites}, "texts": [[text for _, text in row] for row in shown],
            "stats": self.statistics("", [value for row in whole for value, _ in row]),
        }, array("f", (value for row in shown for value, _ in row))  # fmt: skip

    def _look_lens(self, address: Address, params: Json) -> Answered:
        sites = [site for site in self.depth() if self.steps[site]["axes"] == self.steps[address.site]["axes"]]

        def cell(site: str, pos: int) -> tuple[float, str]:
            if self.hostile and pos == 1:  # a row that is not finite has no top token
                return math.nan, ""
            share = (1 + sites.index(site)) / (len(sites) + 1)
            number = pos * 5 + sites.index(site) * 3
            top = self.ranked(pos)[0]
            return (
                (top[2], top[1] if self.hostile else labelled(top[1]))
                if site == sites[-1]
                else (share / (2 + pos % 3), self._foreign(number))
            )

        return self._grid(address, sites, cell)

    def _look_norms(self, address: Address, params: Json) -> Answered:
        axes = self.steps[address.site]["axes"]
        return self._norms(address, [site for site in self.depth() if self.steps[site]["axes"] == axes])

    def _look_added(self, address: Address, params: Json) -> Answered:
        return self._norms(address, [site for site in self.steps if site.endswith(("attn_out", "mlp_out"))])

    def _norms(self, address: Address, sites: list[str]) -> Answered:
        axis = self.steps[address.site]["axes"][1]

        def cell(site: str, pos: int) -> tuple[float, str]:
            row = [self.value(site, {"batch": 0, axis: pos, "d_model": d}) for d in range(self.d["d_model"])]
            return math.sqrt(sum(value * value for value in row)), ""

        result, values = self._grid(address, sites, cell)
        return {key: value for key, value in result.items() if key != "texts"}, values

    def _look_heads(self, address: Address, params: Json) -> Answered:
        reduced: list[tuple[str, int | None, str]] = [(address.site, None, "mean"), (address.site, None, "max")]
        return self._thumbs(address, [*reduced, *((address.site, head, "") for head in range(self.heads))], params, 0)

    def _look_layers(self, address: Address, params: Json) -> Answered:
        inner = within_block(address.site)
        sites = [site for site in self.steps if within_block(site) == inner]
        return self._thumbs(
            address, [(site, head, "") for site in sites for head in range(self.heads)], params, self.heads
        )

    def _thumbs(self, address: Address, of: list[tuple[str, int | None, str]], params: Json, columns: int) -> Answered:
        height, width = params.get("size") or (16, 16)
        tiles, values, shape = [], array("f"), (0, 0)
        for number, (site, head, reduce) in enumerate(of):
            index = dict(address.index) | ({} if head is None else {"h": head})
            where = Address(site, tuple({"b": 0, **index}.items()), address.at)
            cells = self.cells(where, {"head": reduce} if reduce else None)
            rows, cols = cells.full
            shape = min(height, rows), min(width, cols)
            values.extend(_shrunk(cells.values, rows, cols, shape, site.endswith("pattern")))
            title = reduce or f"{site.split('.')[1]}.{head}" * bool(columns) or f"head {head}"
            tiles.append({
                "title": title + (self._foreign(number) if self.hostile else ""), "site": site, "head": head,
                "reduce": reduce, "entropy": _entropy(cells.values, rows) if site.endswith("pattern") else None,
            })  # fmt: skip
        return {"kind": "thumbs", "tiles": tiles, "shape": [len(tiles), *shape], "columns": columns}, values

    def _look_neighbours(self, address: Address, params: Json) -> Answered:
        pos = int(dict(address.index).get("p", 0))  # type: ignore[arg-type]
        rows = [
            [self._foreign(pos + n), 13 + n, round(math.cos(n / 12), 4) if n < 40 else None, 3.0 + math.sin(n)]
            for n in range(int(params.get("k", 50)))
        ]
        columns = [("token", "label"), ("id", "int"), ("cosine", "bar"), ("norm", "number")]
        return _list(columns, rows), array("f")

    def _look_neurons(self, address: Address, params: Json) -> Answered:
        places = {axis: int(dict(address.index).get(axis[0], 0)) for axis in ("batch", "pos")}  # type: ignore[arg-type]

        def row(neuron: int) -> list[Any]:
            post = self.value(address.site, {**places, "d_mlp": neuron})
            weight = 0.5 + neuron % 7 / 10
            promotes = [self._foreign(neuron + n) for n in range(3)]
            return [neuron, post, post * 1.5, post / 2, weight, abs(post) * weight, promotes]

        rows = sorted(map(row, range(self.d["d_mlp"])), key=lambda one: -one[5])[: int(params.get("k", 50))]
        kinds = ["int", "bar", "number", "number", "number", "number", "labels"]
        names = ["neuron", "post", "pre", "pre_linear", "‖w_out‖", "contribution", "promotes"]
        return _list(list(zip(names, kinds, strict=True)), rows), array("f")

    def _look_rotation(self, address: Address, params: Json) -> Answered:
        step = self.steps[address.site]
        shape, origin = self.in_pass(step, address.at)
        index = address.resolve(tuple(step["axes"]), shape)
        place = {a: int(i) + o for (a, i), o in zip(index.items(), origin, strict=True)}  # type: ignore[arg-type]
        half, dim = self.d["d_rot"] // 2, place["d_head"]
        before = address.site.replace("rot_", "")
        pairs = []
        for n in range(half):
            frequency = THETA ** (-n / half)
            angle = place["pos"] * frequency
            ends = (
                [self.value(site, {**place, "d_head": d}) for d in (n, n + half)] for site in (before, address.site)
            )
            pairs.append({
                "pair": n, "dims": [n, n + half], "inv_freq": frequency, "angle": angle, "cos": math.cos(angle),
                "sin": math.sin(angle), **dict(zip(("before", "after"), ends, strict=True)),
            })  # fmt: skip
        return {
            "kind": "rotation", "pairs": pairs, "pair": dim % half if dim < 2 * half else None,
            "convention": "halves: dim i with i + d/2 (GPT-NeoX, Llama)", "theta": THETA, "scaling": "none",
            "position": place["pos"], "rotated": 2 * half, "of": self.d["d_head"],
        }, array("f")  # fmt: skip

    def turn_of(self, pos: int, dim: int) -> float:
        """The angle of a dim at a position."""
        half = self.d["d_rot"] // 2
        return pos * THETA ** (-(dim % half) / half)

    def turned(self, site: str, index: dict[str, int]) -> float:
        """What a rotary step writes: the pair of dims of q or k, turned by position × inverse frequency."""
        half, dim = self.d["d_rot"] // 2, index["d_head"]
        before = site.replace("rot_", "")
        if dim >= 2 * half:
            return self.value(before, index)
        x, y = (self.value(before, {**index, "d_head": d}) for d in (dim % half, dim % half + half))
        angle = self.turn_of(index["pos"], dim)
        cos, sin = math.cos(angle), math.sin(angle)
        return x * cos - y * sin if dim < half else x * sin + y * cos

    def _look_chain(self, address: Address, params: Json) -> Answered:
        base, _, name = address.site.rpartition(".")
        if name not in STAGES:
            raise FakeError("AddressError", f"{address.site} has no look 'chain'")
        stages = list(self._stages(base, address))
        return {"kind": "chain", "stages": stages}, array("f")

    def _stages(self, base: str, address: Address) -> Iterator[Json]:
        for name, words in STAGES.items():
            site = f"{base}.{name}"
            if site not in self.steps:
                continue
            value = self.cells(Address(site, address.index, address.at)).values[0]
            masked = value == -math.inf or (name == "pattern" and value == 0.0)
            yield {
                "site": site, "label": name, "value": value if math.isfinite(value) else None,
                "state": "masked" if masked else "nan" if math.isnan(value) else "",
                "words": ("the key is after the query: −∞" if masked and name == "masked" else words)
                + (f" {self._bad}" if self.hostile else ""),
            }  # fmt: skip

    def _look_histogram(self, address: Address, params: Json) -> Answered:
        values = self.cells(address, params.get("over")).values
        bins, masks = int(params.get("bins", 20)), address.site.endswith("masked")
        finite = sorted(value for value in values if math.isfinite(value))
        below = sum(value == -math.inf for value in values)
        result: Json = {
            "kind": "histogram", "edges": [], "counts": [], "nan": sum(map(math.isnan, values)),
            "above": sum(value == math.inf for value in values), "below": 0 if masks else below,
            "masked": below if masks else 0, "stats": self.statistics(address.site.rsplit(".", 1)[-1], values),
            **dict.fromkeys(("q01", "q50", "q99")),
        }  # fmt: skip
        if finite:
            low, high = finite[0], finite[-1] if finite[-1] > finite[0] else finite[0] + 1
            counts = [0] * bins
            for value in finite:
                counts[min(bins - 1, int((value - low) / (high - low) * bins))] += 1
            result |= {"edges": [low + (high - low) * n / bins for n in range(bins + 1)], "counts": counts}
            places = {"q01": 0.01, "q50": 0.5, "q99": 0.99}
            result |= {name: finite[int(share * (len(finite) - 1))] for name, share in places.items()}
        return result, array("f")


def _places(axes: Sequence[str], common: Sequence[int]) -> Iterator[dict[str, int]]:
    """The places of a plane, in order."""
    for place in product(*map(range, common)):
        yield dict(zip(axes, place, strict=True))


def _whole(address: Address) -> Address:
    """The plane that a window lies in."""
    return Address(address.site, tuple((a, i) for a, i in address.index if isinstance(i, int)), address.at)


def _part(cells: Cells, sizes: Sequence[int]) -> Iterator[float]:
    strides = [math.prod(cells.full[i + 1 :]) for i in range(len(cells.full))]
    for places in product(*map(range, sizes)):
        yield cells.values[sum(i * s for i, s in zip(places, strides, strict=True))]


def _list(columns: list[tuple[str, str]], rows: list[list[Any]]) -> Json:
    return {"kind": "list", "columns": [{"name": name, "kind": kind} for name, kind in columns], "rows": rows}


def _shrunk(values: Sequence[float], rows: int, cols: int, size: tuple[int, int], weights: bool) -> Iterator[float]:
    """The largest magnitude of each bin; NaN where all of it is masked."""
    height, width = size
    for y, x in product(range(height), range(width)):
        spread = product(_bin(y, height, rows), _bin(x, width, cols))
        found = [v for r, c in spread if math.isfinite(v := values[r * cols + c]) and not (weights and v == 0)]
        yield max(found, key=abs, default=math.nan)


def _bin(place: int, of: int, size: int) -> range:
    return range(place * size // of, max(place * size // of + 1, (place + 1) * size // of))


def _entropy(values: Sequence[float], rows: int) -> float:
    return -sum(value * math.log2(value) for value in values if value > 0) / rows

"""A picture of a place as a notebook shows it: the app's heatmaps, bars and tables in HTML."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import torch
from torch import Tensor

from engine import htmltext as html
from engine.htmltext import Inside
from engine.jsontext import Json
from engine.pictures import Picture, Wish, picture, views_of
from engine.place import Axis, Place, exact, figures
from engine.sites import Address, depth_name
from engine.traces import Trace

CELLS = 40
"""So many rows and columns are shown as numbers; of more there is a picture, and numbers from both ends of it."""
NUMBERS = 24
"""So many columns have their numbers written into the cells; of more they are said by a cell that is pointed at."""
ENDS = 12
DOTS = 512
"""The most dots of a picture along one side."""
TILE = 132
"""How wide a small picture is."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture that a notebook can show; ``picture`` is what it is of."""

    picture: Picture

    def __repr__(self) -> str:
        view = self.picture.view
        return f"<Shown {self.picture.address}{f' as {view.name}' if view else ''}>"

    def to_json(self) -> Json:
        """Everything in it; floats may be NaN or infinite."""
        return self.picture.to_json()

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return html.page(*picture_html(self.picture))


def show(
    trace: Trace,
    address: str | Address,
    view: str | None = None,
    *,
    over: Mapping[str, str] | None = None,
    other: Trace | None = None,
    minus: str | None = None,
) -> Shown:
    """A picture of a place, for a notebook: ``show(t, "blocks.2.attn.pattern[h=3]")``.

    ``view`` is one of the app's, the site's first one where none is named; ``over`` reduces an axis
    ({"head": "mean"}), ``other`` and ``minus`` take another trace or another place away. Raises AddressError and
    NotKeptError.
    """
    if view is None:
        place = Address.parse(str(address))
        view = views_of(trace, trace.program.site(place.site), place.at)[0].name
    return Shown(picture(Wish(trace, str(address), view, over or {}, other, minus)))


def picture_html(shown: Picture) -> Iterator[Element]:
    """A picture as elements: its title, its drawing, the words to it."""
    taken = [html.line(f"taken: {', '.join(map(str, shown.taken))}", faint=True)] if shown.taken else []
    if shown.place is not None:
        place = shown.place
        sizes = " × ".join(f"{axis.name} {axis.size}" for axis in place.axes)
        yield html.title(place.title, " · ".join(filter(None, (sizes, place.dtype))))
        yield from taken
        yield from _place(place, shown.view.kind if shown.view else "")
        if place.tensor.is_floating_point():
            yield html.line(figures(place.stats()), faint=True)
        yield from (html.line(words) for words in place.explained() if words)
    else:
        told = shown.told or {}
        yield html.title(told["title"], " · ".join(filter(None, (told["address"], told["numbers"]))))
        yield from taken
        yield from LOOKS[told["kind"]](shown, told)
        yield from (html.line(words) for words in (told["formula"], told["story"]) if words)


# -- windows of a tensor -------------------------------------------------------------------------------------------


def _place(place: Place, kind: str) -> Iterator[Element]:
    axes = place.axes
    if any(not axis.size for axis in axes):
        yield html.line("(empty)")
    elif not axes:
        yield html.line(html.el("strong", exact(place.tensor)))
    elif kind == "ranked":
        yield _ranking(place)
    elif len(axes) == 1:
        yield _list(place, axes[0])
    elif len(axes) == 2:
        yield from _heatmap(place)
    else:
        for i in range(min(axes[0].size, 4)):
            yield html.line(f"{axes[0].name} {axes[0].start + i} {place.label(axes[0], i)}".strip())
            yield from _place(place.along(i), kind)
        if axes[0].size > 4:
            yield html.line(f"… {axes[0].size - 4} more along {axes[0].name}", faint=True)


def _ranking(place: Place) -> Element:
    axis, values = place.axes[0], place.tensor.double().cpu()
    if bool(values.isnan().any()):
        return html.line("no ranking: it holds NaN")
    best = values.topk(min(10, axis.size))
    limit = html.largest(best.values.tolist())
    rows: list[list[Inside]] = [
        [place.label(axis, i), f"{axis.start + i}", html.short(value), html.bar(value, limit)]
        for value, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
    return html.table(["token", "id", "value", ""], rows, left=(0,))


def _list(place: Place, axis: Axis) -> Element:
    values = place.tensor.tolist()
    masked = _masked(place)
    whole = not place.tensor.is_floating_point()
    limit, rows = html.largest(values), list[list[Inside]]()
    for i in html.ends(axis.size, CELLS):
        if i < 0:
            rows.append(["…", f"{axis.size - CELLS} more", "", ""])
            continue
        text: Inside = html.hidden() if masked is not None and masked[i] else f"{values[i]}" if whole else html.short(
            values[i]
        )  # fmt: skip
        rows.append([f"{axis.start + i}", place.label(axis, i), text, "" if whole else html.bar(values[i], limit)])
    return html.table([axis.name, "", "value", ""], rows, left=(1,))


def _heatmap(place: Place) -> Iterator[Element]:
    down, across = place.axes
    values, masked = place.tensor.double().cpu(), _masked(place)
    finite = values[values.isfinite()]
    limit = float(finite.abs().max()) if finite.numel() else 0.0
    large = down.size > CELLS or across.size > CELLS
    if large:
        thin = max(1, -(-max(down.size, across.size) // DOTS))
        dots = values[::thin, ::thin].clone()
        if masked is not None:
            dots[masked[::thin, ::thin]] = -math.inf
        yield html.pixels(dots.tolist(), limit, f"heatmap of {place.title}", min(640, max(160, 4 * dots.shape[1])))
        every = f", every {_nth(thin)} row and column as a dot" if thin > 1 else ""
        yield html.line(
            f"{down.size} × {across.size} cells{every}; numbers of the first and last ones below", faint=True
        )
    most = ENDS if large else CELLS
    rows, columns = html.ends(down.size, most), html.ends(across.size, most)
    written = len(columns) <= NUMBERS
    heads = [f"{down.name} \\ {across.name}", *("…" if j < 0 else _name(place, across, j) for j in columns)]
    body: list[list[Inside]] = []
    for i in rows:
        if i < 0:
            body.append(["…", *[""] * len(columns)])
            continue
        head = _name(place, down, i)
        cells: list[Inside] = [head]
        for j in columns:
            if j < 0:
                cells.append("…")
            elif masked is not None and bool(masked[i, j]):
                cells.append(html.hidden())
            else:
                value = float(values[i, j])
                what = f"{head}, {_name(place, across, j)}: {exact(place.tensor[i, j])}"
                short = html.short(value)
                cells.append(html.heat(value, limit, short if written or not math.isfinite(value) else "\u2007", what))
        body.append(cells)
    table = html.table(heads, body, left=(0,))
    yield html.folded("numbers", table) if large else table


def _masked(place: Place) -> Tensor | None:
    """Where cells are masked; None where none can be. [the place's axes]"""
    plane = place.plane
    if not plane.masks:
        return None
    found = place.tensor.cpu() == -torch.inf
    where = plane.hidden(plane.asked)
    if where is None:
        return found
    where = where.cpu()
    where = where[0] if where.ndim > found.ndim else where
    return found | (where.expand(found.shape) & (place.tensor.cpu() == 0))


def _name(place: Place, axis: Axis, i: int) -> str:
    """What stands at an index along an axis: its token, and its number where there is none."""
    return place.label(axis, i) if place.labelled(axis) else f"{axis.start + i}"


def _nth(n: int) -> str:
    return {2: "second", 3: "third"}.get(n, f"{n}th")


# -- looks ---------------------------------------------------------------------------------------------------------


def _grid(shown: Picture, told: Json) -> Iterator[Element]:
    values = [] if shown.values is None else shown.values.tolist()
    sites, texts, axis = told["cols"]["sites"], told.get("texts"), told["rows"]
    limit = 1.0 if texts else html.largest(value for row in values for value in row)
    body: list[list[Inside]] = []
    for i in html.ends(len(values), CELLS):
        if i < 0:
            body.append([f"… {len(values) - CELLS} more"])
            continue
        head = row_name(shown, axis["axis"], axis["start"] + i)
        cells: list[Inside] = [head]
        for j, value in enumerate(values[i]):
            text = texts[i][j] if texts else html.short(value)
            cells.append(html.heat(value, limit, text, f"{head}, {sites[j]}: {value:.6g}"))
        body.append(cells)
    yield html.table([axis["axis"], *map(depth_name, sites)], body, left=(0,))


def row_name(shown: Picture, axis: str, i: int) -> str:
    """The token at an index of a look's rows."""
    trace, place = shown.trace, shown.address
    row = next((n for letter, n in place.index if letter in ("b", "batch") and isinstance(n, int)), 0)
    line = trace.line(axis, row)
    pos = i + trace.origin(place.site, axis, place.at)
    return line[pos].label if pos < len(line) else f"{pos}"


def _tiles(shown: Picture, told: Json) -> Iterator[Element]:
    tiles = []
    for i, tile in enumerate(told["tiles"]):
        values = shown.values[i].tolist() if shown.values is not None else []
        bits = "" if tile["entropy"] is None else f" · {html.short(tile['entropy'])} bits"
        drawn = html.pixels(values, html.largest(v for row in values for v in row), tile["title"], TILE)
        under = html.el("div", f"{tile['title']}{bits}", style="opacity:.8")
        tiles.append(html.el("div", drawn, under, style="display:inline-block;margin:0 8px 8px 0;vertical-align:top"))
    yield html.el("div", *tiles)


def _rows(shown: Picture, told: Json) -> Iterator[Element]:
    columns = told["columns"]
    bars = [i for i, column in enumerate(columns) if column["kind"] == "bar"][:1]
    limit = html.largest(row[i] for row in told["rows"] for i in bars if row[i] is not None)
    body: list[Sequence[Inside]] = []
    for row in told["rows"][:CELLS]:
        cells = [" ".join(c) if isinstance(c, list) else "" if c is None else html.short(c) if isinstance(c, float)
                 else str(c) for c in row]  # fmt: skip
        body.append([*cells, *(html.bar(row[i] or 0.0, limit) for i in bars)])
    words = [i for i, column in enumerate(columns) if column["kind"] in ("label", "labels")]
    yield html.table([*(column["name"] for column in columns), *[""] * len(bars)], body, left=words)
    if len(told["rows"]) > CELLS:
        yield html.line(f"… {len(told['rows']) - CELLS} more", faint=True)


def _rotation(shown: Picture, told: Json) -> Iterator[Element]:
    yield html.line(told["convention"], faint=True)
    body = [
        [f"{pair['pair']}", "{}, {}".format(*pair["dims"]),
         *(html.short(pair[key]) for key in ("inv_freq", "angle", "cos", "sin")),
         *("({}, {})".format(*map(html.short, pair[key])) for key in ("before", "after"))]
        for pair in told["pairs"]
    ]  # fmt: skip
    yield html.table(["pair", "dims", "inv_freq", "angle", "cos", "sin", "before", "after"], body)


def _chain(shown: Picture, told: Json) -> Iterator[Element]:
    names = {"masked": "masked", "nan": "NaN", "+inf": "∞", "-inf": "−∞"}
    body = [[stage["label"], names.get(stage["state"]) or f"{stage['value']:.6g}", stage["words"]]
            for stage in told["stages"]]  # fmt: skip
    yield html.table(["stage", "value", "what it did"], body, left=(0, 2))


def _histogram(shown: Picture, told: Json) -> Iterator[Element]:
    edges, counts = told["edges"], told["counts"]
    most = max(counts, default=0)
    body: list[list[Inside]] = [
        [html.short(edges[i]), html.short(edges[i + 1]), f"{n}", html.bar(n, most)] for i, n in enumerate(counts)
    ]
    yield html.table(["from", "to", "count", ""], body)
    beyond = (("masked", "masked"), ("NaN", "nan"), ("+∞", "above"), ("−∞", "below"))
    if told_of := [f"{told[key]} {name}" for name, key in beyond if told[key]]:
        yield html.line(" · ".join(told_of), faint=True)


LOOKS = {
    "grid": _grid,
    "thumbs": _tiles,
    "list": _rows,
    "rotation": _rotation,
    "chain": _chain,
    "histogram": _histogram,
}

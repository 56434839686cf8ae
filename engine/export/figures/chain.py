"""Attention of one head from its scores to its weights: a panel for each stage, and one cell followed through them."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.export.figures import axisnames, letters, numerals
from engine.export.figures.cells import Cells, Scale, Side, numbers, scale_of
from engine.export.figures.heatmap import ends, marked_cell, paint
from engine.export.figures.heatmap import legend as legend_of
from engine.export.figures.sheet import Box, Sheet
from engine.pictures import Picture
from engine.place import Place
from engine.sites import Address
from engine.windows import Plane


def chain(sheet: Sheet, picture: Picture) -> None:
    """The same head in every stage, the scores first."""
    told = picture.told
    assert told is not None
    stages, trace = told["stages"], picture.trace
    places = [Place.of(Plane.find(trace, str(_plane(picture, stage["site"])))) for stage in stages]
    cells = [Cells.of(numbers(place), masks=place.plane.masks).shrunk((128, 128)) for place in places]
    across = len(stages) if sheet.style.size != "column" else 2
    rows = -(-len(stages) // across)
    line = letters.height(sheet.size.small)
    down, along = places[0].axes
    bins = cells[0].bins
    left = axisnames.beside(sheet, Side.of(places[0], down, bins[0]), sheet.width / (across + 1)).room + 1.2 * line
    gap, head, foot = 1.4 * line, 2.7 * line, 1.5 * line
    wide = (sheet.width - left - gap * (across - 1)) / across
    names = axisnames.along(sheet, Side.of(places[0], along, bins[1]), wide)
    under = names.room + 0.2 * line
    box = sheet.open(rows * (head + wide) + under + foot)
    high = min(1.2 * wide, (box.height - under - foot) / rows - head)
    _, query, key = _cell(picture)
    for n, (stage, place, one) in enumerate(zip(stages, places, cells, strict=True)):
        x = box.x + left + (n % across) * (wide + gap)
        y = box.top - (n // across) * (head + high) - head - high
        panel = Box(x, y, wide, high)
        scale = scale_of(place, [one.values])
        _head(sheet, panel, stage, scale, n)
        axes = sheet.axes(panel, frame=True)
        paint(sheet, axes, one, scale, (wide, high))
        if one.bins == (1, 1) and query < one.shape[0] and key < one.shape[1]:
            marked_cell(axes, sheet, query, key)
        if n % across == 0:
            side = Side.of(place, down, one.bins[0])
            axisnames.write_beside(sheet, axisnames.beside(sheet, side, high), side, panel)
            sheet.text(box.x + 0.5 * line, y + high / 2, down.name, sheet.size.small, ha="center", rotation=90,
                       colour=sheet.inks.muted)  # fmt: skip
        if n // across == rows - 1:
            side = Side.of(place, along, one.bins[1])
            axisnames.write_along(sheet, axisnames.along(sheet, side, wide), side, panel)
    foot_y = box.top - rows * (head + high) - under
    sheet.text(box.x + left, foot_y, along.name, sheet.size.small, va="top", colour=sheet.inks.muted)
    there = list(dict.fromkeys(kind for one in cells for kind in one.there()))
    legend_of(sheet, box.x + left + letters.width(along.name, sheet.size.small) + line, foot_y, box.right, there)


def _head(sheet: Sheet, panel: Box, stage: dict[str, Any], scale: Scale, n: int) -> None:
    """A stage's name, where its colours end, and what it did."""
    line, least = letters.height(sheet.size.small), sheet.size.least
    name, number = f"{'→ ' if n else ''}{stage['label']}", _number(stage)
    size = letters.size_for(f"{name}  {number}", panel.width, sheet.size.base, least, bold=True)
    sheet.text(panel.x, panel.top + 1.25 * line, name, size, va="bottom", bold=True)
    sheet.text(panel.right, panel.top + 1.25 * line, number, size, ha="right", va="bottom", colour=sheet.inks.odd)
    limits = ends(scale)
    words = f"{limits[0][1]} … {limits[-1][1]}"
    sheet.text(panel.x, panel.top + 0.2 * line, words, least, va="bottom", colour=sheet.inks.muted)
    wide = letters.width(words, least)
    room = min(3 * line, panel.width - wide - 0.5 * line)
    bar = Box(panel.x + wide + 0.4 * line, panel.top + 0.35 * line, max(0.0, room), 0.55 * line)
    if bar.width > line:
        axes = sheet.axes(bar, frame=True)
        axes.imshow(np.array(sheet.scale(signed=scale.signed))[None], aspect="auto", interpolation="none")


def _number(stage: dict[str, Any]) -> str:
    """What the marked cell holds at a stage."""
    return numerals.short(_odd(stage["state"]) if stage["value"] is None else stage["value"], 4)


def _odd(state: str) -> float:
    return {"nan": float("nan"), "+inf": float("inf")}.get(state, float("-inf"))


def _cell(picture: Picture) -> tuple[int, int, int]:
    """Head, query and key of the cell that is followed."""
    site = picture.trace.program.site(picture.address.site)
    index = picture.address.resolve(site.axes, picture.trace.shape(site.name, picture.address.at))
    head, query, key = (int(index[axis]) for axis in site.axes[1:])  # type: ignore[arg-type]
    return head, query, key


def _plane(picture: Picture, site: str) -> Address:
    axes = picture.trace.program.site(site).axes
    index = picture.address.resolve(axes, picture.trace.shape(site, picture.address.at))
    return Address(site, tuple((axis, index[axis]) for axis in axes[:2]), picture.address.at)

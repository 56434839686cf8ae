"""The action that copies what is at the cursor to the clipboard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.csvtext import label
from engine.sites import LETTERS, Address
from engine.views import TOKEN_AXES
from tui.client import EngineError
from tui.screens.exporting import Exporting
from tui.state import sheet
from tui.state.block import Block
from tui.state.cursor import Cursor
from tui.state.looks import Grid, Histogram
from tui.state.naming import name_of
from tui.state.numbers import count, size
from tui.state.views import Plane

if TYPE_CHECKING:
    from tui.widgets.pick_list import Choice


class Copying(Exporting):
    """Copies what is at the cursor, and with ``Exporting`` carries out of the app what is shown."""

    def do_copy(self) -> None:
        """Ask what, by one letter."""
        from tui.screens.choose import ChooseScreen

        if (plane := self.plane) is not None:
            _, cursor = self.here

            def chosen(key: str | None) -> None:
                if key is not None:
                    self._in_background(lambda: self._copy(key, plane, cursor), "copy")

            self.app.push_screen(ChooseScreen("copy", self._copies(plane, cursor)), chosen)

    def _copies(self, plane: Plane, cursor: Cursor) -> list[Choice]:
        """What there is to copy, and a word on each."""
        from tui.widgets.pick_list import Choice

        (row, col), (rows, cols) = plane.cell(cursor), plane.size
        kind, found = plane.view.kind, []
        if kind == "ranked":
            found = [Choice("v", "value", "its probability"), Choice("r", "row", "the candidate")]
        elif plane.has_cells:
            block = self.session.known(plane)
            value = block.value(row, col) if block else None
            found = [
                Choice("v", "value", "" if value is None else sheet.number(value, plane.step.whole)),
                Choice("r", "row", f"{sheet.row_name(plane, row)}, {_numbers(cols)}"),
                Choice("c", "column", f"{sheet.column_name(plane, col)}, {_numbers(rows)}"),
            ]
        if kind in ("ranked", "tokens") or not plane.has_cells:
            found.append(Choice("t", "table", "all of it"))
        return [
            *found,
            Choice("s", "summary", "shape, min, max, mean …"),
            Choice("a", "address", _address(plane, cursor), middle=True),
            Choice("l", "label", self._label(plane, cursor)),
        ]

    async def _copy(self, key: str, plane: Plane, cursor: Cursor) -> None:
        from tui.clipboard import LIMIT, copy

        try:
            what, text = await self._copied(key, plane, cursor)
        except EngineError as error:
            self.tell("could not copy", str(error))
            return
        if ways := await copy(self.app, text):
            self.say(f"copied {what} ({', '.join(ways)})")
        else:
            words = (
                f"{what}: {size(len(text.encode()))} are more than terminals take (at most {count(LIMIT)} characters "
                "of base64), and there is no other clipboard here"
            )
            self.tell("too long to copy", words, (("e", "saves the picture's numbers as CSV"),), self.do_export_csv)

    async def _copied(self, key: str, plane: Plane, cursor: Cursor) -> tuple[str, str]:
        """What is copied, in words, and the text of it."""
        ranked = plane.view.kind == "ranked"
        if key == "a":
            address = _address(plane, cursor)
            return address, address
        if key == "l":
            label = self._label(plane, cursor)
            return label, label
        if key == "s":
            return f"the summary of {plane.step.site}", _tabbed(await self._summary(plane))
        if key == "t":
            lines = await self._table(plane)
            return f"the table, {count(len(lines) - 1)} rows", _tabbed(lines)
        if ranked:
            head, *rest = await self._table(plane)
            line = next((line for line in rest if line[2] == str(self.candidate_here())), rest[0] if rest else [])
            if not line:
                raise EngineError("NoValue", "there is no candidate here")
            return (line[4], line[4]) if key == "v" else (f"the row of {line[1]}", _tabbed([head, line]))
        (row, col), (rows, cols) = plane.cell(cursor), plane.size
        if key == "v":
            block = await self._cells(plane, (row, row + 1), (col, col + 1))
            value = block.value(row, col)
            if value is None:
                raise EngineError("NoValue", "there is no value here")
            number = sheet.number(value, plane.step.whole)
            return number, number
        if key == "r":
            block = await self._cells(plane, (row, row + 1), (0, cols))
            words = f"the row {sheet.row_name(plane, row)}, {_numbers(cols)}"
            return words, await asyncio.to_thread(_lines, plane, block, range(cols))
        block = await self._cells(plane, (0, rows), (col, col + 1))
        words = f"the column {sheet.column_name(plane, col)}, {_numbers(rows)}"
        return words, await asyncio.to_thread(_lines, plane, block, range(col, col + 1))

    async def _cells(self, plane: Plane, rows: tuple[int, int], cols: tuple[int, int]) -> Block:
        """Cells from what is here, or from the engine; what it derives has whole rows."""
        known = self.session.known(plane)
        if known is not None and (known.row, known.row + known.rows) == rows and known.has(rows, cols):
            return known
        return await self.session.cells(plane, rows, (0, plane.size[1]) if plane.view.look else cols)

    async def _summary(self, plane: Plane) -> list[sheet.Line]:
        """What the whole picture is, a line for each thing."""
        block = self.session.known(plane) or await self._cells(plane, (0, 1), (0, 1))
        step, stats = plane.step, block.told.stats if isinstance(block.told, Histogram) else block.stats
        rows, cols = plane.size
        extent = {axis: n for axis, n in ((plane.view.rows, rows), (plane.view.cols, cols)) if axis}
        if not plane.has_cells:  # of what it is made of
            extent = {axis: step.size(axis) for axis in step.axes if axis in (plane.view.free or step.axes[-1:])}
        lines = [
            ["address", plane.address((0, rows), (0, cols))],
            *([["minus", plane.minus.address((0, rows), (0, cols))]] if plane.minus else []),
            ["model", label(plane.trace.model)],
            ["step", label(step.title or step.label)],
            ["picture", plane.view.name],
            *([["over", f"head={plane.view.over}"]] if plane.view.over else []),
            ["axes", " × ".join(extent)],
            ["size", " × ".join(map(str, extent.values())) or str(rows * cols)],
            ["dtype", step.dtype],
        ]
        lines += sheet.about(block.told) if block.told else []
        if plane.has_cells or isinstance(block.told, Histogram):
            finite = stats.count - stats.nonfinite - (stats.masked if not plane.zero_is_masked(stats) else 0)
            named = {"min": stats.low, "max": stats.high, "mean": stats.mean, "std": stats.std, "norm": stats.norm}
            lines += [[name, sheet.number(value) if finite > 0 else ""] for name, value in named.items()]
            counted = {"values": stats.count, "masked": stats.masked, "not finite": stats.nonfinite}
            lines += [[name, str(number)] for name, number in counted.items()]
        return lines

    def _label(self, plane: Plane, cursor: Cursor) -> str:
        """What the place at the cursor is called: the candidate, the token in a cell, else the token of the row."""
        (row, col), view = plane.cell(cursor), plane.view
        if view.kind == "ranked":
            ranking, here = self.ranking_of(plane), self.candidate_here()
            return next((one.label for one in ranking.rows if one.id == here), "") if ranking else ""
        block = self.session.known(plane)
        if block is not None and isinstance(block.told, Grid) and block.told.texts:
            return block.told.text(row - block.row, col)
        for axis, index in ((view.rows, row), (view.cols, col)):
            if axis in TOKEN_AXES:
                return plane.label(axis, index)
        return plane.trace.label(cursor.batch, cursor.pos)


def _address(plane: Plane, cursor: Cursor) -> str:
    """The place at the cursor; of heads together and of a difference with what ``layerstep show`` needs beside it."""
    view, (row, col) = plane.view, plane.cell(cursor)
    if not (view.over or plane.minus):
        return str(cursor.address(plane.trace))
    cell = {LETTERS.get(axis, axis): n for axis, n in ((view.rows, row), (view.cols, col)) if axis}

    def place(one: Plane) -> str:
        return str(Address.parse(one.address((0, 0), (0, 0))).with_index(**cell))

    words = [place(plane), *([f"--over head={view.over}"] if view.over else [])]
    if plane.minus is not None:
        same = plane.minus.trace is plane.trace
        words.append(
            f"--minus {place(plane.minus)}" if same else f"minus the same in {name_of(plane.minus.trace, plane.trace)}"
        )
    return " ".join(words)


def _lines(plane: Plane, block: Block, cols: range) -> str:
    """Some columns of all rows of a block; a vocabulary takes a while."""
    return _tabbed([sheet.heading(plane, cols), *sheet.lines(plane, block, cols)])


def _tabbed(lines: list[sheet.Line]) -> str:
    """A table as spreadsheets take it from the clipboard."""
    return "\n".join("\t".join(line) for line in lines)


def _numbers(number: int) -> str:
    return f"{count(number)} number{'s' if number != 1 else ''}"

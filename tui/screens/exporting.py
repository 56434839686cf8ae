"""The actions that export: the screen as a picture or as text, a picture's numbers as CSV, and the engine's formats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from tui import paths
from tui.client import EngineError
from tui.screens.formats import Formats
from tui.state import sheet
from tui.state.block import EVERYTHING
from tui.state.naming import file_of_picture
from tui.state.numbers import count, size
from tui.state.views import Plane

if TYPE_CHECKING:
    from tui.saving import Picture

DERIVED = 1024
"""Cells that the engine is asked to derive at once: between two requests there is progress to show."""
CSV_CELL = 12
"""About how many bytes a number takes in CSV."""


class Kind(NamedTuple):
    """A way to export: what it is called, and how a file's name ends."""

    words: str
    suffix: str


KINDS = {
    "s": Kind("the screen as a picture", ".svg"),
    "t": Kind("the screen as text", ".txt"),
    "p": Kind("the pane with the focus as text", ".txt"),
    "c": Kind("the whole picture's numbers", ".csv"),
}


class Exporting(Formats):
    """``e`` and a letter, or an entry of the palette; then a path is asked for."""

    def do_export(self) -> None:
        """Ask what, by one letter, then where."""
        from tui.screens.choose import ChooseScreen
        from tui.widgets.pick_list import Choice

        if (plane := self.plane) is None:
            return
        shot = self._picture(plane)
        choices = [Choice(key, kind.words, kind.suffix[1:]) for key, kind in KINDS.items()]
        choices[-1] = Choice("c", KINDS["c"].words, f"{self._extent(plane)} csv")

        def chosen(key: str | None) -> None:
            if key in KINDS:
                self._export(key, plane, shot)
            elif key is not None:
                self.export_as(key, plane)

        heading = Choice("", "what is shown", heads=True)
        self.app.push_screen(ChooseScreen("export", [heading, *choices, *self.formats()]), chosen)

    def do_export_svg(self) -> None:
        self._export_now("s")

    def do_export_text(self) -> None:
        self._export_now("t")

    def do_export_pane(self) -> None:
        self._export_now("p")

    def do_export_csv(self) -> None:
        self._export_now("c")

    def _export_now(self, key: str) -> None:
        if (plane := self.plane) is not None:
            self._export(key, plane, self._picture(plane))

    def _extent(self, plane: Plane) -> str:
        """How much the numbers of a picture are; nothing where it is a short table."""
        if plane.view.kind == "ranked" or not plane.has_cells:
            return ""
        rows, cols = plane.size
        large = rows * cols > EVERYTHING
        return f"{count(rows)} × {count(cols)}" + (f", about {size(rows * cols * CSV_CELL)} of" if large else "")

    def _export(self, key: str, plane: Plane, shot: Picture) -> None:
        from tui.screens.ask import AskScreen

        kind = KINDS[key]

        def given(path: str | None) -> None:
            if path is not None:
                self._write_to(path, key, plane, shot)

        name = file_of_picture(plane) + kind.suffix
        self.app.push_screen(AskScreen(f"export {kind.words}", "the file to write", name, paths.unwritable), given)

    def _write_to(self, path: str, key: str, plane: Plane, shot: Picture, force: bool = False) -> None:
        self._in_background(lambda: self._write(path, key, plane, shot, force), "save")

    async def _write(self, typed: str, key: str, plane: Plane, shot: Picture, force: bool) -> None:
        from tui.saving import new_file, why_not
        from tui.widgets.job import Job

        path = paths.place(typed).path
        self._work(Job("exporting", what=str(path)))
        try:
            async with new_file(path, force) as file:
                async for part, done, total in self._parts(key, plane, shot):
                    file.write(part)
                    self._work(Job("exporting", done, total, str(path)))
                length = file.tell()
        except FileExistsError:
            words = f"{path} exists already; choose another name, or overwrite it"
            self.tell(
                "could not export",
                words,
                (("f", "overwrites it"),),
                lambda: self._write_to(typed, key, plane, shot, force=True),
            )
        except OSError as error:
            self.tell("could not export", why_not(error, path))
        except EngineError as error:
            self.tell("could not export", str(error))
        except asyncio.CancelledError:
            if self.alive:
                self.say("cancelled, nothing was written")
            raise
        else:
            self.say(f"saved {path} ({size(length)})")
        finally:
            self._work(None)

    async def _parts(self, key: str, plane: Plane, shot: Picture) -> AsyncIterator[tuple[bytes, int, int]]:
        """The bytes of a file, piece by piece, and how many of how many rows there are by then."""
        from tui.saving import as_csv

        if key == "s":
            yield (await asyncio.to_thread(shot.svg)).encode(), 0, 0
        elif key in "tp":
            yield (shot.part(shot.pane) if key == "p" else shot).text().encode(), 0, 0
        elif plane.view.kind in ("ranked", "tokens") or not plane.has_cells:
            yield as_csv(await self._table(plane)), 0, 0
        else:
            rows, cols = plane.size
            step = max(1, (DERIVED if plane.view.look else EVERYTHING) // max(1, cols))
            yield await asyncio.to_thread(lambda: as_csv([sheet.heading(plane)])), 0, rows
            for row in range(0, rows, step):
                stop = min(rows, row + step)
                block = await self.session.cells(plane, (row, stop), (0, cols))
                yield await asyncio.to_thread(as_csv, sheet.lines(plane, block)), stop, rows

    def _picture(self, plane: Plane) -> Picture:
        """The screen as it is now, without the dialogs over it."""
        from tui.saving import Picture
        from tui.widgets.pane import Pane
        from tui.widgets.stage import Stage

        theme = self.app.current_theme
        panes = [node for node in self.focused.ancestors if isinstance(node, Pane)] if self.focused else []
        pane = next((pane for pane in (*panes, *self.query(Stage)) if pane.region.area), self)
        colours = theme.background or "#000000", theme.foreground or "#ffffff"
        title = f"layerstep · {plane.trace.model} · {plane.step.site}"
        return Picture(tuple(self._compositor.render_strips()), self.size.width, pane.region, title, *colours)

    async def _table(self, plane: Plane) -> list[sheet.Line]:
        """A picture that is a table, its heading first."""
        if plane.view.kind == "ranked":
            return sheet.of_ranking(await self.session.ranking(plane.trace, self.candidates(plane), **self.scoring))
        rows, cols = plane.size
        block = self.session.known(plane)
        if block is None or (plane.view.kind == "tokens" and not block.has((0, rows), (0, cols))):
            block = await self.session.cells(plane, (0, max(1, rows)), (0, max(1, cols)))
        return sheet.of_look(block.told) if block.told else sheet.of_tokens(plane, block)

"""The engine's formats, written from the app: figures of a picture, data, pages and handouts of the whole trace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.export.formats import FORMATS, Format
from engine.sites import LETTERS, Address
from tui import paths
from tui.client import EngineError
from tui.screens.shared import Shared
from tui.state.naming import file_of_picture, file_of_words
from tui.state.numbers import size
from tui.state.views import Plane

if TYPE_CHECKING:
    from tui.widgets.pick_list import Choice

PICTURE = {"svg": "v", "pdf": "d", "png": "g", "tikz": "k", "json": "j", "parquet": "q"}
"""The formats of one picture, and their letters. Its numbers as CSV are those of ``c``."""
WHOLE = {"html": "h", "md": "m", "ipynb": "y", "json": "J", "npz": "z", "safetensors": "a", "csv": "C", "parquet": "Q"}
"""The formats of a whole trace, or of the tour through it, and their letters. A cast is made outside the app."""


class Formats(Shared):
    """What is exported by the engine: it alone has all the numbers."""

    def formats(self) -> list[Choice]:
        """The entries of the engine's formats, under headings."""
        from tui.widgets.pick_list import Choice

        whole = "the whole trace" if self.tour_file is None else "the whole trace, and the tour through it"
        return [
            Choice("", "this picture", heads=True),
            *(_choice(letter, FORMATS[name]) for name, letter in PICTURE.items()),
            Choice("", whole, heads=True),
            *(_choice(letter, FORMATS[name]) for name, letter in WHOLE.items()),
        ]

    def export_as(self, letter: str, plane: Plane) -> None:
        """Ask where to, and have the engine write what a letter stands for."""
        from tui.screens.ask import AskScreen

        kinds = PICTURE if letter in PICTURE.values() else WHOLE
        form = next(FORMATS[name] for name, own in kinds.items() if own == letter)
        how: dict[str, Any] = {}
        if kinds is PICTURE:
            what, how, stem = "this picture", of_picture(plane), file_of_picture(plane)
        elif self.tour_file is not None and "tour" in form.of:
            what, how, stem = "the tour", {"tour": self.tour_file}, Path(self.tour_file).stem
        else:
            what, stem = "the trace", file_of_words(plane.trace.prompt, "trace")

        def given(path: str | None) -> None:
            if path is not None:
                self._have_written(str(paths.place(path).path), form, how)

        words = f"the file to write: {form.words} ({form.name})"
        self.app.push_screen(AskScreen(f"export {what}", words, stem + form.suffix, paths.unwritable), given)

    def _have_written(self, path: str, form: Format, how: dict[str, Any], force: bool = False) -> None:
        if not force and paths.place(path).kind == "file":
            words = f"{path} exists already; choose another name, or overwrite it"
            self.tell("could not export", words, (("f", "overwrites it"),),
                      lambda: self._have_written(path, form, how, force=True))  # fmt: skip
        else:
            self._in_background(lambda: self._have_it_written(path, form, how, force), "save")

    async def _have_it_written(self, path: str, form: Format, how: dict[str, Any], force: bool) -> None:
        from tui.widgets.job import Job

        title = f"exporting {form.name}"
        self._work(Job(title, what=path))
        try:
            written, length = await self.session.export(
                lambda done, total, what: self._work(Job(title, done, total, what)),
                to=form.name, path=path, force=force, **how,
            )  # fmt: skip
        except EngineError as error:
            if error.kind != "Cancelled":
                self.tell("could not export", str(error))
        except asyncio.CancelledError:
            if self.alive:
                self.say("cancelled, nothing was written")
            raise
        else:
            self.say(f"saved {written} ({size(length)})")
        finally:
            self._work(None)


def _choice(letter: str, form: Format) -> Choice:
    from tui.widgets.pick_list import Choice

    return Choice(letter, form.words, form.name)


def of_picture(plane: Plane) -> dict[str, Any]:
    """A picture as the engine knows it: the axes that it spreads out are not named."""

    def address(one: Plane) -> str:
        return str(Address(one.step.site, tuple((LETTERS.get(axis, axis), i) for axis, i in one.place), one.at))

    minus: dict[str, Any] = {}
    if (taken := plane.minus) is not None:
        other = {"trace": "other"} if taken.trace is not plane.trace else {}
        minus = {"minus": {"address": address(taken)} | other}
    return {"address": address(plane), "view": plane.view.name} | minus

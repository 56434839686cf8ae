"""The formats that there are, and how figures are to look. Nothing here imports torch: the app lists them too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from engine.errors import ExportError
from engine.text import display


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name, how its files end, what it is in words, what it can be of, and the module that writes it.

    ``of`` holds "picture" (one place), "trace" (all of it), "tour".
    """

    name: str
    suffix: str
    words: str
    of: tuple[str, ...]
    home: str


FORMATS = {
    form.name: form
    for form in (
        Format("html", ".html", "a page to walk through, offline", ("trace", "tour"), "page.page"),
        Format("svg", ".svg", "a figure", ("picture",), "figures.draw"),
        Format("pdf", ".pdf", "a figure", ("picture",), "figures.draw"),
        Format("png", ".png", "a figure", ("picture",), "figures.draw"),
        Format("tikz", ".tex", "a figure for LaTeX, in pgf", ("picture",), "figures.tikz"),
        Format("json", ".json", "numbers as JSON", ("picture", "trace"), "jsonfile"),
        Format("npz", ".npz", "tensors for numpy", ("trace",), "arrays"),
        Format("safetensors", ".safetensors", "tensors, bits and dtypes kept", ("trace",), "arrays"),
        Format("csv", ".csv", "a table", ("picture", "trace"), "tables"),
        Format("parquet", ".parquet", "a table with typed columns", ("picture", "trace"), "tables"),
        Format("md", ".md", "a handout in Markdown", ("trace", "tour"), "handout"),
        Format("ipynb", ".ipynb", "a notebook that opens the trace", ("trace", "tour"), "notebook"),
        Format("cast", ".cast", "a recording of the app, for asciinema", ("trace", "tour"), ""),
    )
}
"""By name. The app records a cast itself; all others are written by ``engine.export.<home>``."""

SIZES = ("slide", "column", "page")
THEMES = ("light", "dark")
CAPTIONS = ("", "text", "latex")
DTYPES = ("auto", "float32", "float16", "bfloat16")
"""auto: each tensor as it was recorded."""


@dataclass(frozen=True, slots=True)
class FigureStyle:
    """How a figure looks: for a slide (16:9), a column of a two-column paper, or a page's width; on which ground; in
    which colours ('' for the usual ones); whether a caption is written beside it; and how letters stand in an SVG.

    The names are those of `engine.export.figures.style`. ``peaks`` are FLOPs and bytes a second of a machine, for a
    roofline; None: a stated assumption.
    """

    size: str = "slide"
    palette: str = ""
    theme: str = "light"
    caption: str = ""
    font: str = "outlined"
    peaks: tuple[float, float] | None = None


def format_of(path: PurePath, to: str | None = None) -> Format:
    """The format that is named, or that a file's name ends with. Raises ExportError."""
    if to is not None:
        if to not in FORMATS:
            raise ExportError(f"there is no format {display(to)[:40]!r}; there are {', '.join(FORMATS)}")
        return FORMATS[to]
    found = next((form for form in FORMATS.values() if path.name.lower().endswith(form.suffix)), None)
    if found is None:
        name = display(path.name)[:80]
        raise ExportError(f"{name} does not say in which format; end it with one of {_suffixes()}, or say it with --to")
    return found


def _suffixes() -> str:
    return " ".join(dict.fromkeys(form.suffix for form in FORMATS.values()))

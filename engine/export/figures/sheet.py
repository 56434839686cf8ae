"""The sheet that a figure is drawn on: its size, title, caption and colours, with every length in inches.

All text comes onto it through `Sheet.text`, which makes it printable and reads no formulas in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from engine.export.figures import letters
from engine.export.figures.colours import INKS, RGB, Inks, scale
from engine.export.figures.style import SHEETS, Size, checked
from engine.export.formats import FigureStyle

Colour = str | RGB
_ONE_AT_A_TIME = RLock()


@contextmanager
def drawing(font: str = "outlined") -> Iterator[None]:
    """Draw with matplotlib's own settings and ours, whatever the user's are; afterwards they are as they were.

    Settings are one for the whole process, so one figure is drawn at a time.
    """
    ours: dict[Any, Any] = {
        "svg.fonttype": "path" if font == "outlined" else "none",
        "svg.hashsalt": "layerstep",  # or the names inside an SVG would be others each time
        "pdf.fonttype": 42,
        "text.parse_math": False,
        "text.hinting": "none",  # letters are as wide as they were measured
        "hatch.linewidth": 0.5,
    }
    with _ONE_AT_A_TIME, matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(ours)
        yield


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a sheet: its left lower corner, and how wide and high it is."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def top(self) -> float:
        return self.y + self.height

    def inside(self, left: float = 0, bottom: float = 0, right: float = 0, top: float = 0) -> Box:
        """What is left of it without a strip at each side."""
        return Box(
            self.x + left, self.y + bottom, max(0.01, self.width - left - right), max(0.01, self.height - bottom - top)
        )


@dataclass(slots=True)
class Sheet:
    """A figure in the making. ``title`` stands above it; on a slide ``formula`` stands under the title and ``source``
    at the bottom; ``caption`` is written under it where there is one."""

    style: FigureStyle
    title: str = ""
    formula: str = ""
    source: str = ""
    caption: str = ""
    figure: Figure = field(init=False)
    size: Size = field(init=False)
    inks: Inks = field(init=False)
    _above: float = field(init=False)
    _below: float = field(init=False)
    _lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.size, self.inks = SHEETS[checked(self.style).size], INKS[self.style.theme]
        self.figure = Figure(figsize=(self.size.width, 1), dpi=self.size.dpi, facecolor=self.inks.ground)
        size = self.size
        self._above = size.margin + letters.height(size.title, bool(self.title)) * 1.1
        if self.slide and self.formula:
            self._above += letters.height(size.base)
        self._above += letters.height(size.small) * (0.9 if self.slide else 0.25)
        self._lines = letters.wrap(self.caption, self.width, size.small) if self.caption else []
        self._below = size.margin + letters.height(size.small, len(self._lines))
        self._below += letters.height(size.small) * 0.4 * bool(self._lines)
        self._below += letters.height(size.least) * 1.3 * (self.slide and bool(self.source))

    @property
    def slide(self) -> bool:
        """Whether it has a fixed height."""
        return self.size.height is not None

    @property
    def width(self) -> float:
        """How wide the picture itself may be."""
        return self.size.width - 2 * self.size.margin

    @property
    def most(self) -> float:
        """How high the picture itself may be; on a slide it is that high."""
        return self.size.most - self._above - self._below if self.slide else self.size.most

    def scale(self, *, signed: bool) -> tuple[RGB, ...]:
        """The colours of cells."""
        return scale(self.style.palette, self.style.theme, signed=signed)

    def open(self, height: float) -> Box:
        """Begin to draw a picture of this height, as far as there is room; where it stands."""
        high = self.most if self.slide else min(self.most, height)
        whole = self.size.height or high + self._above + self._below
        self.figure.set_size_inches(self.size.width, whole)
        self._header(whole)
        self._footer()
        return Box(self.size.margin, self._below, self.width, high)

    def _header(self, whole: float) -> None:
        size, x = self.size, self.size.margin
        y = whole - size.margin
        if self.title:
            points = letters.size_for(self.title, self.width, size.title, 0.62 * size.title, bold=True)
            self.text(x, y, letters.fit(self.title, self.width, points, bold=True), points, va="top", bold=True)
            y -= letters.height(size.title) * 1.1
        if self.slide and self.formula:
            points = letters.size_for(self.formula, self.width, size.base, size.least)
            words = letters.fit(self.formula, self.width, points)
            self.text(x, y, words, points, va="top", colour=self.inks.muted)

    def _footer(self) -> None:
        size, x = self.size, self.size.margin
        y = size.margin
        if self.slide and self.source:
            words = letters.fit(self.source, self.width, size.least)
            self.text(x, y, words, size.least, va="bottom", colour=self.inks.muted)
            y += letters.height(size.least) * 1.3
        for i, line in enumerate(reversed(self._lines)):
            self.text(x, y + letters.height(size.small, i), line, size.small, va="bottom")

    # -- what is put on it -----------------------------------------------------------------------------------------

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float,
        *,
        ha: Literal["left", "center", "right"] = "left",
        va: Literal["bottom", "baseline", "center", "center_baseline", "top"] = "center",
        colour: Colour | None = None,
        rotation: float = 0,
        bold: bool = False,
        above: int = 3,
    ) -> Text:
        """Words on the sheet. Turned ones stand on the end that ``ha`` names."""
        return self.figure.text(
            x, y, letters.plain(words), transform=self.figure.dpi_scale_trans, ha=ha, va=va, rotation=rotation,
            rotation_mode="anchor" if rotation else "default", color=colour or self.inks.ink, zorder=above,
            fontproperties=letters.font(size, bold=bold), parse_math=False,
        )  # fmt: skip

    def axes(self, box: Box, *, frame: bool = False) -> Axes:
        """Axes that fill a box, with no ticks, and a frame only where it is wanted."""
        width, height = self.figure.get_size_inches()
        axes = self.figure.add_axes((box.x / width, box.y / height, box.width / width, box.height / height))
        axes.set_facecolor("none")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(frame)
            spine.set(color=self.inks.line, linewidth=self.thin)
        return axes

    @property
    def thin(self) -> float:
        """The width of a line that only guides the eye."""
        return 0.5 * self.size.line

    def line(self, xs: Sequence[float], ys: Sequence[float], **how: Any) -> None:
        """A line on the sheet."""
        look: dict[str, Any] = {"color": self.inks.muted, "linewidth": self.thin} | how
        self.figure.add_artist(Line2D(list(xs), list(ys), transform=self.figure.dpi_scale_trans, **look))

    def block(self, box: Box, colour: Colour, **how: Any) -> None:
        """A filled box."""
        how = {"facecolor": colour, "edgecolor": "none", "linewidth": 0.0} | how
        self.figure.add_artist(
            Rectangle((box.x, box.y), box.width, box.height, transform=self.figure.dpi_scale_trans, **how)
        )

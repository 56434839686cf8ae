"""What is exported, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.errors import ExportError
from engine.export.formats import FigureStyle
from engine.export.selection import Selection
from engine.pictures import Wish, views_of
from engine.sites import Address
from engine.traces import Trace

if TYPE_CHECKING:
    from engine.tours import Tour


@dataclass(frozen=True, slots=True)
class Order:
    """An export of a trace: of the picture at an address (``at``), of all of it, or of a tour through it.

    ``view`` is a picture's name, None for the first one that the site has; ``over``, ``minus`` and ``other`` are those
    of `engine.pictures.Wish`. ``dtype`` is what floating-point numbers are rounded to (auto: none are). ``beside`` is a
    tour's second trace; ``notes``: with what is for its speaker alone.
    """

    trace: Trace
    to: str
    at: str | None = None
    view: str | None = None
    over: Mapping[str, str] = field(default_factory=dict)
    minus: str | None = None
    other: Trace | None = None
    selection: Selection = field(default_factory=Selection)
    dtype: str = "auto"
    max_size: int | None = None
    tour: Tour | None = None
    beside: Trace | None = None
    title: str = ""
    notes: bool = False
    style: FigureStyle = field(default_factory=FigureStyle)

    @property
    def wish(self) -> Wish:
        """The picture that is asked for. Raises ExportError where no address is named."""
        if self.at is None:
            raise ExportError("this is of one place; name it with --at, e.g. --at 'blocks.0.attn.pattern[h=0]'")
        view = self.view
        if view is None:
            place = Address.parse(self.at)
            view = views_of(self.trace, self.trace.program.site(place.site), place.at)[0].name
        return Wish(self.trace, self.at, view, self.over, self.other, self.minus)

"""What the cache takes: measured beside the formula, and what it would take if it were otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.segment import Segment

from tui.state.cache import CacheReport, Cost
from tui.state.numbers import count, size
from tui.widgets.cache_section import Line, Section, flow, paragraph, widest


class CacheBytes(Section):
    """Numbers with bars; ● marks what this model is."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._report: CacheReport | None = None

    def show(self, report: CacheReport | None, trouble: str = "") -> None:
        """Draw a report's bytes; None while it is not here."""
        self._report = report
        self.say(report, trouble=trouble)

    def write(self, width: int) -> Iterator[Line]:
        lines = list(self._written(width))
        tight = len(lines) > self.room.height
        return (line for line in lines if line or not tight)

    def _written(self, width: int) -> Iterator[Line]:
        report, inks = self._report, self.inks
        if report is None:
            yield from self.waiting()
            return
        yield from self.fact("in all", size(report.bytes), f"{count(report.bytes)} B, measured", width)
        apart = abs(report.bytes - report.formula)
        mark, tone = (f"✗ {count(apart)} B apart", inks.error) if apart else ("✓ the same", inks.success)
        *lines, last = paragraph(report.formula_text, inks.accent, width, indent=3)
        yield from lines
        yield from flow((*last, Segment(f" {mark}", tone)), width, indent=3)
        layers = len(report.layers)
        each = f"{size(report.per_token / layers)} in each of {count(layers)} layers"
        yield from self.fact("per token", size(report.per_token), each if layers > 1 else "in its one layer", width)
        room = "with room to grow into" if report.allocated > report.bytes else "without room: one more copies all"
        yield from self.fact("allocated", size(report.allocated), room, width)
        if report.fits:
            yield from paragraph(report.fits, inks.strong, width)
        yield from self._bars("with other heads", "at these positions", report.kinds, width)
        yield from self._bars("in other dtypes", "", report.dtypes, width)
        yield from self._bars("at other lengths", "", report.lengths, width)

    def _bars(self, title: str, note: str, rows: Sequence[Cost], width: int) -> Iterator[Line]:
        if not rows:
            return
        yield []
        beyond = any(row.beyond for row in rows)
        yield self.heading(title, note or ("* beyond n_ctx" if beyond else ""))
        names = widest((row.name for row in rows), 14) + beyond
        most = max(row.bytes for row in rows)
        for row in rows:
            name = row.name + ("*" if row.beyond else "")
            yield self.bar(name, size(row.bytes), row.bytes, most, (names, 10, width), "●" if row.this else " ")
            if row.more:
                yield from paragraph(f"and {row.more}", self.inks.faint, width, indent=5)

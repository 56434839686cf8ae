"""What the cache takes: measured beside the formula, and what it would take if it were otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.segment import Segment

from tui.state.cache import CacheReport, Cost
from tui.state.numbers import count, size
from tui.widgets.cache_section import Line, Section, paragraph, widest


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
        report, inks = self._report, self.inks
        if report is None:
            yield from self.waiting()
            return
        yield self.fact("in all", size(report.bytes), f"{count(report.bytes)} B, measured")
        same = report.bytes == report.formula
        yield [
            *self.fact("formula", size(report.formula)),
            Segment("✓ the same" if same else f"✗ {count(abs(report.bytes - report.formula))} B apart",
                    inks.success if same else inks.error),
        ]  # fmt: skip
        yield from paragraph(report.formula_text, inks.accent, width, indent=3)
        yield self.fact("per token", size(report.per_token), f"{report.dtype}, {report.itemsize} B a number")
        each_layer = [layer.bytes for layer in report.layers]
        low, high = min(each_layer), max(each_layer)
        each = f"to {size(high)}" if low != high else f"in each of {len(report.layers)}"
        yield self.fact("per layer", size(low), each)
        room = "with room to grow into" if report.allocated > report.bytes else "without room: one more copies all"
        yield self.fact("allocated", size(report.allocated), room)
        yield from self._bars("with other heads", "at these positions", report.kinds, width)
        yield from self._bars("in other dtypes", "", report.dtypes, width)
        yield from self._bars("at other lengths", "", report.lengths, width)
        if report.fits:
            yield []
            yield from paragraph(report.fits, inks.strong, width)

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

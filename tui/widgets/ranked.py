"""The vocabulary at one position, most likely first."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from tui.render.bars import bar
from tui.state.answers import Ranking
from tui.state.numbers import exact
from tui.state.views import Plane
from tui.text import fit, right
from tui.widgets.plane import RowsView


class Ranked(RowsView):
    """A ranked table with probability bars. Its rows are ranks, not ids.

    Where tokens are drawn there is another column: what they are drawn from, ``·`` for those that never are.
    """

    HEADING = 1

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.ranking: Ranking | None = None

    def rank(self, plane: Plane, ranking: Ranking | None, token: int) -> None:
        """Draw this ranking; ``token`` is the id that the cursor is on."""
        changed = ranking is not self.ranking or self.plane is None or plane.key != self.plane.key
        self.ranking = ranking
        ids = [row.id for row in ranking.rows] if ranking else []
        cell = (ids.index(token) if token in ids else 0, 0)
        moved = cell != self.cell
        self.plane, self.block, self.cell = plane, None, cell
        if changed or moved:
            self._strips.clear()
            self.measure()
            self.follow(changed)
            self.refresh()

    def want(self) -> None:
        """The ranking comes whole; no window is asked for."""

    @property
    def count(self) -> int:
        return len(self.ranking.rows) if self.ranking else 0

    def strip(self, y: int) -> Strip:
        width = self.room.width
        if self.ranking is None:
            return self.blank(width)
        if self.ranking.nonfinite:
            text = f" no ranking: {self.ranking.nonfinite} values here are not finite" if y == 0 else ""
            return self.cached(("bad", y), lambda: [Segment(fit(text, width), self.inks.error)], width)
        if y == 0:
            token_id = f"{'id':>6}  " if self._has_id(width) else ""
            logit = f"{'logit':>9}  " if self._has_logit(width) else ""
            drawn = f"{'drawn from':>11}" if self.ranking.sampled else ""
            head = f" rank  {fit('token', 14)} {token_id}{logit}{'probability':>11} {drawn}"
            return self.cached("head", lambda: [Segment(fit(head, width), self.inks.faint)], width)
        rank = y - 1 + self.scroll_offset.y
        if rank >= self.count:
            return self.blank(width)
        return self.cached((rank, rank == self.cell[0], width), lambda: self._line(rank, width), width)

    def _has_logit(self, width: int) -> bool:
        """Whether there is room for the logit: the probability, and what tokens are drawn from, go first."""
        return width >= (66 if self.ranking and self.ranking.sampled else 53)

    def _has_id(self, width: int) -> bool:
        """Whether there is room for the id: it goes after the logit."""
        return width >= (55 if self.ranking and self.ranking.sampled else 42)

    def _line(self, rank: int, width: int) -> list[Segment]:
        assert self.ranking is not None
        row, here, inks = self.ranking.rows[rank], rank == self.cell[0], self.inks
        sampled = self.ranking.sampled
        weight = (row.drawn or 0.0) if sampled else row.prob
        top = max((one.drawn or 0.0) for one in self.ranking.rows) if sampled else self.ranking.rows[0].prob
        text, quiet = (inks.cursor, inks.cursor_muted) if here else (inks.text, inks.muted)
        segments = [
            Segment("▸" if here else " ", inks.accent),
            Segment(right(str(rank + 1), 4) + "  ", quiet),
            Segment(fit(row.label, 14) + " ", text),
            *([Segment(right(str(row.id), 6) + "  ", quiet)] if self._has_id(width) else []),
            *([Segment(right(exact(row.logit)[:9], 9) + "  ", quiet)] if self._has_logit(width) else []),
            Segment(right(_share(row.prob), 11) + " ", quiet if sampled else text),
        ]
        if sampled:
            segments.append(Segment(right("·" if row.drawn is None else _share(row.drawn), 11) + " ", text))
        room = width - sum(segment.cell_length for segment in segments) - 1
        return [
            *segments,
            Segment(" ", inks.text),
            *bar(weight, top or 1, room, False, inks.bar_up, inks.bar_down, inks.bar_track),
        ]


def _share(prob: float) -> str:
    return f"{prob:.4f}" if prob >= 1e-4 or not prob else f"{prob:.0e}"

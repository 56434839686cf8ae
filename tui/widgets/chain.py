"""A line over attention's pictures: the cell at the cursor on its way from score to weight."""

from __future__ import annotations

from collections.abc import Iterator

from rich.segment import Segment
from textual.events import Click
from textual.message import Message
from textual.strip import Strip

from tui.state.looks import Chain, Stage
from tui.state.numbers import short
from tui.text import cells, fit, foreign
from tui.widgets.lines import LineView

STATES = {"masked": "-∞", "nan": "NaN", "+inf": "∞", "-inf": "-∞"}
ARROW = " → "
Piece = tuple[str, int]
"""Words, and the number of their stage; -1 of what lies between two."""


class ChainLine(LineView, can_focus=False):
    """`` scores 2.31 → × 0.25 → scaled .578 → masked .578 → [pattern .634]``; where it is narrow, with fewer words."""

    class Chosen(Message):
        """A stage was clicked."""

        def __init__(self, site: str) -> None:
            super().__init__()
            self.site = site

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._stages: tuple[Stage, ...] = ()
        self._site = ""
        self._known = False
        self._spots: list[tuple[int, int, str]] = []
        self.display = False

    def show(self, chain: Chain | None, site: str) -> None:
        """The chain with the stage of ``site`` marked. While it is not known yet, the one before keeps its place."""
        stages = chain.stages if chain is not None else self._stages
        if site not in (stage.site for stage in stages):
            stages = ()
        known = chain is not None
        if (stages, site, known) != (self._stages, self._site, self._known):
            self._stages, self._site, self._known = stages, site, known
            self.display = chain is None or bool(stages)  # no jump when it comes
            self.forget()

    def strip(self, y: int) -> Strip:
        width = self.room.width
        return self.cached((y, width), lambda: self._line(width) if y == 0 else [], width)

    def _line(self, width: int) -> list[Segment]:
        inks, here = self.inks, next((n for n, stage in enumerate(self._stages) if stage.site == self._site), 0)
        forms = list(_forms(self._stages, here, self._known))
        pieces = next((form for form in forms if sum(cells(text) for text, _ in form) < width), forms[-1])
        segments, self._spots, used = [Segment(" ", inks.text)], [], 1
        for text, stage in pieces:
            text = fit(text, min(cells(text), max(0, width - used)))
            style = inks.strong if stage == here else inks.text if stage >= 0 else inks.faint
            segments.append(Segment(text, style))
            if stage >= 0 and text:
                self._spots.append((used, used + cells(text), self._stages[stage].site))
            used += cells(text)
        return segments

    def on_click(self, event: Click) -> None:
        """A click on a stage goes to its step."""
        for start, stop, site in self._spots:
            if event.y == 0 and start <= event.x < stop:
                self.post_message(self.Chosen(site))


def _forms(stages: tuple[Stage, ...], here: int, known: bool) -> Iterator[list[Piece]]:
    """The line with fewer and fewer words."""
    names = [foreign(stage.label) for stage in stages]
    exact, values = ([_value(stage, known, width) for stage in stages] for width in (6, 4))
    deeds = [foreign(stage.words) if known else "" for stage in stages]
    full = [f"{name} {value}" for name, value in zip(names, exact, strict=True)]
    yield _joined(full, here, deeds)
    yield _joined(full, here, [deed.partition(" = ")[0] for deed in deeds])
    yield _joined(full, here, [])
    full = [f"{name} {value}" for name, value in zip(names, values, strict=True)]
    yield _joined(full, here, [])
    yield _joined([full[n] if n == here else value for n, value in enumerate(values)], here, [])
    ends = ("‹ " if here else "", " ›" if here < len(stages) - 1 else "")
    yield [(ends[0], here - 1), (f"[{full[here]}]", here), (ends[1], here + 1)] if stages else []


def _joined(words: list[str], here: int, deeds: list[str]) -> list[Piece]:
    line: list[Piece] = []
    for n, word in enumerate(words):
        if n:
            line.append((ARROW, -1))
            if n < len(deeds) and deeds[n]:
                line += [(deeds[n], -1), (ARROW, -1)]
        line.append((f"[{word}]" if n == here else word, n))
    return line


def _value(stage: Stage, known: bool, width: int) -> str:
    if not known:
        return "…"
    if stage.value is not None:
        tiny = 0 < abs(stage.value) < 1e-3 and width < 6
        return ("<.001" if stage.value > 0 else ">-.001") if tiny else short(stage.value, width)
    return STATES.get(stage.state, "…")

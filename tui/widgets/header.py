"""The top line: the model, where it ran, and how far along the pass the cursor is."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip

from tui.actions import keymap_of
from tui.state.cursor import Cursor
from tui.state.trace import Trace
from tui.text import cells, fit, foreign
from tui.widgets.lines import LineView

LONGEST_NAME = 28


class HeaderLine(LineView, can_focus=False):
    """`` layerstep · modern · 4 layers · …            step 41/93``"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._facts: tuple[str, ...] = ()
        self._place = self._sampling = self._branch = self._recording = ""

    def show(
        self,
        trace: Trace | None,
        cursor: Cursor | None,
        state: str,
        sampling: str = "",
        file: str = "",
        recording: str = "",
    ) -> None:
        """Draw the trace's facts; ``state`` stands where there is no trace, ``sampling`` where it is not greedy.

        ``file`` is the trace file that was opened, with or without its model, ``recording`` the tour that is recorded.
        """
        facts = facts_of(trace, file) if trace else (state,)
        place = f"step {cursor.step + 1}/{len(trace.steps)}" if trace and cursor else ""
        key = keymap_of(self.app).key("generate.branches")
        branch = f"branch {trace.branch + 1} of {trace.branches} ({key})" if trace and trace.branches > 1 else ""
        shown = (facts, place, sampling, branch, recording)
        if shown != (self._facts, self._place, self._sampling, self._branch, self._recording):
            self._facts, self._place, self._sampling, self._branch, self._recording = shown
            self.forget()

    def strip(self, y: int) -> Strip:
        width = self.room.width
        return self.cached((y, width), lambda: self._line(width) if y == 0 else [], width)

    def _line(self, width: int) -> list[Segment]:
        inks = self.inks
        name, place = " layerstep", f"{self._place} " if self._place else ""
        if self._sampling and (spare := width - len(name) - len(place) - 6) >= 6:
            place = f"{fit(self._sampling, min(len(self._sampling), spare))} · {place}"
        if self._branch and width - len(name) - len(place) - 4 >= len(self._branch):
            place = f"{self._branch} · {place}"
        mark = f" ● {self._recording} " if self._recording and width - len(name) - len(place) > 12 else ""
        mark = fit(mark, min(len(mark), max(0, width - len(name) - len(place) - 2)))
        room = width - len(name) - len(mark) - len(place) - 1
        facts = list(self._facts)
        while len(facts) > 1 and cells(" · ".join(facts)) + 3 > room:
            facts.pop(-1 if len(facts) < 6 else -3)
        text = "".join(f" · {fact}" for fact in facts if fact)
        return [
            Segment(name, inks.primary + inks.strong.without_color),
            Segment(fit(text, max(0, room)), inks.muted),
            Segment(mark, inks.accent),
            Segment(" " + place, inks.strong),
        ]


def facts_of(trace: Trace, file: str = "") -> tuple[str, ...]:
    """What the header says of a trace, most important first."""
    config, name = trace.config, foreign((trace.file or file).rsplit("/", 1)[-1])
    heads, kv = config.get("n_heads"), config.get("n_kv_heads")
    return tuple(
        fact
        for fact in (
            foreign(trace.model),
            fit(name, min(cells(name), LONGEST_NAME)),
            "edited" if trace.edits else "",
            f"{config['n_layers']} layers" if "n_layers" in config else "",
            (f"{heads} heads" + (f", {kv} kv" if kv and kv != heads else "")) if heads else "",
            f"d {config['d_model']}" if "d_model" in config else "",
            foreign(f"{trace.device} {trace.dtype}".strip()),
            foreign(f"sdpa:{trace.kernel}") if trace.kernel else "",
        )
        if fact
    )

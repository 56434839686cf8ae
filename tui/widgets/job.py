"""The line that shows long work: what, how far, and how to stop it."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from textual.strip import Strip

from tui.render.bars import bar
from tui.text import cells, fit, foreign
from tui.widgets.lines import LineView


@dataclass(frozen=True, slots=True)
class Job:
    """Work under way; ``total`` is 0 while nobody knows how much it is, ``tail`` where the end of ``what`` counts."""

    title: str
    done: int = 0
    total: int = 0
    what: str = ""
    tail: bool = False
    ends: str = "cancels"


class JobLine(LineView, can_focus=False):
    """Shown only while there is a job."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.job: Job | None = None

    def show(self, job: Job | None) -> None:
        """Draw the job; None hides the line."""
        if job != self.job:
            self.job = job
            self.display = job is not None
            self.forget()

    def strip(self, y: int) -> Strip:
        width, job = self.room.width, self.job
        return self.cached((y, width), lambda: self._line(job, width) if job and y == 0 else [], width)

    def _line(self, job: Job, width: int) -> list[Segment]:
        inks, room = self.inks, min(30, width // 4)
        share = bar(job.done, job.total, room, False, inks.primary, inks.primary, inks.bar_track) if job.total else []
        number = f" {job.done}/{job.total} " if job.total else " "
        space = max(0, width - room - len(number) - 15)
        title = f" {job.title}  " if job.what else f" {job.title}"
        what = _end(job.what, space - len(title)) if job.tail else job.what
        return [
            Segment(fit(title + what, space), inks.text),
            *(share or [Segment(" " * room, inks.text)]),
            Segment(number, inks.muted),
            *([Segment(" Esc ", inks.primary), Segment(job.ends, inks.muted)] if job.ends else []),
        ]


def _end(text: str, width: int) -> str:
    """The end of a text, as much of it as fits."""
    text = foreign(text[-4 * max(1, width) :]).lstrip(" ")
    while text and cells(text) > width - 1:
        text = text[max(1, (cells(text) - width + 1) // 2) :]
    return text

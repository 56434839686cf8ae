"""Captions: what a figure shows, where it comes from, and what was done to its numbers, as text or for LaTeX."""

from __future__ import annotations

from engine.errors import ExportError
from engine.export.figures.cells import LEAST, MOST, MOST_ARCS, shared
from engine.export.figures.latex import escaped
from engine.export.figures.subject import Subject
from engine.export.figures.words import edited, quoted
from engine.export.figures.words import formula as formula
from engine.export.figures.words import source as source
from engine.export.figures.words import title as title
from engine.pictures import Picture
from engine.text import display

FORMS = ("text", "latex")


def said(subject: Subject, form: str = "text") -> str:
    """A figure's caption in sentences. For LaTeX the formula is set as such where it is known as LaTeX. Raises
    ExportError for a form other than text and latex."""
    if form not in FORMS:
        raise ExportError(f"a caption is {' or '.join(FORMS)}, and not {display(form)[:40]!r}")
    trace = subject.trace
    origin = f"Model {trace.config.name}" + (f", prompt {quoted(trace)}" if trace.prompt else "")
    origin += f", edited: {edits}" if (edits := edited(trace)) else ""
    if form == "text":
        return " ".join(
            _sentence(display(part)) for part in (subject.title, subject.formula, *subject.facts, origin) if part
        )
    made = f"${subject.latex}$." if subject.latex else _sentence(escaped(subject.formula)) if subject.formula else ""
    rest = (_sentence(escaped(part)) for part in (*subject.facts, origin))
    return " ".join(part for part in (_sentence(escaped(subject.title)), made, *rest) if part)


def latex_of(picture: Picture) -> str:
    """A picture's formula as LaTeX; '' where it is made of the tensor in some other way."""
    if picture.told is not None:
        return str(picture.told.get("latex", ""))
    step, place = picture.trace.program.step(picture.address.site), picture.place
    plain = place is not None and place.title == str(place.address)
    return step.op.text.latex if step is not None and plain else ""


def made_of(picture: Picture) -> tuple[str, ...]:
    """What was taken, is hidden, is not finite or shares a cell, a sentence each."""
    found = [f"Of {', '.join(map(str, picture.taken))}"] if picture.taken else []
    place, view = picture.place, picture.view
    if place is None:
        return tuple(found)
    stats = place.stats()
    if stats["masked"]:
        found.append(f"{stats['masked']:,} of {stats['size']:,} cells are masked")
    if bad := [f"{stats[key]:,} {key}" for key in ("nan", "+inf", "-inf") if stats[key]]:
        found.append(f"Not finite: {', '.join(bad)}")
    if view is not None and view.kind == "arcs":
        found.append(f"Weights below {LEAST:.0%} of the largest, and all but the {MOST_ARCS} largest, have no arc")
    if len(place.axes) == 2 and (view is None or view.kind in ("attention", "matrix")):
        rows, cols = shared((place.axes[0].size, place.axes[1].size))
        if (rows, cols) != (1, 1):
            found.append(
                f"Each cell is the number farthest from 0 of {rows} × {cols}, so that there are at most {MOST} a side"
            )
    return tuple(found)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."

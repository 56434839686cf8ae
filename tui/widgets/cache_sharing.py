"""Which query heads read which key/value head, as a small map of brackets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.segment import Segment

from tui.render.palette import Inks
from tui.state.cache import Share

GUTTER, GAP = 9, 3


def sharing_lines(sharing: Sequence[Share], chosen: int, width: int, inks: Inks) -> Iterator[list[Segment]]:
    """Three lines for as many kv heads as fit beside each other, and again for the rest; ``chosen`` is marked."""
    digits = max((len(str(head)) for share in sharing for head in (*share.heads, share.kv_head)), default=1)
    if any(_room(share, digits) > width - GUTTER for share in sharing):
        for share in sharing:
            style = inks.accent if share.kv_head == chosen else inks.text
            yield [Segment(f" kv {share.kv_head}", style), Segment(f"  read by {_spans(share.heads)}", inks.muted)]
        return
    line: list[Share] = []
    used = GUTTER
    for share in sharing:
        room = _room(share, digits) + GAP
        if line and used + room > width:
            yield from _lines(line, digits, chosen, inks)
            line, used = [], GUTTER
        line.append(share)
        used += room
    if line:
        yield from _lines(line, digits, chosen, inks)


def _spans(heads: Sequence[int]) -> str:
    """``heads 0–31``, or all of them where they are not one run."""
    if list(heads) == list(range(heads[0], heads[0] + len(heads))):
        return f"heads {heads[0]}–{heads[-1]}"
    return "heads " + " ".join(map(str, heads))


def _room(share: Share, digits: int) -> int:
    return max(1, len(share.heads)) * (digits + 1) - 1


def _lines(line: Sequence[Share], digits: int, chosen: int, inks: Inks) -> Iterator[list[Segment]]:
    rows: list[list[Segment]] = [[Segment(f" {name:<{GUTTER - 1}}", inks.faint)] for name in ("query", "", "kv")]
    for share in line:
        here = share.kv_head == chosen
        text, rule = (inks.accent, inks.accent) if here else (inks.text, inks.faint)
        room = _room(share, digits)
        heads = " ".join(f"{head:>{digits}}" for head in share.heads)
        for row, (words, style) in zip(
            rows,
            ((heads, text), (_bracket(len(share.heads), digits), rule), (_under(share, digits), text)),
            strict=True,
        ):
            row.append(Segment(words.ljust(room) + " " * GAP, style))
    yield from rows


def _middle(heads: int, digits: int) -> int:
    return (digits - 1 + heads * (digits + 1) - 2) // 2


def _bracket(heads: int, digits: int) -> str:
    """``└─┴┬┴─┘`` under the last digits of some heads."""
    if heads < 2:
        return "│".rjust(digits)
    places = [head * (digits + 1) + digits - 1 for head in range(heads)]
    marks = [" "] * places[0] + ["─"] * (places[-1] - places[0] + 1)
    for place in places:
        marks[place] = "┴"
    marks[places[0]], marks[places[-1]] = "└", "┘"
    middle = _middle(heads, digits)
    marks[middle] = "┼" if marks[middle] == "┴" else "┬"
    return "".join(marks)


def _under(share: Share, digits: int) -> str:
    """The kv head's number, its last digit under the middle."""
    return str(share.kv_head).rjust(_middle(len(share.heads), digits) + 1)

"""The branches of a trace as the rows of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tui.state.answers import Branch


@dataclass(frozen=True, slots=True)
class Row:
    """A branch, and the lines that lead to it: ``│  └ ``."""

    branch: Branch
    lead: str = ""


def rows_of(branches: Sequence[Branch]) -> tuple[Row, ...]:
    """The rows, each branch under the one that it leaves; siblings by where they leave it."""
    known = {branch.branch for branch in branches}
    under: dict[int | None, list[Branch]] = {}
    for branch in branches:
        parent = branch.parent if branch.parent in known and branch.parent != branch.branch else None
        under.setdefault(parent, []).append(branch)
    for siblings in under.values():
        siblings.sort(key=lambda branch: (branch.pos, branch.branch))
    seen: set[int] = set()

    def below(parent: int | None, lead: str) -> Iterator[Row]:
        children = under.get(parent, [])
        for branch in children:
            if branch.branch in seen:
                continue
            seen.add(branch.branch)
            last = branch is children[-1]
            top = parent is None
            yield Row(branch, "" if top else f"{lead}{'└' if last else '├'} ")
            yield from below(branch.branch, "" if top else f"{lead}{' ' if last else '│'} ")

    return tuple(below(None, ""))

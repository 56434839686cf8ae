"""The pass as rows of a tree: blocks fold, the one with the cursor is open."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tui.state.trace import PARTS, Trace


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a step, or the heading of a block (its first step is ``step``)."""

    step: int
    text: str
    heading: bool = False
    open: bool = False
    inside: bool = False
    on_path: bool = True
    part: str = ""


@lru_cache(maxsize=8)
def rows_of(trace: Trace, open_block: int | None) -> tuple[Row, ...]:
    """The rows with one block open."""
    rows: list[Row] = []
    last_block: int | None = None
    last_part = ""
    for step in trace.steps:
        if step.block is None:
            rows.append(Row(step.index, step.name, on_path=step.on_path))
            last_part = step.part
        else:
            if step.block != last_block:
                name = step.block_name or f"block {step.block}"
                rows.append(Row(step.index, name, heading=True, open=step.block == open_block))
                last_part = ""
            if step.block == open_block:
                part = PARTS.get(step.part, step.part) if step.part != last_part else ""
                rows.append(Row(step.index, step.name, inside=True, on_path=step.on_path, part=part))
                last_part = step.part
        last_block = step.block
    return tuple(rows)


@lru_cache(maxsize=16)
def place_of(trace: Trace, step: int) -> int:
    """The row of a step while its block is open."""
    rows = rows_of(trace, trace.steps[step].block)
    return next((y for y, row in enumerate(rows) if row.step == step and not row.heading), 0)

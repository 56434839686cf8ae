"""What loading a model has to say: while it goes on, and afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What loading did that is worth knowing; iterated, it gives lines.

    ``casts`` counts tensors by their dtype as (stored, loaded), ``ignored`` those that play no part, by their name or
    by the pattern that knows them; ``tied`` says which matrix the unembedding is, where that is no matter of course.
    ``warnings`` are what the user should be told without asking.
    """

    casts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    tied: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        return (
            *self.warnings,
            *(f"cast {n} tensors from {stored} to {loaded}" for (stored, loaded), n in self.casts.items()),
            *([self.tied] if self.tied else []),
            *(f"ignored {names}" + (f" ({n} tensors)" if n > 1 else "") for names, n in self.ignored.items()),
            *self.notes,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def with_notes(self, *notes: str) -> LoadReport:
        return replace(self, notes=(*self.notes, *notes))

    def to_json(self) -> dict[str, Any]:
        return {
            "casts": [{"from": stored, "to": loaded, "tensors": n} for (stored, loaded), n in self.casts.items()],
            "ignored": [{"names": names, "tensors": n} for names, n in self.ignored.items()],
            "tied": self.tied or None,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }

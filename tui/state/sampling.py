"""How the next token is chosen, as the person set it. What is in range is for the engine to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

RUN = 64
"""So many tokens a run makes at most, unless told another number."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """None leaves a figure to the engine: without a temperature it always takes the likeliest token.

    ``stop`` is the text that ends a run, ``tokens`` how many a run makes at most.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str = ""
    tokens: int = RUN

    @property
    def params(self) -> dict[str, Any]:
        """What a request says of it."""
        named = {field.name: getattr(self, field.name) for field in fields(self)[:6]}
        said = {name: value for name, value in named.items() if value is not None}
        return said | ({"stop": [self.stop]} if self.stop else {})

    @property
    def scoring(self) -> dict[str, Any]:
        """What of it changes how likely a token is to be drawn; nothing where the likeliest is taken as it is."""
        said = self.params
        return {name: said[name] for name in said if name not in ("seed", "stop")} if self.words else {}

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return not self.temperature

    @property
    def words(self) -> str:
        """In a few characters, ``T 0.8 k 40``; '' where the likeliest token is taken as it is."""
        shown = (("T", self.temperature), ("k", self.top_k), ("p", self.top_p), ("min", self.min_p))
        parts = [] if self.greedy else [f"{name} {value:g}" for name, value in shown if value is not None]
        if self.repetition_penalty not in (None, 1):
            parts.append(f"rep {self.repetition_penalty:g}")
        return " ".join(parts)


FIELDS: tuple[tuple[str, str, Callable[[str], Any], str], ...] = (
    ("temperature", "temperature", float, "0 or empty: always the likeliest token"),
    ("top_k", "top-k", int, "only so many of the likeliest"),
    ("top_p", "top-p", float, "the fewest that add up to this share"),
    ("min_p", "min-p", float, "at least this share of the likeliest"),
    ("repetition_penalty", "repetition", float, "above 1: seen tokens become less likely"),
    ("seed", "seed", int, "the same seed draws the same tokens"),
    ("stop", "stop text", str, r"ends a run; \n is a line break"),
    ("tokens", "tokens a run", int, "a run makes at most so many"),
)
"""Name, label, kind and words of each field, in the order of the dialog."""


def read(texts: dict[str, str]) -> tuple[Sampling | None, str]:
    """The sampling that was typed, or None and what is wrong in one line."""
    values: dict[str, Any] = {}
    for name, label, kind, _ in FIELDS:
        text = texts.get(name, "")
        if kind is str:
            values[name] = text.replace(r"\n", "\n")
            continue
        try:
            values[name] = kind(text.strip().replace(",", ".")) if text.strip() else None
        except ValueError:
            return None, f"{label}: {text.strip()[:40]!r} is no {'whole number' if kind is int else 'number'}"
    if values["tokens"] is None:
        values["tokens"] = RUN
    if values["tokens"] < 1:
        return None, f"tokens a run: at least 1, and not {values['tokens']}"
    filters = [label for name, label, *_ in FIELDS[1:4] if values[name] is not None]
    if filters and not values["temperature"]:
        return None, f"{filters[0]} does nothing while the likeliest is always taken; write a temperature too, e.g. 1"
    return Sampling(**values), ""


def written(sampling: Sampling) -> dict[str, str]:
    """The fields as they are typed."""
    texts: dict[str, str] = {}
    for name, _, kind, _ in FIELDS:
        value = getattr(sampling, name)
        texts[name] = value.replace("\n", r"\n") if kind is str else "" if value is None else f"{value:.15g}"
    return texts

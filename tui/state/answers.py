"""Answers of the engine other than windows: rankings of the vocabulary, checks, what was generated, branches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tui.state.numbers import special


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible next token."""

    id: int
    label: str
    prob: float
    logit: float
    drawn: float | None = None
    """Its probability after penalty, temperature and filters; None where it is excluded, or nothing of that is set."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The first candidates at a position; none where values are ``nonfinite`` or for the reason in ``trouble``.

    ``sampled``: each candidate has the probability that it is drawn with too.
    """

    rows: tuple[Candidate, ...] = ()
    nonfinite: int = 0
    trouble: str = ""
    sampled: bool = False
    numbers: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One of the engine's checks: what holds, and with which figure."""

    name: str
    ok: bool
    text: str = ""
    figure: float | None = None
    tolerance: float | None = None

    @property
    def words(self) -> str:
        """How far off it is and may be; what the engine wrote where it gives no numbers."""
        if self.figure is None or self.tolerance is None:
            return self.text.removeprefix(self.name).lstrip(": ")
        if self.figure == self.tolerance == 0:
            return "exact"
        return f"off by {_figure(self.figure)}, allowed {_figure(self.tolerance)}"


@dataclass(frozen=True, slots=True)
class Generated:
    """What a request chose and ran: how many tokens, the text that is certain since, and why no more follow.

    ``end`` is the label of the token that ended the text, ``seed`` the one that was chosen where none was given.
    """

    count: int = 0
    text: str = ""
    stopped: str = ""
    end: str = ""
    seed: int | None = None

    @property
    def why(self) -> str:
        """Why no more follow, in words."""
        return f"{self.stopped} {self.end}".strip()

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Generated:
        """From the engine's answer."""
        tokens, text, stopped = answer.get("tokens") or (), answer.get("text") or "", answer.get("stopped") or ""
        seed = answer.get("seed")
        end = str(answer.get("end") or "")
        return cls(len(tokens), str(text), str(stopped), end, None if seed is None else int(seed))


@dataclass(frozen=True, slots=True)
class Branch:
    """One way on: where it leaves its parent, with which token, the text from there, and how likely that was."""

    branch: int
    parent: int | None
    pos: int
    label: str
    text: str
    tokens: int
    logprob: float | None

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Branch:
        """From a row of the engine's answer."""
        parent, logprob = row.get("parent"), row.get("logprob")
        return cls(
            branch=int(row["branch"]),
            parent=None if parent is None else int(parent),
            pos=int(row["pos"]),
            label=str(row.get("label") or ""),
            text=str(row.get("text") or ""),
            tokens=int(row["tokens"]),
            logprob=None if logprob is None else float(logprob),
        )


def _figure(number: float) -> str:
    return special(number) or (f"{number:.1e}" if number else "0")

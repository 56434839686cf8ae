"""What the stand-in for the engine does with an open trace: it goes on, branches, goes back. All of it is made up."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.text import label_of

VOCABULARY = [".", " and", ",", " of", " a", " then", " full", "\n"]
HALVES = ["\udcf0\udc9f", "\udc91\udc8d"]
"""A thumb in two tokens, as bytes that are no characters by themselves."""
LIMITS = {
    "temperature": (0, 1e9),
    "top_k": (1, 1e9),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repetition_penalty": (1e-9, 1e9),
}


def labelled(text: str, number: int = 0) -> str:
    """The label of a token, as the engine makes it of its bytes."""
    return label_of(text.encode("utf-8", "surrogateescape" if text in HALVES else "surrogatepass"), number)


class FakeError(Exception):
    """An error with a kind, as the engine's."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class Branch:
    """Tokens, the passes that ran them, and where it left which other branch."""

    tokens: list[str]
    passes: list[tuple[int, int]]
    parent: int | None = None
    pos: int = 0


@dataclass
class Generation:
    """How the fake goes on. ``fails``: length -> (kind, line); ``ends``: the length at which a text has its end.

    ``halves``: the second and third new tokens are the halves of one character. ``pace``: seconds a token takes.
    """

    fails: dict[int, tuple[str, str]] = field(default_factory=dict)
    ends: int = 0
    halves: bool = False
    pace: float = 0.0


class FakeGeneration:
    """Mixed into the fake engine, which has ``tokens``, ``passes``, ``summary`` and ``retold``."""

    going: Generation
    vocabulary: Sequence[str]
    branches: list[Branch]
    current: int
    tokens: list[str]
    passes: list[tuple[int, int]]
    summary: dict[str, Any]
    mask: int | None
    hostile: bool
    is_cancelled: Callable[[], bool]
    retold: Callable[[], dict[str, Any]]

    @property
    def prompt_length(self) -> int:
        """How long the text was before anything was generated."""
        return self.branches[0].passes[0][1] if self.branches else len(self.tokens)

    def ranked(self, pos: int) -> Sequence[tuple[int, str, float]]:
        """Id, text and probability of what may follow a position, likeliest first."""
        new = max(0, pos - self.prompt_length + 1)
        shift = new % len(self.vocabulary)
        order = [*range(shift, len(self.vocabulary)), *range(shift)]
        rows = [(13 + n, self.vocabulary[n]) for n in order]
        if self.going.halves and new in (1, 2):
            rows.insert(0, (12 + 10 * new, HALVES[new - 1]))
        return [(number, text, 0.5 / (rank + 1.2 + pos % 3)) for rank, (number, text) in enumerate(rows)]

    def _text_of(self, token: int) -> str:
        known = {13 + n: text for n, text in enumerate(self.vocabulary)} | {22: HALVES[0], 32: HALVES[1]}
        if token not in known:
            raise FakeError("PromptError", f"there is no token {token}")
        return known[token]

    def _goes_on(self) -> None:
        if not self.summary:
            raise FakeError("NoTrace", "no trace is open")
        if self.mask is not None:
            raise FakeError("PromptError", "modern [/] looks both ways, so new tokens would change what others saw")

    def _generate(self, params: dict[str, Any]) -> dict[str, Any]:
        self._goes_on()
        for name, (low, high) in LIMITS.items():
            if params.get(name) is not None and not low <= params[name] <= high:
                raise FakeError("SamplingError", f"{name} must be a number from {low:g}, but is {params[name]}")
        made, text, stopped = [], "", ""
        for _ in range(params.get("n", 1)):
            if len(self.tokens) >= self.summary["config"]["n_ctx"]:
                stopped = "context"
            elif self._slept():
                stopped = "cancelled"
            if stopped:
                break
            kind, line = self.going.fails.get(len(self.tokens), ("", ""))
            if kind:
                raise FakeError(kind, line)
            ranked = self.ranked(len(self.tokens) - 1)
            rank = (params.get("seed") or 0) % 3 if params.get("temperature") else 0
            number, word, prob = ranked[rank]
            before = self._certain()
            self._run(word)
            made.append({"id": number, "label": labelled(word, number), "prob": prob})
            text += self._certain()[len(before) :]
            if any(stop in self._certain() for stop in params.get("stop") or ()):
                stopped = "stop string"
            elif len(self.tokens) == self.going.ends:
                stopped = "end token"
            if stopped:
                break
        told = {"tokens": made, "text": text, "stopped": stopped}
        told |= {"end": "<|eos|>"} if stopped == "end token" else {}
        told |= {"seed": 4711} if params.get("temperature") and params.get("seed") is None else {}
        return self.retold() | {"generated": told}

    def _slept(self) -> bool:
        """The time that a token takes; whether it was cancelled meanwhile."""
        end = time.monotonic() + self.going.pace
        while time.monotonic() < end and not self.is_cancelled():
            time.sleep(0.005)
        return self.is_cancelled()

    def _certain(self) -> str:
        """What was generated, without a character that has only begun."""
        data = "".join(self.tokens[self.prompt_length :]).encode("utf-8", "surrogateescape")
        return codecs.getincrementaldecoder("utf-8")("replace").decode(data)

    def _run(self, word: str) -> None:
        self.passes.append((len(self.tokens), 1))
        self.tokens.append(word)

    def _fork(self, pos: int) -> None:
        """Another branch of the first ``pos`` positions."""
        if not 1 <= pos <= len(self.tokens):
            raise FakeError("PromptError", f"a branch begins at position 1…{len(self.tokens)}, and not at {pos}")
        kept = [(start, min(length, pos - start)) for start, length in self.passes if start < pos]
        self.branches.append(Branch(self.tokens[:pos], kept, self.current, pos))
        self._take(len(self.branches) - 1)

    def _take(self, number: int) -> None:
        self.current = number
        self.tokens, self.passes = self.branches[number].tokens, self.branches[number].passes

    def _branch(self, params: dict[str, Any]) -> dict[str, Any]:
        self._goes_on()
        word = self._text_of(params["id"])
        self._fork(params["pos"])
        self._run(word)
        return self.retold() | {"branch": self.current}

    def _crop(self, params: dict[str, Any]) -> dict[str, Any]:
        self._goes_on()
        self._fork(params["n"])
        return self.retold() | {"branch": self.current}

    def _switch(self, params: dict[str, Any]) -> dict[str, Any]:
        if not 0 <= params["branch"] < len(self.branches):
            raise FakeError("PromptError", f"there is no branch {params['branch']}")
        self._take(params["branch"])
        return self.retold() | {"branch": self.current}

    def _branches(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"current": self.current, "rows": list(self._rows())}

    def _rows(self) -> Iterator[dict[str, Any]]:
        for number, branch in enumerate(self.branches):
            words = branch.tokens[branch.pos :]
            yield {
                "branch": number, "parent": branch.parent, "pos": branch.pos, "tokens": len(branch.tokens),
                "label": labelled(words[0]) if words else "", "text": "".join(words),
                "logprob": None if branch.parent is None else -0.7 * len(words),
            }  # fmt: skip

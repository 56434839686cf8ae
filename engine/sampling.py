"""What is made of the next token's logits, and how a token is chosen from them.

Steps, order and arithmetic are those of transformers' ``generate``, all in float32: the repetition penalty, then
temperature, top-k, top-p and min-p. Greedy choice (temperature 0) takes the penalty alone; a filter always leaves the
likeliest token, so it could not change that choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from math import inf, isfinite, isnan
from numbers import Integral, Real

import torch
from jaxtyping import Float, Int
from torch import Tensor

from engine.errors import SamplingError
from engine.text import display

_ALLOWED: dict[str, tuple[str, Callable[[float], bool], str]] = {
    "temperature": ("a number from 0", lambda t: t >= 0, "0 always takes the likeliest token"),
    "top_k": ("a whole number from 1", lambda k: k >= 1, "leave it out to keep every token"),
    "top_p": ("a number from 0 to 1", lambda p: 0 <= p <= 1, "1 keeps every token"),
    "min_p": ("a number from 0 to 1", lambda p: 0 <= p <= 1, "0 keeps every token"),
    "repetition_penalty": ("a number above 0", lambda p: p > 0, "1 is no penalty"),
    "seed": ("a whole number from 0 to 2⁶⁴ − 1", lambda s: 0 <= s < 2**64, "leave it out for other tokens each time"),
}
_WHOLE = ("top_k", "seed")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen. Numbers of numpy are taken too. Raises SamplingError for what is out of range.

    ``temperature`` divides the logits; 0 is greedy. ``top_k`` keeps the k likeliest tokens and those as likely as the
    k-th; ``top_p`` the fewest whose probabilities add up to p (Holtzman et al. 2020); ``min_p`` those at least p times
    as likely as the likeliest (Nguyen et al. 2024). ``repetition_penalty`` divides the positive logits of tokens that
    were seen and multiplies the negative ones (Keskar et al. 2019). The same ``seed`` draws the same tokens; None
    draws others each time.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                object.__setattr__(self, field.name, _checked(field.name, value))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def stages(
        self, logits: Float[Tensor, " d_vocab"], seen: Iterable[int] | Int[Tensor, " pos"] = ()
    ) -> tuple[tuple[str, Float[Tensor, " d_vocab"]], ...]:
        """Name and scores of each step in force, "raw" first; −inf where a token is excluded.

        ``seen`` are the ids that the repetition penalty is for: prompt and continuation. Nothing is written into
        ``logits``; in float32 they are the raw scores themselves, not a copy.
        """
        steps = [("raw", logits.float())]

        def then(name: str, step: Callable[..., Tensor], *options: object) -> None:
            steps.append((name, step(steps[-1][1], *options)))

        if self.repetition_penalty != 1:
            then("repetition penalty", _penalised, seen, self.repetition_penalty)
        if self.greedy:
            return tuple(steps)
        if self.temperature != 1:
            then("temperature", torch.div, self.temperature)
        if self.top_k is not None:
            then("top-k", _top_k, self.top_k)
        if self.top_p is not None and self.top_p < 1:
            then("top-p", _top_p, self.top_p)
        if self.min_p:
            then("min-p", _min_p, self.min_p)
        return tuple(steps)

    def scores(
        self, logits: Float[Tensor, " d_vocab"], seen: Iterable[int] | Int[Tensor, " pos"] = ()
    ) -> Float[Tensor, " d_vocab"]:
        """What a token is chosen from: the last of `stages`, float32; their softmax are the probabilities."""
        return self.stages(logits, seen)[-1][1]

    def generator(self) -> torch.Generator:
        """A new source of random numbers, begun at ``seed``; where that is None, ``initial_seed()`` tells it."""
        generator = torch.Generator()
        if self.seed is None:
            generator.seed()
        else:
            generator.manual_seed(self.seed)
        return generator

    def choose(self, scores: Float[Tensor, " d_vocab"], generator: torch.Generator | None = None) -> int:
        """The id of the token that is taken: the likeliest (of equals the lowest id), or one that is drawn.

        It is drawn on the CPU whatever the device, so that a seed means the same everywhere. Raises SamplingError
        where there is no choice: a score is NaN or +inf, or all are −inf.
        """
        likeliest = scores.argmax()
        best = float(scores[likeliest])  # NaN where any score is NaN
        if not isfinite(best):
            raise SamplingError(self._why_none(best))
        if self.greedy:
            return int(likeliest)
        return int(torch.multinomial(scores.softmax(-1).cpu(), 1, generator=generator))

    def _why_none(self, best: float) -> str:
        if best == -inf:
            return "no token can be chosen: every score is −inf, so all tokens are excluded"
        held = "NaN" if isnan(best) else "+inf"
        hint = "look for the first tensor that is not finite"
        if not self.greedy or self.repetition_penalty != 1:
            hint += ", and if the logits are, take a temperature and a penalty nearer to 1"
        return f"no token can be chosen: a score is {held}; {hint}"


def _checked(name: str, value: object) -> float | int:
    """The value as Python's own number. Raises SamplingError where it is no number, or out of range."""
    words, allowed, advice = _ALLOWED[name]
    try:
        number = _plain(value, whole=name in _WHOLE)
        if number is not None and isfinite(number) and allowed(number):
            return number
    except OverflowError:  # a whole number beyond all floats
        pass
    digits = value.bit_length() if isinstance(value, int) else 0
    shown = display(repr(value))[:80] if digits < 256 else f"a number of {digits} bits"
    raise SamplingError(f"{name} must be {words}, but is {shown}; {advice}")


def _plain(value: object, whole: bool) -> float | int | None:
    if isinstance(value, bool):
        return None
    if whole:
        return int(value) if isinstance(value, Integral) else None
    return float(value) if isinstance(value, Real) else None


def _penalised(scores: Tensor, seen: Iterable[int] | Tensor, penalty: float) -> Tensor:
    ids = seen if isinstance(seen, Tensor) else torch.tensor(list(seen), dtype=torch.int64)
    ids = ids.to(scores.device, torch.int64)
    found = scores[ids]
    return scores.scatter(0, ids, torch.where(found < 0, found * penalty, found / penalty))


def _top_k(scores: Tensor, k: int) -> Tensor:
    """Those as likely as the k-th stay too, so that ids do not decide."""
    return scores.masked_fill(scores < scores.topk(min(k, len(scores))).values[-1], -inf)


def _top_p(scores: Tensor, p: float) -> Tensor:
    """The least likely go, as long as all that went add up to no more than 1 − p."""
    ascending, order = scores.sort()
    gone = ascending.softmax(-1).cumsum(-1) <= 1 - p
    gone[-1] = False
    return scores.masked_fill(gone.scatter(0, order, gone), -inf)


def _min_p(scores: Tensor, p: float) -> Tensor:
    probs = scores.softmax(-1)
    return scores.masked_fill(probs < p * probs.max(), -inf)

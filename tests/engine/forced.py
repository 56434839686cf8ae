"""A model that says what a test wants it to."""

from __future__ import annotations

from collections.abc import Iterable

from engine import Model, Sampling
from engine.tokenizer import Tokenizer


class Forced(Sampling):
    """Chooses these ids one after another, whatever the scores."""

    def __init__(self, ids: Iterable[int]) -> None:
        super().__init__()
        object.__setattr__(self, "ids", iter(ids))

    def choose(self, scores: object, generator: object = None) -> int:
        return next(self.ids)


def speaking(tokenizer: Tokenizer, **traits: object) -> Model:
    """A small model with this tokenizer."""
    from tiny import MODERN, tiny

    n = max(tokenizer.vocab_size, *tokenizer.eos_ids, 0) + 1
    model = tiny(**MODERN | {"n_layers": 1, "n_ctx": 4096, "d_vocab": n} | traits)
    return Model.from_weights(model.config, model.weights, tokenizer)

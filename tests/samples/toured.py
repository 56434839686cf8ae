"""What the tests of the tours share: every tour that comes along, its model and its traces, each made once."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from engine import Model, Trace, load_model, trace
from engine.touring import TourRun, open_tour
from engine.tours import Tour, read_tour, shipped

NAMES = tuple(shipped())
SEVEN = tuple(name for name in NAMES if name != "first")
"""The lectures; `first` is the walk that the app offers at its first start."""
_MODELS: dict[str, Model] = {}


@cache
def model(name: str) -> Model:
    return _MODELS.setdefault(name, load_model(name, device="cpu"))


@cache
def tour(name: str) -> Tour:
    return read_tour(name)


@cache
def run(name: str) -> TourRun:
    """A tour on its traces."""
    model(tour(name).model)
    return open_tour(tour(name), models=_MODELS, device="cpu")


def main(name: str) -> Trace:
    return run(name).main


def other(name: str) -> Trace:
    found = run(name).other
    assert found is not None
    return found


@cache
def asked(name: str, prompt: str | tuple[int, ...], *edits: str) -> Trace:
    """A model's trace of another prompt, a text or ids, or with edits."""
    return trace(model(name), prompt if isinstance(prompt, str) else list(prompt), edits=edits)


def next_token(t: Trace, pos: int = -1) -> str:
    """The likeliest token after a position."""
    return t.label(int(t["logits"][0, pos].argmax()))


def labels(t: Trace) -> list[str]:
    return [token.label for token in t.tokens[0]]


def entropy(pattern: Tensor) -> Tensor:
    """Of rows of weights, in bits. [... key] -> [...]"""
    bits: Tensor = torch.special.entr(pattern).sum(-1) / torch.tensor(2.0).log()
    return bits

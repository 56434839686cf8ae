"""Rows of token ids for training: natural text, sentences, and something repeated.

A repeated row is what induction heads form on. Nothing predicts its first copy, so the loss there is masked.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from samples.training.prepare import BOS, N_SPECIAL

SHARES = {"sentences": 0.58, "stories": 0.30, "prose": 0.12}  # of the rows that are not repeats
MIN_PERIOD = 3
N_PAIRS = 8
FEW = 6

Row = tuple[np.ndarray, np.ndarray]  # ids [window + 1], loss weights [window]


class Batches:
    """Draws batches from the prepared streams; its generator's state is part of a checkpoint."""

    def __init__(self, data: Path, d_vocab: int, seed: int) -> None:
        self.d_vocab = d_vocab
        self.rng = np.random.default_rng(seed)
        self.streams = {name: np.fromfile(data / f"{name}.train", dtype=np.uint16) for name in SHARES}
        self.starts = {name: np.flatnonzero(stream == BOS) for name, stream in self.streams.items()}

    def draw(self, n_rows: int, window: int, repeats: float) -> tuple[Tensor, Tensor]:
        """Ids `[n_rows, window + 1]` and loss weights `[n_rows, window]`; a share `repeats` repeats."""
        names = self.rng.choice(list(SHARES), n_rows, p=list(SHARES.values()))
        is_repeat = self.rng.random(n_rows) < repeats
        rows = [
            self.repeat_row(window) if again else self.text_row(name, window)
            for name, again in zip(names, is_repeat, strict=True)
        ]
        ids, weights = (np.stack(part) for part in zip(*rows, strict=True))
        return torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(weights.astype(np.float32))

    def text_row(self, name: str, window: int) -> Row:
        """A row that begins with a document."""
        stream, starts = self.streams[name], self.starts[name]
        start = min(int(self.rng.choice(starts)), len(stream) - window - 1)
        ids = stream[start : start + window + 1].copy()
        ids[0] = BOS
        return ids, np.ones(window)

    def repeat_row(self, window: int) -> Row:
        """A random sequence over and over, or eight pairs in random order."""
        kind = self.rng.choice(("pairs", "uniform", "natural", "few"))
        if kind == "pairs":
            return self.pair_row(window)
        longest = min(48, window // 2) if window < 256 else window // 3
        period = round(np.exp(self.rng.uniform(np.log(MIN_PERIOD), np.log(longest))))  # short ones more often
        once = self.rng.integers(N_SPECIAL, self.d_vocab, period)
        if kind == "natural":  # tokens as frequent as in the stories
            stream = self.streams["stories"]
            frequent = stream[self.rng.integers(0, len(stream), period)]
            once = np.where(frequent < N_SPECIAL, once, frequent)
        elif kind == "few":  # so few different tokens that only two in a row tell the place
            once = self.rng.choice(once[:FEW], period)
        ids = np.concatenate(([BOS], np.resize(once, window)))
        return ids, np.arange(window) >= period  # the weight at i is for predicting ids[i + 1]

    def pair_row(self, window: int) -> Row:
        """Pairs A B: after an A seen before comes the same B. The loss counts there only."""
        pairs = self.rng.integers(N_SPECIAL, self.d_vocab, (N_PAIRS, 2))
        order = self.rng.integers(0, N_PAIRS, window // 2)
        ids = np.concatenate(([BOS], np.resize(pairs[order].reshape(-1), window)))
        weights, seen = np.zeros(window), set()
        for i, pair in enumerate(order):
            weights[2 * i + 1] = pair in seen
            seen.add(pair)
        return ids, weights


def validation(data: Path, name: str, window: int, n_rows: int) -> Tensor:
    """The same `n_rows` rows `[n_rows, window + 1]` of a source's validation stream every time."""
    stream = np.fromfile(data / f"{name}.valid", dtype=np.uint16)
    starts = np.flatnonzero(stream[: -window - 1] == BOS)
    starts = starts[np.linspace(0, len(starts) - 1, n_rows).astype(int)]
    rows = np.stack([stream[i : i + window + 1] for i in starts]).astype(np.int64)
    return torch.from_numpy(rows)

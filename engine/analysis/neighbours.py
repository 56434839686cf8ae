"""The tokens whose rows of the embedding matrix point most nearly the same way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from engine.errors import AddressError
from engine.ops.base import Text, at_least_float32
from engine.ops.embedding import Embed
from engine.runner import computing
from engine.runtime import Watch
from engine.traces import Trace

CELLS_AT_ONCE = 8 * 1024 * 1024
"""Numbers of the matrix that are looked at in one go."""

TEXT = Text(
    "Nearest neighbours",
    "cos(a, b) = a · b / (‖a‖ ‖b‖)",
    r"\cos(a, b) = \frac{a \cdot b}{\lVert a \rVert\,\lVert b \rVert}",
    "The rows of the embedding matrix that point most nearly the same way as this token's row. Cosine is 1 for the "
    "same direction and 0 for directions that have nothing to do with each other. What stands close here was used "
    "alike in training: other spellings, like words, parts of the same names.",
)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another token, the cosine of its row with the one asked about, and its row's length."""

    id: int
    cosine: float
    norm: float


def neighbours(
    trace: Trace, token: int, k: int = 50, *, site: str = "embed", watch: Watch | None = None
) -> list[Neighbour]:
    """The ``k`` tokens nearest to ``token`` by cosine in the matrix of a lookup, the nearest first, itself left out.

    Computed in float32 (float64 in a float64 model), some rows at a time. Rows of length 0 or with numbers that are not
    finite have no direction and are left out. Raises AddressError for what is no lookup of tokens or no token of the
    vocabulary, and NotKeptError without weights.
    """
    step = trace.program.step(site)
    if step is None or not isinstance(step.op, Embed):
        raise AddressError(f"neighbours are those of a token's embedding, as of embed, and not of {site}")
    matrix = trace.weight(step.params[0])  # [d_vocab d_embed]
    if not 0 <= token < len(matrix):
        raise AddressError(f"there is no token {token} in the embedding matrix; it has rows 0…{len(matrix) - 1}")
    cosine, norm = cosines(trace, matrix, token, watch)
    cosine[token] = -torch.inf
    best = cosine.nan_to_num(-torch.inf, -torch.inf, -torch.inf).topk(max(0, min(k, len(matrix))))
    return [
        Neighbour(i, value, float(norm[i]))
        for value, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        if value > -torch.inf
    ]


def cosines(
    trace: Trace, matrix: Float[Tensor, "d_vocab d_embed"], token: int, watch: Watch | None = None
) -> tuple[Float[Tensor, " d_vocab"], Float[Tensor, " d_vocab"]]:
    """The cosine of every row with a token's row (NaN for a row of zeros), and every row's length."""
    own, products, norms = at_least_float32(matrix[token]), [], []
    at_once = max(1, CELLS_AT_ONCE // max(1, matrix.shape[1]))
    with computing(trace.program):
        for start in range(0, len(matrix), at_once):
            if watch is not None:
                watch(start, len(matrix), "neighbours")
            rows = at_least_float32(matrix[start : start + at_once])  # [rows d_embed]
            products.append(rows @ own)
            norms.append(torch.linalg.vector_norm(rows, dim=-1))
        norm = torch.cat(norms)
        return torch.cat(products) / norm / norm[token], norm

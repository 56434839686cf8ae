"""What if the KV cache lay in pages of a few positions, as in PagedAttention. (Kwon et al. 2023, section 4)

A page holds the keys and values of ``size`` consecutive positions of one layer, the first of which is a multiple of
``size``. It is taken when its first position is, and let go of when a window has let go of its last one. The room in it
for rows that are not held is waste: behind the last row, and in a window before the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from engine.analysis.cachecost import check_tokens, count, held, no_cache
from engine.config import ModelConfig
from engine.errors import PromptError
from engine.text import display, human

if TYPE_CHECKING:
    from engine.traces import Trace

MOST_POSITIONS = 2**20
"""A page of more positions is not meant."""


@dataclass(frozen=True, slots=True)
class LayerPages:
    """One layer: its ``pages``, the rows ``used`` of all that they have room for, and the bytes of the others."""

    layer: int
    pages: int
    used: int
    waste_bytes: int


@dataclass(frozen=True, slots=True)
class Pages:
    """A KV cache in pages of ``size`` positions; ``row`` is the bytes of a position in a layer.

    ``lengths`` are those of the texts, each with pages of its own. ``expected`` is the mean of the waste where nothing
    is known of how a text's end falls into a page.
    """

    size: int
    row: int
    lengths: tuple[int, ...]
    layers: tuple[LayerPages, ...]
    expected: float

    @property
    def pages(self) -> int:
        return sum(layer.pages for layer in self.layers)

    @property
    def bytes(self) -> int:
        """Of all pages."""
        return self.pages * self.size * self.row

    @property
    def waste(self) -> int:
        return sum(layer.waste_bytes for layer in self.layers)

    @property
    def share(self) -> float:
        """Of the pages' bytes, what is waste."""
        return self.waste / self.bytes if self.bytes else 0.0

    @property
    def text(self) -> str:
        of = f"{count(self.pages, 'page')} of {count(self.size, 'position')}"
        texts = f" for {len(self.lengths)} texts" if len(self.lengths) != 1 else ""
        said = f"{of}{texts} take {human(self.bytes)}, of which {human(self.waste)} ({self.share:.1%}) hold nothing"
        if not self.expected:
            return said
        each = "per layer" if len(self.lengths) == 1 else "per layer and text"
        halves = len(self.layers) * len(self.lengths) * self.row * (self.size - 1) / 2
        whole = ", a whole one where its window is full" if self.expected > halves else ""
        usual = f"{human(round(self.expected))} would be usual: half a page {each}{whole}, as for a random length"
        return f"{said}; {usual}"

    def to_json(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "rows": [asdict(layer) for layer in self.layers],
            "pages": self.pages,
            "bytes": self.bytes,
            "waste": self.waste,
            "share": self.share,
            "expected": self.expected,
            "lengths": list(self.lengths),
            "text": self.text,
        }


def pages(trace: Trace, size: int = 16) -> Pages:
    """The cache of a trace in pages of ``size`` positions.

    Keys and values of an encoder-decoder's source are left out: they do not grow. Raises PromptError for a size that no
    page has, a batch, and an encoder.
    """
    from engine.analysis.blockwise import check_has_cache  # brings torch, which planning needs none of

    check_has_cache(trace.config, len(trace.tokens))
    return plan_pages(trace.config, [trace.length], trace.dtype.itemsize, size)


def plan_pages(config: ModelConfig, lengths: Sequence[int], itemsize: int, size: int = 16) -> Pages:
    """The caches of several texts of these ``lengths``, each in pages of its own, at ``itemsize`` bytes a number.

    Raises PromptError for a length or a size that none has, and for an encoder.
    """
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST_POSITIONS:
        raise PromptError(f"a page has 1…{MOST_POSITIONS:,} positions, but size is {display(str(size))[:40]}")
    if (none := no_cache(config)) is not None:
        raise PromptError(none.text)
    for length in lengths:
        check_tokens(length)
    row = 2 * config.kv_heads * config.d_head * itemsize
    layers, expected = [], 0.0
    for layer in range(config.n_layers):
        rows = [held(config, layer, length) for length in lengths]
        taken = sum(_taken(length - n, length, size) for length, n in zip(lengths, rows, strict=True))
        layers.append(LayerPages(layer, taken, sum(rows), (taken * size - sum(rows)) * row))
        expected += row * sum(_expected(length, n, size) for length, n in zip(lengths, rows, strict=True))
    return Pages(size, row, tuple(lengths), tuple(layers), expected)


def _taken(start: int, stop: int, size: int) -> int:
    """How many pages the positions from ``start`` to ``stop`` lie in."""
    return (stop - 1) // size - start // size + 1 if stop > start else 0


def _expected(length: int, rows: int, size: int) -> float:
    """Rows of waste over all places that the end may have in a page; a window that is full begins anywhere as well.

    A run of rows that may begin anywhere lies in 1 + (rows − 1) / size pages in the mean.
    """
    if not rows:
        return 0.0
    return size - 1 if rows < length else (size - 1) / 2

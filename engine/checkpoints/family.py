"""What a family has to say: how its config.json reads as ours, and where each of our weights lies in its files."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.checkpoints.fields import Fields
from engine.config import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor

    from engine.checkpoints.files import Stored


@dataclass(frozen=True, slots=True)
class Source:
    """Where one weight of the program lies: a tensor of the files, and which part of it.

    ``pick`` gives that part from the file's whole tensor, as a view where strides can say it (rows, columns, a
    transpose) and else as a copy. ``shape`` is what the file's tensor must be, where it is not the weight's own.
    ``or_else`` is where it lies in files without ``name``.
    """

    name: str
    pick: Callable[[Tensor], Tensor] | None = None
    shape: tuple[int, ...] | None = None
    or_else: Source | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """A family translates; the arithmetic is the program's.

    ``config`` reads a config.json. ``source`` says where a weight of the program lies. ``canonical`` turns a file's
    spelling of a tensor name into the one that ``source`` gives (a prefix that some files have, an older name).
    ``ignored`` are patterns of canonical names that may be in a file and play no part, each known by name.
    ``unpacked`` stands between the files and all of this where a family packs several numbers into one.
    """

    config: Callable[[Fields], ModelConfig]
    source: Callable[[str, ModelConfig], Source]
    canonical: Callable[[str], str] = str
    ignored: Collection[str] = ()
    unpacked: Callable[[Stored], Stored] | None = None


def in_block(param: str) -> tuple[int, str, str] | None:
    """(layer, stem, kind) of a block's weight: ``blocks.3.attn.q.bias`` is (3, "attn.q", "bias"); None elsewhere."""
    head, _, rest = param.partition(".")
    layer, _, rest = rest.partition(".")
    if head != "blocks" or not layer.isdecimal():
        return None
    stem, _, kind = rest.rpartition(".")
    return int(layer), stem, kind


def by_table(outside: dict[str, str], block: str, inside: dict[str, str]) -> Callable[[str, ModelConfig], Source]:
    """``source`` of a family whose tensors are ours under other names.

    ``outside`` holds whole names; ``block`` is the prefix of a layer with ``{}`` for its number, and ``inside`` maps
    stems. The last part, weight or bias, stays.
    """

    def source(param: str, config: ModelConfig) -> Source:
        if param in outside:
            return Source(outside[param])
        found = in_block(param)
        assert found is not None, param
        layer, stem, kind = found
        return Source(f"{block.format(layer)}.{inside[stem]}.{kind}")

    return source

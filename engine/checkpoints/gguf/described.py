"""What a GGUF file's metadata says of its architecture, read key by key; a key that nobody asked for is refused."""

from __future__ import annotations

from array import array
from math import isfinite
from typing import Any

from engine.checkpoints.folder import shown
from engine.checkpoints.gguf.header import Header, shortest
from engine.errors import CheckpointError
from engine.text import display

NO_EFFECT = frozenset({"vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "pooling_type"})
"""Keys of any architecture that do not change the forward pass; what is made of an encoder's stream comes after it."""


class Described:
    """The keys under the architecture's name (``llama.block_count``), and which tensors there are.

    ``used`` are the tensors that the config was read from, since some of it stands only there.
    """

    def __init__(self, header: Header) -> None:
        self.header, self.arch = header, header.architecture
        self.used: set[str] = set()
        self._read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """A value; of one value a layer that one, where it is the same for all."""
        self._read.add(key)
        value = self.header.metadata.get(f"{self.arch}.{key}")
        if isinstance(value, array):
            if len(set(value)) != 1:
                raise self.refusal(f"{key} differs from layer to layer, which is not supported")
            return value[0]
        return default if value is None else value

    def number(self, key: str, default: float | None = None) -> float:
        """A number that must be there unless there is a default."""
        value = self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
            raise self.refusal(f"{key} must be a number, but is {display(str(value))[:40]}")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        """A positive whole number that must be there unless there is a default."""
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 2**31:
            raise self.refusal(f"{key} must be a number between 1 and 2^31, but is {display(str(value))[:40]}")
        return value

    def only(self, key: str, *allowed: Any) -> None:
        """A value that is supported only where it is one of these, or is not there."""
        value = self.get(key)
        if value is not None and value not in allowed:
            raise self.refusal(f"{key} {display(str(value))[:40]} is not supported, only {allowed[0]}")

    def has(self, tensor: str) -> bool:
        return tensor in self.header.tensors

    def rows(self, tensor: str) -> int:
        """The first dimension of a tensor that must be there."""
        if not self.has(tensor):
            raise CheckpointError(f"{shown(self.header.path)}: tensor {tensor!r} is missing")
        return self.header.tensors[tensor].shape[0]

    def values(self, tensor: str) -> list[float]:
        """A small tensor that is part of the config: one number for each pair of dimensions that turn."""
        self.used.add(tensor)
        entry = self.header.tensors[tensor]
        if len(entry.shape) != 1 or entry.shape[0] > 4096:
            raise self.refusal(f"{tensor} is {list(entry.shape)}, which are no rotary factors")
        from engine.checkpoints.gguf.tensors import GgufTensors

        return [shortest(factor) for factor in GgufTensors(self.header).tensor(tensor).tolist()]

    def token_ids(self) -> dict[str, int]:
        """The bos, eos and pad ids."""
        names = {"bos": "bos_token_id", "eos": "eos_token_id", "padding": "pad_token_id"}
        held = {key: self.header.metadata.get(f"tokenizer.ggml.{name}_token_id") for name, key in names.items()}
        return {key: id for key, id in held.items() if type(id) is int and 0 <= id < 2**31}

    def refusal(self, why: str) -> CheckpointError:
        return CheckpointError(f"{shown(self.header.path)}: {display(self.arch)[:40]}.{why}"[:400])

    def done(self) -> None:
        """Refuse a key that was neither read nor is known to be without effect."""
        prefix = f"{self.arch}."
        given = {key.removeprefix(prefix) for key in self.header.metadata if key.startswith(prefix)}
        if unknown := sorted(given - self._read - NO_EFFECT):
            raise CheckpointError(
                f"{shown(self.header.path)}: metadata has {display(prefix + unknown[0])[:80]!r}, which layerstep does "
                f"not know for {display(self.arch)[:40]}; refused"
            )

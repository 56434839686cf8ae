"""Tensors that were derived, held as long as there is room for them."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor


class Remembered:
    """Derived tensors by site and pass; the least recently asked for goes first.

    A long generation has as many of them as passes times sites, so nothing here counts through all of them.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, int], Tensor] = OrderedDict()
        self._bytes = 0

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._held

    def get(self, name: str, at: int) -> Tensor | None:
        """The tensor of a site in a pass, if it is held."""
        if (tensor := self._held.get((name, at))) is not None:
            self._held.move_to_end((name, at))
        return tensor

    def put(self, name: str, at: int, tensor: Tensor, most: int) -> None:
        """Hold a tensor, and of the others no more than ``most`` bytes leave room for."""
        if tensor.nbytes > most:
            return
        if (before := self._held.pop((name, at), None)) is not None:
            self._bytes -= before.nbytes
        self._held[name, at] = tensor
        self._bytes += tensor.nbytes
        while self._bytes > most:
            self._bytes -= self._held.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        self._held.clear()
        self._bytes = 0

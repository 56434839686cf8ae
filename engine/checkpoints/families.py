"""Which family a config.json belongs to, and what a family has to say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from engine.checkpoints import llama, native
from engine.config import ModelConfig
from engine.errors import CheckpointError
from engine.text import display


@dataclass(frozen=True, slots=True)
class Family:
    """A family translates its config to ours and our weight names to its own; the arithmetic is the program's."""

    config: Callable[[Mapping[str, Any], str], ModelConfig]
    tensor_name: Callable[[str], str]
    ignored: Collection[str] = ()


FAMILIES: dict[str, Family] = {
    "layerstep": Family(native.config, native.tensor_name),
    "llama": Family(llama.config, llama.tensor_name, llama.IGNORED_TENSORS),
}


def family_of(raw: Mapping[str, Any], where: str) -> Family:
    """The family named by ``model_type``. Raises CheckpointError, with those that are known, where it is none."""
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise CheckpointError(
            f"{where}: model_type {display(str(kind))[:80]!r} is not supported; supported are {known}"
        )
    return FAMILIES[kind]

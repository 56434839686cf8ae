"""layerstep's own format: config.json holds ModelConfig's fields, model.safetensors the program's weight names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config import ModelConfig
from engine.errors import CheckpointError
from engine.text import display

FORMAT_VERSION = 1


def config(raw: Mapping[str, Any], name: str) -> ModelConfig:
    """The config as it stands, under the folder's name if it has none of its own."""
    if raw.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{name}: this layerstep reads format_version {FORMAT_VERSION}, not {raw.get('format_version')!r}"[:300]
        )
    fields = {key: value for key, value in raw.items() if key not in ("model_type", "format_version")}
    own = raw.get("name", name)
    return ModelConfig.from_json(fields | {"name": display(own)[:80] if isinstance(own, str) else own})


def tensor_name(param: str) -> str:
    """The same name."""
    return param

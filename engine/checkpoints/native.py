"""layerstep's own format: config.json holds ModelConfig's fields, model.safetensors the program's weight names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config import ModelConfig
from engine.errors import CheckpointError

FORMAT_VERSION = 1


def config(raw: Mapping[str, Any], name: str) -> ModelConfig:
    """The config as it stands, under the folder's name if it has none of its own."""
    if raw.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{name}: format_version is {raw.get('format_version')!r}; this layerstep reads {FORMAT_VERSION}"
        )
    fields = {key: value for key, value in raw.items() if key not in ("model_type", "format_version")}
    return ModelConfig.from_json({"name": name} | fields)


def tensor_name(param: str) -> str:
    """The same name."""
    return param

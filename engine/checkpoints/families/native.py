"""layerstep's own format: config.json holds ModelConfig's fields, model.safetensors the program's weight names."""

from __future__ import annotations

from engine.checkpoints.family import Family, Source
from engine.checkpoints.fields import Fields
from engine.config import ModelConfig
from engine.errors import CheckpointError
from engine.text import display

FORMAT_VERSION = 1


def config(c: Fields) -> ModelConfig:
    """The config as it stands, under the folder's name if it has none of its own."""
    if (version := c.raw.get("format_version")) != FORMAT_VERSION:
        raise CheckpointError(f"{c.where}: this layerstep reads format_version {FORMAT_VERSION}, not {version!r}"[:300])
    fields = {key: value for key, value in c.raw.items() if key not in ("model_type", "format_version")}
    own = c.raw.get("name", c.where)
    return ModelConfig.from_json(fields | {"name": display(own)[:80] if isinstance(own, str) else own})


def source(param: str, config: ModelConfig) -> Source:
    """The same name."""
    return Source(param)


FAMILY = Family(config, source)

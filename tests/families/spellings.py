"""The same model in another spelling: its tensors renamed, its config changed; and configs alone, without a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import ModelConfig
from engine.checkpoints.families import family_of
from engine.checkpoints.fields import Fields
from engine.errors import LayerstepError


def read_config(raw: dict[str, Any]) -> ModelConfig:
    """What the family makes of a config.json."""
    return family_of(raw, "here").config(Fields(raw, "here"))


def assert_refused(raw: dict[str, Any], *named: str) -> None:
    """A config.json that is refused, in one line that holds all of ``named``."""
    with pytest.raises(LayerstepError) as refused:
        read_config(raw)
    said = str(refused.value)
    assert all(word in said for word in named), said
    assert "\n" not in said


def respell(
    folder: Path, rename: Callable[[str], str] | None = None, change: Callable[[dict[str, Any]], None] | None = None
) -> None:
    """Rename a folder's tensors, and change its config in place."""
    from safetensors.torch import load_file, save_file

    if rename is not None:
        file = folder / "model.safetensors"
        save_file({rename(name): tensor for name, tensor in load_file(file).items()}, file, {"format": "pt"})
    if change is not None:
        raw = json.loads((folder / "config.json").read_text())
        change(raw)
        (folder / "config.json").write_text(json.dumps(raw))

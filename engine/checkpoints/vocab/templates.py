"""Chat templates as they lie in model folders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.checkpoints.folder import inside
from engine.checkpoints.vocab.files import MAX_SETTINGS_BYTES, Settings, read_object, read_text
from engine.errors import TokenizerError

FILE = "chat_template.jinja"
FOLDER = "additional_chat_templates"
MAX_TEMPLATES = 100


def read_templates(folder: Path, settings: Settings) -> dict[str, str]:
    """The chat templates of a folder by name; "default" is the one to use.

    Files of their own win over tokenizer_config.json, and both over a processor's chat_template.json.
    """
    templates: dict[str, str] = {}
    if os.path.lexists(folder / FILE):
        templates["default"] = read_text(folder / FILE, MAX_SETTINGS_BYTES)
    if os.path.lexists(folder / FOLDER):
        inside(folder, FOLDER)
        files = sorted((folder / FOLDER).glob("*.jinja"))
        if len(files) > MAX_TEMPLATES:
            raise TokenizerError(f"{FOLDER} holds {len(files):,} templates, the limit is {MAX_TEMPLATES}")
        templates |= {file.name.removesuffix(".jinja"): read_text(file, MAX_SETTINGS_BYTES, folder) for file in files}
    for config in (settings["tokenizer_config.json"], {} if templates else read_object(folder / "chat_template.json")):
        templates = templates or templates_in(config)
    return templates


def templates_in(config: Mapping[str, Any]) -> dict[str, str]:
    """The `chat_template` of a JSON file: one template, or a list of templates with names; what is neither is none."""
    value = config.get("chat_template")
    if isinstance(value, str):
        return {"default": value}
    rows = value if isinstance(value, list) else []
    return {
        row["name"]: row["template"]
        for row in rows
        if isinstance(row, Mapping) and isinstance(row.get("name"), str) and isinstance(row.get("template"), str)
    }

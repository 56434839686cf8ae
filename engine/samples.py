"""The sample models that come with layerstep."""

from __future__ import annotations

from pathlib import Path

ROOTS = (Path(__file__).parent / "sample_models", Path(__file__).parent.parent / "samples" / "models")
"""Where samples lie: inside an installed package, or beside it in a checkout."""


def sample_folders() -> dict[str, Path]:
    """Every sample's name and folder."""
    return {
        folder.name: folder
        for root in ROOTS
        if root.is_dir()
        for folder in sorted(root.iterdir())
        if (folder / "config.json").is_file()
    }


def sample_folder(name: str) -> Path | None:
    """The folder of the sample of this name."""
    return sample_folders().get(name)

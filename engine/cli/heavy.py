"""The import that everything waits for."""

from __future__ import annotations

import gc


def load_torch() -> None:
    """Import torch without looking for garbage meanwhile: an eighth of its time, and nothing of it is ever freed."""
    from engine.runtime import prepare

    prepare()
    gc.disable()
    try:
        import torch

        assert torch  # for its own sake; the engine's modules find it imported
    finally:
        gc.freeze()
        gc.enable()

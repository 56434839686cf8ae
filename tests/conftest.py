"""What all tests share: no network, none of the user's folders, one thread, and small random models."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

_HOME = Path(tempfile.mkdtemp(prefix="layerstep-tests-"))

# Set here, before anything is imported that reads them; the processes that tests start inherit them.
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "HF_HOME": str(_HOME / "huggingface"),
    "HYPOTHESIS_STORAGE_DIRECTORY": str(_HOME / "hypothesis"),
    **{f"XDG_{kind}_HOME": str(_HOME / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")},
    "XDG_RUNTIME_DIR": str(_HOME),
}

_SEEN = _HOME / "state" / "layerstep" / "session.json"
_SEEN.parent.mkdir(parents=True)
_SEEN.write_text('{"format": 1, "seen": true}', encoding="utf-8")  # the app was here before: it offers no guided walk

for name in ("COLUMNS", "LINES"):  # a terminal's size is the terminal's, in programs that tests start too
    os.environ.pop(name, None)

settings.register_profile(
    "layerstep",
    deadline=None,  # the machine may be busy
    max_examples=50,
    database=None,
    derandomize=not os.environ.get("LAYERSTEP_EXPLORE"),  # set it to draw other examples each time
    print_blob=True,
)
settings.load_profile("layerstep")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a CUDA device where there is none, saying so."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch

    if torch.cuda.is_available():
        return
    reason = "no CUDA device" if torch.version.cuda else f"no CUDA device: torch {torch.__version__} is built without"
    for item in on_gpu:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def tiny():
    """``tiny(**traits)``: a small model with random weights whose attention is far from uniform; see `tiny.py`."""
    from tiny import tiny

    return tiny

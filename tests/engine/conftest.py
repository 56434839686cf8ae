"""The engine's tests: torch on one thread, so that they are fast beside others and give the same bits each time."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    import torch

    torch.set_num_threads(1)

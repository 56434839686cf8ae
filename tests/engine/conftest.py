"""The engine's tests: torch on one thread, so that they are fast beside others and give the same bits each time."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_numbers_each_time():
    import torch

    torch.manual_seed(0)

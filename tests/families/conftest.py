"""Every family beside transformers: torch on one thread, and transformers silent."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _quiet():
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()

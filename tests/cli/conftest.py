"""The command line's tests: a tiny random model, and the program in this process."""

from pathlib import Path

import pytest
from calls import Call, Done, write_model

from engine.cli import main


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """The program in this process. Whatever happens, no traceback reaches the user."""

    def run(*args: object) -> Done:
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err or "--debug" in args
        return Done(code, out, err)

    return run

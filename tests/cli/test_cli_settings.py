"""What the app itself is told on the command line: settings, mouse, theme, the last session."""

import pytest
from calls import Call


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What the app was told beside what to open, in place of opening it."""
    calls: list[dict[str, object]] = []

    def record(*what: object, **more: object) -> int:
        more.pop("allow_pickle", None)
        calls.append(more)
        return 0

    monkeypatch.setattr("engine.cli.walk.open_app", record)
    monkeypatch.setattr("engine.cli.open.open_app", record)
    return calls


@pytest.mark.parametrize("command", [[], ["open", "a.trace"]])
def test_the_app_is_told_what_is_written_and_nothing_else(call: Call, told, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.trace").touch()
    for args in ([], ["--config", "my.toml"], ["--no-mouse", "--light"]):
        assert call(*command, *args).code == 0
    assert told == [{}, {"config": "my.toml"}, {"mouse": False, "light": True}]


def test_the_last_session_is_asked_for(call: Call, told):
    assert call("--last").code == 0
    assert told == [{"last": True}]
    done = call("open", "a.trace", "--last")
    assert done.code == 2
    assert "No such option" in done.err

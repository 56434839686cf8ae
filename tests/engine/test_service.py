"""The engine as a process: frames, order, cancelling, failures, and that what it says is what the API says."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import Model, ModelConfig, build_program, extend, load_model, trace
from engine.browse import Session, summary
from engine.checks import Check
from engine.errors import AddressError, LayerstepError
from engine.service import Channel, Service, kind_of, line_of, receive
from engine.windows import Plane, blocks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model in layerstep's own format, without a tokenizer."""
    from safetensors.torch import save_file

    config = ModelConfig(
        name="tiny", d_vocab=50, d_model=24, n_layers=2, n_heads=4, n_kv_heads=2, d_head=8, d_mlp=32, n_ctx=64,
        positions="rotary", norm="rms", activation="silu", gated=True,
    )  # fmt: skip
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("models") / "tiny"
    path.mkdir()
    weights = {name: torch.randn(shape) for name, shape in build_program(config).params.items()}
    save_file(weights, path / "model.safetensors")
    raw = {"model_type": "layerstep", "format_version": 1} | config.to_json()
    (path / "config.json").write_text(json.dumps(raw))
    return path


class Engine:
    """A real engine process, spoken to synchronously."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine.service"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.count = 0

    def send(self, method: str, run: int = 1, **params: object) -> int:
        self.count += 1
        assert self.process.stdin
        Channel(self.process.stdin).send({"id": self.count, "run": run, "method": method, "params": params})
        return self.count

    def next(self) -> tuple[dict, bytes]:
        assert self.process.stdout
        header = receive(self.process.stdout)
        assert header is not None
        return header, self.process.stdout.read(header.get("bytes", 0))

    def answer(self, to: int) -> tuple[dict, bytes]:
        while True:
            header, payload = self.next()
            if header.get("id") == to and "ok" in header:
                return header, payload

    def ask(self, method: str, **params: object) -> tuple[dict, bytes]:
        header, payload = self.answer(self.send(method, **params))
        assert header["ok"], header
        return header["result"], payload


@pytest.fixture
def engine():
    speaking = Engine()
    yield speaking
    speaking.process.kill()
    speaking.process.communicate()


def test_hello_comes_before_torch_and_ready_after(engine: Engine) -> None:
    assert engine.next()[0] == {"event": "hello"}
    ready = engine.next()[0]
    assert ready["event"] == "ready"
    assert ready["torch"] == torch.__version__


def test_a_whole_conversation(engine: Engine, folder: Path, tmp_path: Path) -> None:
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    opened, _ = engine.ask("open", model=str(folder), prompt=ids)
    assert [t["id"] for t in opened["tokens"][0]] == ids
    result, payload = engine.ask("window", address="blocks.1.attn.pattern[b=0,h=3,q=2:5]@0")
    assert result["axes"] == ["query", "key"]
    assert result["shape"] == [3, 8]
    assert result["full_shape"] == [8, 8]
    expected = trace(load_model(folder), ids)["blocks.1.attn.pattern"][0, 3, 2:5]
    got = np.frombuffer(payload, "<f4").reshape(result["shape"])
    np.testing.assert_allclose(got, expected.numpy(), atol=1e-6)
    assert len(engine.ask("top", address="logits[b=0,p=7]@0", k=3)[0]["rows"]) == 3
    assert all(row["ok"] for row in engine.ask("checks")[0]["rows"])
    saved, _ = engine.ask("save", path=str(tmp_path / "t.safetensors"))
    assert Path(saved["path"]).stat().st_size == saved["size"]
    reopened, _ = engine.ask("open", file=saved["path"])
    assert reopened["file"] == saved["path"]
    assert engine.ask("window", address="blocks.0.attn.pattern[b=0,h=0]@0")[0]["shape"] == [8, 8]


def test_a_failed_request_is_one_line_and_the_engine_goes_on(engine: Engine, folder: Path) -> None:
    for params in (
        {"model": "/no/such"},
        {"model": str(folder), "prompt": "text"},
        {"model": str(folder), "prompt": []},
    ):
        header, _ = engine.answer(engine.send("open", **params))
        assert not header["ok"]
        assert "\n" not in header["error"]["message"]
    header, _ = engine.answer(engine.send("window", address="nonsense"))
    assert header["error"]["kind"] == "LayerstepError"
    engine.ask("open", model=str(folder), prompt=[1, 2])
    for address in ("nonsense", "blocks.9.attn.q", "blocks.0.attn.q[h=99]", "blocks.0.attn.q[z=1]", "tokens@7"):
        assert engine.answer(engine.send("window", address=address))[0]["error"]["kind"] == "AddressError"
    assert engine.answer(engine.send("juggle"))[0]["error"]["kind"] == "LayerstepError"
    assert engine.answer(engine.send("window"))[0]["error"]["kind"] == "KeyError"


def test_a_request_that_waits_can_be_cancelled(engine: Engine, folder: Path) -> None:
    first = engine.send("open", model=str(folder), prompt=list(range(40)))
    second = engine.send("checks")
    engine.send("cancel", id=second)
    assert engine.answer(first)[0]["ok"]
    assert engine.answer(second)[0]["error"]["kind"] == "Cancelled"


def test_the_end_of_the_input_ends_the_process(engine: Engine) -> None:
    assert engine.process.stdin
    engine.process.stdin.close()
    assert engine.process.wait(timeout=10) == 0
    engine.process.stdin = None


def test_without_torch_the_process_ends_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch is broken')")
    process = subprocess.Popen(
        [sys.executable, "-m", "engine.service"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))},
    )  # fmt: skip
    assert process.stderr
    assert process.wait(30) == 1  # its input is open still, and somebody listens to it
    assert process.stderr.read().decode().splitlines()[-1] == "ImportError: libtorch is broken"
    process.communicate()


def test_garbage_ends_the_process_without_a_traceback(engine: Engine) -> None:
    assert engine.process.stdin
    engine.process.stdin.write(b"\xff\xff\xff\xff garbage")
    engine.process.stdin.flush()
    _, err = engine.process.communicate(timeout=10)
    assert engine.process.returncode == 0
    assert b"Traceback" not in err


def test_frames_survive_any_text() -> None:
    out = io.BytesIO()
    Channel(out).send({"text": "\ud83d \x1b[31m \u202e"}, b"\x00\x01")
    out.seek(0)
    assert receive(out) == {"text": "\ud83d \x1b[31m \u202e", "bytes": 2}
    assert out.read() == b"\x00\x01"
    assert receive(io.BytesIO(b"")) is None
    with pytest.raises(ValueError, match="frame"):
        receive(io.BytesIO(struct.pack(">I", 2**31)))


def test_errors_are_one_printable_line() -> None:
    assert line_of(ValueError("a\nb\x1b[0m")) == "ValueError: a b␛[0m"
    assert kind_of(MemoryError()) == "OutOfMemory"
    assert line_of(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")).startswith("out of memory")


def test_the_summary_tells_every_step_and_is_json(folder: Path) -> None:
    t = trace(load_model(folder), [1, 2, 3])
    told = json.loads(json.dumps(summary(t), allow_nan=False))
    assert [s["site"] for s in told["steps"]][-1] == "probs"
    assert {s["site"] for s in told["steps"]} == {s.name for s in t.program.sites if "past" not in s.axes}
    for step in told["steps"]:
        assert step["title"]
        assert step["story"]
        assert tuple(step["shape"]) == tuple(t[step["site"]].shape)
        assert step["dtype"] == str(t[step["site"]].dtype).removeprefix("torch.")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_statistics_count_what_is_not_finite(value: float) -> None:
    config = ModelConfig(name="x", d_vocab=8, d_model=4, n_layers=1, n_heads=1, d_head=4, d_mlp=4, n_ctx=8)
    weights = {n: torch.ones(s) for n, s in build_program(config).params.items()}
    weights["embed.weight"] = torch.arange(32.0).view(8, 4)
    weights["embed.weight"][3, 2] = value
    session = Session()
    session.show(trace(Model.from_weights(config, weights), [3, 1]))
    result, _ = session.window("embed[b=0]")
    row = torch.tensor([12.0, 13, 15, 4, 5, 6, 7])
    stats = result["stats"]
    assert stats["nonfinite"] == 1
    assert stats["masked"] == 0
    assert (stats["min"], stats["max"], stats["count"]) == (4, 15, 7)
    assert stats["mean"] == pytest.approx(float(row.mean()))
    assert stats["std"] == pytest.approx(float(row.std(correction=0)))
    assert session.window("blocks.0.attn.masked[b=0,h=0]")[0]["stats"]["masked"] == 1
    top = session.top("logits[p=0]", 5)
    assert top["rows"] == [] or top["nonfinite"] == 0


def test_a_window_larger_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("engine.browse.MAX_CELLS", 10)
    session = Session()
    with pytest.raises(LayerstepError, match="no trace"):
        _ = session.trace
    session.show(trace(load_model(folder), [1, 2, 3, 4]))
    with pytest.raises(AddressError, match="16 cells"):
        session.window("blocks.0.attn.scores[b=0,h=0]")
    assert session.window("blocks.0.attn.scores[b=0,h=0,q=0:2]")[0]["stats"]["count"] == 16


def answers(session: object, *requests: dict) -> list[dict]:
    """What a service with this session answers, in this process."""
    out = io.BytesIO()
    service = Service(io.BytesIO(), out)
    service._session = session
    for request in requests:
        service._answer(request)
    out.seek(0)
    headers = []
    while (header := receive(out)) is not None:
        headers.append(header)
        out.read(header.get("bytes", 0))
    return headers


def test_what_is_not_finite_is_null_and_what_cannot_be_said_an_error() -> None:
    class Fake:
        def checks(self, site: str | None, watch: object, at: int | None, which: str) -> dict:
            if site == "odd":
                return {"rows": [object()]}
            return {"rows": [Check("c", "s", 0, float("nan"), float("inf")).to_json()]}

    ask = {"run": 1, "method": "checks"}
    requests = ask | {"id": 1}, ask | {"id": 2, "params": {"site": "odd"}}, ask | {"id": []}
    good, odd, unhashable = answers(Fake(), *requests)
    [row] = good["result"]["rows"]
    assert (row["figure"], row["tolerance"], row["ok"]) == (None, None, False)
    assert (odd["id"], odd["ok"], odd["error"]["kind"]) == (2, False, "TypeError")
    assert not unhashable["ok"]


def test_a_reader_that_went_away_is_no_failed_request() -> None:
    class Gone:
        def models(self) -> dict:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        answers(Gone(), {"id": 1, "method": "models"})


@pytest.fixture
def two_passes(folder: Path) -> Session:
    model = load_model(folder)
    session = Session()
    session.show(extend(model, trace(model, [3, 1, 4, 1]), [5, 9]))
    return session


def test_candidates_are_those_after_the_last_position_of_the_pass(two_passes: Session) -> None:
    for address, pos in (("logits", 5), ("logits@0", 3), ("logits@1", 5), ("logits[p=0]@1", 4), ("logits[p=1]", 1)):
        expected = [c.id for c in two_passes.trace.top(4, pos=pos)]
        assert [row["id"] for row in two_passes.top(address, 4)["rows"]] == expected, address


def test_progress_of_checks_counts_steps(two_passes: Session) -> None:
    seen: list[tuple[int, int]] = []
    rows = two_passes.checks(None, lambda done, total, what: seen.append((done, total)))["rows"]
    every = two_passes.trace.checks()
    assert len(seen) == len(every) == 2 * len(rows)  # of two passes the one in which a check holds worse
    for row in rows:
        same = [check for check in every if (check.site, check.name) == (row["site"], row["name"])]
        assert row["figure"] / max(row["tolerance"], 1e-30) == max(c.figure / max(c.tolerance, 1e-30) for c in same)
    steps = 2 * len(two_passes.trace.program.steps)
    assert {total for _, total in seen} == {steps}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert steps / 2 < seen[-1][0] < steps
    two_passes.checks("blocks.0.attn.pattern", lambda done, total, what: seen.append((done, total)))
    assert seen[-1] == (1, 2)


def test_no_plane_is_whole_in_memory(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    session = Session()
    session.show(trace(load_model(folder), list(range(9))))
    whole = session.trace["blocks.0.attn.scores"]  # [1 head=4 query=9 key=9]
    monkeypatch.setattr("engine.windows.CELLS_AT_ONCE", 20)
    plane = Plane.find(session.trace, "blocks.0.attn.scores")
    parts = list(blocks(plane))
    assert max(part.numel() for part in parts) <= 20
    torch.testing.assert_close(torch.cat([part.flatten() for part in parts]), whole.flatten())
    monkeypatch.setattr("engine.windows.CELLS_AT_ONCE", 4)  # less than a row
    parts = list(blocks(plane))
    assert max(part.numel() for part in parts) <= 4
    torch.testing.assert_close(torch.cat([part.flatten() for part in parts]), whole.flatten())


@pytest.mark.parametrize("site", ["scores", "masked"])
def test_a_key_that_was_not_there_yet_is_masked(two_passes: Session, site: str) -> None:
    stats = two_passes.window(f"blocks.0.attn.{site}[b=0,h=0]")[0]["stats"]
    hidden = 15 if site == "masked" else 8
    assert (stats["masked"], stats["nonfinite"], stats["count"]) == (hidden, 0, 36 - hidden)


def test_one_model_is_held(folder: Path) -> None:
    session = Session()
    params = {"model": str(folder), "prompt": [1, 2]}
    session.open(params, lambda *_: None)
    first = session._model(params, lambda *_: None)
    assert session._model(params, lambda *_: pytest.fail("it was loaded again")) is first
    assert session._model(params | {"dtype": "float64"}, lambda *_: None).dtype is torch.float64
    assert session._model(params, lambda *_: None) is not first


def test_models_are_told_by_name(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("engine.samples.ROOTS", (folder.parent,))
    [row] = Session().models()["rows"]
    assert (row["name"], row["path"]) == ("tiny", str(folder))
    assert row["text"] == load_model(folder).config.summary

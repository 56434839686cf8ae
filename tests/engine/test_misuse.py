"""What a hurried user or a hostile folder does: one clear line of our own, never a foreign exception or a hang."""

from __future__ import annotations

import os

import pytest
import torch

from engine import LayerstepError, load_model, trace
from engine.checkpoints.folder import read_json
from engine.cli.entry import run
from engine.errors import CheckpointError, MemoryLimitError

IDS = [3, 1, 4, 1, 5]


def test_a_pipe_in_place_of_a_config_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match="no ordinary file"):
        read_json(tmp_path, "config.json")


@pytest.mark.parametrize(
    "options",
    [
        {"keep": None}, {"keep": 5}, {"keep": [5]}, {"keep": ["residual", 5]}, {"kernel": None},
        {"positions": 5}, {"max_memory": "1G"}, {"max_memory": float("nan")}, {"max_memory": -1},
    ],
)  # fmt: skip
def test_options_of_the_wrong_kind(tiny, options):
    with pytest.raises(LayerstepError) as error:
        trace(tiny(), IDS, **options)
    assert "\n" not in str(error.value)


def test_odd_questions_to_a_trace(tiny):
    t = trace(tiny(), IDS)
    assert t.top(-1) == []
    with pytest.raises(LayerstepError):
        t[5]


def test_a_dtype_and_a_device_may_be_torch_s_own():
    model = load_model("modern", device=torch.device("cpu"), dtype=torch.float64)
    assert model.dtype is torch.float64
    for wrong in ({"device": None}, {"dtype": None}, {"dtype": torch.int8}):
        with pytest.raises(LayerstepError):
            load_model("modern", **wrong)


@pytest.mark.parametrize("pad", [10**12, -3])
def test_a_padding_id_outside_the_vocabulary_pads_all_the_same(tiny, pad):
    t = trace(tiny(pad_token_id=pad), [IDS, IDS[:2]])
    assert torch.isfinite(t["logits"][1, -1]).all()


def test_a_tensor_that_memory_cannot_hold_is_not_derived(tiny, monkeypatch):
    t = trace(tiny(), IDS, keep="residual")
    monkeypatch.setattr("engine.traces.DERIVED_BYTES", 0)
    monkeypatch.setattr("engine.traces.available_memory", lambda device: 100)
    with pytest.raises(MemoryLimitError, match="ask for a part"):
        t["blocks.0.attn.pattern"]


def test_running_out_of_memory_is_said_in_one_line(monkeypatch, capfd):
    def fail(args):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("engine.cli.entry._dispatch", fail)
    assert run(["show", "x"]) == 1
    assert capfd.readouterr().err == "layerstep: out of memory; shorten the prompt, or keep less (--keep residual)\n"


@pytest.mark.parametrize("size", ["9" * 400, "٣G", "1e9", "nan"])
def test_sizes_that_are_none(size, capfd):
    assert run(["plan", "modern", "--tokens", "3"]) == 0
    assert run(["trace", "x", "-o", "/dev/null", "--max-memory", size]) == 2

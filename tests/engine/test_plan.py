"""What a pass costs is known before it runs: bytes kept, the peak, and the refusal of what is too large."""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import ARCHITECTURES, CLASSIC, GPT2, MODERN, configs, random_ids, random_model, random_weights, tiny_config
from torch.profiler import ProfilerActivity, profile

from engine import Model, ModelConfig, Trace, build_program, extend, plan_trace, trace
from engine.config import Rotary
from engine.errors import MemoryLimitError
from engine.plan import human, plan_pass

GIB = 2**30
LLAMA_1B = ModelConfig(
    name="Llama-3.2-1B", d_vocab=128_256, d_model=2048, n_layers=16, n_heads=32, n_kv_heads=8, d_head=64, d_mlp=8192,
    n_ctx=131_072, positions="rotary", rotary=Rotary(theta=500_000.0), norm="rms", activation="silu", gated=True,
)  # fmt: skip
GPT2_SMALL = ModelConfig(
    name="gpt2", d_vocab=50_257, d_model=768, n_layers=12, n_heads=12, d_head=64, d_mlp=3072, n_ctx=1024, **GPT2
)


def plan(config: ModelConfig, n: int, keep: object, itemsize: int = 4):
    return plan_pass(build_program(config), config.axis_sizes(1, n), itemsize, keep)


# --------------------------------------------------------------------------------------------- known figures


@pytest.mark.parametrize(
    ("config", "n", "keep", "expected"),
    [
        (LLAMA_1B, 4096, ["blocks.*.attn.scores"], 32.0),  # M1: 16 · 32 · 4096² · 4 B
        (GPT2_SMALL, 1024, ["blocks.*.attn.pattern"], 0.5625),  # 12 · 12 · 1024² · 4 B
        (replace(LLAMA_1B, d_vocab=262_144), 2048, ["logits"], 2.0),
        (GPT2_SMALL, 1024, ["blocks.3.attn.scores"], 0.046875),  # only layer 3's
    ],
)
def test_estimates_by_hand(config, n, keep, expected):
    assert plan(config, n, keep).kept / GIB == expected


def test_scores_are_float32_in_a_16_bit_model():
    assert plan(LLAMA_1B, 4096, ["blocks.*.attn.scores"], itemsize=2).kept == 32 * GIB
    assert plan(LLAMA_1B, 4096, ["logits"], itemsize=2).kept == 4096 * 128_256 * 2


def test_recording_a_pass_is_linear_in_its_length():
    # No N × N tensor is on the path: at 16 times the length, 16 times the bytes.
    for keep in ("all", "residual"):
        assert plan(LLAMA_1B, 65_536, keep).kept == 16 * plan(LLAMA_1B, 4096, keep).kept
        assert plan(LLAMA_1B, 65_536, keep).peak == 16 * plan(LLAMA_1B, 4096, keep).peak


def test_the_stream_alone_by_hand():
    n = 8192
    p = plan(LLAMA_1B, n, "residual", itemsize=2)
    stream, logits = 17 * n * 2048 * 2, n * 128_256 * 2
    assert p.kept == stream + logits
    assert p.weights == sum(
        2 * size
        for size in (
            128_256 * 2048, 2048,
            *[2 * 2048 + 2 * 2048 * 2048 + 2 * 512 * 2048 + 3 * 2048 * 8192] * 16,
        )
    )  # fmt: skip


def test_a_cached_token_costs_what_it_adds():
    # The cache of 4095 earlier tokens is copied once per layer: keys and values.
    program = build_program(LLAMA_1B)
    p = plan_pass(program, LLAMA_1B.axis_sizes(1, 1, 4095), 2, ["blocks.*.attn.cache_k", "blocks.*.attn.cache_v"])
    assert p.kept == 16 * 2 * 4096 * 8 * 64 * 2


def test_rows_say_everything(tiny):
    model = tiny(**MODERN)
    p = plan_trace(model, 5, batch=2, keep=["blocks.*.attn.hook_pattern"])
    rows = {row.site.name: row for row in p.rows}
    assert list(rows) == [s.site.name for s in model.program.steps]
    pattern = rows["blocks.1.attn.pattern"]
    assert (pattern.shape, pattern.bytes, pattern.kept, pattern.on_path) == ((2, 4, 5, 5), 2 * 4 * 25 * 8, True, False)
    assert rows["blocks.0.resid_pre"].bytes == 0  # the embedding under another name
    assert rows["rotary_cos"].bytes == 2 * 5 * 6 * 4  # float32 in a float64 model
    data = p.to_json()
    assert data["kept"] == p.kept
    assert data["sites"][0] == {"site": "embed", "shape": [2, 5, 20], "bytes": 1600, "kept": False, "on_path": True}
    assert p.flops == model.program.flops(model.config.axis_sizes(2, 5))


# ------------------------------------------------------------------------------------------------ kept, really

KEEPS = [
    "all",
    "residual",
    ["embed"],
    ["*"],
    ["blocks.*.attn.q", "blocks.*.attn.pattern"],
    ["blocks.*.attn.*"],
    ["probs"],
]


def kept_bytes(t: Trace, at: int = 0) -> int:
    """Bytes of the storages that a pass holds, each counted once; of a cache's buffer what is filled."""
    kept = t.passes[at].kept.items()
    storages = {x.untyped_storage().data_ptr(): x.nbytes if at and ".cache_" in name else x.untyped_storage().nbytes()
                for name, x in kept}  # fmt: skip
    return sum(storages.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_plan_is_what_a_run_keeps(tiny, name, dtype):
    model = tiny(**ARCHITECTURES[name], dtype=dtype)
    prompts = [random_ids(model.config, 9), random_ids(model.config, 6)]
    for keep in KEEPS:
        t, p = trace(model, prompts, keep=keep), plan_trace(model, 9, batch=2, keep=keep)
        assert kept_bytes(t) == p.kept
        for row in p.rows:
            if row.site.name in t.passes[0].kept:
                tensor = t.passes[0].kept[row.site.name]
                assert row.kept
                assert tuple(tensor.shape) == row.shape
                assert row.bytes in (0, tensor.nbytes)


@pytest.mark.parametrize("n", [1, 4])
def test_an_odd_width_keeps_nothing_beside_it(tiny, n):
    model = tiny(**CLASSIC, d_model=21, dtype=torch.float32)  # sinusoids come in pairs: the last cosine is left out
    assert kept_bytes(trace(model, [1] * n)) == plan_trace(model, n).kept


@given(config=configs(causal=True), keep=st.sampled_from(KEEPS), n=st.integers(1, 5), more=st.integers(1, 4))
def test_the_plan_of_a_second_pass_too(config, keep, n, more):
    model = random_model(config, dtype=torch.float32)
    t = extend(model, trace(model, random_ids(config, n)), random_ids(config, more, 1), keep=keep)
    planned = plan_pass(model.program, config.axis_sizes(1, more, n), 4, keep)
    assert kept_bytes(t, 1) == planned.kept


# ---------------------------------------------------------------------------------------------- peak, measured


def measured_peak(model: Model, ids: list[int], keep: object) -> tuple[int, Trace]:
    """The most memory that a run held beyond what was there before, as torch's allocator saw it, and its trace."""
    trace(model, ids, keep=keep)  # what is made once and kept for later is not the run's
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        t = trace(model, ids, keep=keep)
    live = peak = 0
    for event in prof.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak, t


@pytest.fixture(scope="module")
def shapes() -> dict[str, Model]:
    """GPT-2's and Llama's proportions at an eighth of the width, with a vocabulary to match."""
    gpt2 = tiny_config(d_model=96, d_head=16, n_heads=6, d_mlp=384, d_vocab=1500, n_layers=4, n_ctx=512, **GPT2)
    llama = tiny_config(d_model=128, d_head=16, n_heads=8, d_mlp=352, d_vocab=1500, n_layers=4, n_ctx=512, **MODERN)
    return {
        "gpt2": Model.from_weights(gpt2, random_weights(gpt2, dtype=torch.float32)),
        "llama": Model.from_weights(llama, random_weights(llama, dtype=torch.float32)),
    }


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize(
    "keep", ["all", "residual", ["blocks.*.attn.pattern"], ["blocks.2.attn.scores"], ["logits"]], ids=str
)
def test_the_peak_is_what_was_planned(shapes, name, keep):
    # M1: within 1.2 times of the estimate.
    model = shapes[name]
    ids = random_ids(model.config, 256)
    peak, t = measured_peak(model, ids, keep)
    planned = plan_trace(model, 256, keep=keep).peak
    assert planned / 1.2 <= peak <= planned * 1.2
    assert peak >= kept_bytes(t)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_recording_everything_takes_what_it_keeps(shapes, name):
    model = shapes[name]
    peak, t = measured_peak(model, random_ids(model.config, 256), "all")
    assert peak <= 1.05 * kept_bytes(t)  # the logits are among them


@given(config=configs(), keep=st.sampled_from(["all", "residual", ["*"], ["embed"]]), n=st.integers(1, 6))
@settings(max_examples=100)
def test_the_peak_lies_between_what_is_kept_and_everything(config, keep, n):
    p = plan(config, n, keep)
    everything = sum(row.bytes for row in p.rows)
    shapes = {row.site.name: row.shape for row in p.rows} | {
        site.name: build_program(config).shape(site, config.axis_sizes(1, n)) for site in build_program(config).inputs
    }
    steps = build_program(config).steps
    scratch = max(s.op.scratch([shapes[read] for read in s.reads], shapes[s.site.name], 4) for s in steps)
    assert p.kept <= p.peak <= everything + scratch


# ------------------------------------------------------------------------------------------------------ refusal


def test_a_run_over_the_limit_is_refused_with_the_numbers(tiny, monkeypatch):
    model = tiny(**MODERN, n_layers=6, dtype=torch.float32)
    ids = random_ids(model.config, 30)
    everything, residual = (plan_trace(model, 30, keep=keep).peak for keep in ("all", "residual"))
    assert residual < everything
    ran = []
    monkeypatch.setattr("engine.recording.run", lambda *args, **kwargs: ran.append(args))
    with pytest.raises(MemoryLimitError) as error:
        trace(model, ids, max_memory=everything - 1)
    text = str(error.value)
    assert "recording 1 × 30 tokens" in text
    assert human(everything) in text
    assert human(everything - 1) in text
    assert f'keep="residual" needs {human(residual)}' in text
    assert "\n" not in text
    with pytest.raises(MemoryLimitError) as error:  # nothing cheaper would do
        trace(model, ids, max_memory=residual - 1)
    assert "residual" not in str(error.value)
    assert "shorten the prompt" in str(error.value)
    with pytest.raises(MemoryLimitError, match="shorten the prompt"):
        trace(model, ids, keep="residual", max_memory=1)
    assert not ran  # refused before anything was computed
    monkeypatch.undo()
    assert trace(model, ids, max_memory=everything).length == 30
    assert trace(model, ids, keep="residual", max_memory=residual).length == 30


def test_the_limit_is_what_is_free_unless_said(tiny, monkeypatch):
    model = tiny(**MODERN, n_ctx=2048)
    monkeypatch.setattr("engine.plan.available_memory", lambda device: 1000)
    scores = ["blocks.*.attn.scores"]  # of 1024 tokens: 64 MiB
    with pytest.raises(MemoryLimitError, match="the limit is 1000 B"):
        trace(model, [1] * 1024, keep=scores)
    with pytest.raises(MemoryLimitError, match="the limit is 1000 B"):
        extend(model, trace(model, [1, 2, 3]), [1] * 1024, keep=scores)
    monkeypatch.setattr("engine.plan.available_memory", lambda device: GIB)
    assert trace(model, [1] * 1024, keep=["blocks.0.attn.scores"]).length == 1024


def test_asking_for_every_score_of_a_long_prompt_is_refused(tiny):
    model = tiny(**MODERN, n_ctx=8192)
    with pytest.raises(MemoryLimitError) as error:
        trace(model, [1] * 8192, keep=["blocks.*.attn.scores"], max_memory=GIB)
    size = re.search(r"needs (\d+\.\d) GiB", str(error.value))
    assert float(size[1]) >= 2 * 4 * 8192**2 * 8 / GIB  # two layers, four heads, float64
    assert 'keep="residual" needs' in str(error.value)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (32 * GIB, "32.0 GiB"), (3 * 2**40, "3.0 TiB"),
        (2**60, "1048576.0 TiB"),
    ],
)  # fmt: skip
def test_bytes_as_people_read_them(size, text):
    assert human(size) == text

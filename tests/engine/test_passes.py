"""Traces of several passes: what is asked of them costs no more than the place that is asked for."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tiny import GEMMA, MODERN
from tiny_t5 import SOURCE, write_t5

from engine import ModelConfig, Trace, extend, generate, load_model, open_trace, trace
from engine.errors import ConfigError, PromptError, TraceFileError
from engine.ops.base import PassInfo
from engine.passes import JOINED_BYTES
from engine.prompts import NO_PROMPT

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


def in_passes(model, ids, cuts, keep="all"):
    t = trace(model, ids[: cuts[0]], keep=keep)
    for start, stop in zip(cuts, [*cuts[1:], len(ids)], strict=True):
        t = extend(model, t, ids[start:stop], keep=keep)
    return t


@pytest.mark.parametrize("keep", ["all", "residual"])
@pytest.mark.parametrize(
    "address",
    [
        "blocks.1.attn.pattern[q=-1]", "blocks.1.attn.pattern[q=2:9,k=1:8]", "blocks.0.attn.masked[h=1,q=3:7]",
        "blocks.1.attn.z[p=4:6]", "logits[p=-1]", "blocks.0.attn.cache_k[k=2:5]", "blocks.0.attn.scores[q=5:5]",
        "blocks.1.attn.past_k", "blocks.1.resid_post", "blocks.1.attn.pattern[k=8:10]",
        "blocks.0.attn.scores[q=2,k=7:9]",
    ],
)  # fmt: skip
def test_a_place_across_passes_is_that_place_of_the_whole(tiny, keep, address):
    model = tiny()
    t = in_passes(model, IDS, [4, 5, 8], keep)
    whole = t[address.split("[")[0]]
    from engine import Address

    index = Address.parse(address).resolve(t.program.site(address.split("[")[0]).axes, tuple(whole.shape))
    axes = t.program.site(address.split("[")[0]).axes
    cut = tuple(slice(i.start, i.stop) if hasattr(i := index.get(a, slice(None)), "start") else i for a in axes)
    torch.testing.assert_close(t[address], whole[cut], equal_nan=True)


def test_one_row_of_many_passes_runs_one_pass_alone(tiny, monkeypatch):
    model = tiny()
    t = in_passes(model, IDS, [6, 7, 8])
    asked, part = [], type(t).part

    def noting(self, name, at, window):
        asked.append(at)
        return part(self, name, at, window)

    monkeypatch.setattr(type(t), "part", noting)
    t["blocks.1.attn.pattern[q=-1]"]
    assert set(asked) == {3}


def without_cache(t):
    """The trace as it is opened from a file: what earlier passes appended is derived."""
    return Trace(t.config, t.program, t.weights, t.passes, t.tokens)


def test_rows_of_earlier_passes_are_joined_once_for_all_passes(tiny, monkeypatch):
    model = tiny(**MODERN)
    t = without_cache([g.trace for g in generate(model, IDS, max_new_tokens=40, keep="residual")][-1])
    asked, site = Counter(), Trace.site
    monkeypatch.setattr(Trace, "site", lambda self, *place: asked.update([place]) or site(self, *place))
    t["blocks.1.attn.z"]
    rows = {place: n for place, n in asked.items() if place[0] in ("blocks.1.attn.rot_k", "blocks.1.attn.v")}
    assert rows == {(name, at): 1 for name, _ in rows for at in range(len(t.passes) - 1)}


@pytest.mark.parametrize("most", [JOINED_BYTES, 10_000, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("traits", [MODERN, GEMMA], ids=["modern", "windows"])
def test_earlier_rows_are_the_same_whichever_pass_is_asked_first(tiny, monkeypatch, traits, dtype, most):
    monkeypatch.setattr("engine.passes.JOINED_BYTES", most)
    model = tiny(**traits, dtype=dtype)
    plain, derived = (
        [g.trace for g in generate(model, IDS, max_new_tokens=30, keep=keep, stop_tokens=())][-1]
        for keep in ("all", "residual")
    )
    derived = without_cache(derived)
    for at in (11, 3, 0, 29, 12, 28, 1):
        for name in ("blocks.1.attn.past_k", "blocks.0.attn.past_v", "blocks.1.attn.cache_v", "blocks.1.attn.z"):
            assert torch.equal(derived.site(name, at), plain.site(name, at)), (name, at)
        before = derived.held(at + 1).held
        assert {past: held.stop for past, held in before.items()} == dict.fromkeys(before, len(IDS) + at)
        for past, held in before.items():
            n = model.program.site(past).held(held.stop)
            assert torch.equal(held.rows, plain.site(model.program.caches[past], at)[:, -n:])
        assert sum(held.allocated for held in derived.joined.values()) <= most


def test_rows_that_were_joined_in_inference_mode_are_gone_on_with_outside_of_it(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    steps = generate(model, IDS, max_new_tokens=12, keep="residual", stop_tokens=())
    t = without_cache([g.trace for g in steps][-1])
    plain = trace(model, [token.id for token in t.tokens[0]])
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for at in (5, 7):
            t.site("blocks.1.attn.z", at)
    torch.testing.assert_close(t["blocks.1.attn.z"], plain["blocks.1.attn.z"], rtol=1e-4, atol=1e-5)
    extend(model, t, [1, 2])


def test_two_hundred_passes_that_keep_the_residual_stream_alone(tiny):
    model = tiny()
    t = trace(model, IDS[:2], keep="residual")
    for i in range(200):
        t = extend(model, t, [i % 7], keep="residual")
    full = trace(model, [token.id for token in t.tokens[0]])
    torch.testing.assert_close(t["logits[p=-1]"], full["logits[p=-1]"], rtol=1e-3, atol=1e-3)


def test_raw_scores_of_later_keys_hide_and_are_no_error(tiny):
    model = tiny()
    t = in_passes(model, IDS, [4])
    for name, hides in (("scores", True), ("scaled", True), ("masked", True), ("pattern", False)):
        step = t.program.step(f"blocks.0.attn.{name}")
        assert step.op.hides is hides


def test_a_character_that_begins_in_one_pass_and_ends_in_the_next():
    model = load_model("modern")
    ids = [token.id for token in model.tokenizer.encode("a😀b")]
    whole, split = trace(model, ids), in_passes(model, ids, [3])
    assert [t.group for t in split.tokens[0]] == [t.group for t in whole.tokens[0]]
    assert split.prompt == whole.prompt


def test_a_trace_goes_on_with_a_text_as_with_its_ids():
    model = load_model("modern")
    begun = trace(model, "The keys to")
    t = extend(model, begun, " the cabinet")
    ids = [token.id for token in model.tokenizer.encode(" the cabinet", add_special=False)]
    assert [token.id for token in t.tokens[0]] == [
        token.id for token in (*begun.tokens[0], *model.tokenizer.extend([], ids))
    ]
    assert torch.equal(t["logits"], extend(model, begun, ids)["logits"])
    assert t.prompt.endswith("The keys to the cabinet")
    assert sum(token.origin == "tokenizer" for token in t.tokens[0]) == sum(
        token.origin == "tokenizer" for token in begun.tokens[0]
    )
    assert any("U+FFFD" in said for said in extend(model, begun, " a\ud800").notices)
    with pytest.raises(PromptError, match="no tokens to extend"):
        extend(model, begun, "")


def test_a_translation_goes_on_in_the_target_s_words(tmp_path):
    model = load_model(write_t5(tmp_path / "t5"), device="cpu")
    begun = trace(model, SOURCE, target="die")
    t = extend(model, begun, "Katze sass")
    assert [token.label for token in t.tokens[0]] == ["<pad>", "die", "Katze", "sass"]
    assert t.source_tokens == begun.source_tokens


def test_a_text_without_a_tokenizer_is_refused(tiny):
    model = tiny()
    for run in (lambda: trace(model, "the"), lambda: extend(model, trace(model, IDS), " cat")):
        with pytest.raises(PromptError, match=r"has no tokenizer; give token ids instead of text \(--ids\)"):
            run()


def test_a_model_says_in_a_line_what_it_is(tiny):
    model = tiny()
    assert repr(model) == f"<Model tiny: {model.config.summary}, cpu, float64>"
    assert len(repr(load_model("modern", device="cpu"))) < 120


def test_a_trace_goes_on_only_with_the_weights_it_was_recorded_with(tiny, tmp_path):
    model, other = tiny(seed=0), tiny(seed=1)
    t = trace(model, IDS)
    with pytest.raises(PromptError, match="another model"):
        extend(other, t, [1])
    t.save(tmp_path / "t.safetensors")
    assert open_trace(tmp_path / "t.safetensors", model)["probs"].shape == t["probs"].shape
    with pytest.raises(TraceFileError, match="other weights"):
        open_trace(tmp_path / "t.safetensors", other)


def test_a_config_made_in_python_is_as_closed_as_one_from_a_file():
    sizes = {"name": "x", "d_vocab": 8, "d_model": 4, "n_layers": 1, "n_heads": 1, "d_head": 4, "d_mlp": 4, "n_ctx": 8}
    for wrong in ({"positions": "rope"}, {"norm": "RMS"}, {"rotary": "gptj"}, {"causal": 1}, {"n_heads": 1.0}):
        with pytest.raises(ConfigError):
            ModelConfig(**sizes | wrong)


def test_prompts_of_arrays_and_of_bytes(tiny):
    import numpy as np

    model = tiny()
    expected = trace(model, IDS)["logits"]
    for prompt in (np.array(IDS), [np.int64(i) for i in IDS], torch.tensor(IDS)):
        assert torch.equal(trace(model, prompt)["logits"], expected)
    for prompt in (b"AB", bytearray(b"AB"), 3, None, [True], [1.5]):
        with pytest.raises(PromptError, match=NO_PROMPT):
            trace(model, prompt)


def test_running_again_leaves_what_was_noted():
    info = PassInfo(torch.float32, ran={"flash"})
    again = info.again()
    again.ran.add("math")
    again.choices["x"] = ("math", False)
    assert info.ran == {"flash"}
    assert info.choices == {}


def test_one_head_s_share_is_computed_alone(tiny, monkeypatch):
    from engine.ops.projection import HeadResult

    model = tiny(n_kv_heads=2, positions="rotary", norm="rms")
    t, whole = trace(model, IDS), trace(model, IDS)["blocks.1.attn.result"]
    shapes, run = [], HeadResult.run
    monkeypatch.setattr(HeadResult, "run", lambda *args: shapes.append(args[2].shape) or run(*args))
    torch.testing.assert_close(t["blocks.1.attn.result[h=2]"], whole[:, :, 2])
    torch.testing.assert_close(t["blocks.1.attn.result[h=1:4,p=3:5]"], whole[:, 3:5, 1:4])
    assert shapes == [(1, 10, 1, 6), (1, 2, 4, 6)]

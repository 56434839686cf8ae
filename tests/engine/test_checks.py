"""The invariants hold on every good trace, and each of them fails on a bad one: a check that cannot fail is none."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import ARCHITECTURES, CLASSIC, GPT2, MODERN, configs, random_ids, random_model

from engine import Check, Trace, extend, trace
from engine.errors import AddressError

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.float16]
NAN, INF = math.nan, math.inf


def failed(t: Trace) -> set[str]:
    """The names of the checks that fail, without their places."""
    return {check.name for check in t.checks() if not check.ok}


def corrupt(t: Trace, site: str, edit: Callable[[torch.Tensor], object], at: int = 0) -> Trace:
    """The same trace with one tensor of a pass edited in place, and kept: as if the engine had computed that."""
    tensor = t.site(site, at).clone()
    edit(tensor)
    passes = list(t.passes)
    passes[at] = replace(passes[at], kept={**passes[at].kept, site: tensor})
    return Trace(t.config, t.program, t.weights, tuple(passes), t.tokens)


# ----------------------------------------------------------------------------------------------- good traces


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_good_traces_pass(tiny, name, dtype):
    model = tiny(**ARCHITECTURES[name], dtype=dtype)
    for prompt in (
        [3],
        random_ids(model.config, 2),
        random_ids(model.config, 33),
        [random_ids(model.config, 9), [1, 2]],
    ):
        checks = trace(model, prompt).checks()
        assert not [check.text for check in checks if not check.ok]
        of = {check.name for check in checks}
        assert {
            "rows and the sink sum to 1" if model.config.attn_sinks else "rows sum to 1",
            "nothing where none may attend",
            "pattern @ v = z",
            "Σ heads (+ bias) = attn_out",
        } <= of
        assert sum(check.site.endswith("resid_post") for check in checks) >= 2
        assert all(math.isfinite(check.figure) and 0 <= check.figure <= check.tolerance < 0.5 for check in checks)
        if dtype in (torch.float32, torch.float64):  # a tolerance that is a rounding's, not a mistake's
            assert max(check.tolerance for check in checks) < 1e4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("traits", [MODERN, CLASSIC, GPT2], ids=["modern", "classic", "gpt2"])
def test_long_traces_pass(tiny, traits, dtype):
    model = tiny(**traits, n_ctx=512, n_layers=1, d_head=16, dtype=dtype)
    assert not failed(trace(model, random_ids(model.config, 512)))


@given(config=configs(), seed=st.integers(0, 99), dtype=st.sampled_from(DTYPES), data=st.data())
def test_any_good_trace_passes(config, seed, dtype, data):
    model = random_model(config, seed, dtype)
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    keep = data.draw(st.sampled_from(["all", "residual"]))
    t = trace(model, [random_ids(config, n, seed + i) for i, n in enumerate(lengths)], keep=keep)
    if config.causal and len(lengths) == 1:
        t = extend(model, t, random_ids(config, 3, seed))
    assert not [check.text for check in t.checks() if not check.ok]


def test_checks_of_every_pass_and_of_one_site(tiny):
    model = tiny(**MODERN)
    t = extend(model, trace(model, [1, 2, 3]), [4, 5])
    assert {check.at for check in t.checks()} == {0, 1}
    one = t.checks("blocks.1.attn.hook_pattern")
    assert {check.site for check in one} == {"blocks.1.attn.pattern"}
    assert [(check.name, check.at) for check in one] == [
        ("rows sum to 1", 0), ("nothing where none may attend", 0),
        ("rows sum to 1", 1), ("nothing where none may attend", 1),
    ]  # fmt: skip
    assert not t.checks("tokens")
    with pytest.raises(AddressError):
        t.checks("blocks.7.attn.pattern")


def test_checks_do_not_hold_n_by_n_tensors(tiny, monkeypatch):
    # Row block by row block, and the same verdict.
    model = tiny(**MODERN)
    t = trace(model, random_ids(model.config, 33))
    whole = [(check.name, check.site, check.ok) for check in t.checks()]
    monkeypatch.setattr("engine.checks.CELLS_AT_ONCE", 4 * 33 * 4)
    largest = []
    original = Trace.part

    def spy(self, name, at, window):
        largest.append(window.get("query", (0, 0)))
        return original(self, name, at, window)

    monkeypatch.setattr(Trace, "part", spy)
    assert [(check.name, check.site, check.ok) for check in t.checks()] == whole
    assert max(stop - start for start, stop in largest) == 4


# ------------------------------------------------------------------------------------------------ bad traces

SUM_OF_HEADS = "Σ heads (+ bias) = attn_out"


def add(value: float, *index: int) -> Callable[[torch.Tensor], object]:
    def edit(x: torch.Tensor) -> None:
        x[index] += value

    return edit


def put(value: float, *index: int) -> Callable[[torch.Tensor], object]:
    def edit(x: torch.Tensor) -> None:
        x[index] = value

    return edit


BAD = [
    # site, what is done to one number of it, the checks that have to fail at least
    ("attn.z", add(0.5, 0, 3, 1, 2), {"pattern @ v = z", SUM_OF_HEADS}),
    ("attn.z", put(0.0, 0, 3, 1), {"pattern @ v = z", SUM_OF_HEADS}),
    ("attn.q", add(1.0, 0, 5, 2, 1), {"pattern @ v = z"}),
    ("attn.cache_v", add(2.0, 0, 2, 0, 0), {"pattern @ v = z"}),
    ("attn.pattern", add(0.01, 0, 1, 4, 2), {"rows sum to 1"}),
    ("attn.pattern", add(1e-3, 0, 0, 0, 6), {"nothing where none may attend", "rows sum to 1"}),
    ("attn.pattern", add(1e-30, 0, 0, 0, 6), {"nothing where none may attend"}),  # exactly 0, or it fails
    ("attn.pattern", add(-1e-3, 0, 3, 1, 2), {"nothing where none may attend", "rows sum to 1"}),
    ("attn_out", add(0.5, 0, 2, 3), {SUM_OF_HEADS, "attn_out = blocks"}),
    ("attn.result", add(0.5, 0, 2, 1, 3), {SUM_OF_HEADS}),
    ("mlp_out", add(0.5, 0, 2, 3), {"mlp_out = blocks"}),
    ("resid_mid", add(0.5, 0, 6, 19), {"attn_out = blocks"}),
    ("resid_post", add(0.5, 0, 0, 0), {"mlp_out = blocks"}),
    ("attn.z", put(NAN, 0, 3, 1, 2), {"pattern @ v = z", "finite"}),
    ("attn.q", put(NAN, 0, 5, 2, 1), {"rows sum to 1", "pattern @ v = z", "finite"}),
    ("attn.pattern", put(NAN, 0, 1, 4, 2), {"rows sum to 1", "pattern @ v = z"}),
    ("attn.pattern", put(NAN, 0, 1, 4, 6), {"nothing where none may attend", "rows sum to 1", "pattern @ v = z"}),
    ("resid_post", put(NAN, 0, 0, 0), {"mlp_out = blocks", "finite"}),
    ("resid_post", put(INF, 0, 0, 0), {"mlp_out = blocks", "finite"}),
    ("resid_mid", put(-INF, 0, 0, 0), {"attn_out = blocks", "finite"}),
    ("attn_out", put(INF, 0, 2, 3), {SUM_OF_HEADS, "attn_out = blocks", "finite"}),
    ("attn.z", put(INF, 0, 3, 1, 2), {"pattern @ v = z", "finite"}),
    ("attn.cache_v", put(INF, 0, 0, 0, 0), {"pattern @ v = z", "finite"}),
    ("mlp.pre", put(INF, 0, 0, 0), {"finite"}),
]


@pytest.mark.parametrize(("site", "edit", "expected"), BAD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("traits", [MODERN, GPT2, CLASSIC], ids=["modern", "gpt2", "classic"])
def test_bad_traces_fail(tiny, traits, dtype, site, edit, expected):
    t = trace(tiny(**traits, dtype=dtype), random_ids(tiny(**traits).config, 8))
    # An edited q is seen by what is derived from it; a rotated one is the q that attention reads.
    if site == "attn.q" and "blocks.1.attn.rot_q" in t:
        site = "attn.rot_q"
    bad = corrupt(t, f"blocks.1.{site}", edit)
    names = failed(bad)
    for name in expected:
        assert any(name in found for found in names), f"{name} passed; failed: {names}"


def test_the_residual_sum_of_a_pre_norm_block_fails_too(tiny):
    for site in ("resid_pre", "attn_out", "mlp_out", "resid_post"):
        t = trace(tiny(**MODERN), [1, 2, 3])
        name = "resid_pre + attn_out + mlp_out = resid_post"
        assert name in {check.name for check in t.checks()}
        assert name in failed(corrupt(t, f"blocks.1.{site}", add(0.5, 0, 1, 2)))
    # In a post-norm block the norm stands between, so there is no such sum to check.
    assert name not in {check.name for check in trace(tiny(**CLASSIC), [1, 2, 3]).checks()}


def test_padding_that_is_attended_to_fails(tiny):
    t = trace(tiny(**MODERN), [[1, 2, 3, 4], [5, 6]])
    pattern = "blocks.0.attn.pattern"
    assert failed(corrupt(t, pattern, put(0.1, 1, 0, 3, 0))) >= {"nothing where none may attend"}  # a padded key
    assert failed(corrupt(t, pattern, put(0.1, 1, 0, 0, 0))) >= {"nothing where none may attend", "rows sum to 1"}
    assert "pattern @ v = z" in failed(corrupt(t, "blocks.0.attn.z", put(0.1, 1, 0, 0, 0)))  # a padded query


def test_a_fault_in_a_later_pass_is_found_there(tiny):
    model = tiny(**MODERN)
    t = extend(model, trace(model, [1, 2, 3]), [4, 5])
    bad = corrupt(t, "blocks.0.attn.z", add(0.5, 0, 1, 0, 0), at=1)
    assert {check.at for check in bad.checks() if not check.ok} == {1}
    # A stale key in the cache: pass 1 attends to another key than pass 0 wrote.
    stale = corrupt(t, "blocks.0.attn.cache_k", add(2.0, 0, 1, 0, 0), at=1)
    assert "pattern @ v = z" in failed(stale)


@pytest.mark.parametrize("figure", [NAN, INF, 2e-5])
def test_a_check_says_that_it_failed(figure):
    check = Check("rows sum to 1", "blocks.0.attn.pattern", 0, figure, 1e-5)
    assert not check.ok
    assert "exceeds" in check.text
    assert check.to_json()["ok"] is False


def test_a_check_says_its_figure_and_its_tolerance():
    check = Check("rows sum to 1", "blocks.0.attn.pattern", 1, 1.2e-7, 1e-5)
    assert check.ok
    assert check.text == "rows sum to 1: 1.2e-07 ≤ 1.0e-05"
    assert json.loads(json.dumps(check.to_json())) == {
        "name": "rows sum to 1", "site": "blocks.0.attn.pattern", "at": 1, "figure": 1.2e-7, "tolerance": 1e-5,
        "ok": True, "text": check.text,
    }  # fmt: skip
    assert not Check("x", "y", 0, INF, INF).ok  # no tolerance makes ∞ right


# ----------------------------------------------------------------------------------------- non-finite values


def test_the_first_non_finite_tensor_is_named(tiny):
    model = tiny(**MODERN)
    t = extend(model, trace(model, [1, 2, 3]), [4, 5])
    assert t.first_nonfinite() is None
    bad = corrupt(t, "blocks.0.mlp.post", put(NAN, 0, 1))
    assert bad.first_nonfinite() == ("blocks.0.mlp.post", 0, 26)
    later = corrupt(t, "blocks.1.resid_mid", put(INF, 0, 0, 0), at=1)
    assert later.first_nonfinite() == ("blocks.1.resid_mid", 1, 1)


def test_overflow_is_found_where_it_arises_and_spreads(tiny):
    # E19: weights that overflow float16 in the first FFN; everything behind is NaN and nothing is zero.
    model = tiny(**GPT2, dtype=torch.float16)
    weights = dict(model.weights)
    weights["blocks.0.mlp.up.weight"] = weights["blocks.0.mlp.up.weight"] * 3e4
    t = trace(type(model).from_weights(model.config, weights), random_ids(model.config, 6))
    site, at, count = t.first_nonfinite()
    assert (site, at) == ("blocks.0.mlp.pre", 0)
    assert count >= 1
    assert t["logits"].isnan().any()
    assert not t.top()
    assert any("finite" in name for name in failed(t))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_nan_stays_a_nan_to_the_logits(tiny, name, dtype):
    # E19: a NaN in one token's embedding is seen in its logits, and in those of every token that looks at it.
    model = tiny(**ARCHITECTURES[name], dtype=dtype)
    weights = {**model.weights, "embed.weight": model.weights["embed.weight"].clone()}
    weights["embed.weight"][5, 0] = NAN
    t = trace(type(model).from_weights(model.config, weights), [1, 2, 5, 3])
    assert t.first_nonfinite() == ("embed", 0, 1)
    sees = slice(2, None) if model.config.causal else slice(None)
    assert t["blocks.0.attn.z"][0, sees].isnan().all()
    logits = t["logits"][0]
    assert logits[sees].isnan().any(-1).all()
    assert not t.top()
    assert t.top(pos=2) == []


@pytest.mark.parametrize("value", [NAN, INF])
def test_no_candidates_from_a_row_that_is_not_finite(tiny, value):
    t = trace(tiny(**MODERN, dtype=torch.float32), [1, 2, 3])
    bad = corrupt(t, "logits", put(value, 0, 2, 7))
    assert bad.top() == []
    assert len(bad.top(pos=1)) == 5  # the other rows are as good as before
    fewer = corrupt(t, "logits", put(-INF, 0, 2, 7))  # a token that is ruled out is no fault
    assert len(fewer.top(37)) == 37
    assert fewer.top(37)[-1].prob == 0


def test_candidates_are_the_most_probable_tokens(tiny):
    for traits in (MODERN, CLASSIC):
        t = trace(tiny(**traits), [[1, 2, 3], [4, 5]])
        for row in (0, 1):
            logits = t["logits"][row, -1].tolist()
            total = math.fsum(map(math.exp, logits))
            best = sorted(range(37), key=lambda i: -logits[i])
            top = t.top(4, row=row)
            assert [c.id for c in top] == best[:4]
            assert [c.prob for c in top] == pytest.approx([math.exp(logits[i]) / total for i in best[:4]])
            assert [c.logit for c in top] == [logits[i] for i in best[:4]]
            assert top[0].label == f"‹id {best[0]}›"
        assert len(t.top(1000)) == 37
        assert t.top(1, pos=0)[0].id == int(t["logits"][0, 0].argmax())

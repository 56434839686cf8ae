"""Two traces side by side, an axis taken together, the difference of two windows, and derived pictures, as an app asks.

What is right is plain torch on the whole tensors in float64.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import GEMMA, MODERN, TRANSLATOR

from engine import Model, extend, trace, windows
from engine.browse import Session, summary
from engine.errors import AddressError, Cancelled, LayerstepError
from engine.service import Channel, receive
from engine.windows import Plane, values

IDS, OTHER = [3, 1, 4, 1, 5, 9, 2, 6], [3, 1, 4, 7, 7]
SITES = {
    "blocks.0.attn.pattern": "bhqk", "blocks.1.attn.masked": "bhqk", "blocks.1.attn.z": "bphd",
    "blocks.0.resid_mid": "bpd",
}  # fmt: skip
MID = "blocks.0.resid_mid[b=0]"


def quiet(done: int, total: int, what: str) -> None:
    """A watch that lets everything go on."""


def both(tiny: Any, traits: dict[str, Any] = MODERN) -> Session:
    """Two prompts in one model, a long one and a short one."""
    model = tiny(**traits, dtype=torch.float32)
    session = Session()
    session.show(trace(model, IDS))
    session.show(trace(model, OTHER), "other")
    return session


def array(answer: tuple[dict, memoryview]) -> torch.Tensor:
    """The numbers of a window."""
    told, payload = answer
    return torch.from_numpy(np.frombuffer(payload, "<f4").reshape(told["shape"]).copy())


def equal(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected.to(torch.float32), rtol=1e-6, atol=1e-6, equal_nan=True)


def assert_told(stats: dict, whole: torch.Tensor, masked: int) -> None:
    """The statistics are those of all these numbers."""
    finite = whole[whole.isfinite()].double()
    assert (stats["count"], stats["masked"]) == (finite.numel(), masked)
    assert stats["nonfinite"] == whole.numel() - finite.numel() - masked
    if finite.numel():
        expected = [finite.min(), finite.max(), finite.mean(), finite.std(correction=0), finite.norm()]
        got = torch.tensor([stats[key] for key in ("min", "max", "mean", "std", "norm")], dtype=torch.float64)
        torch.testing.assert_close(got, torch.stack(expected).double(), rtol=1e-5, atol=1e-6)


def spans(size: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(0, size), st.integers(0, size)).map(lambda ends: (min(ends), max(ends)))


# -- an axis taken together --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [5, 37, 10**6])
@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("site", SITES)
@settings(max_examples=15)
@given(data=st.data())
def test_a_part_of_a_reduced_plane_is_that_part_of_torchs_own(tiny, site, how, limit, data):
    session = both(tiny)
    whole = session.trace[site].double()[0]
    axes = SITES[site][1:]
    axis = data.draw(st.sampled_from([a for a in axes if a != "q"]))
    dim = axes.index(axis)
    reduced = whole.mean(dim) if how == "mean" else whole.amax(dim)
    part = [data.draw(spans(size)) for size in reduced.shape]
    index = ",".join(f"{a}={x}:{y}" for a, (x, y) in zip(axes.replace(axis, ""), part, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "CELLS_AT_ONCE", limit)
        answer = session.window(f"{site}[b=0,{index}]", {"over": {axis: how}})
    equal(array(answer), reduced[tuple(slice(*ends) for ends in part)])
    if site.endswith("pattern") and axis == "h":  # a masked weight is 0, and is counted as its score would be
        reduced = reduced.masked_fill(session.trace[site.replace("pattern", "masked")][0, 0] == -math.inf, -math.inf)
    assert_told(answer[0]["stats"], reduced, int((reduced == -math.inf).sum()))
    assert answer[0]["dtype"] == "float32"


@pytest.mark.parametrize("site", ["blocks.0.attn.masked", "blocks.1.attn.pattern", "blocks.0.attn.cache_k"])
def test_passes_together_are_reduced_and_taken_away_as_one(tiny, site):
    model = tiny(**GEMMA, dtype=torch.float32)
    session = Session()
    session.show(extend(model, extend(model, trace(model, IDS), [5]), [9, 2]))
    whole = session.trace[site][0].double()
    axis, letter, dim = ("kv_head", "g", 1) if "cache" in site else ("head", "h", 0)
    equal(array(session.window(f"{site}[b=0]", {"over": {axis: "mean"}})), whole.mean(dim))
    told = session.window(f"{site}[b=0,{letter}=0]", {"minus": {"address": f"{site}[b=0,{letter}=1]"}})
    expected = minus(whole.select(dim, 0), whole.select(dim, 1))
    if site.endswith("pattern"):  # its window hides keys, too
        expected[session.trace[site.replace("pattern", "masked")][0, 0] == -math.inf] = -math.inf
    equal(array(told), expected)
    assert told[0]["stats"]["nonfinite"] == 0


def test_reducing_reads_no_more_than_a_block_at_a_time(tiny, monkeypatch):
    session = both(tiny)
    monkeypatch.setattr(windows, "CELLS_AT_ONCE", 16)  # two rows of keys
    sizes = []
    read = type(session.trace).__getitem__
    monkeypatch.setattr(
        type(session.trace), "__getitem__", lambda self, a: sizes.append((x := read(self, a)).numel()) or x
    )
    plane = Plane.find(session.trace, "blocks.0.attn.pattern[b=0]", {"head": "mean"})
    assert values(plane).shape == (8, 8)
    assert max(sizes) <= 16
    assert sum(sizes) == 4 * 8 * 8


def test_what_is_not_finite_stays_so_when_heads_are_taken_together(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    name = next(name for name in model.weights if name.endswith("0.attn.q.weight"))
    broken = dict(model.weights)
    broken[name] = broken[name].clone()
    broken[name].view(4, -1)[2] = math.nan  # the weights of head 2
    session = Session()
    session.show(trace(Model.from_weights(model.config, broken), IDS))
    whole = session.trace["blocks.0.attn.masked"][0].double()
    for how in ("mean", "max"):
        got = array(session.window("blocks.0.attn.masked[b=0]", {"over": {"h": how}}))
        equal(got, whole.mean(0) if how == "mean" else whole.amax(0))
        assert bool(got.diagonal().isnan().all())
        assert got[0, 1] == -math.inf


@pytest.mark.parametrize(
    ("address", "over", "words"),
    [
        ("blocks.0.attn.pattern[b=0,h=1]", {"head": "mean"}, "chooses along head"),
        ("blocks.0.attn.pattern[b=0]", {"expert": "mean"}, "no axis 'expert'"),
        ("blocks.0.attn.pattern[b=0]", {"head": "median"}, "mean or max"),
        ("blocks.0.attn.pattern[b=0]", {"head": "mean", "query": "max"}, "mean or max"),
        ("blocks.0.attn.pattern[b=0]", "\x1b[31mhead", "␛[31mhead reduces no axis"),
        ("blocks.0.attn.past_k", {"past": "max"}, "has no past"),
    ],
)
def test_a_reduction_that_there_is_none_of_is_one_line(tiny, address, over, words):
    with pytest.raises(AddressError) as refused:
        both(tiny).window(address, {"over": over})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


# -- one window minus another ------------------------------------------------------------------------------------


def minus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x − y over the part both have; masked in both stays masked."""
    x, y = x[: y.shape[0], : y.shape[1]].double(), y[: x.shape[0], : x.shape[1]].double()
    return torch.where((x == -math.inf) & (y == -math.inf), -math.inf, x - y)


@pytest.mark.parametrize("limit", [7, 10**6])
@pytest.mark.parametrize(("site", "which"), [("pattern", "main"), ("masked", "other"), ("pattern", "other")])
@settings(max_examples=15)
@given(data=st.data())
def test_a_part_of_a_difference_is_that_part_of_torchs_own(tiny, site, which, limit, data):
    session = both(tiny)
    a, b = f"blocks.0.attn.{site}", f"blocks.1.attn.{site}"
    x, y = session.trace[a][0, 1], session.trace_of({"trace": which})[b][0, 2]
    whole = minus(x, y)
    part = [data.draw(spans(size)) for size in x.shape]
    index = ",".join(f"{axis}={start}:{stop}" for axis, (start, stop) in zip("qk", part, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "CELLS_AT_ONCE", limit)
        answer = session.window(f"{a}[b=0,h=1,{index}]", {"minus": {"address": f"{b}[b=0,h=2]", "trace": which}})
    scores = a.replace("pattern", "masked"), b.replace("pattern", "masked")
    masked = minus(session.trace[scores[0]][0, 1], session.trace_of({"trace": which})[scores[1]][0, 2]) == -math.inf
    whole = whole.masked_fill(masked, -math.inf)
    equal(array(answer), whole[tuple(slice(*ends) for ends in part)])
    assert answer[0]["common"] == list(whole.shape)
    assert_told(answer[0]["stats"], whole, int(masked.sum()))


def test_the_range_of_the_second_begins_where_that_of_the_first_does(tiny):
    session = both(tiny)
    x = session.trace["blocks.0.resid_mid"][0].double()
    told = session.window("blocks.0.resid_mid[b=0,p=2:5]", {"minus": {"address": "blocks.0.resid_mid[b=0,p=1:9]"}})
    equal(array(told), x[2:5] - x[1:4])
    assert told[0]["common"] == [7, x.shape[1]]  # every position that has one before it
    assert_told(told[0]["stats"], x[1:] - x[:-1], 0)


def test_a_part_that_the_second_does_not_reach_is_empty(tiny):
    session = both(tiny)
    beside = {"address": "blocks.0.resid_mid[b=0,p=6:8]", "trace": "other"}
    told = session.window("blocks.0.resid_mid[b=0,p=6:8]", {"minus": beside})[0]
    assert (told["shape"][0], told["common"][0]) == (0, 5)


def test_a_head_beside_all_of_them(tiny):
    session = both(tiny)
    x = session.trace["blocks.1.attn.pattern"][0].double()
    later = torch.ones_like(x[0]).triu(1).bool()
    beside = {"address": "blocks.1.attn.pattern[b=0]", "over": {"head": "mean"}}
    told = session.window("blocks.1.attn.pattern[b=0,h=2]", {"minus": beside})
    equal(array(told), (x[2] - x.mean(0)).masked_fill(later, -math.inf))
    over = {"over": {"head": "max"}, "minus": {"address": "blocks.0.attn.pattern[b=0]"}}
    y = session.trace["blocks.0.attn.pattern"][0].double()
    equal(
        array(session.window("blocks.1.attn.pattern[b=0]", over)), (x.amax(0) - y.amax(0)).masked_fill(later, -math.inf)
    )


def test_a_cell_that_is_masked_in_one_alone_is_told_as_infinite(tiny):
    session = both(tiny, GEMMA)  # block 0 looks back 3 positions, block 1 all the way
    near, far = "blocks.0.attn.masked[b=0,h=0]", "blocks.1.attn.masked[b=0,h=0]"
    x = array(session.window(near, {"minus": {"address": far}}))
    assert x[7, 0] == -math.inf  # out of the window in block 0
    assert x[0, 7] == -math.inf  # the future, for both
    y = session.window(far, {"minus": {"address": near}})
    assert array(y)[7, 0] == math.inf
    assert y[0]["stats"]["nonfinite"] == int((array(y) == math.inf).sum()) > 0
    assert y[0]["stats"]["masked"] == 28


def test_planes_of_an_encoder_and_a_decoder_have_a_difference(tiny):
    session = Session()
    session.show(trace(tiny(**TRANSLATOR), IDS, target=OTHER))
    x = session.trace["encoder.blocks.0.attn.pattern"][0, 0]
    y = session.trace["blocks.0.attn.pattern"][0, 0]
    beside = {"minus": {"address": "blocks.0.attn.pattern[b=0,h=0]"}}
    equal(array(session.window("encoder.blocks.0.attn.pattern[b=0,h=0]", beside)), minus(x, y))


@pytest.mark.parametrize(
    ("address", "other", "words"),
    [
        (
            "blocks.0.attn.pattern[b=0,h=0]",
            "blocks.0.attn.z[b=0,h=0]",
            "over query × key, and blocks.0.attn.z",
        ),
        ("blocks.0.attn.pattern[b=0,h=0]", "blocks.0.attn.pattern[b=0,h=0,q=1]", "[b=0,h=0,q=1] over key"),
        ("blocks.0.resid_mid[b=0,p=0]", "blocks.0.resid_mid[b=0,p=0,d=0]", "a single number"),
        ("blocks.0.resid_mid[b=0,p=0:1]", "blocks.0.resid_mid[b=0,p=5:5]", ""),
        ("blocks.0.resid_mid[b=0,p=7:8]", "blocks.9.resid_mid[b=0]", "there is no site"),
        ("blocks.0.resid_mid[b=0]", "blocks.0.resid_mid[b=0]@3", "no pass 3"),
        ("blocks.0.resid_mid[b=0]", "nonsense!", "is not an address"),
    ],
)
def test_a_difference_that_there_is_none_of_is_one_line(tiny, address, other, words):
    session = both(tiny)
    if not words:  # an empty range of the second leaves an empty part
        assert session.window(address, {"minus": {"address": other}})[0]["shape"][0] == 0
        return
    with pytest.raises(AddressError) as refused:
        session.window(address, {"minus": {"address": other}})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_statistics_are_read_once_for_a_plane_and_anew_for_another_trace(tiny, monkeypatch):
    session = both(tiny)
    params = {"minus": {"address": "blocks.0.resid_mid[b=0]", "trace": "other"}}
    first = session.window("blocks.0.resid_mid[b=0,p=0:2]", params)[0]["stats"]
    with monkeypatch.context() as patch:
        patch.setattr("engine.windows.statistics", lambda *_: pytest.fail("it was read again"))
        assert session.window("blocks.0.resid_mid[b=0,p=1:4]", params)[0]["stats"] == first
    session.show(session.trace, "other")
    zero = session.window("blocks.0.resid_mid[b=0,p=1:4]", params)[0]["stats"]
    assert (zero["min"], zero["max"], zero["norm"]) == (0, 0, 0)


def test_a_window_can_be_cancelled_and_asked_for_again(tiny):
    session = both(tiny)

    def stop(done: int, total: int, what: str) -> None:
        raise Cancelled("cancelled")

    params = {"over": {"head": "mean"}}
    with pytest.raises(Cancelled):
        session.window("blocks.0.attn.pattern[b=0]", params, stop)
    whole = session.trace["blocks.0.attn.pattern"][0].double().mean(0)
    equal(array(session.window("blocks.0.attn.pattern[b=0]", params, quiet)), whole)


# -- two traces --------------------------------------------------------------------------------------------------


@pytest.fixture
def session() -> Session:
    """The modern sample with a prompt, and the classic one with another beside it."""
    session = Session()
    session.open({"model": "modern", "prompt": "The keys to"}, quiet)
    session.open({"model": "classic", "prompt": "The disk was full", "trace": "other"}, quiet)
    return session


def test_each_trace_answers_for_itself(session, tmp_path: Path):
    a, b = session.trace, session.trace_of({"trace": "other"})
    assert (a.config.name, b.config.name) == ("modern", "classic")
    address = "blocks.1.attn.pattern[b=0,h=0]"
    equal(array(session.window(address, {})), a["blocks.1.attn.pattern"][0, 0])
    equal(array(session.window(address, {"trace": "other"})), b["blocks.1.attn.pattern"][0, 0])
    for trace_, which in ((a, "main"), (b, "other")):
        expected = [c.id for c in trace_.top(3)]
        assert [row["id"] for row in session.top("logits[b=0]", 3, {"trace": which})["rows"]] == expected
        d_vocab, d_model = trace_.weights[trace_.program.step("logits").params[0]].shape
        told = session.top("logits[b=0]", 1, {"trace": which})["numbers"]
        assert f"[{trace_.length} × {d_model}] · [{d_model} × {d_vocab}]" in told
        names = {check.name for check in trace_.checks("blocks.0.attn.pattern")}
        rows = session.checks("blocks.0.attn.pattern", quiet, None, which)["rows"]
        assert {row["name"] for row in rows} == names
        scores = session.top("logits[b=0]", 1, {"trace": which, "temperature": 0.5})["rows"][0]["scores_prob"]
        assert scores > session.top("logits[b=0]", 1, {"trace": which})["rows"][0]["prob"]
    assert session.save(tmp_path / "t.safetensors", False)["size"] > 0
    assert session.open({"file": str(tmp_path / "t.safetensors"), "trace": "other"}, quiet)["prompt"] == a.prompt
    assert session.trace is a


def test_generating_goes_on_with_the_main_trace_alone(session):
    before, length = session.trace_of({"trace": "other"}), session.trace.length
    told = session.generate({"n": 2}, quiet)
    assert len(told["generated"]["tokens"]) == 2
    assert session.trace.length == length + 2
    assert session.trace_of({"trace": "other"}) is before


def test_a_model_is_loaded_once_for_both(session, monkeypatch):
    main = session.slots["main"].loaded
    monkeypatch.setattr("engine.browse.load_model", lambda *_, **__: pytest.fail("it was loaded again"))
    session.open({"model": "modern", "prompt": "Another", "trace": "other"}, quiet)
    assert session.slots["other"].loaded is main
    assert session.trace_of({"trace": "other"}).weights is session.trace.weights
    session.close_other()
    assert session.model is main[1]


def test_what_was_open_stays_where_another_fails_to_open(session):
    a, b = session.trace, session.trace_of({"trace": "other"})
    for which in ("main", "other"):
        for wrong in (
            {"model": "/no/such"},
            {"model": "classic", "prompt": [99999]},
            {"file": "/no/such.safetensors"},
        ):
            with pytest.raises(LayerstepError):
                session.open({"prompt": "a", **wrong, "trace": which}, quiet)
            assert (session.trace, session.trace_of({"trace": "other"})) == (a, b)
    assert session.generate({"n": 1}, quiet)["generated"]["tokens"]  # with the model that it was recorded with


def test_what_is_closed_or_unknown_is_one_line(session):
    session.close_other()
    session.close_other()
    for which, words in (("other", "no other trace"), ("third", "'third'"), (3, "'3'")):
        for ask in (
            lambda which: session.window("tokens", {"trace": which}),
            lambda which: session.window("tokens", {"minus": {"address": "tokens", "trace": which}}),
            lambda which: session.top("logits", 3, {"trace": which}),
            lambda which: session.checks(None, quiet, None, which),
            lambda which: session.look({"name": "norms", "address": "tokens", "trace": which}),
        ):
            with pytest.raises(LayerstepError, match=words):
                ask(which)
    with pytest.raises(LayerstepError, match="no trace is open"):
        Session().window("tokens")


def test_passes_of_the_other_are_its_own(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    session = Session()
    session.show(trace(model, IDS))
    session.show(extend(model, trace(model, OTHER), [5, 9]), "other")
    told = session.window("blocks.0.attn.q[b=0,h=0]@1", {"trace": "other"})[0]
    assert (told["origin"], told["shape"][0]) == ({"pos": 5}, 2)
    with pytest.raises(AddressError, match="no pass 1"):
        session.window("blocks.0.attn.q[b=0,h=0]@1")


# -- pictures that are derived -----------------------------------------------------------------------------------


def test_a_look_is_the_engines_own(tiny):
    session = both(tiny)
    for which in ("main", "other"):
        ask = {"name": "norms", "address": "blocks.0.resid_pre[b=0,p=1:4]", "trace": which}
        told, payload = session.look(ask, quiet)
        x = session.trace_of({"trace": which})["blocks.0.resid_mid"][0, 1:4]
        got = torch.from_numpy(np.frombuffer(payload, "<f4").reshape(told["shape"]).copy())
        equal(got[:, told["cols"]["sites"].index("blocks.0.resid_mid")], x.double().norm(dim=-1))
    tiles = session.look({"name": "heads", "address": "blocks.0.attn.pattern[b=0]", "size": [4, 4]}, quiet)[0]
    assert tiles["shape"] == [2 + 4, 4, 4]
    few = session.look({"name": "neighbours", "address": "embed[b=0,p=2]", "k": 3}, quiet)
    assert (len(few[0]["rows"]), few[1]) == (3, b"")
    assert len(session.look({"name": "histogram", "address": "embed[b=0]", "bins": 7}, quiet)[0]["counts"]) == 7


@pytest.mark.parametrize("name", ["lens", "heads", "layers", "norms"])
def test_a_cancelled_look_leaves_all_usable(tiny, name):
    session = both(tiny)
    site = "blocks.0.attn.pattern[b=0]" if name in ("heads", "layers") else "blocks.0.resid_pre[b=0]"
    expected = both(tiny).look({"name": name, "address": site}, quiet)

    def stop(done: int, total: int, what: str) -> None:
        if name == "heads" or done:  # of the others something was read already
            raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        session.look({"name": name, "address": site}, stop)
    again = session.look({"name": name, "address": site}, quiet)
    assert again[0]["stats" if "stats" in expected[0] else "tiles"]
    assert (again[0]["shape"], bytes(again[1])) == (expected[0]["shape"], bytes(expected[1]))
    assert session.window("blocks.0.attn.pattern[b=0]", {"over": {"head": "max"}})[0]["stats"]["count"] == 36


def test_the_summary_says_what_each_step_can_be_looked_at_by(tiny):
    told = json.loads(json.dumps(summary(trace(tiny(**MODERN), IDS)), allow_nan=False))
    of = {row["site"]: row["looks"] for row in told["steps"]}
    assert {"lens", "norms"} <= set(of["blocks.0.resid_pre"])
    assert {"heads", "layers", "mean", "max", "arcs", "text"} <= set(of["blocks.1.attn.pattern"])
    assert "arcs" not in of["blocks.1.attn.scores"]
    assert (of["tokens"], of["logits"]) == ([], [])
    assert told["depth"][0] == "blocks.0.resid_pre"
    assert told["depth"][-1] == "blocks.1.resid_post"
    assert all(site in of for site in told["depth"])
    assert "origins" not in told


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"name": "arcs", "address": "blocks.0.attn.pattern"}, "window"),
        ({"name": "\x1b[1m", "address": "embed"}, "no look"),
        ({"name": "lens", "address": "blocks.0.attn.q"}, "no look 'lens'"),
        ({"name": "lens", "address": "blocks.9.resid_pre"}, "no site"),
        ({"name": "neighbours", "address": "embed[b=0]"}, "one token"),
    ],
)
def test_a_look_that_there_is_none_of_is_one_line(tiny, params, words):
    with pytest.raises(AddressError, match=words) as refused:
        both(tiny).look(params, quiet)
    assert "\n" not in str(refused.value)


def test_looks_and_two_traces_over_the_pipe():
    """Frames: a second trace, a difference, a look with its numbers, and a look that is cancelled while it waits."""
    process = subprocess.Popen(
        [sys.executable, "-m", "engine.service"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    requests = [
        ("open", {"model": "modern", "prompt": "The keys"}),
        ("open", {"model": "modern", "prompt": "The disk was", "trace": "other"}),
        ("window", {"address": MID, "minus": {"address": MID, "trace": "other"}}),
        ("look", {"name": "lens", "address": "blocks.0.resid_pre[b=0]", "trace": "other"}),
        ("look", {"name": "layers", "address": "blocks.0.attn.pattern[b=0]"}),
        ("close_other", {}),
        ("look", {"name": "norms", "address": "blocks.0.resid_pre[b=0]", "trace": "other"}),
    ]  # fmt: skip
    try:
        channel = Channel(process.stdin)
        for i, (method, params) in enumerate(requests):
            channel.send({"id": i, "run": 1, "method": method, "params": params})
        channel.send({"id": 99, "run": 1, "method": "cancel", "params": {"id": 4}})
        answers: dict[int, tuple[dict, bytes]] = {}
        while len(answers) < len(requests):
            header = receive(process.stdout)
            assert header is not None
            payload = process.stdout.read(header.get("bytes", 0))
            if "ok" in header:
                answers[header["id"]] = header, payload
    finally:
        process.kill()
        process.communicate()
    assert [answers[i][0]["ok"] for i in range(len(requests))] == [True, True, True, True, False, True, False]
    told, payload = answers[2]
    assert told["result"]["common"][0] == 3
    assert len(payload) == 4 * math.prod(told["result"]["shape"])
    assert np.abs(np.frombuffer(payload, "<f4")[:128]).max() < 1e-5  # both begin with the same token
    lens, payload = answers[3]
    assert len(payload) == 4 * math.prod(lens["result"]["shape"])
    assert len(lens["result"]["texts"]) == 4
    assert answers[4][0]["error"]["kind"] == "Cancelled"
    assert "no other trace" in answers[6][0]["error"]["message"]

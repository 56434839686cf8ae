"""``layerstep show --view``: what the app shows as text and JSON, with the engine's numbers."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from pathlib import Path

import pytest
import torch
from calls import Call, write_model
from tiny_bert import write_bert
from tiny_t5 import write_t5

import engine
from engine import Trace, extend, load_model, trace
from engine.analysis import looks
from engine.cli.views import shown
from engine.config import LayerKind, Rotary
from engine.jsontext import for_anyone
from engine.pictures import CHAIN, Wish, views_of
from engine.summary import summary
from engine.text import cells, display
from engine.views import LOOKS
from tui.state.naming import explained
from tui.state.trace import Trace as Seen
from tui.state.views import Plane
from tui.state.views import views_of as views_in_app

PROMPT = "The server crashed because the disk was full"
HOSTILE = "a\x1b[31m[b]\u202e漢字\u200d e\u0301"
PATTERN = "blocks.1.attn.pattern"


@pytest.fixture(scope="module")
def recorded(tiny: Path) -> Trace:
    return trace(load_model(tiny), PROMPT)


@pytest.fixture(scope="module")
def kinds(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    """A trace of each kind of model: causal in two ways, an encoder, an encoder-decoder; a hostile prompt."""
    folder = tmp_path_factory.mktemp("kinds")
    learned = {"positions": "learned", "norm": "layer", "gated": False, "activation": "gelu_tanh", "n_kv_heads": None}
    models = {
        "modern": tiny,
        "classic": write_model(folder / "classic", **learned),
        "encoder": write_bert(folder / "bert"),
        "translator": write_t5(folder / "t5"),
    }
    prompt = {"modern": HOSTILE, "classic": PROMPT, "encoder": "the disk", "translator": "a b"}
    return {name: trace(load_model(path, device="cpu"), prompt[name]) for name, path in models.items()}


KINDS = ("modern", "classic", "encoder", "translator")


def numbers(values):
    """The floats of our JSON."""
    return [numbers(v) for v in values] if isinstance(values, list) else float(values)


def equal(got, expected: torch.Tensor) -> None:
    got = torch.tensor(numbers(got), dtype=torch.float64).reshape(expected.shape)
    torch.testing.assert_close(got, expected.double(), rtol=1e-6, atol=1e-6, equal_nan=True)


def rows_of(text: str) -> list[list[str]]:
    """The lines of the table, cut where two spaces are."""
    table = text.split("\n\n")[1].splitlines()
    return [re.split(r"\s{2,}", line.strip()) for line in table]


# -- which views there are ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_has_the_views_of_the_app(kinds, kind):
    one = kinds[kind]
    seen = Seen.read(json.loads(json.dumps(summary(one), allow_nan=False)))
    for step in seen.steps:
        site = one.program.site(step.site)
        mine = [view.name for view in views_of(one, site, 0) if view.name != "chain"]  # a panel of its own there
        assert sorted(mine) == sorted(view.name for view in views_in_app(step)), step.site
        assert mine[0] == views_in_app(step)[0].name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [40, 100])
def test_every_view_of_every_site_has_a_text_and_json(kinds, kind, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    one, seen = kinds[kind], set()
    for site in (site for site in one.program.sites if "past" not in site.axes):
        for view in views_of(one, site, 0):
            picture = shown(Wish(one, f"{site.name}@0", view.name))
            told, lines = picture.to_json(), list(picture.lines())
            seen.add(view.name)
            assert told["view"] == view.name
            assert json.loads(for_anyone(told))
            assert len(lines) >= 3, (site.name, view.name)
            table = "\n".join(lines).split("\n\n")[1].splitlines()
            assert all(cells(display(line)) <= width for line in table), (site.name, view.name)
            assert lines[0].startswith(site.name)
    expected = {"heatmap", "row", "tokens", "histogram", "heads", "layers", "arcs", "text", "mean", "max", "chain"}
    more = {
        "modern": {"lens", "norms", "added", "neighbours", "neurons", "rotation", "curves", "ranked", "all heads"},
        "classic": {"lens", "norms", "added", "neighbours", "neurons", "curves", "ranked", "all heads"},
        "encoder": {"norms", "added", "neighbours"},
        "translator": {"norms", "added", "neighbours", "ranked"},
    }
    assert seen >= expected | more[kind]


@pytest.mark.parametrize("hidden", ["\x1b[2J", "\u202eheads", "[red]", ""])
def test_a_view_that_there_is_none_of_names_those_there_are(call: Call, tiny, hidden):
    done = call("show", PROMPT, "--model", tiny, "--at", "blocks.0.attn.q", "--view", hidden)
    assert (done.code, done.out) == (1, "")
    assert "it has heatmap, row, all heads, histogram" in done.err
    assert (done.err.count("\n"), done.err.rstrip().isprintable()) == (1, True)


# -- the numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "view", "of"),
    [
        (f"{PATTERN}[h=2]", "heatmap", lambda t: t[PATTERN][0, 2]),
        (f"{PATTERN}[h=2,q=1:4,k=0:3]", "heatmap", lambda t: t[PATTERN][0, 2, 1:4, 0:3]),
        (PATTERN, "heatmap", lambda t: t[PATTERN][0, 0]),
        (f"{PATTERN}[h=2,q=3]", "row", lambda t: t[PATTERN][0, 2, 3]),
        (f"{PATTERN}[h=2]", "text", lambda t: t[PATTERN][0, 2, -1]),
        (f"{PATTERN}[h=2]", "arcs", lambda t: t[PATTERN][0, 2]),
        (PATTERN, "mean", lambda t: t[PATTERN][0].double().mean(0)),
        ("blocks.1.attn.masked", "max", lambda t: t["blocks.1.attn.masked"][0].amax(0)),
        ("blocks.0.attn.q[p=2]", "all-heads", lambda t: t["blocks.0.attn.q"][0, 2]),
        ("rotary_cos", "curves", lambda t: t["rotary_cos"][0]),
        ("tokens", "tokens", lambda t: t["tokens"][0]),
        ("logits", "ranked", lambda t: t["logits"][0, -1]),
    ],
)
def test_json_of_a_window_is_the_tensors_own(call: Call, tiny, recorded, address, view, of):
    done = call("show", PROMPT, "--model", tiny, "--at", address, "--view", view, "--json")
    assert (done.code, done.err) == (0, "")
    equal(done.json["values"], of(recorded))


@pytest.mark.parametrize(
    ("address", "view", "at"),
    [
        ("blocks.0.resid_pre[p=2:5]", "lens", "blocks.0.resid_pre[b=0,p=2:5]"),
        ("blocks.0.resid_pre[p=2]", "norms", "blocks.0.resid_pre[b=0,p=2:3]"),
        ("blocks.1.mlp_out", "added", "blocks.1.mlp_out[b=0]"),
        (PATTERN, "heads", f"{PATTERN}[b=0]"),
        ("blocks.0.attn.scores", "layers", "blocks.0.attn.scores[b=0]"),
        ("embed[p=1]", "neighbours", "embed[b=0,p=1]"),
        ("blocks.0.mlp.post", "neurons", "blocks.0.mlp.post[b=0,p=-1]"),
        ("blocks.0.attn.rot_q[h=1,p=2,d=3]", "rotation", "blocks.0.attn.rot_q[b=0,p=2,h=1,d=3]"),
        (f"{PATTERN}[h=1,q=3,k=2]", "chain", f"{PATTERN}[b=0,h=1,q=3,k=2]"),
        ("blocks.0.attn.masked[h=1]", "histogram", "blocks.0.attn.masked[h=1]"),
    ],
)
def test_json_of_a_look_is_the_engines(call: Call, tiny, address, view, at):
    done = call("show", PROMPT, "--model", tiny, "--at", address, "--view", view, "--json")
    assert (done.code, done.err) == (0, "")
    told, tensor = looks.look(trace(load_model(tiny), PROMPT), view, at)
    for key in ("look", "kind", "title", "formula", "story", "numbers"):
        assert done.json[key] == told[key]
    if tensor is not None:
        equal(done.json["values"], tensor)
    same = {key: value for key, value in told.items() if key not in ("address", "stats")}
    expected = json.loads(for_anyone(same))
    assert {key: done.json[key] for key in same} == expected


def test_bars_are_as_long_as_the_numbers_are_large(call: Call, tiny, recorded):
    done = call("show", PROMPT, "--model", tiny, "--at", "blocks.1.resid_post[p=1]", "--view", "row", "--full")
    values = recorded["blocks.1.resid_post"][0, 1].tolist()
    rows = rows_of(done.out)[1:]
    assert len(rows) == len(values)
    most = max(map(abs, values))
    longest = max(len(row[-1]) for row in rows)
    for row, value in zip(rows, values, strict=True):
        assert float(row[1]) == pytest.approx(value, abs=most / 1000)
        drawn = row[2] if len(row) > 2 else ""
        assert set(drawn) <= ({"#"} if value > 0 else {"-"})
        assert abs(len(drawn) - longest * abs(value) / most) <= 1


def test_arcs_are_the_strongest_keys_of_each_query(call: Call, tiny, recorded):
    done = call("show", PROMPT, "--model", tiny, "--at", f"{PATTERN}[h=1]", "--view", "arcs", "--full")
    weights = recorded[PATTERN][0, 1]
    labels = [display(token.label) for token in recorded.tokens[0]]
    lines = done.out.split("\n\n")[1].splitlines()[1:]
    assert len(lines) == len(labels)
    for i, line in enumerate(lines):
        best = weights[i].topk(min(3, i + 1)).indices.tolist()
        right = line.split("→")[1]
        places = [right.index(f" {j} {labels[j]}") for j in best]
        assert places == sorted(places)
        assert len(re.findall(r"\d\.\d+|\de-\d+|\d\.\d+e-\d+| 1$", right)) >= len(best)


def test_text_has_each_token_with_its_weight(call: Call, tiny, recorded):
    done = call("show", PROMPT, "--model", tiny, "--at", f"{PATTERN}[h=1,q=3]", "--view", "text")
    body = done.out.split("\n\n")[1].splitlines()
    assert body[0] == f"query 3 {recorded.tokens[0][3].label}"
    words = " | ".join(body[1:]).split(" | ")
    values = recorded[PATTERN][0, 1, 3].tolist()
    assert [word.rsplit(" ", 1)[0] for word in words] == [token.label for token in recorded.tokens[0]]
    for word, value in zip(words, values, strict=True):
        assert float(word.rsplit(" ", 1)[1]) == pytest.approx(value, abs=1e-3)


def test_heads_have_their_entropy(call: Call, tiny, recorded):
    done = call("show", PROMPT, "--model", tiny, "--at", PATTERN, "--view", "heads")
    weights = recorded[PATTERN][0].double()
    bits = (-weights * weights.clamp_min(1e-300).log2()).sum(-1).mean(-1).tolist()
    rows = {row[0]: float(row[2]) for row in rows_of(done.out)[1:] if row[0].startswith("head")}
    assert rows == {f"head {h}": pytest.approx(x, rel=0.01) for h, x in enumerate(bits)}


def test_candidates_have_their_probability(call: Call, tiny, recorded):
    done = call("show", PROMPT, "--model", tiny, "--at", "logits[p=2]", "--view", "ranked")
    top = recorded.top(10, pos=2)
    rows = rows_of(done.out)[1:11]
    assert [int(row[0]) for row in rows] == [c.id for c in top]
    for row, c in zip(rows, top, strict=True):
        assert float(row[2]) == pytest.approx(c.logit, abs=0.01)
        assert float(row[3]) == pytest.approx(c.prob, abs=1e-3)


def test_the_lens_has_the_top_token_of_every_layer(call: Call, tiny, recorded):
    done = call("show", PROMPT, "--model", tiny, "--at", "blocks.0.resid_pre", "--view", "lens", "--full")
    head, *rows = done.out.split("\n\n")[1].splitlines()
    assert head.split() == ["0.pre", "0.mid", "0.post", "1.mid", "1.post"]
    last = recorded.top(1, pos=3)[0]
    assert rows[3].rstrip().endswith(f" {last.label}")
    assert f"{last.prob:.2g}" in rows[3]


def test_counts_of_a_histogram_add_up(call: Call, tiny, recorded):
    done = call("show", PROMPT, "--model", tiny, "--at", "blocks.0.attn.masked[h=1]", "--view", "histogram")
    x = recorded["blocks.0.attn.masked"][0, 1]
    assert sum(int(row[2]) for row in rows_of(done.out)[1:]) == int(x.isfinite().sum())
    assert f"{int((x == -math.inf).sum())} masked" in done.out


def test_keys_that_a_window_still_holds_have_their_own_labels(tmp_path):
    near = {"kinds": (LayerKind(name="near", window=3, rotary=Rotary()),), "layer_kinds": ("near", "near")}
    model = load_model(write_model(tmp_path / "near", **near))
    t = extend(model, trace(model, PROMPT), " today")
    labels = [token.label for token in t.tokens[0]]
    start, length = t.passes[1].start, t.passes[1].length
    axes = shown(Wish(t, f"{PATTERN}[h=0]@1")).to_json()["axes"]
    assert axes[0]["labels"] == labels[start:]
    assert axes[1]["labels"] == labels[start - 2 :]  # two keys of the pass before
    assert len(axes[1]["labels"]) == length + 2
    assert labels[start - 2] in "".join(shown(Wish(t, f"{PATTERN}[h=0,q=0,k=0]@1")).lines())


# -- an axis taken together, and differences ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "title", "story"),
    [
        (["--view", "max"], "Largest weight over heads: max over h", "may sum to more than 1"),
        (["--over", "head=mean"], "Mean weight over heads: mean over h · mean over h of pattern[h, query, key]", ""),
        (["--over", "q=max"], "Largest weight over query: max over q", ""),
        (["--minus", f"{PATTERN}[h=1]"], "Difference: ", "Cell by cell the first minus the second"),
    ],
)
def test_what_is_made_of_a_tensor_is_not_told_as_the_step(call: Call, tiny, more, title, story):
    at = f"{PATTERN}[h=2]" if "--minus" in more else PATTERN
    view = [] if "--view" in more else ["--view", {"head=mean": "heatmap", "q=max": "row"}.get(more[1], "arcs")]
    plain, pictured = (call("show", PROMPT, "--model", tiny, "--at", at, *more, *way).out for way in ([], view))
    for text in (plain, pictured):
        assert title in text
        assert "Softmax" not in text
    assert story in " ".join(pictured.split())


def test_the_app_and_show_say_the_same_of_heads_together(call: Call, tiny, recorded):
    seen = Seen.read(json.loads(json.dumps(summary(recorded), allow_nan=False)))
    step = next(step for step in seen.steps if step.site == PATTERN)
    view = next(view for view in views_in_app(step) if view.name == "max")
    told = explained(Plane(seen, step, view, (), 0), None)
    text = " ".join(call("show", PROMPT, "--model", tiny, "--at", PATTERN, "--view", "max").out.split())
    assert f"{told.title} · {told.formula}" in text
    assert told.story in text


def test_an_axis_taken_together(call: Call, tiny, recorded):
    whole = recorded[PATTERN][0].double()
    for over, expected in (("head=mean", whole.mean(0)), ("h=max", whole.amax(0)), ("q=mean", whole.mean(1))):
        done = call("show", PROMPT, "--model", tiny, "--at", PATTERN, "--over", over, "--json")
        assert (done.code, done.err) == (0, "")
        equal(done.json["values"], expected)
    done = call("show", PROMPT, "--model", tiny, "--at", PATTERN, "--over", "head=mean")
    assert done.out.startswith(f"{PATTERN} (mean over head) · query")
    over = ("--at", "blocks.0.attn.z[h=1]", "--over", "p=max", "--view", "row")
    done = call("show", PROMPT, "--model", tiny, *over, "--json")
    equal(done.json["values"], recorded["blocks.0.attn.z"][0, :, 1].amax(0))


def test_one_head_minus_another(call: Call, tiny, recorded):
    x = recorded["blocks.1.attn.masked"][0].double()
    minus = ("--minus", "blocks.1.attn.masked[h=2]")
    args = ("show", PROMPT, "--model", tiny, "--at", "blocks.1.attn.masked[h=1]", *minus)
    done = call(*args, "--json")
    hidden = x[1] == -math.inf
    equal(done.json["values"], (x[1] - x[2]).masked_fill(hidden, -math.inf))
    text = call(*args)
    assert f"{int(hidden.sum())} of {hidden.numel()} masked" in text.out
    assert "NOT FINITE" not in text.out
    assert call(*args, "--view", "heatmap", "--json").json["values"] == done.json["values"]
    row = call(*args[:4], "--at", "blocks.1.attn.masked[h=1,q=3]", *minus, "--view", "row")
    assert "blocks.1.attn.masked[b=0,h=2,q=3]" in row.out  # the same query, since none is named


def test_another_prompt_model_and_file(call: Call, tiny, recorded, tmp_path):
    other = trace(load_model(tiny), "The disk")
    n = other.length
    at = ("--at", f"{PATTERN}[h=1]")
    expected = recorded[PATTERN][0, 1, :n, :n].double() - other[PATTERN][0, 1].double()
    done = call("show", PROMPT, "--model", tiny, *at, "--other", "The disk", "--json")
    assert (done.code, done.err) == (0, "")
    equal(done.json["values"], expected)
    file = tmp_path / "other.trace.safetensors"
    other.save(file)
    equal(call("show", PROMPT, "--model", tiny, *at, "--other", file, "--json").json["values"], expected)
    main = tmp_path / "main.trace.safetensors"
    recorded.save(main)
    equal(call("show", main, *at, "--other", file, "--json").json["values"], expected)
    second = write_model(tmp_path / "second", seed=1)
    done = call("show", PROMPT, "--model", tiny, *at, "--other-model", second, "--json")
    there = trace(load_model(second), PROMPT)
    equal(done.json["values"], recorded[PATTERN][0, 1].double() - there[PATTERN][0, 1].double())
    minus = ("--minus", "blocks.0.attn.pattern[h=3]", "--other", "The disk", "--view", "mean")
    assert call("show", PROMPT, "--model", tiny, *at, *minus).code == 1  # of all heads, and one is chosen


def test_a_model_of_both_is_loaded_once(call: Call, tiny, monkeypatch):
    loaded = []
    load = engine.load_model
    monkeypatch.setattr(engine, "load_model", lambda *what, **how: loaded.append(what) or load(*what, **how))
    assert call("show", PROMPT, "--model", tiny, "--at", f"{PATTERN}[h=1]", "--other", "The disk").code == 0
    assert loaded == [(str(tiny),)]


def test_a_pipe_is_one_prompt(call: Call, tiny, monkeypatch):
    def piped(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    args = ("--model", tiny, "--at", f"{PATTERN}[h=1]", "--json")
    expected = call("show", PROMPT, *args, "--other", "The disk").json["values"]
    piped("The disk")
    assert call("show", PROMPT, *args, "--other", "-").json["values"] == expected
    piped(PROMPT)
    assert call("show", *args, "--other", "The disk").json["values"] == expected
    piped(PROMPT)
    done = call("show", *args, "--other-model", tiny)
    assert (done.code, done.out) == (2, "")
    assert "stdin is one PROMPT" in done.err


def test_huge_json_is_refused_before_it_is_computed(call: Call, tiny, monkeypatch):
    monkeypatch.setattr("engine.cli.show.MOST_VALUES", 50)
    args = ("show", PROMPT, "--model", tiny, "--at", PATTERN, "--view", "mean", "--json")
    with monkeypatch.context() as patch:
        patch.setattr("engine.traces.Trace.__getitem__", lambda *_: pytest.fail("it was computed"))
        done = call(*args)
    assert (done.code, done.out) == (1, "")
    assert "values; name a part of it" in done.err
    assert call(*args, "--full").code == 0


@pytest.mark.parametrize(
    ("place", "view", "taken"),
    [
        (PATTERN, "arcs", "head 0 of 4 (h= for another)"),
        (f"{PATTERN}[h=2]", "arcs", ""),
        (PATTERN, "row", "head 0 of 4 (h= for another), query 11 of 12 (q= for another)"),
        (PATTERN, "mean", ""),
        (PATTERN, "heads", ""),
        (PATTERN, "histogram", ""),
        ("embed", "neighbours", "pos 11 of 12 (p= for another)"),
        ("blocks.0.attn.rot_q[p=3]", "rotation", "head 0 of 4 (h= for another), d_head 0 of 6 (d= for another)"),
        ("blocks.0.resid_pre", "lens", ""),
        (f"{PATTERN}[h=2]", "chain", "query 11 of 12 (q= for another), key 11 of 12 (k= for another)"),
    ],
)
def test_an_index_that_nobody_named_is_said(call: Call, tiny, place, view, taken):
    lines = call("show", PROMPT, "--model", tiny, "--at", place, "--view", view).out.splitlines()
    assert [line for line in lines if line.startswith("taken: ")] == ([f"taken: {taken}"] if taken else [])


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--view", "heads"], 2, "--view is about a place"),
        (["--other", "x"], 2, "--other is about a place"),
        (["--minus", "!", "--at", PATTERN], 1, "is not an address"),
        (["--at", f"{PATTERN}[h=1]", "--over", "head=mean"], 1, "chooses along head"),
        (["--at", PATTERN, "--over", "head"], 1, "e.g. head=mean"),
        (["--at", PATTERN, "--over", "\x1b[1m=mean"], 1, "no axis '␛[1m'"),
        (["--at", PATTERN, "--over", "key=mean", "--view", "row"], 1, "cannot be reduced as well"),
        (["--at", PATTERN, "--over", "head=mean", "--view", "heads"], 1, "derived from the trace"),
        (["--at", PATTERN, "--over", "head=mean", "--view", "max"], 1, "leave --over out"),
        (["--at", PATTERN, "--minus", "logits", "--view", "layers"], 1, "derived from the trace"),
        (["--at", f"{PATTERN}[h=0]", "--minus", "logits"], 1, "over batch × query × key, and logits over"),
        (["--at", f"{PATTERN}[q=2]", "--view", "heatmap"], 1, "leave q out"),
        (["--at", f"{PATTERN}[h=0:2]", "--view", "heatmap"], 1, "of one head"),
        (["--at", "embed[d=1]", "--view", "neighbours"], 1, "leave d out"),
        (["--at", "embed[p=1:3]", "--view", "neighbours"], 1, "of one pos"),
        (["--at", "blocks.0.attn.past_k", "--view", "row"], 1, "has no past"),
        (["--at", f"{PATTERN}[h=1]", "--other", "no.safetensors"], 1, "no.safetensors"),
        (["--at", f"{PATTERN}[h=1]", "--other-model", "/no/such"], 1, "/no/such"),
    ],
)
def test_what_does_not_go_together_is_one_line(call: Call, tiny, args, code, words):
    done = call("show", PROMPT, "--model", tiny, *args)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert done.err.count("\n") == (1 if code == 1 else 2)


def test_a_trace_without_its_model_says_what_it_lacks(call: Call, recorded, tmp_path):
    file = tmp_path / "t.safetensors"
    recorded.save(file)
    done = call("show", file, "--at", "blocks.0.resid_pre", "--view", "lens")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "norms" in done.err
    assert "with its model (--model)" in done.err
    assert call("show", file, "--at", "blocks.0.resid_pre", "--view", "norms").code == 0


def test_views_that_the_engine_derives_are_looks():
    assert {*LOOKS, CHAIN.name} == set(looks.LOOKS)

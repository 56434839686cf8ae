"""What an app asks of a generation: tokens in one request or in many, other ways on, back, what failures leave."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from bits import assert_same_bits
from tiny import GEMMA, GPT2, MODERN

from engine import Model, Sampling, extend, generate, load_model, trace
from engine.browse import Session, summary
from engine.errors import AddressError, Cancelled, LayerstepError, PromptError, SamplingError
from engine.ops.attention import Attention
from engine.service import Channel, receive

PROMPT = "The keys to"


def quiet(done: int, total: int, what: str) -> None:
    """A watch that lets everything go on."""


@pytest.fixture
def session() -> Session:
    """The modern sample with a prompt open."""
    session = Session()
    session.open({"model": "modern", "prompt": PROMPT}, quiet)
    return session


def with_model(model: Model, ids: list[int]) -> Session:
    """A session that has opened ids in a model at hand."""
    session = Session()
    session.slots["main"].loaded = (("tiny", "auto", "auto"), model)
    session.show(trace(model, ids))
    return session


def ids_of(answer: dict) -> list[int]:
    return [token["id"] for token in answer["generated"]["tokens"]]


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 1.2, "seed": 7}, {"temperature": 0.9, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "seed": 1,
     "repetition_penalty": 1.3}],
    ids=["greedy", "drawn", "filtered"],
)  # fmt: skip
def test_tokens_in_many_requests_are_those_in_one_and_those_of_generate(session, options):
    model = session.model
    expected = list(generate(model, session.trace, max_new_tokens=8, sampling=Sampling(**options)))
    told = [session.generate({"n": 1, **options}, quiet) for _ in range(7)]
    many = session.trace
    one_by_one = [(i, answer["generated"]["text"]) for answer in told for i in ids_of(answer)]
    assert one_by_one == [(step.token.id, step.text) for step in expected[:7]]
    for answer, step in zip(told, expected, strict=False):
        [token] = answer["generated"]["tokens"]
        assert token == {"id": step.token.id, "label": step.token.label, "prob": step.prob}
        assert answer["generated"]["stopped"] == ""
    again = Session()
    again.slots["main"].loaded = session.slots["main"].loaded
    again.open({"model": "modern", "prompt": PROMPT}, quiet)
    at_once = again.generate({"n": 7, **options}, quiet)
    assert ids_of(at_once) == [step.token.id for step in expected[:7]]
    assert at_once["generated"]["text"] == "".join(step.text for step in expected[:7])
    assert_same_bits(again.trace, many)
    assert_same_bits(many, expected[7].trace)


def test_many_tokens_at_once_hold_the_scores_of_few(session, monkeypatch):
    refs: list[weakref.ref] = []

    def noting(*given, **options):
        for step in generate(*given, **options):
            refs.append(weakref.ref(step.scores))
            assert sum(ref() is not None for ref in refs) <= 3  # it, the one before, and the answer's last
            yield step

    monkeypatch.setattr("engine.continuing.generate", noting)
    session.generate({"n": 9, "temperature": 0.7, "seed": 1}, quiet)
    assert len(refs) == 10


def test_the_answer_is_the_summary_of_the_longer_trace(session):
    before = session.trace.length
    told = session.generate({"n": 3}, quiet)
    assert [t["id"] for t in told["tokens"][0]] == [t.id for t in session.trace.tokens[0]]
    assert [(p["start"], p["length"]) for p in told["passes"]] == [(0, before)] + [(before + i, 1) for i in range(3)]
    assert told["prompt"] == session.trace.prompt == PROMPT + told["generated"]["text"]


def test_the_numbers_of_a_step_are_those_of_all_passes_together(tiny):
    session = with_model(tiny(**GEMMA, dtype=torch.float32), [1, 2, 3, 4, 5])  # a window of 3, and all
    many = session.generate({"n": 4}, quiet)
    at_once = summary(trace(session.model, [token.id for token in session.trace.tokens[0]]))
    told, expected = ({row["site"]: row["numbers"] for row in answer["steps"]} for answer in (many, at_once))
    assert told == expected
    assert told["blocks.1.attn.pattern"].endswith("9 rows over 9 keys")


def test_each_window_says_the_sizes_of_its_own_pass(tiny):
    session = with_model(tiny(**GEMMA, dtype=torch.float32), [1, 2, 3, 4, 5])  # a window of 3, and all
    session.generate({"n": 2}, quiet)
    for step in session.trace.program.steps:
        for at in range(3):
            shapes = [tuple(session.trace.site(name, at).shape) for name in (step.site.name, *step.reads)]
            params = [session.trace.program.params[name] for name in step.params]
            first = ",".join(f"{axis}=0:1" for axis in step.site.axes)
            told, _ = session.window(f"{step.site.name}[{first}]@{at}")
            assert told["numbers"] == step.op.numbers(shapes[1:], params, shapes[0])
    heads = "1 head × " if session.trace.config.n_heads == 1 else f"{session.trace.config.n_heads} heads × "
    assert session.window("blocks.1.attn.pattern[h=0]@2")[0]["numbers"] == f"{heads}1 row over 7 keys"
    assert session.window("blocks.1.attn.cache_k[g=0]@2")[0]["numbers"].startswith("6 earlier + 1 new = 7 keys, ")
    assert session.window("blocks.1.attn.cache_k[g=0]")[0]["numbers"].startswith("7 keys, ")


def test_the_checks_of_a_pass_are_those_of_that_pass_alone(session):
    session.generate({"n": 2}, quiet)
    for at in range(3):
        rows = session.checks("blocks.1.attn.pattern", quiet, at)["rows"]
        assert rows
        assert rows == [c.to_json() for c in session.trace.iter_checks("blocks.1.attn.pattern") if c.at == at]
    with pytest.raises(AddressError, match="there is no pass 3; there are 0…2"):
        session.checks("blocks.1.attn.pattern", quiet, 3)


@pytest.mark.parametrize("pos", [3, 6])
def test_candidates_have_the_probability_that_they_are_drawn_with(session, pos):
    options = {"temperature": 0.8, "top_k": 5, "repetition_penalty": 1.4}
    session.generate({"n": 4}, quiet)
    ids = [token.id for token in session.trace.tokens[0][: pos + 1]]
    step = next(generate(session.model, ids, sampling=Sampling(**options, seed=1), max_new_tokens=1))
    expected = step.scores.softmax(-1)
    rows = session.top(f"logits[p={pos}]", 50, options)["rows"]
    assert [row["prob"] for row in rows] == [c.prob for c in session.trace.top(50, pos=pos)]
    told = [row["scores_prob"] for row in rows]
    assert [p or 0 for p in told] == pytest.approx([float(expected[row["id"]]) for row in rows], rel=1e-4)
    assert sum(p is not None for p in told) == 5
    assert "scores_prob" not in session.top(f"logits[p={pos}]", 1, {"temperature": 0})["rows"][0]


def test_a_seed_that_was_not_given_is_told_and_draws_the_same_again(session):
    begin = session.trace.length
    drawn = [session.generate({"n": 1, "temperature": 1.5}, quiet) for _ in range(5)]
    [seed] = {answer["generated"]["seed"] for answer in drawn}
    session.crop(begin, quiet)
    again = session.generate({"n": 5, "temperature": 1.5, "seed": seed}, quiet)
    assert ids_of(again) == [i for answer in drawn for i in ids_of(answer)]
    assert "seed" not in again["generated"]
    assert "seed" not in session.generate({"n": 1}, quiet)["generated"]


def test_it_stops_where_a_text_is_said_and_stays_there(session):
    whole = session.generate({"n": 8}, quiet)["generated"]["text"]
    session.crop(len(session.trace.passes[0].given["tokens"][0]), quiet)
    stop = whole[4:7]
    told = session.generate({"n": 8, "stop": [stop]}, quiet)["generated"]
    assert told["stopped"] == "stop string"
    assert stop not in told["text"]
    length = session.trace.length
    assert session.generate({"n": 8, "stop": [stop]}, quiet)["generated"] == {
        "tokens": [], "text": "", "stopped": "stop string",
    }  # fmt: skip
    assert session.trace.length == length
    assert session.generate({"n": 1}, quiet)["generated"]["stopped"] == ""  # without it, it goes on


def test_it_stops_at_the_end_of_the_context_and_at_the_token_that_ends_a_text(tiny):
    told = with_model(tiny(**GPT2, n_ctx=6), [1, 2, 3]).generate({"n": 9}, quiet)
    assert told["generated"]["stopped"] == "context"
    assert len(told["tokens"][0]) == 6
    free = ids_of(with_model(tiny(**MODERN), [1, 2, 3]).generate({"n": 6}, quiet))
    model = tiny(**MODERN, eos_token_id=free[3])
    told = with_model(model, [1, 2, 3]).generate({"n": 6}, quiet)
    assert told["generated"]["stopped"] == "end token"
    assert ids_of(told) == free[: free.index(free[3])]


# --- broken off -------------------------------------------------------------------------------------------


greedy_or_drawn = pytest.mark.parametrize("options", [{}, {"temperature": 1.2, "seed": 7}], ids=["greedy", "drawn"])


@pytest.mark.parametrize("call", [0, 1, 100, 200])
@greedy_or_drawn
def test_what_was_done_before_it_was_cancelled_stays(session, options, call):
    expected = list(generate(session.model, session.trace, max_new_tokens=9, sampling=Sampling(**options)))
    calls: list[tuple[int, int, str]] = []

    def cancelled(*told: object) -> None:
        calls.append(told)
        if len(calls) > call:
            raise Cancelled("cancelled")

    told = session.generate({"n": 8, **options}, cancelled)
    n = len(told["generated"]["tokens"])
    assert told["generated"]["stopped"] == "cancelled"
    assert calls[-1] == (n, 8, expected[n].token.label)
    assert (n > 0) == (call >= 100)  # a pass has some 90 steps, and may be left before each of them
    assert ids_of(told) == [step.token.id for step in expected[:n]]
    assert_same_bits(session.trace, expected[n].trace)
    assert ids_of(session.generate({"n": 8 - n, **options}, quiet)) == [step.token.id for step in expected[n:8]]
    assert_same_bits(session.trace, expected[8].trace)


@greedy_or_drawn
def test_a_failure_in_the_middle_leaves_what_was_done_open(session, monkeypatch, tmp_path, options):
    start, model = session.trace, session.model
    expected = list(generate(model, start, max_new_tokens=9, sampling=Sampling(**options)))
    layers, calls, run = model.config.n_layers, [], Attention.run

    def failing(self: Attention, info: object, *args: object) -> torch.Tensor:
        calls.append(self)
        if len(calls) == 4 * layers:  # the last layer of the fourth token
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(self, info, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Attention, "run", failing)
        with pytest.raises(torch.OutOfMemoryError):
            session.generate({"n": 8, **options}, quiet)
    assert_same_bits(session.trace, expected[3].trace)
    session.save(tmp_path / "t.safetensors", force=False)
    assert ids_of(session.generate({"n": 5, **options}, quiet)) == [step.token.id for step in expected[3:8]]
    assert_same_bits(session.trace, expected[8].trace)


@pytest.mark.parametrize(
    ("params", "error", "line"),
    [
        ({"n": -1}, PromptError, "n must be"),
        ({"n": 10**9}, PromptError, "n must be"),
        ({"n": True}, PromptError, "n must be"),
        ({"n": "3"}, PromptError, "n must be"),
        ({"temperature": -1}, SamplingError, "temperature must be a number from 0"),
        ({"top_k": 0}, SamplingError, "top_k must be a whole number from 1"),
        ({"top_p": "x"}, SamplingError, "top_p must be a number from 0 to 1"),
        ({"seed": 1.5}, SamplingError, "seed must be a whole number"),
        ({"stop": "abc"}, PromptError, "stop is a list of texts"),
        ({"stop": 3}, PromptError, "stop is a list of texts"),
        ({"stop": [""]}, PromptError, "stop is a list of texts"),
        ({"stop": [["a"]]}, PromptError, "stop is a list of texts"),
    ],
)
def test_what_is_out_of_range_is_one_line_and_changes_nothing(session, params, error, line):
    before = session.trace
    with pytest.raises(error, match=line):
        session.generate(params, quiet)
    assert session.trace is before


def test_a_file_without_its_model_shows_and_does_not_go_on(session, tmp_path):
    session.generate({"n": 2}, quiet)
    expected = session.trace
    session.save(tmp_path / "t.safetensors", force=False)
    alone = Session()
    alone.open({"file": str(tmp_path / "t.safetensors")}, quiet)
    for ask in (
        lambda: alone.generate({"n": 1}, quiet),
        lambda: alone.branch(1, 5, quiet),
        lambda: alone.crop(1, quiet),
    ):
        with pytest.raises(LayerstepError, match="opened without its model, so nothing more can run; open it with"):
            ask()
    assert [row["branch"] for row in alone.branches.rows()["rows"]] == [0]
    assert alone.switch(0)["branch"] == 0
    alone.open({"file": str(tmp_path / "t.safetensors"), "model": "modern"}, quiet)
    assert_same_bits(alone.trace, expected)
    assert ids_of(alone.generate({"n": 3}, quiet)) == ids_of(session.generate({"n": 3}, quiet))
    assert_same_bits(alone.trace, session.trace)


def test_without_a_trace_there_is_nothing_to_go_on_from():
    asks = (
        lambda s: s.generate({}, quiet), lambda s: s.crop(1, quiet), lambda s: s.timing(quiet),
        lambda s: s.branches.rows(),
    )  # fmt: skip
    for ask in asks:
        with pytest.raises(LayerstepError, match="no trace is open yet"):
            ask(Session())


# --- branches ---------------------------------------------------------------------------------------------


def test_other_tokens_are_branches_that_one_can_go_between(session):
    model, begin = session.model, session.trace.length
    session.generate({"n": 4}, quiet)
    first = session.trace
    other = first.top(2, pos=begin + 1)[1]
    told = session.branch(begin + 2, other.id, quiet)
    assert told["branch"] == 1
    assert [t["id"] for t in told["tokens"][0]] == [*(t.id for t in first.tokens[0][: begin + 2]), other.id]
    session.generate({"n": 2}, quiet)
    second = session.trace
    rows = session.branches.rows()
    assert rows["current"] == 1
    assert [(row["branch"], row["parent"], row["pos"], row["tokens"]) for row in rows["rows"]] == [
        (0, None, 0, begin + 4),
        (1, 0, begin + 2, begin + 5),
    ]
    assert rows["rows"][1]["label"] == other.label
    assert rows["rows"][1]["text"] == model.tokenizer.decode([t.id for t in second.tokens[0][begin + 2 :]])
    logits = trace(model, [t.id for t in second.tokens[0]])["logits"][0].double()
    by_hand = [float(logits[p - 1].log_softmax(-1)[second.tokens[0][p].id]) for p in range(begin + 2, begin + 5)]
    assert rows["rows"][1]["logprob"] == pytest.approx(sum(by_hand), rel=1e-4)
    assert session.switch(0)["branch"] == 0
    assert session.trace is first
    assert_same_bits(session.trace, extend_by_one(model, first, begin))
    session.generate({"n": 1}, quiet)  # goes on where it is
    assert [row["tokens"] for row in session.branches.rows()["rows"]] == [begin + 5, begin + 5]
    assert session.switch(1)["branch"] == 1
    assert session.trace is second


def extend_by_one(model: Model, t: object, begin: int) -> object:
    """The same trace made anew, token by token."""
    ids = [token.id for token in t.tokens[0]]
    fresh = trace(model, PROMPT)
    for i in ids[begin:]:
        fresh = extend(model, fresh, [i])
    return fresh


def test_the_same_tokens_again_are_the_same_branch(session):
    begin = session.trace.length
    whole = session.generate({"n": 4}, quiet)
    assert (whole["branch"], whole["branches"]) == (0, 1)
    assert session.crop(begin + 1, quiet)["branches"] == 2
    again = session.generate({"n": 3}, quiet)
    assert again["tokens"] == whole["tokens"]
    assert (again["branch"], again["branches"]) == (0, 1)


def test_what_is_only_the_beginning_of_another_branch_is_gone_once_it_is_left(session):
    begin = session.trace.length
    session.generate({"n": 4}, quiet)
    other = session.trace.top(2, pos=begin)[1]
    session.branch(begin + 1, other.id, quiet)
    session.switch(0)
    assert session.crop(begin + 2, quiet)["branch"] == 2
    assert session.branches.rows()["rows"][2]["text"] == ""
    assert session.switch(0)["branch"] == 0
    assert [row["tokens"] for row in session.branches.rows()["rows"]] == [begin + 4, begin + 2]


def test_the_first_branch_is_as_likely_as_what_was_generated(session):
    assert session.branches.rows()["rows"][0]["logprob"] is None
    begin = session.trace.length
    told = session.generate({"n": 3}, quiet)
    [row] = session.branches.rows()["rows"]
    chosen = [token["prob"] for token in told["generated"]["tokens"]]
    assert row["logprob"] == pytest.approx(float(np.log(chosen).sum()), rel=1e-4)
    assert (row["parent"], row["pos"], row["tokens"]) == (None, 0, begin + 3)


def test_a_token_at_the_end_goes_on_and_makes_no_branch(session):
    length = session.trace.length
    told = session.branch(length, 42, quiet)
    assert told["branch"] == 0
    assert session.trace.length == length + 1
    assert len(session.branches.rows()["rows"]) == 1


def test_back_is_a_branch_unless_the_longer_one_is_there_already(session):
    begin = session.trace.length
    session.generate({"n": 3}, quiet)
    assert session.crop(begin + 3, quiet)["branch"] == 0
    assert session.crop(begin + 1, quiet)["branch"] == 1
    assert session.crop(begin, quiet)["branch"] == 1  # what it was is the beginning of branch 0
    rows = session.branches.rows()["rows"]
    assert [(row["parent"], row["pos"], row["tokens"]) for row in rows] == [(None, 0, begin + 3), (0, begin, begin)]
    assert (rows[1]["text"], rows[1]["label"], rows[1]["logprob"]) == ("", "", None)


@pytest.mark.parametrize("to", [-1, 1, True, "0", None, 0.0])
def test_a_branch_that_is_not_there(session, to):
    with pytest.raises(PromptError, match="there is no branch"):
        session.switch(to)


def test_a_place_or_a_token_that_is_not_there(session):
    before = session.trace
    for ask in (
        lambda: session.branch(0, 5, quiet),
        lambda: session.branch(before.length + 1, 5, quiet),
        lambda: session.branch("1", 5, quiet),
        lambda: session.branch(1, -1, quiet),
        lambda: session.branch(1, 10**9, quiet),
        lambda: session.branch(1, None, quiet),
        lambda: session.crop(0, quiet),
        lambda: session.crop(before.length + 1, quiet),
        lambda: session.crop(None, quiet),
    ):
        with pytest.raises(PromptError) as error:
            ask()
        assert "\n" not in str(error.value)
    assert session.trace is before


# --- where a pass's rows stand ----------------------------------------------------------------------------


def test_the_first_row_of_a_pass_stands_where_the_text_has_it(tiny):
    session = with_model(tiny(**GEMMA, dtype=torch.float32), [1, 2, 3, 4, 5])  # a window of 3, and all
    session.generate({"n": 3}, quiet)
    whole = session.trace
    for layer, first in ((0, 5), (1, 0)):
        told, payload = session.window(f"blocks.{layer}.attn.pattern[b=0,h=1]@3")
        assert told["origin"] == {"query": 7, "key": first}
        got = np.frombuffer(payload, "<f4").reshape(told["shape"])
        triangle = whole[f"blocks.{layer}.attn.pattern"][0, 1]  # [8 8]
        np.testing.assert_array_equal(got, triangle[7:8, first:8].numpy())
        told, payload = session.window(f"blocks.{layer}.attn.cache_k[b=0,g=0,k=1:3]@3")
        assert told["origin"] == {"kv_pos": first + 1}
        got = np.frombuffer(payload, "<f4").reshape(told["shape"])
        np.testing.assert_array_equal(got, whole[f"blocks.{layer}.attn.cache_k"][0, first + 1 : first + 3, 0].numpy())
        told, _ = session.window(f"blocks.{layer}.attn.z[b=0,h=1]@2")
        assert told["origin"] == {"pos": 6}
    assert "origin" not in session.window("blocks.0.attn.pattern[b=0,h=1]")[0]
    assert {row["site"]: row["window"] for row in session.generate({"n": 0}, quiet)["steps"]}[
        "blocks.0.attn.pattern"
    ] == 3  # fmt: skip
    with pytest.raises(AddressError):
        session.window("blocks.0.attn.pattern[b=0,h=1,k=3]@3")


# --- as a process -----------------------------------------------------------------------------------------


def test_a_generation_in_a_process_is_cancelled_while_it_runs():
    process = subprocess.Popen(
        [sys.executable, "-m", "engine.service"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin
    assert process.stdout
    ask = Channel(process.stdin)
    ask.send({"id": 1, "run": 1, "method": "open", "params": {"model": "modern", "prompt": PROMPT}})
    ask.send({"id": 2, "run": 1, "method": "generate", "params": {"n": 10_000, "temperature": 50, "seed": 0}})
    answers: dict[int, dict] = {}
    while 2 not in answers:
        header = receive(process.stdout)
        assert header is not None
        if header.get("event") == "progress" and header["id"] == 2 and header["done"] > 2:
            ask.send({"method": "cancel", "params": {"id": 2}})
        if "ok" in header:
            answers[header["id"]] = header
    process.kill()
    process.communicate()
    assert answers[2]["ok"], answers[2]
    generated = answers[2]["result"]["generated"]
    assert generated["stopped"] == "cancelled"
    assert 2 < len(generated["tokens"]) < 10_000
    begin = len(answers[1]["result"]["tokens"][0])
    assert len(answers[2]["result"]["tokens"][0]) == begin + len(generated["tokens"])
    model = load_model("modern")
    expected = list(generate(model, PROMPT, max_new_tokens=3, sampling=Sampling(temperature=50, seed=0)))
    assert [token["id"] for token in generated["tokens"][:3]] == [step.token.id for step in expected]

"""Continuations beside each other: the tree that they form, and how far apart they are."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import GEMMA, GPT2, MODERN, SENTENCE, TRANSLATOR, random_ids, tiny

from engine import Model, Trace, branch, build_program, compare, crop, extend, load_model, open_trace, trace
from engine.branches import tree
from engine.errors import PromptError


@cache
def traced(ids: tuple[int, ...]) -> Trace:
    return trace(tiny(**MODERN), list(ids), keep=["embed"])


def shares(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """The longest beginning that both have, tried from the longest on."""
    return next(n for n in range(min(len(a), len(b)), -1, -1) if a[:n] == b[:n])


@given(st.lists(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=5).map(tuple), min_size=1, max_size=8))
def test_the_tree_is_that_of_the_beginnings(texts):
    found = tree([traced(ids) for ids in texts])
    assert [[token.id for token in one.trace.tokens[0]] for one in found] == [list(ids) for ids in texts]
    assert (found[0].parent, found[0].pos) == (None, 0)
    for i, one in enumerate(found[1:], 1):
        most = max(shares(texts[i], earlier) for earlier in texts[:i])
        assert one.pos == most
        assert one.parent == next(j for j in range(i) if shares(texts[i], texts[j]) == most)
        assert texts[one.parent][:most] == texts[i][:most]  # so the way up the parents spells the text


def test_a_tree_by_hand():
    found = tree([traced(ids) for ids in [(1, 2, 3), (1, 2, 4, 5), (1, 2, 4, 6), (1, 2), (2,), (1, 2, 3)]])
    assert [(one.parent, one.pos) for one in found] == [(None, 0), (0, 2), (1, 3), (0, 2), (0, 0), (0, 3)]
    assert tree([]) == ()


def test_other_sources_share_nothing():
    model = tiny(**TRANSLATOR)
    one, other, same = (trace(model, source, target=[3, 4]) for source in ([5, 6], [5, 7], [5, 6]))
    assert [(b.parent, b.pos) for b in tree([one, other, same])] == [(None, 0), (0, 0), (0, 3)]


def test_a_batch_is_no_branch():
    batch = trace(tiny(**MODERN), [[1, 2], [3]])
    with pytest.raises(PromptError, match="a trace of a batch is no branch; trace each prompt alone"):
        tree([traced((1,)), batch])
    with pytest.raises(PromptError, match="a trace of a batch is no branch"):
        compare(batch, batch)


@pytest.mark.parametrize("wrong", ["x", None, [None], 5])
def test_what_is_no_trace_is_no_branch(wrong):
    for ask in (lambda: tree(wrong), lambda: compare(traced((1,)), wrong), lambda: compare(wrong, traced((1,)))):
        with pytest.raises(PromptError, match=r"a branch is a trace, and not|a tree is of a list of traces") as error:
            ask()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("keep", ["all", ["embed"]])
@pytest.mark.parametrize("traits", [MODERN, GEMMA], ids=["modern", "gemma"])
def test_the_probability_of_a_branch_is_that_of_its_own_tokens(traits, keep):
    model = tiny(**traits)
    ids = random_ids(model.config, 8)
    first = extend(model, trace(model, ids[:5], keep=keep), ids[5:], keep=keep)
    second = extend(model, branch(model, first, 3, 9), [1, 2], keep=keep)
    third = crop(model, second, 5)
    for one in tree([first, second, third]):
        whole = [token.id for token in one.trace.tokens[0]]
        logits = trace(model, whole)["logits"][0]
        by_hand = [float(logits[pos - 1].log_softmax(-1)[whole[pos]]) for pos in range(one.pos, len(whole)) if pos]
        if one.pos == 0 or one.pos == len(whole):  # nothing stands before the first token, and nothing is its own
            assert one.logprob is None
        else:
            assert one.logprob == pytest.approx(sum(by_hand), abs=1e-9)


def test_a_model_without_logits_tells_no_probability():
    model = tiny(**GPT2, head="none")
    first = trace(model, [1, 2, 3])
    assert [one.logprob for one in tree([first, branch(model, first, 1, 5)])] == [None, None]
    assert tree([trace(tiny(**SENTENCE), [1, 2])])[0].logprob is None


# --- how far apart ----------------------------------------------------------------------------------------


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max()) if a.numel() else 0.0


@pytest.mark.parametrize("traits", [MODERN, GEMMA, TRANSLATOR], ids=["modern", "gemma", "translator"])
def test_two_continuations_differ_from_where_they_part(traits):
    model = tiny(**traits)
    encoder = model.config.encoder_layers is not None
    first = trace(model, [5, 6, 7], target=[1, 2, 3]) if encoder else trace(model, [0, 1, 2, 3])
    a, b = extend(model, first, [4, 5, 6]), extend(model, first, [4, 9])
    told = compare(a, b)
    assert told.parts_at == 5
    assert list(told.shared) == list(told.beyond)
    assert not [name for name in told.shared if name.startswith("encoder.") or "pos" not in a.program.site(name).axes]
    assert {"embed", "blocks.0.resid_pre", "blocks.1.attn.z", "blocks.1.mlp_out", "logits"} <= told.shared.keys()
    for name in told.shared:
        x, y = a[name], b[name]  # [1 pos …]
        assert a.program.site(name).axes[1] == "pos"
        assert told.shared[name] == pytest.approx(largest(x[:, :5], y[:, :5]), abs=1e-12)
        assert told.beyond[name] == largest(x[:, 5:6], y[:, 5:6])
    assert max(told.shared.values()) < 1e-9  # rounding, of passes of other lengths
    assert told.beyond["embed"] > 0.1
    assert told.beyond["logits"] > 1e-3


def test_a_trace_beside_itself_and_its_beginning():
    model = tiny(**MODERN)
    t = trace(model, [1, 2, 3, 4])
    for other, length in ((t, 4), (trace(model, [1, 2]), 2)):
        told = compare(t, other)
        assert told.parts_at == length
        assert max(told.shared.values()) < 1e-12
        assert set(told.beyond.values()) == {0.0}


def test_what_is_no_number_stays_none():
    model = tiny(**MODERN)
    t = trace(model, [1, 2, 3])
    broken = {name: weight.clone() for name, weight in model.weights.items()}
    broken["embed.weight"][2] = torch.nan
    told = compare(t, trace(Model.from_weights(model.config, broken), [1, 2, 3]))
    assert torch.tensor(told.shared["embed"]).isnan()


def test_traces_of_files_are_of_one_program_with_each_other_and_with_the_model(tmp_path):
    model = tiny(**MODERN)
    t = trace(model, [1, 2, 3])
    t.save(tmp_path / "t.safetensors")
    build_program.cache_clear()
    opened = open_trace(tmp_path / "t.safetensors", model)
    assert set(compare(t, opened).shared.values()) == {0.0}
    with pytest.raises(PromptError, match="are two architectures; compare traces of one"):
        compare(t, trace(tiny(**GPT2), [1, 2, 3]))


def test_a_branch_may_be_given_as_text():
    model = load_model("modern")
    t = trace(model, "The keys to the cabinet")
    [dog] = model.tokenizer.encode(" dog", add_special=False)
    assert branch(model, t, 3, " dog").tokens == branch(model, t, 3, dog.id).tokens
    told = compare(t, branch(model, t, 3, " dog"))
    assert re.fullmatch(
        r"the same for 3 positions, up to \S+ at any site; beyond they differ most in \S+, by \S+", told.text
    )
    shorter = compare(t, crop(model, t, 3))
    near = max(shorter.shared.values())  # a smaller product rounds otherwise
    up_to = f", up to {near:.2g} at any site" if near else ""
    assert str(shorter) == f"the same for 3 positions{up_to}, and no position beyond is in both"
    assert str(compare(t, t)) == "the same for 6 positions, and no position beyond is in both"

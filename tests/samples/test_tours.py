"""The tours that come along hold on the model they are about: their places are there, and what they say is so."""

from __future__ import annotations

from functools import cache

import pytest

from engine import Model, Trace, load_model, trace
from tui.tours import Stop, first_tour

TOUR = first_tour()
SECONDS, READ = 90, 238
"""What is promised, and the words that are read silently in a minute. (Brysbaert 2019, a mean over 190 studies)"""


@cache
def model() -> Model:
    return load_model(TOUR.model, device="cpu")


@cache
def walked() -> Trace:
    return trace(model(), TOUR.prompt)


def labels() -> list[str]:
    return [token.label for token in walked().tokens[0]]


@pytest.mark.parametrize("stop", TOUR.stops, ids=lambda stop: stop.title)
def test_every_place_is_one_number_of_the_model(stop: Stop):
    t = walked()
    for place in (stop.address, *stop.values):
        assert t[place].numel() == 1
        assert t[place].isfinite().all()


def test_it_is_read_in_the_time_that_is_promised():
    told = " ".join(stop.narration for stop in TOUR.stops)
    assert len(told.split()) / (READ / 60) <= SECONDS
    assert 8 <= len(TOUR.stops) <= 14


def test_the_tokens_are_those_that_it_names():
    assert labels()[1:] == ["The", "␣server", "␣crashed", "␣because", "␣the", "␣disk", "␣was", "␣full"]
    assert model().config.d_head == 16


def test_the_head_that_it_shows_looks_from_a_verb_to_its_subject():
    pattern = walked()["blocks.1.attn.pattern"][0, 5]
    for verb, subject in (("␣was", "␣disk"), ("␣crashed", "␣server")):
        query, key = labels().index(verb), labels().index(subject)
        assert pattern[query].argmax() == key
        assert pattern[query, key] > 0.9
    others = [labels().index(word) for word in ("␣because", "␣the", "␣full")]
    assert pattern[others].amax(-1).max() < 0.6  # it is no head of the token before


def test_the_head_that_it_asks_for_rests_on_the_first_token():
    assert (walked()["blocks.2.attn.pattern"][0, 2, 1:, 0] > 0.85).all()


def test_the_score_is_the_highest_of_its_row():
    scores = walked()["blocks.1.attn.scores"][0, 5, 7]
    assert scores.argmax() == labels().index("␣disk")


def test_the_neuron_is_the_one_that_does_most_and_pushes_those_words():
    t = walked()
    post = t["blocks.2.mlp.post"][0, labels().index("␣because")]
    down, unembed = model().weights["blocks.2.mlp.down.weight"], model().weights["embed.weight"]
    does = post.abs() * down.norm(dim=0)
    assert does.argmax() == 182
    pushed = (unembed @ (down[:, 182] * post[182])).topk(5).indices
    assert {"the", "this", "my"} <= {model().tokenizer.decode([int(token)]).strip() for token in pushed}


def test_the_nearest_tokens_are_machines_mostly():
    t = walked()
    table = model().weights["embed.weight"]
    table = table / table.norm(dim=-1, keepdim=True)
    nearest = (table @ table[int(t["tokens"][0, 6])]).topk(7).indices[1:]
    near = {model().tokenizer.decode([int(token)]).strip() for token in nearest}
    assert len(near & {"battery", "server", "kettle", "clock", "phone", "computer", "oven", "radio"}) >= 5


def test_what_comes_next_is_what_it_says():
    t = walked()
    assert [row.label for row in t.top(2)] == [".", "␣and"]
    assert [row.id for row in t.top(2)] == [16, 287]


def test_the_value_is_mixed_from_what_disk_gave():
    t = walked()
    value, z = t["blocks.1.attn.v"][0, 6, 2], t["blocks.1.attn.z"][0, 7, 5]  # two query heads share one of values
    assert (z @ value) / (z.norm() * value.norm()) > 0.99

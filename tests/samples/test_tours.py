"""The tours that come along can be walked, read and presented, and the first walk says what is so.

What the lectures say of the models is tested in `test_tour_lectures`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from math import e, isclose, pi, sqrt

import pytest
from toured import NAMES, SEVEN, labels, main, model, run, tour

from engine.appkeys import known_actions
from engine.markdown import parse, plain
from engine.touring import check
from engine.tours import read_tour

SECONDS, READ = 90, 238
"""What the first walk promises, and the words that are read silently in a minute. (Brysbaert 2019, a mean over 190
studies)"""
MOST_WORDS = 60
"""Of a narration: what an audience reads while somebody speaks."""
WIDTH, MOST_LINES = 75, 5
"""Of the panel in a terminal of 80 × 24, with a picture above it; answers may scroll it."""
NUMBERS = re.compile(r"(?:[\d\s.()+−·/√^πσ-]|\be\^|[KMG]iB)+")
"""A term of numbers alone, as it is written in a tour."""
EVERY = pytest.mark.parametrize("name", NAMES)
LECTURES = pytest.mark.parametrize("name", SEVEN)


def lines(name: str, text: str) -> int:
    return sum(len(textwrap.wrap(line, WIDTH)) for line in plain(run(name).words(text)))


def sums(text: str) -> Iterator[tuple[float, str, float]]:
    """What stands on both sides of `=` or `≈` in the code of a text, as far as it is of numbers alone."""
    for code in re.findall(r"`([^`]*)`", text):
        if len(sides := re.split(r"\s*([=≈])\s*", code)) == 3 and all(map(NUMBERS.fullmatch, sides[::2])):
            yield value(sides[0]), sides[1], value(sides[2])


def value(term: str) -> float:
    for written, python in ((r"√(\d+)", r"sqrt(\1)"), (r"\^", "**"), (r"(\d)\s?([KMG])iB", r"\1*\2"), ("2π", "2*π")):
        term = re.sub(written, python, term)
    known = {"sqrt": sqrt, "e": e, "π": pi, "σ": lambda x: 1 / (1 + e**-x), "K": 2**10, "M": 2**20, "G": 2**30}
    return float(eval(term.replace("·", "*").replace("−", "-"), {"__builtins__": {}}, known))


def test_seven_lectures_come_along_one_of_them_in_markdown():
    assert set(SEVEN) == {"order", "vectors", "attention", "heads", "ffn", "cache", "flash"}


@EVERY
def test_every_place_view_and_number_is_there(name: str):
    assert {found.stop.title: found.troubles for found in check(run(name)) if found.troubles} == {}


@EVERY
def test_it_names_keys_that_the_app_has(name: str):
    read_tour(name, known_actions())


@LECTURES
def test_it_is_of_a_length_for_a_lecture(name: str):
    assert 10 <= len(tour(name).stops) <= 18


@EVERY
def test_narrations_are_short_enough_to_be_read_from_the_wall(name: str):
    for stop in tour(name).stops:
        assert len(" ".join(plain(run(name).words(stop.narration))).split()) <= MOST_WORDS, stop.title
        assert lines(name, stop.narration) + lines(name, stop.question) <= MOST_LINES, stop.title


@LECTURES
def test_no_line_of_it_is_a_list_by_accident(name: str):
    for stop in tour(name).stops:
        for text in (stop.narration, stop.question, stop.answer, stop.notes):
            assert {block[0] for block in parse(text)} <= {"p"}, stop.title


@LECTURES
def test_the_audience_is_asked_before_it_is_told(name: str):
    asking = [stop for stop in tour(name).stops if stop.question]
    assert len(asking) >= 5
    assert tour(name).stops[-1].question


@LECTURES
def test_every_stop_has_notes_and_they_fill_the_time_that_is_promised(name: str):
    promised = re.search(r"(\d+) minutes", " ".join(plain(parse(tour(name).about))))
    needed = [re.match(r"(\d) minutes?\b", stop.notes) for stop in tour(name).stops]
    assert promised
    assert all(needed)
    spoken = sum(int(found[1]) for found in needed if found)
    assert int(promised[1]) - 5 <= spoken <= int(promised[1]) + 5


@LECTURES
def test_it_leads_on_to_tours_and_stops_that_there_are(name: str):
    for stop in tour(name).stops:
        texts = "\n".join((stop.narration, stop.answer, stop.notes))
        assert set(re.findall(r"(?:the\s+tour `|layerstep tour )(\w+)", texts)) <= set(SEVEN)
        for led_to, stops in re.findall(r"layerstep tour (\w+)`, stops ([^.]*)\.", texts):
            titles = {other.title for other in tour(led_to).stops}
            assert set(re.findall(r"\*([^*]+)\*", stops)) <= titles


@LECTURES
def test_sums_that_it_writes_out_are_right(name: str):
    for stop in tour(name).stops:
        for text in (stop.narration, stop.answer, stop.notes):
            for left, sign, right in sums(text):
                assert isclose(left, right, rel_tol=1e-9 if sign == "=" else 0.03), (
                    f"{stop.title}: {left} {sign} {right}"
                )


def test_the_lectures_do_write_sums_out():
    assert sum(len(list(sums(stop.narration + stop.answer))) for name in SEVEN for stop in tour(name).stops) > 12


# --- the first walk -----------------------------------------------------------------------------------------


def test_the_first_walk_is_read_in_the_time_that_is_promised():
    told = " ".join(stop.narration for stop in tour("first").stops)
    assert len(told.split()) / (READ / 60) <= SECONDS
    assert 8 <= len(tour("first").stops) <= 14


def test_the_tokens_are_those_that_it_names():
    assert labels(main("first"))[1:] == ["The", "␣server", "␣crashed", "␣because", "␣the", "␣disk", "␣was", "␣full"]
    assert model("modern").config.d_head == 16


def test_the_head_that_it_shows_looks_from_a_verb_to_its_subject():
    words = labels(main("first"))
    pattern = main("first")["blocks.1.attn.pattern"][0, 5]
    for verb, subject in (("␣was", "␣disk"), ("␣crashed", "␣server")):
        query, key = words.index(verb), words.index(subject)
        assert pattern[query].argmax() == key
        assert pattern[query, key] > 0.9
    others = [words.index(word) for word in ("␣because", "␣the", "␣full")]
    assert pattern[others].amax(-1).max() < 0.6  # it is no head of the token before


def test_the_head_that_it_asks_for_rests_on_the_first_token():
    assert (main("first")["blocks.2.attn.pattern"][0, 2, 1:, 0] > 0.85).all()


def test_the_score_is_the_highest_of_its_row():
    scores = main("first")["blocks.1.attn.scores"][0, 5, 7]
    assert scores.argmax() == labels(main("first")).index("␣disk")


def test_the_neuron_is_the_one_that_does_most_and_pushes_those_words():
    t, weights = main("first"), model("modern").weights
    post = t["blocks.2.mlp.post"][0, labels(t).index("␣because")]
    down, unembed = weights["blocks.2.mlp.down.weight"], weights["embed.weight"]
    does = post.abs() * down.norm(dim=0)
    assert does.argmax() == 182
    pushed = (unembed @ (down[:, 182] * post[182])).topk(5).indices
    assert {"␣the", "␣this", "␣my"} <= {t.label(int(token)) for token in pushed}


def test_the_nearest_tokens_are_machines_mostly():
    t, table = main("first"), model("modern").weights["embed.weight"]
    table = table / table.norm(dim=-1, keepdim=True)
    nearest = (table @ table[int(t["tokens"][0, 6])]).topk(7).indices[1:]
    near = {t.label(int(token)).strip("␣") for token in nearest}
    assert len(near & {"battery", "server", "kettle", "clock", "phone", "computer", "oven", "radio"}) >= 5


def test_what_comes_next_is_what_it_says():
    assert [(row.label, row.id) for row in main("first").top(2)] == [(".", 16), ("␣and", 287)]


def test_the_value_is_mixed_from_what_disk_gave():
    t = main("first")
    value, z = t["blocks.1.attn.v"][0, 6, 2], t["blocks.1.attn.z"][0, 7, 5]  # two query heads share one of values
    assert (z @ value) / (z.norm() * value.norm()) > 0.99

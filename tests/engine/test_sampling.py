"""Sampling beside transformers' own processors, and its draws beside transformers' own draw."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel
from transformers.generation import logits_process as theirs

from engine.errors import LayerstepError, SamplingError
from engine.sampling import Sampling

RANDOM = st.builds(
    lambda size, spread, seed: torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread,
    st.integers(1, 400),
    st.sampled_from([1e-6, 0.3, 3.0, 40.0, 1e6, 1e30]),
    st.integers(0, 2**31),
)
ADVERSARIAL = st.lists(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0 + 2**-23, 2.5, -7.0, 60.0, -80.0, 3e38, -3e38, 1e-40, -inf]),
    min_size=1,
    max_size=40,
).filter(lambda values: max(values) > -inf)
"""Ties everywhere, numbers one rounding apart, a spread that no softmax can hold, and tokens that are excluded."""
LOGITS = st.one_of(RANDOM, ADVERSARIAL.map(torch.tensor), st.integers(1, 20).map(torch.zeros))

TEMPERATURES = st.one_of(st.sampled_from([0.5, 1.0, 2.0]), st.floats(0.01, 100))
TOP_KS = st.one_of(st.integers(1, 12), st.sampled_from([50, 10**9]))
TOP_PS = st.one_of(st.sampled_from([0.0, 1e-9, 0.25, 0.5, 0.75, 1 - 1e-9]), st.floats(0, 1, exclude_max=True))
MIN_PS = st.one_of(st.sampled_from([0.0, 1e-9, 0.5, 1 - 1e-9, 1.0]), st.floats(0, 1))
PENALTIES = st.one_of(st.sampled_from([0.5, 1.0, 1.3]), st.floats(0.1, 10))


@st.composite
def logits_and_seen(draw: st.DrawFn) -> tuple[Tensor, list[int]]:
    logits = draw(LOGITS)
    return logits, draw(st.lists(st.integers(0, len(logits) - 1), max_size=12))


def same(ours: Tensor, other: Tensor) -> bool:
    """The same bits, NaN included; transformers has a row for each prompt."""
    return ours.dtype == other.dtype == torch.float32 and np.array_equal(ours.numpy(), other[0].numpy(), equal_nan=True)


@pytest.fixture(scope="module")
def reference() -> GPT2LMHeadModel:
    """Any model: what builds transformers' list of processors is one of its methods."""
    return GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=8, n_embd=4, n_layer=1, n_head=1))


def assembled(reference: GPT2LMHeadModel, sampling: Sampling) -> theirs.LogitsProcessorList:
    """The processors that transformers' generate would run, in its order."""
    names = ("top_k", "top_p", "min_p", "repetition_penalty")
    options: dict[str, Any] = {name: getattr(sampling, name) for name in names}
    if sampling.temperature:
        options |= {"do_sample": True, "temperature": sampling.temperature}
    return reference._get_logits_processor(GenerationConfig(**options), input_ids_seq_length=1, device="cpu")


@pytest.mark.parametrize(
    ("name", "values", "processor"),
    [
        ("temperature", TEMPERATURES, theirs.TemperatureLogitsWarper),
        ("top_k", TOP_KS, theirs.TopKLogitsWarper),
        ("top_p", TOP_PS, theirs.TopPLogitsWarper),
        ("min_p", MIN_PS, theirs.MinPLogitsWarper),
        ("repetition_penalty", PENALTIES, theirs.RepetitionPenaltyLogitsProcessor),
    ],
)
def test_each_step_is_transformers_own(name, values, processor):
    @settings(max_examples=150)
    @given(logits_and_seen(), values)
    def check(given, value):
        logits, seen = given
        before = logits.clone()
        ours = Sampling(**{"temperature": 1.0, name: value}).scores(logits, seen)
        assert same(ours, processor(value)(torch.tensor([seen], dtype=torch.int64), logits[None].clone()))
        assert torch.equal(logits, before)

    check()


@settings(max_examples=300)
@given(
    logits_and_seen(), st.one_of(st.just(0.0), TEMPERATURES), st.none() | TOP_KS, st.none() | TOP_PS | st.just(1.0),
    st.none() | MIN_PS, PENALTIES,
)  # fmt: skip
def test_all_steps_together_are_transformers_own(reference, given, temperature, top_k, top_p, min_p, penalty):
    logits, seen = given
    sampling = Sampling(temperature, top_k, top_p, min_p, penalty)
    ids, expected = torch.tensor([seen], dtype=torch.int64), logits[None].clone()
    processors = assembled(reference, sampling)
    stages = sampling.stages(logits, seen)
    assert torch.equal(stages[0][1], logits)
    for (_, scores), processor in zip(stages[1:], [p for p in processors if not is_idle(p)], strict=True):
        expected = processor(ids, expected)
        assert same(scores, expected)
    assert same(sampling.scores(logits, seen), processors(ids, logits[None].clone()))


def is_idle(processor: theirs.LogitsProcessor) -> bool:
    """min-p of 0 is in transformers' list and keeps every token; it is no step of ours."""
    return isinstance(processor, theirs.MinPLogitsWarper) and processor.min_p == 0


@settings(max_examples=200)
@given(logits_and_seen(), TEMPERATURES, TOP_KS, TOP_PS, MIN_PS)
def test_the_likeliest_token_always_survives(given, temperature, top_k, top_p, min_p):
    """Of several that are equally likely, one."""
    logits, _ = given
    scaled = logits / temperature
    assume(bool(scaled.max().isfinite()))
    best = scaled == scaled.max()
    scores = Sampling(temperature, top_k, top_p, min_p).scores(logits)
    assert bool((scores[best] > -inf).any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_scores_are_float32_and_the_logits_stay_as_they_are(dtype):
    logits = torch.randn(30).to(dtype)
    before = logits.clone()
    sampling = Sampling(0.7, top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.2)
    stages = dict(sampling.stages(logits, [3, 4, 3]))
    assert list(stages) == ["raw", "repetition penalty", "temperature", "top-k", "top-p", "min-p"]
    assert {scores.dtype for scores in stages.values()} == {torch.float32}
    assert torch.equal(logits, before)
    assert torch.equal(stages["raw"], logits.float())


@pytest.mark.parametrize(
    "seen", [[2, 5, 2], (2, 5), {2, 5}, iter([5, 2]), torch.tensor([2, 5]), torch.tensor([5, 2]).int()]
)
def test_what_was_seen_may_be_any_collection_of_ids(seen):
    logits = torch.tensor([1.0, -1.0, 2.0, -2.0, 3.0, -3.0])
    assert Sampling(repetition_penalty=2.0).scores(logits, seen).tolist() == [1.0, -1.0, 1.0, -2.0, 3.0, -6.0]


def test_steps_that_change_nothing_are_left_out():
    logits = torch.randn(5)
    idle = Sampling(temperature=1.0, top_p=1.0, min_p=0.0, repetition_penalty=1.0)
    assert [name for name, _ in idle.stages(logits)] == ["raw"]


def test_greedy_choice_takes_the_penalty_and_no_filter():
    logits = torch.tensor([1.0, 3.0, 2.0])
    sampling = Sampling(top_k=1, top_p=0.1, min_p=0.9, repetition_penalty=2.0)
    assert [name for name, _ in sampling.stages(logits, [1])] == ["raw", "repetition penalty"]
    assert sampling.choose(sampling.scores(logits, [1])) == 2
    assert Sampling().choose(logits) == 1


def test_greedy_choice_of_equals_is_the_lowest_id():
    assert Sampling().choose(torch.tensor([0.0, 7.0, 7.0, 7.0])) == 1


def drawn(sampling: Sampling, scores: Tensor, n: int) -> list[int]:
    generator = sampling.generator()
    return [sampling.choose(scores, generator) for _ in range(n)]


@given(LOGITS, st.integers(0, 2**64 - 1))
def test_a_seed_draws_what_transformers_draws(logits, seed):
    """The line of its `_sample`, after torch.manual_seed; and what is excluded is never drawn."""
    sampling = Sampling(temperature=1.0, top_k=5, seed=seed)
    scores = sampling.scores(logits)
    torch.manual_seed(seed)
    expected = [torch.multinomial(torch.softmax(scores[None], -1), num_samples=1).item() for _ in range(20)]
    assert drawn(sampling, scores, 20) == expected
    assert all(scores[token] > -inf for token in expected)


def test_draws_follow_the_probabilities():
    scores = torch.tensor([0.7, 0.2, 0.1, 0.0]).log()
    counts = torch.tensor(drawn(Sampling(1.0, seed=3), scores, 20_000)).bincount(minlength=4) / 20_000
    assert torch.allclose(counts, scores.exp(), atol=4 * (0.25 / 20_000) ** 0.5)  # four standard deviations
    assert counts[3] == 0


def test_without_a_seed_draws_differ_and_can_be_repeated():
    scores, sampling = torch.zeros(1000), Sampling(temperature=1.0)
    generator = sampling.generator()
    first = [sampling.choose(scores, generator) for _ in range(20)]
    assert first != drawn(sampling, scores, 20)
    assert first == drawn(Sampling(1.0, seed=generator.initial_seed()), scores, 20)


def test_drawing_leaves_torch_s_own_random_numbers_alone():
    state = torch.get_rng_state()
    drawn(Sampling(1.0, seed=5), torch.zeros(9), 5)
    drawn(Sampling(1.0), torch.zeros(9), 5)
    assert torch.equal(torch.get_rng_state(), state)


@given(logits_and_seen(), st.sampled_from([nan, inf]), st.data())
def test_no_token_is_chosen_where_a_logit_is_not_finite(given, bad, data):
    """Whatever the steps: none of them hides it."""
    logits, seen = given
    logits[data.draw(st.integers(0, len(logits) - 1))] = bad
    for sampling in (
        Sampling(), Sampling(repetition_penalty=1.2), Sampling(0.7), Sampling(0.7, top_k=1), Sampling(0.7, top_p=0.1),
        Sampling(0.7, min_p=1.0), Sampling(0.7, 3, 0.5, 0.1, 1.1),
    ):  # fmt: skip
        with pytest.raises(SamplingError, match=r"no token can be chosen: a score is (NaN|\+inf); look for the first"):
            sampling.choose(sampling.scores(logits, seen), sampling.generator())


@pytest.mark.parametrize(
    ("sampling", "logits", "words"),
    [
        (Sampling(), [-inf, -inf], "every score is −inf"),
        (Sampling(0.5), [-inf], "every score is −inf"),
        (Sampling(1e-40), [0.5, 1.0], "a score is .inf.*take a temperature and a penalty nearer to 1"),
        (Sampling(repetition_penalty=1e-40), [0.0, 1.0], "take a temperature and a penalty nearer to 1"),
    ],
)
def test_scores_that_leave_no_choice(sampling, logits, words):
    with pytest.raises(SamplingError, match=words):
        sampling.choose(sampling.scores(torch.tensor(logits), [len(logits) - 1]))


NEVER = [
    nan,
    inf,
    -inf,
    True,
    "0.5",
    b"1",
    [1],
    object,
    1j,
    torch.tensor(1.0),
    np.bool_(True),
    np.float64(nan),
    10**400,
]
WRONG = {
    "temperature": [None, -0.1, -1],
    "top_k": [0, -1, 1.0, 2.5, np.float32(3)],
    "top_p": [-0.01, 1.01, 2, -1],
    "min_p": [-0.01, 1.01, 5],
    "repetition_penalty": [None, 0, 0.0, -1.2],
    "seed": [-1, 2**64, 1.0, 10**5000],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_out_of_range_is_refused_in_one_line(name):
    for value in (*WRONG[name], *NEVER):
        with pytest.raises(LayerstepError) as error:
            Sampling(**{name: value})
        message = str(error.value)
        assert message.startswith(f"{name} must be a ")
        assert "; " in message
        assert len(message) < 250
        assert message.isprintable()


def test_the_message_names_value_range_and_remedy():
    with pytest.raises(SamplingError, match=r"^top_p must be a number from 0 to 1, but is 1.5; 1 keeps every token$"):
        Sampling(top_p=1.5)


def test_foreign_text_in_a_value_is_made_visible_and_cut():
    class Foreign:
        def __repr__(self) -> str:
            return "\x1b[31m\u202e" * 90

    with pytest.raises(SamplingError) as error:
        Sampling(temperature=Foreign())
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 250


def test_numbers_of_numpy_are_taken_as_python_s():
    sampling = Sampling(np.float64(0.5), np.int64(3), np.float32(0.5), 1, 2, np.uint64(2**64 - 1))
    assert sampling == Sampling(0.5, 3, 0.5, 1.0, 2.0, 2**64 - 1)
    assert [type(getattr(sampling, name)) for name in Sampling.__slots__] == [float, int, float, float, float, int]

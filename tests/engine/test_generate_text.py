"""What generation says, as it says it: whole characters, all spaces, and an end where one is asked for."""

from __future__ import annotations

import pytest
from forced import Forced, speaking
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tokenizer import INNER
from tiny import GPT2, MODERN, random_ids

from engine import Model, branch, crop, extend, generate, trace
from engine.errors import PromptError
from engine.tokenizer import Tokenizer

JOINING = ["byte_level", "llama", "unigram"]
MODELS = {name: speaking(Tokenizer(INNER[name])) for name in JOINING}
PROMPTS = {  # ids: text, what the tokenizer alone puts first, and half a clef
    name: [m.tokenizer.ids("the dog"), m.tokenizer.ids("") or m.tokenizer.ids("a"), m.tokenizer.ids("i 𝄞")[:-2]]
    for name, m in MODELS.items()
}
BITS = ["a", "b", " ", "  ", "the", "👍", "𝄞", "地", "é", "\n", "👩\u200d👧", "e\u0301", "⭢"]
TEXT = st.lists(st.sampled_from(BITS), max_size=10).map("".join)


def said(model: Model, prompt: list[int], ids: list[int], **options: object) -> list:
    """The steps of a generation that takes these ids."""
    options = {"max_new_tokens": len(ids), "stop_tokens": ()} | options
    return list(generate(model, prompt, sampling=Forced(ids), keep=["logits"], **options))


def certain(model: Model, ids: list[int]) -> str:
    """The characters that have all their bytes. (The library makes U+FFFD of a whole run of bytes while one is cut.)"""
    tokens = [token for token in map(model.tokenizer.token, ids) if not token.special]
    text = b"".join(token.bytes for token in tokens).decode("utf-8", "ignore")
    return text if model is MODELS["byte_level"] else text.removeprefix(" ")


@pytest.mark.parametrize("which", range(3), ids=["text", "bos", "half a character"])
@pytest.mark.parametrize("name", JOINING)
@given(text=TEXT)
@settings(max_examples=20)
def test_text_is_said_as_soon_as_it_is_certain(name, which, text):
    # T1, T2
    model, prompt = MODELS[name], PROMPTS[name][which]
    rest = model.tokenizer.ids("i 𝄞")[-2:] if which == 2 else []
    ids = [*rest, *model.tokenizer.ids("x" + text, add_special=False)]
    before, shown = certain(model, prompt), ""
    for step in said(model, prompt, ids):
        shown += step.text
        assert "\ufffd" not in step.text
        assert before + shown == certain(model, [*prompt, *ids[: step.step + 1]])
    assert before + shown == model.tokenizer._inner.decode([*prompt, *ids])
    assert shown.endswith("x" + text)
    assert shown.removesuffix("x" + text).strip().endswith("𝄞") == (which == 2)


@pytest.mark.parametrize("name", INNER)
@given(data=st.data())
@settings(max_examples=20)
def test_increments_are_the_text_of_all_ids(name, data):
    """Ids at random, which may break characters: what waits comes with the next step, and at the end all is said."""
    model = MODELS[name] if name in MODELS else speaking(Tokenizer(INNER[name]))
    some = st.lists(st.integers(0, model.config.d_vocab - 1), min_size=1, max_size=12)
    prompt, ids = data.draw(some), data.draw(some)
    stream = model.tokenizer.stream()
    shown = "".join(map(stream.push, prompt))
    for step in said(model, prompt, ids):
        shown += step.text
        stream.push(ids[step.step])
        if step.stopped or not stream.waiting:
            assert shown == model.tokenizer.decode([*prompt, *ids[: step.step + 1]])


@pytest.mark.parametrize("name", JOINING)
def test_what_never_becomes_a_character_is_said_at_the_end(name):
    model = MODELS[name]
    ids = model.tokenizer.ids("𝄞", add_special=False)
    texts = [step.text for step in said(model, PROMPTS[name][0], ids[:-1])]
    assert "\ufffd" not in "".join(texts[:-1])
    assert texts[-1].endswith("\ufffd")


# --- where it ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JOINING)
@given(text=TEXT, data=st.data())
@settings(max_examples=20)
def test_it_stops_where_the_new_text_first_holds_one_of_the_texts(name, text, data):
    model, prompt = MODELS[name], PROMPTS[name][0]
    ids = model.tokenizer.ids("dog" + text + " dog", add_special=False)
    before = certain(model, prompt)
    texts = [certain(model, [*prompt, *ids[:n]])[len(before) :] for n in range(len(ids) + 1)]
    begin = data.draw(st.integers(0, len(texts[-1]) - 1))
    stop = texts[-1][begin : begin + data.draw(st.integers(1, 6))]
    steps = said(model, prompt, ids, stop=["never", stop])
    first = next(n for n, t in enumerate(texts) if stop in t)
    assert len(steps) == first
    assert [step.stopped for step in steps] == [""] * (first - 1) + ["stop string"]
    assert "".join(step.text for step in steps) == texts[first]  # the tokens of the stop string stay


def test_a_stop_string_in_the_prompt_stops_nothing():
    model = MODELS["byte_level"]
    prompt, ids = model.tokenizer.ids("the dog"), model.tokenizer.ids(" was", add_special=False)
    assert said(model, prompt, ids, stop=["dog", "g "])[-1].stopped == "length"


def test_it_stops_at_any_of_the_tokens_that_end_a_text():
    ends = {"config.json": {"eos_token_id": [1, 7]}, "generation_config.json": {"eos_token_id": 9}}
    model = speaking(Tokenizer(INNER["byte_level"], ends), eos_token_id=11)
    for end in (1, 7, 9, 11):
        steps = said(model, [5, 6], [20, 21, end, 22], stop_tokens=None)
        assert [step.stopped for step in steps] == ["", "", "end token"]
        assert steps[-1].token.id == end
        assert steps[-1].trace.length == 4  # chosen, and not run
        assert said(model, [5, 6], [20, 21, end, 22], stop_tokens=())[-1].stopped == "length"
        assert said(model, [5, 6], [20, 21, end, 22], stop_tokens=[21])[-1].step == 1
    assert said(model, [5, 9], [20, 21], stop_tokens=None)[-1].stopped == "length"  # the prompt's own ends nothing


def test_a_model_without_a_tokenizer_ends_as_its_config_says(tiny):
    model = tiny(**MODERN, eos_token_id=7)
    assert [step.stopped for step in said(model, [1], [3, 7, 4], stop_tokens=None)] == ["", "end token"]
    assert {step.text for step in said(model, [1], [3, 7, 4])} == {""}
    with pytest.raises(PromptError, match="has no tokenizer, so no text can stop it; give stop_tokens"):
        generate(model, [1], stop=["a"])


def test_a_text_that_is_prompt_alone_as_text_and_as_ids():
    model = MODELS["llama"]
    one, other = (list(generate(model, prompt, max_new_tokens=5)) for prompt in ("the dog", PROMPTS["llama"][0]))
    assert [step.token for step in one] == [step.token for step in other]
    assert [step.text for step in one] == [step.text for step in other]


# --- the context (T6) -------------------------------------------------------------------------------------


def test_learned_positions_end_with_the_context(tiny):
    model = tiny(**GPT2, n_ctx=8)
    for n, more in ((8, 1), (7, 2), (3, 6)):
        steps = list(generate(model, random_ids(model.config, n), max_new_tokens=50))
        assert [step.stopped for step in steps] == [""] * (more - 1) + ["context"]
        assert steps[-1].trace.length == 8
        assert not steps[-1].trace.notices
    assert [s.stopped for s in generate(model, random_ids(model.config, 8), max_new_tokens=1)] == ["length"]
    with pytest.raises(PromptError, match=r"9 tokens.*8 positions"):
        generate(model, random_ids(model.config, 9))
    full = trace(model, [1, 2], positions=[3, 7])
    assert [step.stopped for step in generate(model, full)] == ["context"]


def test_rotary_positions_say_so_once_and_go_on(tiny):
    model = tiny(**MODERN, n_ctx=8)
    steps = list(generate(model, random_ids(model.config, 6), max_new_tokens=10))
    assert [step.stopped for step in steps] == [""] * 9 + ["length"]
    assert [len(step.trace.notices) for step in steps] == [0] * 3 + [1] * 7
    assert steps[-1].trace.notices[0].startswith("9 tokens are more than the 8")


# --- back within a character ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JOINING)
def test_a_trace_cut_within_a_character_has_the_tokens_and_text_of_a_fresh_one(name):
    model = MODELS[name]
    ids = model.tokenizer.ids("i 𝄞 地", add_special=False)
    for t in (trace(model, ids), extend(model, trace(model, ids[:4]), ids[4:])):
        for n in range(1, len(ids)):
            cropped, fresh = crop(model, t, n), trace(model, ids[:n])
            assert cropped.tokens == fresh.tokens
            assert cropped.prompt == fresh.prompt
            assert branch(model, t, n, ids[1]).tokens == extend(model, fresh, ids[1:2]).tokens

"""Generation, and going back in it: always what a fresh run gives."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from bits import assert_same_bits, assert_still, snapshot
from forced import Forced
from hypothesis import given, settings
from hypothesis import strategies as st
from test_splits import EXACT, assert_same
from tiny import CAUSAL, ENCODER, GPT2, LONGER, MODERN, SENTENCE, TRANSLATOR, configs, gap, random_ids, random_model

from engine import Generated, Model, Sampling, Trace, branch, crop, extend, generate, open_trace, trace
from engine.cache import BLOCK
from engine.decoding import Decoder
from engine.errors import Cancelled, LayerstepError, MemoryLimitError, PromptError, SamplingError, is_out_of_memory
from engine.ops.attention import Attention
from engine.plan import bytes_of_more
from engine.runner import Prepared

KINDS = CAUSAL | {"longer": LONGER, "translator": TRANSLATOR, "near": MODERN | {"window": 1}}
KEEPS = ["all", "residual", ["blocks.*.attn.pattern", "embed"]]
SOURCE = [5, 6, 7, 8]


def begun(model: Model, ids: list[int], **options: object) -> Trace:
    """A trace of these ids; of an encoder-decoder they are what it has written so far, its start token first."""
    if model.config.encoder_layers is None:
        return trace(model, ids, **options)
    return trace(model, SOURCE, target=ids[1:], **options)


def in_passes(model: Model, ids: list[int], starts: list[int], keep: object = "all") -> Trace:
    """The same, in passes that start at these places."""
    starts = [start for start in starts if start < len(ids)]
    t = begun(model, ids[: starts[0]], keep=keep)
    for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True):
        t = extend(model, t, ids[start:stop], keep=keep)
    return t


def some_ids(model: Model, n: int, seed: int = 0) -> list[int]:
    ids = random_ids(model.config, n, seed)
    return ids if model.config.encoder_layers is None else [model.config.decoder_start_token_id, *ids[1:]]


def ids_of(t: Trace) -> list[int]:
    return [token.id for token in t.tokens[0]]


@pytest.fixture
def ran(monkeypatch) -> list[str]:
    """The names of all steps that have run, in order."""
    names: list[str] = []
    run = Prepared.run

    def noting(self: Prepared, given: object, info: object, watch: object = None) -> dict[str, torch.Tensor]:
        names.extend(step[3] for step in self.steps)
        return run(self, given, info, watch)

    monkeypatch.setattr(Prepared, "run", noting)
    return names


# --- back (K1) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "keep"),
    [(name, "all") for name in KINDS]
    + [(name, keep) for name in ("gemma", "experts", "near", "translator") for keep in KEEPS[1:]],
    ids=str,
)
def test_back_and_on_is_a_fresh_run(tiny, name, keep):
    model = tiny(**KINDS[name], dtype=torch.float32)
    ids, starts = some_ids(model, 8), [3, 4, 6, 7]  # passes of 3, 1, 2, 1 and 1
    t = in_passes(model, ids, starts, keep)
    before = snapshot(t)
    for back in (0, 1, 3, 5, 7):
        n = 8 - back
        cropped = crop(model, t, n)
        cuts = [start for start in starts if start < n]
        again = in_passes(model, ids[:n], cuts, keep) if cuts else begun(model, ids[:n], keep=keep)
        assert_same_bits(cropped, again)
        assert_same_bits(extend(model, cropped, [9, 2], keep=keep), extend(model, again, [9, 2], keep=keep))
    for pos in (2, 5, 8):
        cuts = [*(start for start in starts if start < pos), pos]
        another = in_passes(model, [*ids[:pos], 9], cuts, keep)
        if keep == "all":
            assert_same_bits(branch(model, t, pos, 9), another)
        assert torch.equal(branch(model, t, pos, 9)["logits"], another["logits"])
    edited = extend(model, crop(model, t, 4), [9, *ids[5:]], keep=keep)  # the token at 4, and what follows it again
    assert_same_bits(edited, in_passes(model, [*ids[:4], 9, *ids[5:]], [3, 4], keep))
    assert_still(t, before)


def test_back_by_nothing_is_the_trace_itself(tiny):
    model = tiny(**MODERN)
    t = trace(model, [1, 2, 3])
    assert crop(model, t, 3) is t


@given(config=configs(causal=True), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=25)
def test_back_in_any_architecture(config, seed, data):
    model = random_model(config, seed, torch.float32)
    n = data.draw(st.integers(2, 10))
    ids, starts = random_ids(config, n, seed), sorted(data.draw(st.sets(st.integers(1, n - 1), min_size=1)))
    keep = data.draw(st.sampled_from([*KEEPS, ["logits"], ["blocks.*.attn.cache_v"]]))
    t = in_passes(model, ids, starts, keep)
    to = data.draw(st.integers(1, n))
    more = random_ids(config, 2, seed + 1)
    cuts = [start for start in starts if start < to]
    again = in_passes(model, ids[:to], cuts, keep) if cuts else trace(model, ids[:to], keep=keep)
    cropped = crop(model, t, to)
    assert_same_bits(cropped, again)
    assert_same_bits(extend(model, cropped, more, keep=keep), extend(model, again, more, keep=keep))


def test_back_in_a_trace_with_positions_of_its_own(tiny):
    model = tiny(**MODERN, window=4, dtype=torch.float32)
    places = [2, 3, 7, 8, 9]
    t = extend(model, trace(model, [1, 2, 3, 4, 5], positions=places), [6, 7])
    for n in (1, 4, 5, 6):
        fresh = trace(model, [1, 2, 3, 4, 5][:n], positions=places[:n])
        fresh = fresh if n < 6 else extend(model, fresh, [6])
        assert_same_bits(crop(model, t, n), fresh)
        assert_same_bits(extend(model, crop(model, t, n), [8]), extend(model, fresh, [8]))


def test_of_what_is_cut_off_nothing_is_said_any_more(tiny):
    model = tiny(**MODERN, n_ctx=4)
    t = extend(model, trace(model, [1, 2, 3, 4, 5]), [6])
    assert t.notices == ("5 tokens are more than the 4 that tiny was trained on: expect nonsense beyond",)
    assert crop(model, t, 5).notices == t.notices
    assert crop(model, t, 4).notices == ()
    model = tiny(**LONGER)  # other angles beyond 8 positions
    t = in_passes(model, random_ids(model.config, 10), [4, 7, 9])
    assert ["turns by other angles" in notice for notice in t.notices] == [True, True]
    for n in (3, 8, 9):
        assert_same_bits(
            crop(model, t, n), in_passes(model, ids_of(t)[:n], [4, 7]) if n > 4 else trace(model, ids_of(t)[:n])
        )


@pytest.mark.parametrize("n", [0, -1, 4, True, 2.0, None, "2"])
def test_back_to_nowhere_is_refused(tiny, n):
    model = tiny(**MODERN)
    with pytest.raises(Exception, match=r"the trace has 3 tokens; keep 1…3 of them"):
        crop(model, trace(model, [1, 2, 3]), n)
    with pytest.raises(Exception, match=r"position 1…3 of this trace|outside 0…36"):
        branch(model, trace(model, [1, 2, 3]), n if n != "2" else 1, 5 if n != "2" else 37)


# --- one triangle -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in KINDS if name != "longer"])  # its angles depend on the length
def test_a_generation_is_one_full_pass(tiny, name):
    model = tiny(**KINDS[name])
    steps = list(generate(model, begun(model, some_ids(model, 3)), max_new_tokens=8, stop_tokens=()))
    assert [step.step for step in steps] == list(range(8))
    assert [step.stopped for step in steps] == [""] * 7 + ["length"]
    t = steps[-1].trace
    assert [(p.start, p.length) for p in t.passes] == [(0, 3), *((3 + i, 1) for i in range(7))]
    whole = begun(model, ids_of(t))
    assert_same(t, whole)
    for i, step in enumerate(steps):
        assert gap(step.logits, whole["logits"][0, 2 + i]) <= EXACT
        assert step.token.id == int(whole["logits"][0, 2 + i].argmax())
        assert step.prob == pytest.approx(float(whole["probs"][0, 2 + i].max()))
        assert step.trace.length == 3 + i
    triangle = t["blocks.1.attn.pattern"]  # [1 head 10 10]
    assert not triangle.triu(1).any()
    assert triangle.shape[2:] == (10, 10)
    for at, p in enumerate(t.passes):
        own = t[f"blocks.1.attn.pattern@{at}"]
        first = t.first_key("blocks.1.attn.pattern", at)
        assert torch.equal(own, triangle[:, :, p.start : p.start + p.length, first : p.start + p.length])


@given(config=configs(causal=True), n=st.integers(1, 5), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=25)
def test_a_generation_of_any_architecture_is_one_full_pass(config, n, seed, data):
    model = random_model(config, seed)
    keep = data.draw(st.sampled_from([*KEEPS, ["logits"], ["embed"]]))
    sampling = Sampling(temperature=1.5, seed=seed)
    steps = list(generate(model, random_ids(config, n, seed), max_new_tokens=5, sampling=sampling, keep=keep))
    assert_same(steps[-1].trace, trace(model, ids_of(steps[-1].trace)))


@pytest.mark.parametrize("keep", KEEPS, ids=["all", "residual", "patterns"])
def test_what_is_kept_changes_no_bit(tiny, keep):
    model = tiny(**CAUSAL["gemma"], dtype=torch.float32)
    expected = [step.logits for step in generate(model, [1, 2, 3, 4], max_new_tokens=6)]
    steps = list(generate(model, [1, 2, 3, 4], max_new_tokens=6, keep=keep))
    for step, logits in zip(steps, expected, strict=True):
        assert torch.equal(step.logits, logits)
    kept = [set(p.kept) for p in steps[-1].trace.passes]
    assert kept == [set(p.kept) for p in trace(model, [1], keep=keep).passes] * 6


# --- on from a trace --------------------------------------------------------------------------------------


def chosen(steps: list) -> list[int]:
    return [step.token.id for step in steps]


@pytest.mark.parametrize("name", KINDS)
def test_generation_goes_on_from_any_trace(tiny, tmp_path, name):
    model = tiny(**KINDS[name], dtype=torch.float32)
    ids = some_ids(model, 4)
    whole = list(generate(model, begun(model, ids), max_new_tokens=7, stop_tokens=()))
    middle = whole[3].trace
    for keep in KEEPS:
        assert chosen(generate(model, middle, max_new_tokens=4, keep=keep, stop_tokens=())) == chosen(whole)[3:]
    middle.save(tmp_path / "t.safetensors")
    opened = open_trace(tmp_path / "t.safetensors", model)
    assert_same_bits(opened, middle)
    later = list(generate(model, opened, max_new_tokens=4, stop_tokens=()))
    for step, expected in zip(later, whole[3:], strict=True):
        assert torch.equal(step.logits, expected.logits)
    assert_same_bits(later[-1].trace, whole[-1].trace)
    later[-1].trace.save(tmp_path / "u.safetensors")
    assert_same_bits(open_trace(tmp_path / "u.safetensors", model), whole[-1].trace)


def test_a_trace_that_kept_little_goes_on_as_one_that_kept_all(tiny, tmp_path):
    model = tiny(**CAUSAL["gemma"], dtype=torch.float32)
    rich, poor = (trace(model, [1, 2, 3, 4, 5], keep=keep) for keep in ("all", ["embed"]))
    expected = list(generate(model, rich, max_new_tokens=4))
    poor.save(tmp_path / "t.safetensors")
    for t in (poor, open_trace(tmp_path / "t.safetensors", model)):
        for step, other in zip(generate(model, t, max_new_tokens=4), expected, strict=True):
            assert torch.equal(step.logits, other.logits)


# --- where it breaks off ----------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 7, 20, -1])
@pytest.mark.parametrize("name", ["modern", "gemma", "translator"])
def test_what_was_done_before_it_was_cancelled_is_whole(tiny, tmp_path, name, at):
    model = tiny(**KINDS[name], dtype=torch.float32)
    start = begun(model, some_ids(model, 3), goes_on=True)
    undisturbed = list(generate(model, start, max_new_tokens=6, stop_tokens=()))
    done, cancelling = [], [True]

    def watch(step: int, of: int, what: str) -> None:
        if len(done) == 4 and step == at % of and cancelling:
            raise Cancelled("cancelled")

    steps = generate(model, start, max_new_tokens=6, stop_tokens=(), watch=watch)
    for _ in range(2):
        with pytest.raises(Cancelled):
            gather(steps, done)
    assert len(done) == 4
    assert_unharmed(model, done[-1], undisturbed, tmp_path)
    cancelling.clear()
    gather(steps, done)  # or the same generation goes on, and tries the step again
    assert_same_bits(done[-1].trace, undisturbed[-1].trace)
    assert list(steps) == []


def gather(steps: Iterator[Generated], into: list[Generated]) -> None:
    """All steps, one after another, as far as they come."""
    for step in steps:
        into.append(step)


def assert_unharmed(model: Model, last: object, undisturbed: list, tmp_path) -> None:
    """The trace as it was handed over is whole, can be saved, and goes on as if nothing had happened."""
    t, n = last.trace, last.step
    assert_same_bits(t, undisturbed[n].trace)
    t.save(tmp_path / "t.safetensors")
    assert_same_bits(open_trace(tmp_path / "t.safetensors", model), t)
    assert_same_bits(extend(model, t, [last.token.id]), undisturbed[n + 1].trace)
    again = list(generate(model, t, max_new_tokens=6 - n, stop_tokens=()))
    for step, expected in zip(again, undisturbed[n:], strict=True):
        assert step.token == expected.token
        assert torch.equal(step.logits, expected.logits)
    assert_same_bits(again[-1].trace, undisturbed[-1].trace)
    assert_same_bits(t, undisturbed[n].trace)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        MemoryError(),
    ],
    ids=["cuda", "linux", "windows", "python"],
)
def test_what_was_done_before_memory_ran_out_is_whole(tiny, tmp_path, monkeypatch, error):
    model = tiny(**KINDS["gemma"], dtype=torch.float32)
    start = trace(model, [1, 2, 3], goes_on=True)
    undisturbed = list(generate(model, start, max_new_tokens=6))
    run, done = Attention.run, []

    def failing(self: Attention, info: object, *args: object) -> torch.Tensor:
        if len(done) == 3 and self.mask.window is None:  # the second layer, after the first one's keys are in the cache
            raise error
        return run(self, info, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Attention, "run", failing)
        with pytest.raises(type(error)) as raised:
            gather(generate(model, start, max_new_tokens=6), done)
    assert is_out_of_memory(raised.value)
    assert len(done) == 3
    assert_unharmed(model, done[-1], undisturbed, tmp_path)


def test_no_token_comes_of_logits_that_are_no_numbers(tiny, ran):
    # E19
    model = tiny(**MODERN | {"tied": False})
    broken = dict(model.weights)
    broken["embed.weight"] = broken["embed.weight"].clone()
    broken["embed.weight"][9] = torch.nan
    model = Model.from_weights(model.config, broken)
    done, steps = [], generate(model, [1, 2], sampling=Checked(Forced([3, 9, 4])))
    for _ in range(2):  # trying again runs nothing anew
        with pytest.raises(SamplingError, match="no token can be chosen: a score is NaN"):
            gather(steps, done)
        assert ran.count("logits") == 3
    assert chosen(done) == [3, 9]
    assert done[-1].trace.length == 3
    assert done[-1].trace.first_nonfinite() is None
    with pytest.raises(SamplingError, match="NaN"):
        next(generate(model, [9]))
    with pytest.raises(SamplingError, match="NaN"):
        next(generate(model, [9], sampling=Sampling(temperature=1.0, seed=0)))


class Checked(Sampling):
    """Chooses what another one does, where there is a choice."""

    def __init__(self, forced: Forced) -> None:
        super().__init__()
        object.__setattr__(self, "forced", forced)

    def choose(self, scores: torch.Tensor, generator: torch.Generator | None = None) -> int:
        super().choose(scores, generator)
        return self.forced.choose(scores)


# --- two texts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["all", ["logits"]], ids=str)
def test_an_encoder_runs_once(tiny, ran, keep):
    model = tiny(**TRANSLATOR)
    steps = list(generate(model, SOURCE, max_new_tokens=5, keep=keep, stop_tokens=()))
    t = branch(model, extend(model, crop(model, steps[-1].trace, 3), [4]), 2, 7)
    list(generate(model, t, max_new_tokens=3, keep=keep, stop_tokens=()))
    once = [name for name in ran if name in model.program.once]
    assert len(once) == len(set(once))
    assert set(once) >= {name for name in model.program.handed_on if model.program.step(name)}
    assert ran.count("logits") == 5 + 1 + 1 + 2  # a pass each, and none for the last token of a generation


@pytest.mark.parametrize("keep", [*KEEPS, ["logits"], ["embed"]], ids=str)
def test_to_go_on_from_what_was_kept_runs_a_prompt_once_more_at_most(tiny, ran, keep):
    model = tiny(**MODERN | {"n_layers": 6})
    for start in (trace(model, [1, 2, 3], keep=keep), extend(model, trace(model, [1, 2], keep=keep), [3], keep=keep)):
        del ran[:]
        extend(model, start, [4], keep=keep)
        assert max(Counter(ran).values()) <= 1 + len(start.passes)


# --- what cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be 1…1,000,000, but is 0"),
        ({"max_new_tokens": -3}, "max_new_tokens must be 1…1,000,000, but is -3"),
        ({"max_new_tokens": 10**9}, "max_new_tokens must be 1…1,000,000, but is 1000000000"),
        ({"max_new_tokens": 2.0}, r"max_new_tokens must be 1…1,000,000, but is 2\.0"),
        ({"max_new_tokens": True}, "max_new_tokens must be 1…1,000,000, but is True"),
        ({"stop": "abc"}, "stop is a list of texts"),
        ({"stop": 3}, "stop is a list of texts"),
        ({"stop": [""]}, "stop is a list of texts of 1…10,000 characters each"),
        ({"stop": ["x" * 10_001]}, "stop is a list of texts of 1…10,000 characters each"),
        ({"stop": [3]}, "stop is a list of texts"),
        ({"stop": ["a"]}, "tiny has no tokenizer, so no text can stop it; give stop_tokens"),
        ({"stop_tokens": [37]}, "token id 37 is outside 0…36"),
        *(
            ({"stop_tokens": wrong}, "stop_tokens is a list of token ids")
            for wrong in (5, "5", torch.tensor(3), np.array(3), torch.tensor([[3, 4]]), [None], [3.0])
        ),
        ({"sampling": {"temperature": 1}}, "sampling is a Sampling"),
        ({"keep": "nothing"}, "no site 'nothing'"),
        ({"kernel": "warp"}, "kernel 'warp' is not known"),
        ({"max_memory": -1}, "max_memory must be a number of bytes"),
        ({"max_memory": 10}, "the limit is 10 B"),
    ],
)
def test_what_is_out_of_range_is_one_line_before_anything_runs(tiny, monkeypatch, options, line):
    model = tiny(**MODERN)
    monkeypatch.setattr(Prepared, "run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(LayerstepError, match=line) as error:
        generate(model, [1, 2, 3], **options)
    assert "\n" not in str(error.value)


def test_a_limit_that_is_no_number_is_refused_after_a_trace_too(tiny):
    model = tiny(**MODERN)
    for begin in ([1, 2, 3], trace(model, [1, 2, 3])):
        with pytest.raises(PromptError, match=r"^max_memory must be a number of bytes, but is '1G'$"):
            generate(model, begin, max_memory="1G")


def test_what_cannot_go_on_is_refused_at_once(tiny):
    model, encoder, pooled = tiny(**MODERN), tiny(**ENCODER), tiny(**SENTENCE)
    headless = tiny(**GPT2, head="none")
    for other in (encoder, pooled, headless):
        with pytest.raises(PromptError, match="does not predict the next token, so it cannot generate; take a decoder"):
            generate(other, [1, 2])
    with pytest.raises(PromptError, match="batch"):
        generate(model, [[1, 2], [3, 4]])
    with pytest.raises(PromptError, match="batch"):
        generate(model, trace(model, [[1, 2], [3, 4]]))
    with pytest.raises(PromptError, match="another model"):
        generate(model, trace(tiny(1, **MODERN), [1, 2]))
    with pytest.raises(PromptError, match="empty"):
        generate(model, [])
    with pytest.raises(PromptError, match="outside 0…36"):
        generate(model, [37])
    with pytest.raises(PromptError, match="no tokenizer"):
        generate(model, "text")
    with pytest.raises(PromptError, match="a trace is tokens already"):
        generate(model, trace(model, [1, 2]), chat=True)


def test_numbers_of_numpy_are_numbers(tiny):
    model = tiny(**MODERN)
    assert len(list(generate(model, np.array([1, 2]), max_new_tokens=np.int64(3)))) == 3
    assert crop(model, trace(model, [1, 2, 3]), np.int64(2)).length == 2
    assert ids_of(branch(model, trace(model, [1, 2, 3]), np.int64(1), np.int64(5))) == [1, 5]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("keep", ["all", "residual"])
def test_what_more_tokens_take_is_known_before(tiny, name, keep):
    model = tiny(**KINDS[name], dtype=torch.float32)
    before = begun(model, some_ids(model, 5), goes_on=True, keep=keep)
    new = 12
    ids = random_ids(model.config, new, 7)
    decoder = Decoder(model, before, keep=keep, room=new)
    for i in ids:
        decoder.feed([i])
    held = decoder.trace().cache.bytes
    caches = {rows.rows.untyped_storage().data_ptr() for rows in decoder.trace().cache.held.values()}
    storages = {
        x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()
        for p in decoder.passes[len(before.passes) :] for x in p.kept.values()
    }  # fmt: skip
    kept = sum(size for at, size in storages.items() if at not in caches)
    src = len(before.source_tokens[0]) if before.source_tokens else 0
    planned = bytes_of_more(model.program, model.config, 4, 5, new, keep, src)
    assert held + kept == pytest.approx(planned, rel=0.03)
    with pytest.raises(MemoryLimitError, match=rf"recording {new} more tokens needs .* but the limit is 1.0 KiB"):
        generate(model, before, max_new_tokens=new, keep=keep, max_memory=1024)
    assert next(generate(model, before, max_new_tokens=new, keep=keep, max_memory=planned)).step == 0


def test_a_batch_is_refused_before_it_runs(tiny, ran):
    with pytest.raises(PromptError, match="batch"):
        generate(tiny(**MODERN), [[1, 2], [3, 4]])
    assert not ran


def test_memory_is_asked_for_before_each_block_of_tokens(tiny, monkeypatch):
    model = tiny(**MODERN, n_ctx=4096)
    before = trace(model, random_ids(model.config, BLOCK - 2), keep="residual")
    tokens = generate(model, before, max_new_tokens=5000, stop_tokens=())  # more than are counted at once
    monkeypatch.setattr("engine.plan.NEVER_REFUSED", 0)
    monkeypatch.setattr("engine.plan.available_memory", lambda device: 1000)
    done = [next(tokens), next(tokens), next(tokens)]
    with pytest.raises(MemoryLimitError, match=r"recording 256 more tokens needs .* 1000 B; save what there is"):
        next(tokens)
    assert done[-1].trace.length == BLOCK
    monkeypatch.setattr("engine.plan.available_memory", lambda device: 2**30)
    assert next(tokens).step == 3


@pytest.mark.parametrize("ids", [[], [10**9], [-1], [1.5], "ab"])
def test_a_decoder_is_fed_ids_of_the_vocabulary(tiny, ids):
    model = tiny(**MODERN)
    decoder = Decoder(model, trace(model, [1, 2]))
    with pytest.raises(PromptError):
        decoder.feed(ids)
    assert decoder.feed([3]).length == 1


def test_a_token_says_that_it_was_generated(tiny):
    model = tiny(**MODERN)
    t = [*generate(model, [1, 2, 3], max_new_tokens=4)][-1].trace
    assert [token.origin for token in t.tokens[0]] == ["text"] * 3 + ["generated"] * 3
    longer = extend(model, t, [5])
    assert [token.origin for token in longer.tokens[0]][3:] == ["generated"] * 3 + ["text"]


def test_what_a_caller_switched_on_for_himself_changes_nothing(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    plain = [step.token.id for step in generate(model, [1, 2, 3], max_new_tokens=6, stop_tokens=())]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        steps = [*generate(model, [1, 2, 3], max_new_tokens=6, stop_tokens=())]
    assert [step.token.id for step in steps] == plain
    with torch.inference_mode():
        begun = [*generate(model, [1, 2, 3], max_new_tokens=3, stop_tokens=())][-1].trace
    assert not begun["logits"].is_inference()
    assert [s.token.id for s in generate(model, begun, max_new_tokens=4, stop_tokens=())] == plain[2:]


def test_tokens_are_asked_for_one_at_a_time(tiny):
    tokens: list[Iterator[Generated]] = []

    def watch(*told: object) -> None:
        if tokens:
            next(tokens[0])

    tokens.append(generate(tiny(**MODERN), [1, 2], max_new_tokens=4, watch=watch))
    assert next(tokens[0]).step == 0
    with pytest.raises(PromptError, match="one at a time"):
        next(tokens[0])
    with pytest.raises(PromptError, match="cannot be copied"):
        copy.copy(tokens[0])

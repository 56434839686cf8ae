"""The KV cache's memory: what is appended is copied nowhere, and what is written is never overwritten."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from bits import assert_still, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import CAUSAL, EXPERTS, GEMMA, MODERN, configs, random_ids, random_model
from torch.profiler import ProfilerActivity, profile

from engine import Sampling, Trace, branch, crop, extend, generate, trace
from engine.cache import ALIGN, BLOCK, Held
from engine.decoding import Decoder


def rows(start: int, stop: int) -> torch.Tensor:
    """Rows that tell their position. [1 n 2 3]"""
    return torch.arange(start, stop).view(1, -1, 1, 1).expand(1, -1, 2, 3).float() + torch.arange(6).view(2, 3) / 8


def storage(held: Held) -> int:
    return held.rows.untyped_storage().data_ptr()


def test_rows_are_put_where_there_is_room_and_nothing_moves():
    first = Held.of(rows(0, 5))
    second = first.append(rows(5, 6), 10)
    third = second.append(rows(6, 8))
    assert storage(first) != storage(second) == storage(third)
    assert third.rows.data_ptr() == second.rows.data_ptr()
    for held, stop in ((first, 5), (second, 6), (third, 8)):
        assert torch.equal(held.rows, rows(0, stop))
        assert (held.start, held.stop, len(held)) == (0, stop, stop)


def test_a_second_continuation_takes_a_copy():
    first = Held.of(rows(0, 5)).append(rows(5, 6))
    one = first.append(rows(6, 9))
    other = first.append(rows(16, 18))
    assert storage(first) == storage(one) != storage(other)
    assert torch.equal(one.rows, rows(0, 9))
    assert torch.equal(other.rows, torch.cat([rows(0, 6), rows(16, 18)], 1))
    assert storage(one.append(rows(9, 10))) == storage(one)  # the first may still go on in place


def test_a_buffer_grows_by_blocks_and_by_halves():
    held, buffers, copied = Held.of(rows(0, 1)), [], 0
    for i in range(1, 5000):
        before, held = held, held.append(rows(i, i + 1), None)
        if storage(before) != storage(held):
            buffers.append(held.buffer)
            copied += len(before)
    assert torch.equal(held.rows, rows(0, 5000))
    assert all(buffer.rows.shape[1] % BLOCK == 0 for buffer in buffers)
    assert len(buffers) < 12
    assert copied < 3 * 5000  # so that a token costs the same however many there are
    assert held.allocated <= 1.6 * held.rows.nbytes + BLOCK * 24


def test_room_that_is_asked_for_is_had_at_once():
    held = Held.of(rows(0, 3)).append(rows(3, 4), 1000)
    there = storage(held)
    for i in range(4, 1004):
        held = held.append(rows(i, i + 1))
        assert storage(held) == there


@pytest.mark.parametrize("start", [0, 1, 31, 32, 45, 300])
@pytest.mark.parametrize("n", [1, 7, 40])
def test_a_position_lies_in_every_buffer_alike(start, n):
    # In their last bits products know how memory is aligned, so what is derived later must lie as what ran.
    long = Held.of(rows(start, start + n), start).append(rows(start + n, start + n + 1), 600)
    short = Held.of(rows(start, start + n), start).append(rows(start + n, start + n + 1))
    later = long.last(3).append(rows(500, 501), 2000).last(2)
    for held in (long, short, later):
        position, rest = divmod(held.rows.storage_offset(), 3)
        assert rest == 0
        assert position % ALIGN == held.start % ALIGN
        assert held.rows.stride()[-1] == 1
        assert held.rows.stride()[1] == 3  # the positions of one head side by side


@given(data=st.data())
@settings(max_examples=60)
def test_no_row_is_ever_overwritten(data):
    """Rows appended to any of the caches ever made, or cut from them, against joining copies."""
    known = [(Held.of(rows(0, 2)), rows(0, 2))]
    for i in range(data.draw(st.integers(1, 30))):
        held, expected = known[data.draw(st.integers(0, len(known) - 1))]
        if data.draw(st.booleans()):
            n = data.draw(st.integers(0, 8))
            known.append((held.last(n), expected[:, max(0, expected.shape[1] - n) :]))
        else:
            new = rows(1000 * i, 1000 * i + data.draw(st.sampled_from([1, 1, 3, 200])))
            room = data.draw(st.sampled_from([0, 1, 300, None]))
            known.append((held.append(new, room), torch.cat([expected, new], 1)))
            assert known[-1][0].stop == held.stop + new.shape[1]
    for held, expected in known:
        assert torch.equal(held.rows, expected)
        assert len(held) == held.stop - held.start == expected.shape[1]


# --- of traces --------------------------------------------------------------------------------------------


def cached(t: Trace) -> dict[str, Held]:
    assert t.cache is not None
    return dict(t.cache.held)


@pytest.mark.parametrize("name", CAUSAL)
def test_decoding_copies_no_earlier_row(tiny, name):
    model = tiny(**CAUSAL[name], dtype=torch.float32)
    steps = [g.trace for g in generate(model, [1, 2, 3], max_new_tokens=40)]
    for site in model.program.caches:
        if model.program.site(site).window is None:
            places = {cached(t)[site].rows.data_ptr() for t in steps[1:]}
            assert len(places) == 1, site
    # A record of the cache looks into the same memory.
    last = steps[-1]
    for past, cache in model.program.caches.items():
        assert last.site(cache, 39).untyped_storage().data_ptr() == storage(cached(last)[past])


def allocated(do: Callable[[], object]) -> int:
    """Bytes that are allocated while something runs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as watched:
        do()
    return sum(max(0, event.self_cpu_memory_usage) for event in watched.events())


@pytest.mark.parametrize("traits", [MODERN, GEMMA | {"attn_softcap": None}], ids=["modern", "windows"])
def test_a_step_allocates_as_much_however_long_the_text_is(tiny, traits):
    model = tiny(**traits, dtype=torch.float32, n_ctx=4096)
    measured = set()
    for n in (1000, 3000):  # torch's kernel takes room for one block of keys
        decoder = Decoder(model, trace(model, random_ids(model.config, n), keep="residual", goes_on=True), room=64)
        decoder.feed([1])  # makes the buffers
        decoder.feed([2])
        measured.add(allocated(lambda decoder=decoder: decoder.feed([3])))
    assert len(measured) == 1
    assert (
        0 < measured.pop() < model.program.site("blocks.0.attn.cache_k").shape(model.config.axis_sizes(1, 1000))[1] * 24
    )


@pytest.mark.parametrize("window", [1, 2, 3, 8])
def test_a_window_holds_what_later_queries_see_and_no_more(tiny, window):
    # E10: W counts the query's own token.
    model = tiny(**MODERN, window=window)
    for t in [g.trace for g in generate(model, [1, 2, 3, 4, 5], max_new_tokens=12)][1:]:
        held = cached(t)
        assert {len(h) for h in held.values()} == {min(t.length, window - 1)}
        assert t.cache.bytes == sum(h.rows.nbytes for h in held.values())
        for at, p in enumerate(t.passes):
            past = t.site("blocks.1.attn.past_k", at)
            assert past.shape[1] == min(p.start, window - 1)
            assert t.site("blocks.1.attn.cache_k", at).shape[1] == past.shape[1] + p.length
            seen = (t.site("blocks.1.attn.pattern", at) > 0).sum(-1)
            assert (seen == torch.arange(p.start + 1, p.start + p.length + 1).clamp(max=window)).all()


@pytest.mark.parametrize("room", [None, 8, 4096])
def test_a_windows_memory_is_bounded_however_long_the_text(tiny, monkeypatch, room):
    monkeypatch.setattr("engine.cache.BLOCK", 16)
    model = tiny(**MODERN, window=6, dtype=torch.float32)
    decoder = Decoder(model, trace(model, [1, 2, 3], goes_on=True), keep=["logits"], room=room)
    row, held = model.config.kv_heads * model.config.d_head * 4, {}
    for i in range(300):
        decoder.feed([i % 37])
        held = cached(decoder.trace())
        assert all(h.allocated <= row * (2 * 6 + ALIGN + 16) for h in held.values())
    assert len({storage(h) for h in held.values()}) == len(model.program.caches)


@given(config=configs(causal=True), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=15)
def test_whatever_goes_on_from_a_trace_leaves_it_as_it_was(config, seed, data):
    """A tree of traces, each made of one before it: at the end every site of each has the bits that it had at first."""
    model = random_model(config, seed, torch.float32)
    keeps = st.sampled_from(["all", "residual", ["embed"], ["blocks.*.attn.cache_k", "logits"]])
    first = trace(model, random_ids(config, data.draw(st.integers(1, 5)), seed), keep=data.draw(keeps),
                  goes_on=data.draw(st.booleans()))  # fmt: skip
    known = [(first, snapshot(first))]
    for i in range(data.draw(st.integers(2, 6))):
        t = known[data.draw(st.integers(0, len(known) - 1))][0]
        some = random_ids(config, data.draw(st.integers(1, 4)), i)
        match data.draw(st.sampled_from(["extend", "branch", "crop", "generate"])):
            case "extend" if t.length < 20:
                made = extend(model, t, some, keep=data.draw(keeps))
            case "generate" if t.length < 20:
                sampling = Sampling(temperature=1.0, seed=seed)
                made = [g.trace for g in generate(model, t, max_new_tokens=4, sampling=sampling, stop_tokens=())][-1]
            case "branch":
                made = branch(model, t, data.draw(st.integers(1, t.length)), some[0])
            case _:
                made = crop(model, t, data.draw(st.integers(1, t.length)))
        known.append((made, snapshot(made)))
    for t, before in known:
        assert_still(t, before)
        t._derived.clear()  # nor has anything that it is derived from changed
        assert_still(t, before)


def test_a_long_generation_with_experts_and_sinks_holds_its_first_pass(tiny):
    model = tiny(**EXPERTS, dtype=torch.float32)
    steps = [g.trace for g in generate(model, [1, 2, 3], max_new_tokens=30)]
    before = snapshot(steps[3])
    again = [g.trace for g in generate(model, steps[3], max_new_tokens=26)]
    assert_still(steps[3], before)
    assert [t.id for t in again[-1].tokens[0]] == [t.id for t in steps[-1].tokens[0]][: again[-1].length]


def test_threads_that_go_on_from_one_place_do_not_meet():
    start = Held.of(rows(0, 3)).append(rows(3, 4), 200)

    def on(mark: int) -> bool:
        held = start
        for i in range(4, 40):
            held = held.append(torch.full_like(rows(i, i + 1), mark), 200)
        return torch.equal(held.rows[:, :4], start.rows) and bool((held.rows[:, 4:] == mark).all())

    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            assert all(pool.map(on, range(8)))

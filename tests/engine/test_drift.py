"""Cached against uncached: sound traces agree, and a planted fault is named."""

import json
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import (
    CAUSAL,
    ENCODER,
    GEMMA,
    LONGER,
    MODERN,
    TRANSLATOR,
    configs,
    random_ids,
    random_model,
    random_weights,
    tiny_config,
)
from torch.utils._python_dispatch import TorchDispatchMode

from engine import Model, Trace, extend, trace
from engine.analysis.drift import DRAWS, drift
from engine.cache import Held, KVCache
from engine.errors import Cancelled, MemoryLimitError, NotKeptError, PromptError
from engine.ops.attention import Attention, Mask
from engine.ops.rotary import RotaryTable, Rotate

CUTS = [4, 9, 10, 11, 14]
SOURCE = [5, 3, 8, 1]
DTYPES = [torch.float32, torch.bfloat16]
EVERY = [*DTYPES, torch.float64, torch.float16]


def in_passes(model: Model, ids: list[int], cuts: list[int] = CUTS, **options) -> Trace:
    t = trace(model, ids[: cuts[0]], **options)
    for start, stop in zip(cuts, [*cuts[1:], len(ids)], strict=True):
        t = extend(model, t, ids[start:stop], keep=options.get("keep", "all"))
    return t


def with_kept(t: Trace, site: str, at: int, tensor: torch.Tensor) -> Trace:
    """The same trace, as if this had been recorded."""
    passes = list(t.passes)
    passes[at] = replace(passes[at], kept={**passes[at].kept, site: tensor})
    return Trace(t.config, t.program, t.weights, tuple(passes), t.tokens, source_tokens=t.source_tokens)


def naive(t: Trace, whole: Trace, site: str, at: int) -> float:
    """The largest difference, by slicing one site of one pass out of a whole recording."""
    p, axes = t.passes[at], t.program.site(site).axes
    mine, index = t.site(site, at), []
    for axis, size in zip(axes, mine.shape, strict=True):
        ends = p.start + p.length
        if axis in ("pos", "query"):
            index.append(slice(p.start, ends))
        elif axis in ("kv_pos", "key"):
            index.append(slice(ends - size, ends))
        else:
            index.append(slice(None))
    gap = (mine.double() - whole.site(site, 0)[tuple(index)].double()).abs()
    return float(gap.max())


def with_cached_keys(t: Trace, layer: int, spoil) -> Trace:
    """The same trace, as if its cache held other keys."""
    name = f"blocks.{layer}.attn.past_k"
    rows = spoil(t.cache.held[name].rows.clone())
    spoilt = KVCache({**t.cache.held, name: Held.of(rows)})
    return Trace(t.config, t.program, t.weights, t.passes, t.tokens, cache=spoilt)


# ------------------------------------------------------------------------------------------------ sound traces


@pytest.mark.parametrize("dtype", EVERY, ids=str)
@pytest.mark.parametrize("name", CAUSAL)
def test_passes_on_a_cache_agree_with_one_pass(tiny, name, dtype):
    model = tiny(**CAUSAL[name] | {"n_layers": 3}, dtype=dtype)
    found = drift(in_passes(model, random_ids(model.config, 20)))
    assert found.ok, found.text
    assert found.first is None
    agree = "agree in every bit" if found.first_bit is None else f"agree up to rounding in {found.dtype}"
    assert agree in found.text
    nearest = found.to_json()["worst"]
    if nearest is not None and found.first_bit is not None:
        assert f"nearest to its tolerance is {nearest['site']}@{nearest['at']}, off by " in found.text
    assert found.worst is None or found.worst.gap <= found.tolerance == found.worst.tolerance


@given(config=configs(causal=True), seed=st.integers(0, 99), dtype=st.sampled_from(EVERY))
@settings(max_examples=60)
def test_no_architecture_drifts_by_itself(config, seed, dtype):
    model = random_model(config, seed, dtype)
    found = drift(in_passes(model, random_ids(config, 20, seed)))
    assert found.ok, found.text
    assert found.worst is None or found.worst.gap <= found.worst.tolerance / 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_norm_of_what_cancels_to_next_to_nothing_is_no_drift(dtype):
    config = tiny_config(**MODERN | {"norm_place": "sandwich", "mlp_bias": True, "norm_eps": 1e-12})
    weights, ids = random_weights(config, dtype=dtype), random_ids(config, 20)
    out = trace(Model.from_weights(config, weights), ids)["blocks.0.mlp.out"]
    weights["blocks.0.mlp.down.bias"] = weights["blocks.0.mlp.down.bias"] - out[0, 15]
    t = in_passes(Model.from_weights(config, weights), ids)
    found = drift(t)
    assert found.ok, found.text
    assert found.gaps[5][0] > 1e5 * torch.finfo(dtype).eps  # though rounding has become as large
    spoilt = drift(with_kept(t, "blocks.0.attn.q", 5, t.site("blocks.0.attn.q", 5) * 1.001))
    assert (spoilt.first.site, spoilt.first.at) == ("blocks.0.attn.q", 5)


@given(config=configs(causal=True), seed=st.integers(0, 99))
@settings(max_examples=25)
def test_every_gap_is_what_slices_of_two_whole_recordings_say(config, seed):
    model, ids = random_model(config, seed, torch.float32), random_ids(config, 16, seed)
    t, whole = in_passes(model, ids), trace(model, ids)
    found = drift(t)
    assert len(found.gaps) == len(t.passes)
    for at, gaps in enumerate(found.gaps):
        for layer, gap in enumerate(gaps):
            inside = [name for name in t.program.path() if t.program.site(name).block == layer]
            assert gap == pytest.approx(max(naive(t, whole, name, at) for name in inside), rel=1e-6)
        assert found.logits[at] == pytest.approx(naive(t, whole, "logits", at), rel=1e-6)


def test_a_trace_that_keeps_little_drifts_as_one_that_keeps_all(tiny):
    for traits in CAUSAL.values():
        model = tiny(**traits, dtype=torch.float32)
        ids = random_ids(model.config, 18)
        assert drift(in_passes(model, ids, keep="residual")) == drift(in_passes(model, ids))


def test_sites_asked_for_at_once_are_those_asked_for_one_by_one(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    ids = random_ids(model.config, 18)
    names = ["blocks.1.mlp.post", "blocks.0.attn.pattern", "logits", "positions", "blocks.1.attn.past_k"]
    one_by_one = in_passes(model, ids, keep="residual")
    for at in range(len(CUTS) + 1):
        found = in_passes(model, ids, keep="residual").sites(names, at)
        assert set(found) == set(names)
        assert all(torch.equal(found[name], one_by_one.site(name, at)) for name in names)


def test_a_model_without_a_head_is_compared_in_what_it_comes_to(tiny):
    model = tiny(**MODERN | {"head": "none"}, dtype=torch.float32)
    t, last = in_passes(model, random_ids(model.config, 18)), model.program.path()[-1]
    found = drift(with_kept(t, last, 2, t.site(last, 2) + 1))
    assert [round(gap) for gap in found.logits] == [0, 0, 1, 0, 0, 0]


def test_many_passes_of_one_token_over_one_buffer(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    ids = random_ids(model.config, 40)
    t = in_passes(model, ids, list(range(1, 40)), goes_on=True)
    assert drift(t).ok
    assert drift(t).gaps == drift(Trace(t.config, t.program, t.weights, t.passes, t.tokens)).gaps


def test_a_decoder_beside_an_encoder(tiny):
    model = tiny(**TRANSLATOR, dtype=torch.float32)
    t = trace(model, SOURCE, target=[4, 7])
    for ids in ([3], [6, 2]):
        t = extend(model, t, ids)
    found = drift(t)
    assert found.ok, found.text
    assert [len(gaps) for gaps in found.gaps] == 3 * [model.config.n_layers]
    spoilt = drift(with_kept(t, "blocks.1.cross_attn.q", 2, t.site("blocks.1.cross_attn.q", 2) + 1))
    assert (spoilt.first.site, spoilt.first.at) == ("blocks.1.cross_attn.q", 2)


def test_positions_that_were_given(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    t = trace(model, [1, 2, 3, 4], positions=[3, 5, 6, 10])
    assert drift(extend(model, extend(model, t, [9]), [8, 7])).ok


def test_one_pass_has_nothing_to_compare(tiny):
    found = drift(trace(tiny(**MODERN), [1, 2, 3]))
    assert found.ok
    assert "single pass" in found.text
    assert found.to_json()["rows"] == found.to_json()["logits"] == []


# --------------------------------------------------------------------------------------------- planted faults


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_key_that_changed_in_the_cache(tiny, dtype):
    model = tiny(**MODERN, dtype=dtype)
    t = trace(model, random_ids(model.config, 8), goes_on=True)
    rows = t.cache.held["blocks.1.attn.past_k"].rows
    turned = torch.where(torch.arange(8)[:, None, None] == 5, -rows, rows)
    found = drift(extend(model, with_cached_keys(t, 1, lambda _: turned), [3, 4]))
    assert not found.ok
    assert (found.first.site, found.first.at) == ("blocks.1.attn.cache_k", 1)
    assert found.first.gap == pytest.approx(2 * float(rows[:, 5].abs().max()), rel=1e-6)
    assert found.text.startswith("cached and uncached differ, first in blocks.1.attn.cache_k@1: by ")
    assert found.gaps[1][0] <= found.tolerance < found.gaps[1][1]


@given(config=configs(causal=True), seed=st.integers(0, 99), dtype=st.sampled_from(EVERY))
@settings(max_examples=30)
def test_one_cached_key_of_one_head_that_is_off_by_a_percent(config, seed, dtype):
    model, layer, head = random_model(config, seed, dtype), seed % config.n_layers, seed % config.kv_heads

    def off(rows):
        rows[:, -1:, head] *= 1.01
        return rows

    t = trace(model, random_ids(config, 9, seed), goes_on=True)
    found = drift(extend(model, with_cached_keys(t, layer, off), [1, 2]))
    past = f"blocks.{layer}.attn.past_k"
    if torch.equal(off(t.cache.held[past].rows.clone()), t.cache.held[past].rows):  # no row, or none that is not 0
        assert found.ok
    else:
        assert (found.first.site, found.first.at) == (f"blocks.{layer}.attn.cache_k", 1)


def test_a_bit_in_the_cache(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    t = trace(model, random_ids(model.config, 9), goes_on=True)

    def other(rows):
        rows[0, 3, 1, 2] = rows[0, 3, 1, 2].nextafter(torch.tensor(inf))
        return rows

    found = drift(extend(model, with_cached_keys(t, 1, other), [1, 2]))
    assert (found.first.site, found.first.at, found.tolerance) == ("blocks.1.attn.cache_k", 1, 0)
    assert found.text.endswith("where both must be the same")


@dataclass(frozen=True, slots=True)
class OneOff(RotaryTable):
    def run(self, info, positions):
        return RotaryTable.run(self, info, positions + (info.start > 0))


@dataclass(frozen=True, slots=True)
class Twice(Rotate):
    def run(self, info, x, cos, sin):
        once = Rotate.run(self, info, x, cos, sin)
        return Rotate.run(self, info, once, cos, sin) if info.start else once


@dataclass(frozen=True, slots=True)
class Shortsighted(Attention):
    def run(self, info, q, k, v, *places):
        mask = Mask(causal=True, window=3) if info.start else self.mask
        return Attention(self.scale, mask).run(info, q, k, v, *places)


def _one_off(op):
    return OneOff(op.function, op.rotary, op.dims)


def _twice(op):
    return Twice(op.rotary)


def _shortsighted(op):
    return Shortsighted(op.scale, op.mask)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("keep", ["all", "residual"])
@pytest.mark.parametrize(
    ("site", "wrong", "named"),
    [
        ("rotary_sin", _one_off, "rotary_sin"),
        ("blocks.1.attn.rot_k", _twice, "blocks.1.attn.rot_k"),
        ("blocks.0.attn.rot_q", _twice, "blocks.0.attn.rot_q"),
        ("blocks.1.attn.z", _shortsighted, "blocks.1.attn.z"),
    ],
)
def test_an_op_that_goes_wrong_where_there_is_a_cache(tiny, site, wrong, named, keep, dtype):
    model = tiny(**MODERN, dtype=dtype)
    program = model.program.with_ops({site: wrong(model.program.step(site).op)})
    found = drift(in_passes(replace(model, program=program), random_ids(model.config, 20), keep=keep))
    assert (found.first.site, found.first.at) == (named, 1)
    assert found.first.gap > found.tolerance > 0


def test_the_first_of_two_faults_is_that_of_the_earlier_pass(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    t = in_passes(model, random_ids(model.config, 20))
    t = with_kept(t, "blocks.0.attn.q", 3, t.site("blocks.0.attn.q", 3) + 1)
    t = with_kept(t, "blocks.1.mlp_out", 2, t.site("blocks.1.mlp_out", 2) + 1)
    t = with_kept(t, "logits", 2, t.site("logits", 2) + 1)
    first = drift(t).first
    assert (first.site, first.at) == ("blocks.1.mlp_out", 2)


def test_a_single_bit_is_no_drift_but_named(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    t = in_passes(model, random_ids(model.config, 20))
    embed = t.site("embed", 0).clone()
    embed[0, 2, 7] = embed[0, 2, 7].nextafter(torch.tensor(inf))
    found = drift(with_kept(t, "embed", 0, embed))
    assert found.ok
    assert (found.first_bit.site, found.first_bit.at) == ("embed", 0)
    q = t.site("blocks.1.attn.q", 0)
    t = with_kept(t, "blocks.1.attn.q", 0, q.nextafter(torch.tensor(inf)))
    assert drift(with_kept(t, "embed", 3, -t.site("embed", 3))).first_bit.at == 0  # a later site, but an earlier pass


@pytest.mark.parametrize("value", [nan, inf])
def test_what_is_not_finite_on_one_side_alone(tiny, value):
    model = tiny(**MODERN, dtype=torch.float32)
    t = in_passes(model, random_ids(model.config, 20))
    k = t.site("blocks.0.attn.k", 2).clone()
    k[0, 0, 0, 0] = value
    found = drift(with_kept(t, "blocks.0.attn.k", 2, k))
    assert (found.first.site, found.first.at, found.first.gap) == ("blocks.0.attn.k", 2, inf)


def test_angles_that_depend_on_the_length_do_drift(tiny):
    model = tiny(**LONGER, dtype=torch.float32)  # beyond 8 positions
    found = drift(in_passes(model, random_ids(model.config, 12), [6, 7]))
    assert found.first.at == 0
    assert found.first.site.startswith("rotary_")
    assert drift(in_passes(model, random_ids(model.config, 8), [6, 7])).ok


# ------------------------------------------------------------------------------------------------------ limits


def test_drift_as_json(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    t = in_passes(model, random_ids(model.config, 20))
    found = drift(with_kept(t, "logits", 1, t.site("logits", 1) + 1)).to_json()
    assert set(found) == {"tolerance", "dtype", "ok", "first", "first_bit", "worst", "rows", "logits", "text"}
    assert found["first"] == {"site": "logits", "at": 1, "gap": pytest.approx(1, abs=1e-4)}
    assert [row["at"] for row in found["rows"]] == list(range(6))
    assert {len(row["gaps"]) for row in found["rows"]} == {2}
    assert (found["ok"], found["dtype"], len(found["logits"])) == (False, "float32", 6)
    assert json.loads(json.dumps(found)) == found


class WithoutFloat64(TorchDispatchMode):
    """A device that has none, as Apple's."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        made = op(*args, **(kwargs or {}))
        every = made if isinstance(made, tuple | list) else [made]
        assert not any(isinstance(x, torch.Tensor) and x.dtype is torch.float64 for x in every), op
        return made


def test_a_float32_model_is_compared_without_float64(tiny):
    model = tiny(**GEMMA, dtype=torch.float32)
    t = in_passes(model, random_ids(model.config, 20))
    found = drift(t)
    with WithoutFloat64():
        assert drift(t) == found


def test_what_cannot_be_compared(tiny, tmp_path: Path):
    model = tiny(**MODERN)
    t = in_passes(model, random_ids(model.config, 20))
    with pytest.raises(NotKeptError, match=r"^an uncached pass needs the weights, [^\n]+ open it with its model$"):
        drift(Trace(t.config, t.program, None, t.passes, t.tokens))
    with pytest.raises(PromptError, match="looks both ways"):
        drift(trace(tiny(**ENCODER), [1, 2]))
    with pytest.raises(PromptError, match="a batch of 2; trace each prompt alone"):
        drift(trace(model, [[1, 2], [3, 4]]))
    with pytest.raises(MemoryLimitError, match=r"over 20 tokens needs \d+\.\d KiB, but the limit is 1000 B"):
        drift(t, max_memory=1000)
    with pytest.raises(PromptError, match=r"^max_memory must be a number of bytes, but is '1G'$"):
        drift(t, max_memory="1G")


def test_it_tells_of_its_steps_and_can_be_stopped(tiny):
    model = tiny(**MODERN)
    t = in_passes(model, random_ids(model.config, 20))
    told = []
    drift(t, lambda done, of, what: told.append((done, of, what)))
    dones = [done for done, _, _ in told]
    assert dones == sorted(dones)
    assert {of for _, of, _ in told} == {dones[-1]}
    assert dones[-1] == len(dones)
    assert {what for *_, what in told} == set(t.program.path())

    def stop(done: int, of: int, what: str) -> None:
        if what == "blocks.1.attn.z":
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        drift(t, stop)


def test_only_a_block_of_the_uncached_pass_is_held_at_once(tiny, monkeypatch):
    from engine.analysis import blockwise

    model = tiny(**MODERN | {"n_layers": 8}, dtype=torch.float32)
    t = in_passes(model, random_ids(model.config, 20))
    held, run = [], blockwise.run

    def counting(program, weights, given, names, *rest):
        held.append(len(given) + len(names))
        return run(program, weights, given, names, *rest)

    monkeypatch.setattr(blockwise, "run", counting)
    drift(t)
    assert len(held) == 10 * (1 + DRAWS)
    assert max(held) < len(t.program.path()) / 3

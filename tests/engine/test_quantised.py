"""Keys and values in the cache as int8 and int4: the arithmetic, and transformers with the same cache."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import CAUSAL, ENCODER, GEMMA, MODERN, TRANSLATOR, configs, gap, random_ids, random_model

from engine import Model, Trace, extend, load_model, trace
from engine.analysis.quantised import quantised, with_float64
from engine.dtypes import quantised_row_bytes as row_bytes
from engine.errors import Cancelled, MemoryLimitError, NotKeptError, PromptError
from engine.ops import quantised as ops
from engine.ops.quantised import read_back

CUTS = [5, 9, 10, 11]
bits_of = pytest.mark.parametrize("bits", [8, 4])


def in_passes(model: Model, ids: list[int], cuts: list[int] = CUTS, **options) -> Trace:
    t = trace(model, ids[: cuts[0]], **options)
    for start, stop in zip(cuts, [*cuts[1:], len(ids)], strict=True):
        t = extend(model, t, ids[start:stop], keep=options.get("keep", "all"))
    return t


def nearest_levels(rows: np.ndarray, bits: int, group: int) -> np.ndarray:
    """The same formula in float64, another way: of all levels that a group has, each number becomes the nearest."""
    out = np.empty_like(rows, dtype=np.float64)
    for index in np.ndindex(rows.shape[:-1]):
        for start in range(0, rows.shape[-1], group):
            part = rows[index][start : start + group].astype(np.float64)
            if bits == 8:
                levels = np.float64(np.float16(np.abs(part).max() / 127)) * np.arange(-127, 128)
            else:
                step = np.float64(np.float16((part.max() - part.min()) / 15))
                levels = np.float64(np.float16(part.min())) + step * np.arange(16)
            out[index][start : start + group] = levels[np.abs(part[:, None] - levels).argmin(1)]
    return out


# ----------------------------------------------------------------------------------------------- the arithmetic


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 70)),
    group=st.integers(1, 80),
    bits=st.sampled_from([8, 4]),
    size=st.sampled_from([0.1, 1.0, 300.0]),
    seed=st.integers(0, 999),
)
def test_each_number_becomes_the_nearest_level_of_its_group(shape, group, bits, size, seed):
    draw = torch.Generator().manual_seed(seed)
    rows = size * (torch.randn(shape, generator=draw, dtype=torch.float64) + 0.5)
    expected = torch.from_numpy(nearest_levels(rows.numpy(), bits, group))
    torch.testing.assert_close(read_back(rows, bits, group), expected, rtol=1e-12, atol=0)


numbers = st.floats(-60_000, 60_000, width=32)


@given(row=st.lists(numbers, min_size=1, max_size=40))
def test_int8_is_at_most_half_a_step_away(row):
    x = torch.tensor(row, dtype=torch.float64)
    scale = float((x.abs().max() / 127).half())
    # Below 2⁻¹⁴ float16 holds fewer digits, and then none.
    slack = 0.0 if scale >= 2**-14 else 127 * 2**-25
    assert float((read_back(x, 8, 64) - x).abs().max()) <= scale / 2 + slack


@given(row=st.lists(numbers, min_size=1, max_size=40))
def test_int4_is_at_most_half_a_step_away_and_what_float16_loses(row):
    x = torch.tensor(row, dtype=torch.float64)
    low, step = float(x.min()), float((x.max() - x.min()) / 15)
    lost = 2**-11 * (abs(low) + 15 * step) + 16 * 2**-25
    assert float((read_back(x, 4, 64) - x).abs().max()) <= step / 2 * (1 + 2**-11) + lost


@bits_of
def test_groups_alone_of_zeros_and_of_equals(bits):
    x = torch.tensor([[0.0, 0.0, 0.0, 2.5, 2.5, 2.5, 1e-3, 40.0]])
    back = read_back(x, bits, 3)
    assert back[0, :3].tolist() == [0, 0, 0]
    torch.testing.assert_close(back[0, 3:6], x[0, 3:6], rtol=2**-11, atol=0)
    alone = torch.cat([read_back(part, bits, 3) for part in x.split(3, -1)], -1)
    assert torch.equal(back, alone)


@bits_of
def test_what_is_stored_is_read_back_in_the_models_dtype(bits):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert read_back(torch.randn(2, 3, 8).to(dtype), bits, 4).dtype is dtype
    assert not read_back(torch.tensor([float("nan"), 1.0]), bits, 2).isfinite().all()


def test_bytes_of_a_row_by_hand():
    assert row_bytes(128, 8, 32) == 128 + 4 * 2  # llama.cpp's q8_0: 34 bytes for 32 numbers
    assert row_bytes(128, 4, 32) == 64 + 4 * (2 + 2)  # its q4_1: 20
    assert row_bytes(5, 4, 32) == 3 + 4  # two numbers to a byte, the last half empty
    assert row_bytes(6, 8, 4) == 6 + 2 * 2


# ------------------------------------------------------------------------------------------------- transformers


@pytest.fixture
def stores(monkeypatch):
    """``stores(bits, group)``: from then on transformers' own cache holds what is read back."""
    from transformers import DynamicCache

    update = DynamicCache.update

    def store(bits: int, group: int) -> None:
        def through(self, keys, values, *args, **kwargs):
            rows = (torch.from_numpy(nearest_levels(x.numpy(), bits, group)) for x in (keys, values))
            return update(self, *rows, *args, **kwargs)

        monkeypatch.setattr(DynamicCache, "update", through)

    return store


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Random models of transformers, the same as layerstep loads them, and how near the two are otherwise."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 61, "bos_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager"}
    gpt2 = GPT2Config(n_positions=32, n_embd=24, n_layer=3, n_head=4, **sizes)
    llama = LlamaConfig(
        hidden_size=48, intermediate_size=44, num_hidden_layers=3, max_position_embeddings=64, num_attention_heads=4,
        num_key_value_heads=2, **sizes,
    )  # fmt: skip
    made = []
    for kind, config, tolerance in ((GPT2LMHeadModel, gpt2, 1e-10), (LlamaForCausalLM, llama, 1e-5)):
        torch.manual_seed(1)
        theirs = kind(config).double().eval().requires_grad_(False)
        for weight in theirs.parameters():
            if weight.dim() == 2:
                torch.nn.init.normal_(weight, std=1.5 / weight.shape[1] ** 0.5)
        folder = tmp_path_factory.mktemp("theirs")
        theirs.save_pretrained(folder)
        made.append((theirs, load_model(folder, device="cpu", dtype="float64"), tolerance))
    return made


@bits_of
@pytest.mark.parametrize("which", [0, 1], ids=["gpt2", "llama"])
@pytest.mark.parametrize("group", [4, 32])
def test_logits_are_those_of_transformers_with_the_same_cache(pairs, stores, which, bits, group):
    theirs, model, tolerance = pairs[which]
    ids = random_ids(model.config, 13)
    t = in_passes(model, ids)
    plain = t["logits"]
    assert gap(plain, theirs(torch.tensor([ids])).logits) <= tolerance
    stores(bits, group)
    expected = theirs(torch.tensor([ids]), use_cache=True).logits
    assert gap(plain, expected) > 100 * tolerance  # it does change something
    found = quantised(t, bits, group)
    error = found.rows[-1]
    assert error.site == "logits"
    assert error.error == pytest.approx(float((expected - plain).abs().max()), abs=10 * tolerance)
    norms = (expected - plain).norm() / plain.norm()
    assert error.relative == pytest.approx(float(norms), abs=tolerance)
    p, q = (torch.distributions.Categorical(logits=x[0]) for x in (plain, expected))
    assert found.kl == pytest.approx(float(torch.distributions.kl_divergence(p, q).mean()), abs=tolerance)
    assert (found.same_top, found.positions) == (int((plain.argmax(-1) == expected.argmax(-1)).sum()), 13)


# ------------------------------------------------------------------------------------------------------- traces


def changed_run(model: Model, ids: list[int], bits: int, group: int) -> Trace:
    """A whole recording of a model whose caches are quantised."""
    caches = {name: ops.QuantisedAppend("rows", bits, group) for name in model.program.caches.values()}
    return trace(replace(model, program=model.program.with_ops(caches)), ids)


@given(config=configs(causal=True), seed=st.integers(0, 99), bits=st.sampled_from([8, 4]))
@settings(max_examples=25)
def test_errors_are_those_of_two_whole_recordings_however_it_was_cut(config, seed, bits):
    model, ids = random_model(config, seed), random_ids(config, 12, seed)
    found = quantised(in_passes(model, ids), bits, 4)
    plain, other = trace(model, ids), changed_run(model, ids, bits, 4)
    changed = [name for name in plain.program.path() if plain.site(name, 0).is_floating_point()]
    changed = [name for name in changed if not torch.equal(plain[name], other[name])]
    assert set(changed) <= {row.site for row in found.rows}
    for row in found.rows:
        delta = other[row.site] - plain[row.site]
        assert row.error == pytest.approx(float(delta.abs().max()), abs=1e-9)
        size = float(plain[row.site].norm())
        assert row.relative == pytest.approx(float(delta.norm()) / size if size else 0.0, abs=1e-9)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_cache_that_loses_nothing_changes_no_bit(tiny, name, monkeypatch):
    monkeypatch.setattr(ops, "read_back", lambda x, bits, group: x)
    model = tiny(**CAUSAL[name], dtype=torch.float32)
    for keep in ("all", "residual"):
        found = quantised(in_passes(model, random_ids(model.config, 14), keep=keep))
        assert {(row.error, row.relative) for row in found.rows} == {(0.0, 0.0)}
        assert (found.same_top, found.positions, found.kl) == (14, 14, 0.0)


@bits_of
def test_rows_begin_at_the_first_cache_and_leave_out_what_stays(tiny, bits):
    model = tiny(**MODERN)
    t = in_passes(model, random_ids(model.config, 14))
    sites = [row.site for row in quantised(t, bits).rows]
    assert sites[:3] == ["blocks.0.attn.cache_k", "blocks.0.attn.cache_v", "blocks.0.attn.z"]
    assert sites == [name for name in t.program.path() if name in sites]
    assert not {"embed", "rotary_cos", "blocks.0.attn.q", "blocks.0.attn.rot_k"} & set(sites)
    assert {"blocks.1.attn.q", "blocks.1.attn.rot_k", "logits"} <= set(sites)


def test_four_bits_err_more_than_eight_and_take_less(tiny):
    model = tiny(**MODERN)
    t = in_passes(model, random_ids(model.config, 14))
    eight, four = quantised(t, 8), quantised(t, 4)
    assert 0 < 4 * eight.rows[0].relative < four.rows[0].relative
    assert four.bytes < eight.bytes < eight.bytes_before


def test_bytes_are_those_of_the_rows_that_are_held(tiny):
    model = tiny(**GEMMA, dtype=torch.float32)  # a window of 3, of which 2 rows stay
    t = in_passes(model, random_ids(model.config, 14))
    found = quantised(t, 8)
    rows = 2 * 2 * (2 + 14)  # keys and values, kv heads, positions of both layers
    assert found.bytes_before == rows * 6 * 4
    assert found.bytes == rows * (6 + 2)
    assert found.group == 6  # a head has no more numbers


def test_a_decoder_beside_an_encoder(tiny):
    model = tiny(**TRANSLATOR)
    t = extend(model, trace(model, [5, 3, 8], target=[4, 7]), [1, 2])
    found = quantised(t)
    assert not [row for row in found.rows if row.site.startswith("encoder.") or row.site.endswith("cross_attn.k")]
    assert found.rows[-1].error > 0
    assert found.positions == t.length


def test_keys_beyond_float16_are_not_finite_and_said_to_be(tiny):
    model = tiny(**MODERN)
    weights = {name: 1e8 * w if name == "blocks.0.attn.k.weight" else w for name, w in model.weights.items()}
    found = quantised(in_passes(replace(model, weights=weights), random_ids(model.config, 14)), 4)
    assert found.rows[0].error != found.rows[0].error
    assert found.kl != found.kl
    assert found.same_top == 0


def test_a_model_without_a_head_has_no_next_tokens(tiny):
    model = tiny(**MODERN | {"head": "none"})
    found = quantised(in_passes(model, random_ids(model.config, 14)))
    assert (found.positions, found.kl) == (0, 0.0)
    assert found.rows[-1].site == model.program.path()[-1]
    assert "likeliest" not in found.text


def test_quantised_as_json(tiny):
    model = tiny(**MODERN, dtype=torch.float32)
    found = quantised(in_passes(model, random_ids(model.config, 14)), 4).to_json()
    assert set(found) == {"bits", "group", "bytes", "bytes_before", "text", "rows", "tokens"}
    assert set(found["rows"][0]) == {"site", "error", "relative"}
    assert set(found["tokens"]) == {"same_top", "of", "kl"}
    assert json.loads(json.dumps(found)) == found
    assert found["text"].startswith("keys and values in int4, 6 to a scale, take 784 B in place of 2.6 KiB (29%)")


@pytest.mark.parametrize(
    "wrong", [{"bits": 3}, {"bits": True}, {"bits": 8.0}, {"bits": "8"}, {"group": 0}, {"group": 1.5}]
)
def test_bits_and_groups_that_there_are_none_of(tiny, wrong):
    t = trace(tiny(**MODERN), [1, 2])
    with pytest.raises(PromptError, match=rf"^{next(iter(wrong))} must be [^\n]+, but is [^\n]+$"):
        quantised(t, **wrong)


def test_an_apple_gpu_has_no_float64():
    assert with_float64(torch.device("mps", 0)) == torch.device("cpu")
    assert with_float64(torch.device("cuda", 1)) == torch.device("cuda", 1)


def test_what_cannot_be_quantised(tiny):
    model = tiny(**MODERN)
    t = in_passes(model, random_ids(model.config, 14))
    with pytest.raises(NotKeptError, match=r"^another cache needs the weights, [^\n]+ open it with its model$"):
        quantised(Trace(t.config, t.program, None, t.passes, t.tokens))
    with pytest.raises(PromptError, match="looks both ways"):
        quantised(trace(tiny(**ENCODER), [1, 2]))
    with pytest.raises(PromptError, match="a batch of 2; trace each prompt alone"):
        quantised(trace(model, [[1, 2], [3, 4]]))
    with pytest.raises(MemoryLimitError, match=r"14 tokens with another cache needs [\d.]+ KiB, but the"):
        quantised(t, max_memory=1000)
    with pytest.raises(PromptError, match=r"^max_memory must be a number of bytes, but is '1G'$"):
        quantised(t, max_memory="1G")


def test_it_tells_of_its_steps_and_can_be_stopped(tiny):
    model = tiny(**MODERN)
    t = in_passes(model, random_ids(model.config, 14))
    told = []
    quantised(t, watch=lambda done, of, what: told.append((done, of)))
    assert told == sorted(told)
    assert len({of for _, of in told}) == 1

    def stop(done: int, of: int, what: str) -> None:
        if done > of // 2:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        quantised(t, watch=stop)

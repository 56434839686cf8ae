"""The step that is compiled: what it makes and records is what a plain pass makes and records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import CAUSAL, LONGER, MODERN, TRANSLATOR, configs, gap, random_ids, random_model, tiny_config

from engine import Model, Trace, compiled, crop, extend, generate, open_trace, trace
from engine.compiled import CompiledDecoder, decoder, pack, unpack
from engine.config import Rotary
from engine.decoding import Decoder
from engine.errors import Cancelled, CompileError, KernelError, PromptError
from engine.ops import linear

KINDS = CAUSAL | {"longer": LONGER, "translator": TRANSLATOR, "near": MODERN | {"window": 1}}
EXACT = 1e-10


def begun(model: Model, n: int, **options: object) -> Trace:
    """A trace of ``n`` tokens that is gone on with; an encoder-decoder has written its start token."""
    if model.config.encoder_layers is None:
        return trace(model, random_ids(model.config, n), goes_on=True, **options)
    return trace(model, random_ids(model.config, n), target=random_ids(model.config, 2), goes_on=True, **options)


def assert_same_passes(ours: Decoder, plain: Decoder, ids: Sequence[int], tolerance: float = EXACT) -> None:
    """Every pass over one of these tokens records the same sites, of the same shapes and values."""
    for i in ids:
        a, b = ours.feed([i]), plain.feed([i])
        assert (a.start, a.length, a.info.dense, a.info.extents) == (b.start, b.length, b.info.dense, b.info.extents)
        assert list(a.kept) == list(b.kept)
        assert {name: (x.shape, x.dtype) for name, x in a.kept.items()} == {
            name: (x.shape, x.dtype) for name, x in b.kept.items()
        }
        for name, x in b.kept.items():
            assert a.kept[name].isnan().equal(x.isnan()), name
            assert gap(a.kept[name].nan_to_num(), x.nan_to_num()) <= tolerance, name
        assert a.given.keys() == b.given.keys()
        assert all(torch.equal(a.given[name], x) for name, x in b.given.items())
        assert gap(ours.logits.nan_to_num(), plain.logits.nan_to_num()) <= tolerance


def both(model: Model, before: Trace, **options: object) -> tuple[CompiledDecoder, Decoder]:
    return CompiledDecoder(model, before, **options), Decoder(model, before, **options)


# --- the step itself, not compiled ------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_every_site_of_every_architecture(tiny, name):
    model = tiny(**KINDS[name])
    ours, plain = both(model, begun(model, 5), keep=["*"])
    assert_same_passes(ours, plain, random_ids(model.config, 7, seed=1))
    assert_same_trace(ours.trace(), plain.trace())
    assert all(check.ok for check in ours.trace().checks())


@given(config=configs(causal=True), seed=st.integers(0, 99), n=st.integers(1, 6))
@settings(max_examples=12)
def test_any_architecture(config, seed, n):
    model = random_model(config, seed)
    ours, plain = both(model, begun(model, n), keep=["*"])
    assert_same_passes(ours, plain, random_ids(config, 5, seed + 1))


def assert_same_trace(ours: Trace, plain: Trace, tolerance: float = EXACT) -> None:
    """Every site, kept or derived, of all passes and of the last."""
    for site in ours.program.sites:
        for at in (None, len(plain.passes) - 1):
            address = site.name if at is None else f"{site.name}@{at}"
            assert gap(ours[address].nan_to_num(), plain[address].nan_to_num()) <= tolerance, address


@pytest.mark.parametrize("name", ["modern", "gemma", "experts"])
@pytest.mark.parametrize("keep", ["residual", ["blocks.*.attn.pattern", "blocks.*.attn.cache_k"]])
def test_what_was_not_kept_is_derived_as_ever(tiny, name, keep, tmp_path):
    model = tiny(**KINDS[name])
    ours, plain = both(model, begun(model, 5, keep=keep), keep=keep)
    assert_same_passes(ours, plain, random_ids(model.config, 6, seed=1))
    assert_same_trace(ours.trace(), plain.trace())
    ours.trace().save(tmp_path / "t.safetensors")
    assert_same_trace(open_trace(tmp_path / "t.safetensors", model), plain.trace())


@pytest.mark.parametrize("name", ["gpt2", "gemma"])
def test_beyond_the_capacity_there_is_a_larger_step(tiny, name, monkeypatch):
    monkeypatch.setattr(compiled, "BLOCK", 4)
    model = tiny(**KINDS[name])
    ours, plain = both(model, begun(model, 6), room=2)
    capacities = set()
    for i in random_ids(model.config, 20, seed=1):
        assert_same_passes(ours, plain, [i])
        capacities.add(ours._step.capacity)
    assert sorted(capacities) == [12, 20, 32]


def test_the_steps_that_were_used_last_are_held(monkeypatch):
    model, made, traced = random_model(tiny_config(**MODERN)), [], compiled._traced
    monkeypatch.setattr(compiled, "_traced", lambda *args: made.append(args[1]) or traced(*args))
    before, sites = begun(model, 3), model.program.path()
    for i in range(12):
        CompiledDecoder(model, before, keep=[sites[0]]).feed([1])  # in use all along
        CompiledDecoder(model, before, keep=[sites[i + 1]]).feed([1])
        assert len(model.compiled) == min(i + 2, compiled.MOST_COMPILED)
    assert len(made) == 13  # none of them twice
    CompiledDecoder(model, before, keep=[sites[1]]).feed([1])
    assert len(made) == 14  # but for one that was not used for long


def test_passes_over_several_tokens_in_between(tiny):
    model = tiny(**MODERN)
    ours, plain = both(model, begun(model, 4))
    ids = random_ids(model.config, 12, seed=1)
    assert_same_passes(ours, plain, ids[:3])
    for decoder_ in (ours, plain):
        decoder_.feed(ids[3:6])
    assert_same_passes(ours, plain, ids[6:])


def test_positions_with_gaps(tiny):
    model = tiny(**MODERN)
    before = trace(model, [3, 1, 4, 1], positions=[2, 3, 7, 11], goes_on=True)
    ours, plain = both(model, before, keep=["*"])
    assert_same_passes(ours, plain, [5, 9, 2])
    assert ours.passes[-1].given["positions"].tolist() == [[14]]


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
def test_where_rotary_angles_change_so_do_the_step_s(tiny, scaling):
    factors = {"short_factors": (1.0, 1.2, 1.5), "long_factors": (2.0, 3.0, 5.0)} if scaling == "longrope" else {}
    model = tiny(**MODERN | {"rotary": Rotary(scaling=scaling, factor=4.0, original_n_ctx=8, **factors)})
    ours, plain = both(model, begun(model, 5), keep=["*"])
    assert_same_passes(ours, plain, random_ids(model.config, 7, seed=1))
    uncompiled = [said for said in ours.notices if "uncompiled" in said]
    assert len(uncompiled) == (scaling == "dynamic")
    assert all("beyond 8 positions passes run uncompiled" in said for said in uncompiled)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("window", [None, 3])
def test_what_is_not_finite_stays_so_and_goes_no_farther_than_in_a_plain_pass(tiny, bad, window):
    model = spoilt(tiny(**MODERN | {"window": window, "tied": False}), bad)
    ours, plain = both(model, begun(model, 4), keep=["*"])
    assert_same_passes(ours, plain, [1, 0, 2, 3, 4, 5, 6, 7, 8])
    finite = [bool(p.kept["logits"].isfinite().all()) for p in ours.passes[1:]]
    assert finite[:2] == [True, False]
    assert finite[-1] is (window is not None)  # the windows of two layers have passed it


def spoilt(model: Model, bad: float) -> Model:
    """The same model, but token 0 has a number in its embedding that is not finite."""
    embed = model.weights["embed.weight"].clone()
    embed[0, 0] = bad
    return Model.from_weights(model.config, {**model.weights, "embed.weight": embed})


def test_nothing_that_was_recorded_changes_when_two_go_on(tiny):
    model = tiny(**MODERN)
    ours = CompiledDecoder(model, begun(model, 5), keep=["*"])
    for i in (1, 2, 3):
        ours.feed([i])
    t = ours.trace()
    before = {(at, name): x.clone() for at, p in enumerate(t.passes) for name, x in p.kept.items()}
    other = extend(model, t, [9], keep=["*"])
    ours.feed([4])
    back = extend(model, crop(model, t, 6), [7, 8], keep=["*"])
    again = CompiledDecoder(model, t, keep=["*"])
    again.feed([5])
    for (at, name), x in before.items():
        assert torch.equal(t.passes[at].kept[name], x)
    for made, ids in ((other, [1, 2, 3, 9]), (ours.trace(), [1, 2, 3, 4]), (again.trace(), [1, 2, 3, 5])):
        plain = Decoder(model, begun(model, 5), keep=["*"])
        for i in ids:
            plain.feed([i])
        assert_same_trace(made, plain.trace())
    assert [token.id for token in back.tokens[0]][5:] == [1, 7, 8]


def test_numbers_are_packed_for_one_copy_and_come_out_as_they_were():
    tensors = [torch.randn(1, 2, 3), torch.arange(4), torch.randn(2, 5).t(), torch.tensor(1.5)]
    packed = pack(tensors)
    assert sorted(packed, key=str) == [torch.float32, torch.int64]
    assert all(torch.equal(a, b) for a, b in zip(unpack(packed, tensors), tensors, strict=True))


def test_before_each_step_it_may_be_cancelled(tiny):
    model = tiny(**MODERN)
    ours = CompiledDecoder(model, begun(model, 4))
    said = []
    ours.feed([1], lambda *done: said.append(done))
    ours.feed([1], lambda *done: said.append(done))
    assert said == [(0, 1, "compiling"), (0, 1, "a compiled step")]

    def stop(*done):
        raise Cancelled

    with pytest.raises(Cancelled):
        ours.feed([1], stop)
    assert ours.trace().length == 6


# --- what is refused --------------------------------------------------------------------------------------


def test_what_cannot_be_compiled_is_refused_at_once_in_a_line(tiny, monkeypatch):
    from torch._inductor import cpp_builder

    model = tiny(**MODERN)
    with pytest.raises(PromptError, match="compile must be no, torch or graphs, but is 'jit'"):
        generate(model, [1], compile="jit")
    with pytest.raises(
        CompileError, match='compile="graphs" records a CUDA graph, and tiny is on the cpu; use "torch"'
    ):
        generate(model, [1], compile="graphs")
    with pytest.raises(KernelError, match="'flash' cannot be compiled on the cpu; use kernel auto or math"):
        generate(model, [1], compile="torch", kernel="flash")
    with pytest.raises(KernelError, match="'flash' cannot be compiled"):
        decoder(model, trace(model, [1], kernel="flash"), compile="torch")

    def none(*_):
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none)
    with pytest.raises(
        CompileError, match="needs a C\\+\\+ compiler, and torch found none; install g\\+\\+ or clang, or"
    ):
        generate(model, [1], compile="torch")


def test_where_the_compiler_fails_its_reason_is_said(tiny, monkeypatch):
    import torch._inductor

    def fail(*_, **__):
        raise ValueError("\nthe disk\x1b is full\nmore lines")

    monkeypatch.setattr(torch._inductor, "compile", fail)
    monkeypatch.setattr(compiled, "check", lambda *_: None)
    model = tiny(seed=7, **MODERN)
    with pytest.raises(CompileError, match='cannot be compiled here \\(the disk␛ is full\\); use compile="no"'):
        list(generate(model, [1, 2], compile="torch"))
    monkeypatch.setattr(torch._inductor, "compile", lambda *_, **__: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(MemoryError):
        list(generate(model, [1, 2], compile="torch"))


# --- compiled ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inductor(tmp_path_factory):
    """A folder for what torch compiles, and a compiler."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        pytest.skip("no C++ compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


def test_compiled_by_torch(tiny, inductor, monkeypatch):
    import torch._inductor

    if torch.backends.mkldnn.is_available():  # by which large products run on some processors
        monkeypatch.setattr(linear, "SMALLEST_ROW", 0)
        monkeypatch.setattr(linear, "_onednn_wins", lambda: True)
    model = spoilt(tiny(**MODERN | {"n_layers": 1, "tied": False}, dtype=torch.float32), float("nan"))
    before, options = begun(model, 4), {"room": 4000}
    ours, plain = decoder(model, before, compile="torch", **options), Decoder(model, before, **options)
    assert_same_passes(ours, plain, [1, 2, 3, 4, 5], 1e-5)
    keys = ours.trace().cache.allocated / 2
    assert 0 < largest_allocation(lambda: ours.feed([6])) < keys  # so neither they nor the values are copied
    plain.feed([6])
    assert_same_passes(ours, plain, [7, 0, 8, 9], 1e-5)  # 0 is not a number
    assert_same_trace(ours.trace(), plain.trace(), 1e-5)
    assert ours.passes[-1].info.ran == {"math"}

    monkeypatch.setattr(torch._inductor, "compile", None)  # the same step is not compiled twice
    runs = [generate(model, [3, 1, 4], max_new_tokens=4000, compile=how) for how in ("torch", "no")]
    for a, b in islice(zip(*runs, strict=True), 4):
        assert (a.token, a.stopped) == (b.token, b.stopped)
    assert_same_trace(a.trace, b.trace, 1e-5)


def largest_allocation(run: Callable[[], object]) -> int:
    """Bytes of the largest piece of memory that torch takes, on the CPU."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        run()
    return max(e.nbytes() for e in prof.profiler.kineto_results.events() if e.name() == "[memory]")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["modern", "gemma", "experts", "alibi", "translator"])
def test_a_cuda_graph_records_what_plain_passes_record(name):
    model = on_cuda(random_model(tiny_config(**KINDS[name]), dtype=torch.float32))
    before = begun(model, 5)
    ours, plain = decoder(model, before, compile="graphs"), Decoder(model, before)
    assert_same_passes(ours, plain, random_ids(model.config, 8, seed=1), 1e-4)
    assert_same_trace(ours.trace(), plain.trace(), 1e-4)


@pytest.mark.gpu
def test_compiled_by_torch_on_cuda():
    model = on_cuda(random_model(tiny_config(**MODERN), dtype=torch.float32))
    before = begun(model, 5)
    ours, plain = decoder(model, before, compile="torch"), Decoder(model, before)
    assert_same_passes(ours, plain, random_ids(model.config, 8, seed=1), 1e-4)


def on_cuda(model: Model) -> Model:
    return Model.from_weights(model.config, {name: weight.cuda() for name, weight in model.weights.items()})

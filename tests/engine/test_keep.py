"""What was kept never changes what is computed: every site, kept or derived, whole or in part."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_cache import allocated
from tiny import ARCHITECTURES, CLASSIC, GPT2, MODERN, configs, gap, random_ids, random_model, tiny_config

from engine import Model, Trace, extend, open_trace, trace
from engine.errors import AddressError, NotKeptError
from engine.program import Program
from engine.runner import run
from engine.sites import Span

DTYPES = [torch.float32, torch.bfloat16, torch.float64]
KEEPS = [
    "all",
    "residual",
    ["*"],  # off the path too
    ["blocks.*.attn.q"],
    ["blocks.1.attn.pattern", "blocks.*.mlp.post"],
    ["embed"],
    ["logits"],
    ["probs"],
    "blocks.0.attn.hook_result",
]


def sites(t: Trace) -> dict[tuple[str, int], torch.Tensor]:
    """Every tensor of every pass."""
    return {(site.name, at): t.site(site.name, at) for at in range(len(t.passes)) for site in t.program.sites}


def assert_bitwise(a: Trace, b: Trace) -> None:
    for key, tensor in sites(a).items():
        other = b.site(*key)
        assert tensor.dtype is other.dtype, key
        assert torch.equal(tensor, other), key


# --------------------------------------------------------------------------------------------------- keeping


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_all_ways_of_keeping_give_the_same_bits(tiny, name, dtype):
    model = tiny(**ARCHITECTURES[name], dtype=dtype)
    ids = random_ids(model.config, 9)
    reference = trace(model, ids, keep=["*"])
    for keep in KEEPS:
        t = trace(model, ids, keep=keep)
        assert_bitwise(reference, t)
        again = trace(model, ids, keep=keep)
        for site in reversed(t.program.sites):  # in another order of asking
            assert torch.equal(again[site.name], reference[site.name]), site.name


@given(config=configs(), data=st.data(), seed=st.integers(0, 99))
def test_any_choice_of_sites_gives_the_same_bits(config, data, seed):
    model = random_model(config, seed, torch.float32)
    names = [s.site.name for s in model.program.steps]
    keep = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    prompt = [random_ids(config, n, seed) for n in data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))]
    t = trace(model, prompt, keep=keep)
    assert set(t.passes[0].kept) == set(keep)
    assert_bitwise(trace(model, prompt, keep=["*"]), t)


# Sizes at which matrix kernels take different roads: one row, a few, a block, more; narrow and wide.
@pytest.mark.parametrize("n", [1, 5, 64, 130])
@pytest.mark.parametrize("d_model", [64, 256])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bits_at_sizes_where_matrix_kernels_differ(tiny, monkeypatch, n, d_model, dtype):
    traits = {"d_model": d_model, "d_head": 16, "d_mlp": 2 * d_model, "n_ctx": 256, "d_vocab": 300}
    kernels = ("torch", "onednn") if dtype is torch.float32 and torch.backends.mkldnn.is_available() else ("torch",)
    for architecture, kernel in itertools.product((MODERN, CLASSIC), kernels):
        monkeypatch.setattr("engine.ops.linear.backend", lambda *_, kernel=kernel: kernel)
        model = tiny(**architecture, **traits, dtype=dtype)
        ids = random_ids(model.config, n)
        reference = trace(model, ids)
        for keep in ("residual", ["blocks.1.attn.pattern"]):
            assert_bitwise(reference, trace(model, ids, keep=keep))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("keep", KEEPS, ids=str)
def test_the_same_bits_over_several_passes(tiny, keep, dtype):
    model = tiny(**MODERN, dtype=dtype)
    ids = random_ids(model.config, 14)

    def passes(keep: object) -> Trace:
        t = trace(model, ids[:6], keep=keep)
        for start, stop in itertools.pairwise([6, 7, 8, 14]):
            t = extend(model, t, ids[start:stop], keep=keep)
        return t

    reference, t = passes("all"), passes(keep)
    assert_bitwise(reference, t)
    for site in model.program.sites:
        assert torch.equal(t[site.name], reference[site.name])


def test_keep_may_change_from_pass_to_pass(tiny):
    model = tiny(**GPT2, dtype=torch.float32)
    ids = random_ids(model.config, 9)
    mixed = extend(model, extend(model, trace(model, ids[:4], keep=["embed"]), ids[4:7], keep="residual"), ids[7:])
    plain = extend(model, extend(model, trace(model, ids[:4]), ids[4:7]), ids[7:])
    assert_bitwise(plain, mixed)


def test_a_pattern_that_names_nothing_is_refused(tiny):
    model = tiny(**MODERN)
    for keep in (["blocks.*.attn.qq"], "nonsense", ["blocks.0.attn.q", "blocks.9.*"], [""]):
        with pytest.raises(AddressError, match="for example"):
            trace(model, [1], keep=keep)


def test_a_list_may_hold_words_and_patterns(tiny):
    model = tiny(**MODERN)
    path, edges = model.program.path(), model.program.edges
    for keep, named in (
        (["all", "blocks.1.attn.result"], {*path, "blocks.1.attn.result"}),
        (["blocks.*.attn.q", "residual"], {*edges, "blocks.0.attn.q", "blocks.1.attn.q"}),
        (["residual", "all"], {*path, *edges}),
    ):
        assert trace(model, [1, 2], keep=keep).passes[0].kept.keys() == named
    with pytest.raises(AddressError, match="for example"):
        trace(model, [1], keep=["all", "blocks.9.*"])


def test_what_is_kept_is_what_was_asked_for(tiny):
    model = tiny(**MODERN)
    ids = [1, 2, 3]
    path = set(model.program.path())
    assert set(trace(model, ids).passes[0].kept) == path
    edges = {"blocks.0.resid_pre", "blocks.1.resid_pre", "blocks.1.resid_post", "logits"}
    assert set(trace(model, ids, keep="residual").passes[0].kept) == edges
    t = trace(model, ids, keep=["blocks.*.attn.hook_pattern"])
    assert set(t.passes[0].kept) == {"blocks.0.attn.pattern", "blocks.1.attn.pattern"}
    assert t.kept("blocks.0.attn.pattern", 0)
    assert t.kept("tokens", 0)
    assert not t.kept("blocks.0.attn.z", 0)


def test_nothing_that_is_kept_changes_afterwards(tiny):
    # Nothing is written in place: neither by the rest of the pass nor by looking at everything.
    for traits in ARCHITECTURES.values():
        model = tiny(**traits)
        program: Program = model.program
        ids = random_ids(model.config, 7)
        seen: dict[str, torch.Tensor] = {}
        t = trace(model, ids)
        known = {**t.passes[0].given, **{s.name: t.site(s.name, 0) for s in program.inputs}}
        for s in program.steps:  # step by step, with a copy of each as soon as it is there
            known |= run(program, model.weights, known, (s.site.name,), t.passes[0].info)
            seen[s.site.name] = known[s.site.name].clone()
        weights = {name: weight.clone() for name, weight in model.weights.items()}
        t.checks()
        t.top()
        for name, tensor in seen.items():
            assert torch.equal(known[name], tensor), name
            assert torch.equal(t[name], tensor), name
        assert all(torch.equal(model.weights[name], weight) for name, weight in weights.items())


@pytest.mark.parametrize("limit", [0, 3000])
def test_what_is_derived_need_not_be_held(tiny, monkeypatch, limit):
    # However little of it is remembered, asking again gives the same bits.
    monkeypatch.setattr("engine.traces.DERIVED_BYTES", limit)
    monkeypatch.setattr("engine.passes.JOINED_BYTES", limit)
    model = tiny(**MODERN, dtype=torch.float32)
    ids = random_ids(model.config, 9)
    split = extend(model, trace(model, ids[:6], keep=["embed"]), ids[6:], keep="residual")
    plain = extend(model, trace(model, ids[:6]), ids[6:])
    for _ in range(2):
        assert_bitwise(plain, split)


def without_weights(t: Trace) -> Trace:
    """The trace as it is opened where its model is not."""
    return Trace(t.config, t.program, None, t.passes, t.tokens)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_without_weights_there_is_what_the_kept_tensors_determine(tiny, name):
    model = tiny(**ARCHITECTURES[name])
    whole = trace(model, random_ids(model.config, 6))
    t = without_weights(whole)
    needs = {  # derived from what is on the path alone
        "scores", "scaled", "capped", "position_bias", "biased", "masked", "pattern", "probs", "scale",
    }  # fmt: skip
    for step in model.program.steps:
        site = step.site.name
        if step.on_path or site.rsplit(".")[-1] in needs:
            assert torch.equal(t[site], whole[site])
        else:
            assert site.endswith("attn.result")
            with pytest.raises(NotKeptError, match=r"attn\.result was not kept|needs the weight"):
                t[site]
            with pytest.raises(NotKeptError, match=r"open (it|this trace) with its model"):
                t.part(site, 0, {"pos": (0, 1)})
    assert t.top() == whole.top()
    assert {check.name for check in t.checks()} < {check.name for check in whole.checks()}
    assert all(check.ok for check in t.checks())
    assert t.first_nonfinite() is None


def test_without_weights_a_stream_alone_is_not_enough(tiny):
    model = tiny(**MODERN)
    t = without_weights(trace(model, [1, 2, 3], keep="residual"))
    assert t["blocks.0.ln1.scale"].shape == (1, 3, 1)
    for site in ("blocks.0.attn.q", "blocks.0.attn.pattern", "blocks.1.mlp_out"):
        with pytest.raises(NotKeptError, match="needs the weights; open this trace with its model") as error:
            t[site]
        assert "\n" not in str(error.value)
    assert len(t.top()) == 5  # the logits were kept
    assert t.first_nonfinite() is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("keep", ["all", "residual", ["*"], ["blocks.0.attn.pattern"]], ids=str)
def test_a_saved_trace_gives_the_same_bits(tiny, tmp_path, keep, dtype):
    for number, traits in enumerate((MODERN, CLASSIC)):
        model = tiny(**traits, dtype=dtype)
        ids = random_ids(model.config, 8)
        one = extend(model, trace(model, ids[:5], keep=keep), ids[5:], keep=keep)
        for kind, t in (("passes", one), ("batch", trace(model, [ids, [1, 2]], keep=keep))):
            path = tmp_path / f"{number}-{kind}.trace.safetensors"
            t.save(path)
            opened, bare = open_trace(path, model), open_trace(path)
            assert_bitwise(t, opened)
            assert opened.checks() == t.checks()
            assert opened.top() == t.top()
            for at, p in enumerate(t.passes):
                assert set(bare.passes[at].kept) == set(p.kept)
                for name in p.kept:
                    assert torch.equal(bare.site(name, at), t.site(name, at)), name


# --------------------------------------------------------------------------------------------------- storage


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_kept_tensor_has_memory_of_its_own(tiny, name, dtype):
    model = tiny(**ARCHITECTURES[name], dtype=dtype)
    t = trace(model, [random_ids(model.config, 7), random_ids(model.config, 5)], keep=["*"])
    p = t.passes[0]
    weights = {storage(weight) for weight in model.weights.values()}
    owner: dict[int, str] = {}
    for step in model.program.steps:
        site = step.site.name
        tensor = p.kept[site]
        assert storage(tensor) not in weights, site
        assert tensor.untyped_storage().nbytes() == tensor.nbytes, site  # keeping it keeps nothing else alive
        # Only a step that says so hands on the very tensor that it read.
        alias = step.op.alias([tuple(t.site(read, 0).shape) for read in step.reads])
        if alias is None:
            assert storage(tensor) not in owner, f"{site} shares {owner.get(storage(tensor))}"
            owner[storage(tensor)] = site
        else:
            assert tensor is p.kept[step.reads[alias]], site
        assert not tensor.requires_grad
    assert not any(storage(x) in owner or storage(x) in weights for x in p.given.values())


def test_later_passes_have_memory_of_their_own_too(tiny):
    model = tiny(**MODERN)
    t = extend(model, trace(model, [1, 2, 3], keep=["*"]), [4, 5], keep=["*"])
    first = {storage(x) for x in t.passes[0].kept.values()}
    for name, tensor in t.passes[1].kept.items():
        assert storage(tensor) not in first, name
        if ".cache_" not in name:  # which lies in a buffer with room for the next pass
            assert tensor.untyped_storage().nbytes() == tensor.nbytes, name


def test_weights_that_need_a_gradient_do_not_hold_a_graph(tiny):
    model = tiny(**MODERN)
    asking = Model.from_weights(model.config, {n: w.clone().requires_grad_() for n, w in model.weights.items()})
    t = trace(asking, [1, 2, 3])
    assert not any(t[site.name].requires_grad for site in asking.program.sites)
    assert not t.part("blocks.0.attn.result", 0, {"pos": (0, 1)}).requires_grad
    assert torch.equal(t["logits"], trace(model, [1, 2, 3])["logits"])


# ----------------------------------------------------------------------------------------------------- parts

EPS = torch.finfo(torch.float32).eps


@st.composite
def windows(draw: st.DrawFn, axes: tuple[str, ...], shape: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    """A half-open range along some of the axes."""
    window = {}
    for axis, size in zip(axes, shape, strict=True):
        if size and draw(st.booleans()):
            start = draw(st.integers(0, size - 1))
            window[axis] = (start, draw(st.integers(start + 1, size)))
    return window


def cut(tensor: torch.Tensor, axes: tuple[str, ...], window: dict[str, tuple[int, int]]) -> torch.Tensor:
    return tensor[tuple(slice(*window.get(axis, (0, None))) for axis in axes)]


@given(data=st.data(), config=configs(), seed=st.integers(0, 9), keep=st.sampled_from(["all", "residual", ["*"]]))
def test_a_part_is_the_slice_of_the_whole(data, config, seed, keep):
    model = random_model(config, seed, torch.float32)
    prompts = [random_ids(config, n, seed) for n in (6, 4)]
    whole, t = trace(model, prompts, keep=["*"]), trace(model, prompts, keep=keep)
    site = data.draw(st.sampled_from([s.site for s in model.program.steps if not s.on_path]))
    window = data.draw(windows(site.axes, whole.shape(site.name)))
    part = t.part(site.name, 0, window)
    expected = cut(whole[site.name], site.axes, window)
    assert part.dtype is expected.dtype
    assert gap(part, expected) <= 64 * EPS
    if keep == ["*"]:
        assert torch.equal(part, expected)  # a part of what is kept is a view of it


@pytest.mark.parametrize("group", [1, 2, 3])
def test_any_range_of_heads_finds_its_keys(tiny, group):
    # Ranges that begin or end inside a group of query heads that share a key-value head.
    model = tiny(**MODERN | {"n_kv_heads": 2}, n_heads=2 * group, dtype=torch.float32)
    t = extend(model, trace(model, random_ids(model.config, 5)), random_ids(model.config, 3, 1))
    whole = extend(
        model, trace(model, random_ids(model.config, 5), keep=["*"]), random_ids(model.config, 3, 1), keep=["*"]
    )
    for at in (0, 1):
        for name in ("scores", "scaled", "masked", "pattern"):
            site = f"blocks.1.attn.{name}"
            full = whole.site(site, at)
            for start, stop in itertools.combinations(range(2 * group + 1), 2):
                part = t.part(site, at, {"head": (start, stop), "query": (1, 3)})
                assert gap(part, full[:, start:stop, 1:3]) <= 64 * EPS


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_which_parts_are_equal_bit_for_bit(tiny, dtype):
    # One row or head of a matrix product may be rounded otherwise than the same row among many. So a part of what was
    # kept, or was derived whole, is the whole's to the bit; one that is computed alone is the whole's to rounding.
    model = tiny(**MODERN, dtype=dtype, d_head=16)
    ids = random_ids(model.config, 40)
    whole = trace(model, ids, keep=["*"])
    kept = {name: whole[f"blocks.0.attn.{name}"] for name in ("scores", "scaled", "masked", "pattern", "result")}
    from_scores = trace(model, ids, keep=["blocks.0.attn.scores"])
    derived = trace(model, ids)
    derived["blocks.0.attn.pattern"]
    for name in ("scaled", "masked", "pattern"):  # element by element, or row by row
        part = from_scores.part(f"blocks.0.attn.{name}", 0, {"head": (1, 3), "query": (7, 19)})
        assert torch.equal(part, kept[name][:, 1:3, 7:19])
    assert torch.equal(derived[f"blocks.0.attn.pattern[h={2},q={30}]"], kept["pattern"][:, 2, 30])
    alone = trace(model, ids)
    for window in ({"head": (0, 1)}, {"query": (0, 1)}, {"head": (1, 3), "query": (5, 29)}, {"key": (3, 4)}):
        part = alone.part("blocks.0.attn.pattern", 0, window)
        expected = cut(kept["pattern"], ("batch", "head", "query", "key"), window)
        assert gap(part, expected) <= 64 * torch.finfo(part.dtype).eps
    result = alone.part("blocks.0.attn.result", 0, {"pos": (3, 7)})
    assert gap(result, kept["result"][:, 3:7]) <= 64 * torch.finfo(result.dtype).eps


def test_a_part_of_scores_computes_that_part_alone(tiny, monkeypatch):
    from engine.ops.attention import Scores

    model = tiny(**MODERN, n_ctx=128)
    t = trace(model, random_ids(model.config, 100))
    sizes = []
    original = Scores.run

    def spy(self, info, q, k):
        out = original(self, info, q, k)
        sizes.append(tuple(out.shape))
        return out

    monkeypatch.setattr(Scores, "run", spy)
    t["blocks.0.attn.pattern[h=3,q=9]"]
    assert sizes == [(1, 1, 1, 100)]
    t["blocks.0.attn.pattern[q=10:20]"]
    assert sizes[1:] == [(1, 4, 10, 100)]
    t["blocks.0.attn.pattern[h=1:3,q=9]"]  # heads 1 and 2 read both key-value heads
    assert sizes[2:] == [(1, 4, 1, 100)]


@pytest.mark.parametrize("window", [None, 100])
def test_a_block_of_a_long_prompt_s_pattern_is_opened_without_the_whole(tiny, window):
    n, rows = 3000, 64
    model = tiny(**MODERN, window=window, dtype=torch.float32, n_ctx=4096)
    t = trace(model, random_ids(model.config, n), keep="residual")
    found = []
    taken = allocated(lambda: found.append(t[f"blocks.1.attn.pattern[h=1,q=-{rows}:]"]))  # [1 q k]
    assert taken < 16 * rows * n * 4 < n * n * 4 / 2  # all that was ever allocated, k of the layer included

    q = t["blocks.1.attn.rot_q"][0, -rows:, 1].double()  # [q d_head]
    k = t["blocks.1.attn.rot_k"][0, :, 0].double()  # [k d_head], of the group of heads 0 and 1
    back = torch.arange(n - rows, n)[:, None] - torch.arange(n)  # [q k]
    seen = (back >= 0) & (back < (window or n))
    expected = (q @ k.T / model.config.d_head**0.5).exp() * seen
    expected /= expected.sum(-1, keepdim=True)
    assert gap(found[0][0], expected) < 1e-5
    assert not found[0][0][~seen].any()


@given(data=st.data(), config=configs(causal=True), seed=st.integers(0, 9))
def test_an_address_is_the_slice_of_the_whole(data, config, seed):
    model = random_model(config, seed, torch.float32)
    ids = random_ids(config, 6, seed)
    t = extend(model, trace(model, ids[:4]), ids[4:])
    site = data.draw(st.sampled_from(model.program.sites))
    at = data.draw(st.sampled_from([None, 0, 1]))
    whole = t[site.name] if at is None else t.site(site.name, at)
    window = data.draw(windows(site.axes, tuple(whole.shape)))
    index, terms = [], []
    for axis in site.axes:
        if axis not in window:
            index.append(slice(None))
        elif data.draw(st.booleans()):
            index.append(window[axis][0])
            terms.append(f"{axis}={window[axis][0]}")
        else:
            index.append(slice(*window[axis]))
            terms.append(f"{axis}={Span(*window[axis])}")
    text = f"{site.name}[{','.join(terms)}]" + ("" if at is None else f"@{at}")
    assert gap(t[text], whole[tuple(index)]) <= 64 * EPS


def test_sizes_of_a_config_that_tests_rest_on():
    # Sites of equal shape could stand for one another unseen.
    c = tiny_config()
    assert len({c.d_vocab, c.d_model, c.n_heads, c.d_head, c.d_mlp, c.n_heads * c.d_head}) == 6

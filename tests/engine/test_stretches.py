"""A generation in a file: every row once, every pass as it was, and plain tensors to other readers."""

import json
from collections.abc import Sequence

import pytest
import torch
from damage import assembled, parts
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from tiny import (
    CAUSAL,
    EXPERTS,
    GEMMA,
    GPT2,
    LONGER,
    MODERN,
    TRANSLATOR,
    configs,
    random_ids,
    random_model,
    tiny_config,
)  # fmt: skip

from engine import Model, Sampling, Trace, extend, generate, open_trace, trace
from engine.errors import NotKeptError, TraceFileError
from engine.text import display
from engine.tracefile import read, write

KINDS = CAUSAL | {
    "longer": LONGER,
    "mixed": MODERN | {"kinds": GEMMA["kinds"], "layer_kinds": ("near", "near", "far"), "n_layers": 3},
    "itself alone": MODERN | {"window": 1},
    "translator": TRANSLATOR,
}
KEEPS = ["all", "residual", ["*"], ["blocks.*.attn.cache_*"], ["blocks.*.attn.[kv]"], ["*.0.attn.pattern", "logits"]]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.trace.safetensors"


def model_of(traits, dtype=torch.float32) -> Model:
    return random_model(tiny_config(**traits), dtype=dtype)


def recorded(model: Model, lengths, keeps=("all",)) -> Trace:
    """A trace of passes of these lengths, which keep this and that in turn."""
    t = trace(model, random_ids(model.config, lengths[0]), keep=keeps[0])
    for at, n in enumerate(lengths[1:], 1):
        t = extend(model, t, random_ids(model.config, n, at), keep=keeps[at % len(keeps)])
    return t


def generated(model: Model, n: int, **options) -> Trace:
    """A prompt of five tokens and ``n`` more, a pass each."""
    for one in generate(model, random_ids(model.config, 5), max_new_tokens=n + 1, stop_tokens=[], **options):
        last = one
    return last.trace


def assert_same(t: Trace, opened: Trace, passes: Sequence[int] | None = None) -> None:
    """Every site of every pass, kept or derived, has the same bits; where there are no weights, what can be had."""
    assert opened.tokens == t.tokens
    for at, p in enumerate(t.passes):
        other = opened.passes[at]
        assert (set(other.given), set(other.kept)) == (set(p.given), set(p.kept))
        assert (other.start, other.length) == (p.start, p.length)
        assert (other.info.dense, other.info.extents, other.info.ran) == (p.info.dense, p.info.extents, p.info.ran)
        for site in t.program.sites if passes is None or at in passes else ():
            try:
                found = opened.site(site.name, at)
            except NotKeptError:
                assert opened.weights is None
                assert site.name not in p.kept
                continue
            assert torch.equal(found, t.site(site.name, at)), f"{site.name}@{at}"
            assert found.dtype is t.site(site.name, at).dtype


# --- round trips ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_every_pass_comes_back(path, name, dtype):
    model = model_of(KINDS[name], dtype)
    for keep in KEEPS:
        t = recorded(model, (5, 1, 1, 3, 1), [keep])
        t.save(path, force=True)
        assert_same(t, open_trace(path))
        assert_same(t, open_trace(path, model))


@pytest.mark.parametrize("name", KINDS)
def test_passes_that_keep_this_and_that(path, name):
    model = model_of(KINDS[name])
    t = recorded(
        model, (4, 1, 2, 1, 1, 1, 3, 1), ["residual", "all", "all", ["blocks.*.attn.cache_*", "*.pattern"], ["*"]]
    )
    t.save(path)
    assert_same(t, open_trace(path))
    assert_same(t, open_trace(path, model))


@settings(max_examples=60)
@given(config=configs(causal=True), data=st.data())
def test_any_passes_of_any_architecture_come_back(tmp_path_factory, config, data):
    path = tmp_path_factory.getbasetemp() / "any passes.safetensors"
    model = random_model(config, dtype=torch.float32)
    names = [step.site.name for step in model.program.steps]
    keeps = data.draw(st.lists(st.just("all") | st.lists(st.sampled_from(names), min_size=1), min_size=1, max_size=3))
    t = recorded(model, data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)), keeps)
    t.save(path, force=True)
    assert_same(t, open_trace(path))
    assert_same(t, open_trace(path, model))


@pytest.mark.parametrize("name", ["modern", "gemma", "experts", "alibi", "translator"])
def test_a_long_generation_comes_back(path, name):
    model = model_of(KINDS[name] | {"n_ctx": 300})
    t = generated(model, 200)
    t.save(path)
    assert_same(t, open_trace(path, model), passes=(0, 1, 2, 31, 32, 100, 199, 200))
    opened = open_trace(path)
    for at, p in enumerate(t.passes):
        for kept in p.kept:
            assert torch.equal(opened.passes[at].kept[kept], p.kept[kept]), f"{kept}@{at}"


def test_what_was_opened_is_saved_as_the_same_file(path, tmp_path):
    model = model_of(GEMMA)
    recorded(model, (4, 1, 2, 1, 1), ["all", "all", "residual"]).save(path)
    first = open_trace(path, model)
    first.save(tmp_path / "first")
    open_trace(tmp_path / "first", model).save(tmp_path / "second")
    table, _, data = parts(path.read_bytes())
    for name in ("first", "second"):
        again, _, data_again = parts((tmp_path / name).read_bytes())
        assert (again, data_again) == (table, data)


# --- going on ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["all", "residual"])
@pytest.mark.parametrize("name", KINDS)
def test_going_on_from_a_file_is_going_on(path, name, keep):
    model = model_of(KINDS[name])
    t = generated(model, 9, keep=keep)
    t.save(path)
    opened = open_trace(path, model)
    more = random_ids(model.config, 3, 7)
    assert_same(extend(model, extend(model, t, more), [1]), extend(model, extend(model, opened, more), [1]))
    options = {"max_new_tokens": 8, "sampling": Sampling(temperature=0.9, seed=3), "stop_tokens": []}
    here, there = (list(generate(model, before, **options)) for before in (t, opened))
    assert [one.token for one in here] == [one.token for one in there]
    assert_same(here[-1].trace, there[-1].trace)


# --- size and names ---------------------------------------------------------------------------------------


def row_bytes(t: Trace) -> int:
    """Bytes of all that was recorded, each row and each tensor once; keys and values are in the caches again."""
    seen = {}
    for p in t.passes:
        for name, tensor in (*p.given.items(), *p.kept.items()):
            if name != "key_positions" and ".attn.cache_" not in name:
                seen[tensor.data_ptr(), tuple(tensor.shape)] = tensor.nbytes
    return sum(seen.values())


@pytest.mark.parametrize("name", ["modern", "gpt2", "gemma"])
def test_a_file_is_as_large_as_its_rows(path, name):
    model = model_of(KINDS[name] | {"n_ctx": 1000, "d_model": 256, "d_mlp": 512, "n_layers": 4})
    sizes = {}
    for n in (60, 120, 240):
        t = generated(model, n)
        sizes[n] = t.save(path, force=True)
        assert sizes[n] < 1.03 * row_bytes(t)
    assert (sizes[240] - sizes[120]) / (sizes[120] - sizes[60]) == pytest.approx(2, rel=0.01)


def test_other_readers_see_a_site_as_one_tensor(path):
    model = model_of(GEMMA)
    t = recorded(model, (5, 1, 1, 1))
    t.save(path)
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        ours = json.loads(file.metadata()["layerstep"])
        for name in names:
            site, _, passes = name.partition("@")
            assert passes == "0-3"
            assert torch.equal(file.get_tensor(name), t[site])
    assert {name.partition("@")[0] for name in names | set(ours["aliases"])} == {*t.passes[0].given, *t.passes[0].kept}
    assert ours["aliases"]["blocks.1.attn.cache_k@0-3"] == "blocks.1.attn.rot_k@0-3"
    assert ours["aliases"]["key_positions@0-3"] == "positions@0-3"


def test_what_lies_over_queries_and_keys_stays_with_its_pass(path):
    recorded(model_of(EXPERTS), (3, 1, 1), [["*"]]).save(path)
    names = set(read(path)[1])
    assert {"blocks.0.attn.pattern@0", "blocks.0.attn.pattern@1", "blocks.0.attn.pattern@2"} <= names
    assert "blocks.0.attn.sinks@0-2" in names  # the same in all


def test_rows_that_are_not_numbers_come_back(path):
    model = model_of(MODERN)
    model.weights["blocks.1.attn.v.weight"].fill_(torch.nan)
    t = recorded(model, (3, 1, 1))
    t.save(path)
    opened = open_trace(path, model)
    for name in t.passes[2].kept:
        assert torch.equal(opened.site(name, 2).nan_to_num(7.0), t.site(name, 2).nan_to_num(7.0)), name
    assert opened.first_nonfinite() == t.first_nonfinite()


def test_opening_a_long_generation_reads_only_what_is_asked_for(path, monkeypatch):
    t = generated(model_of(MODERN | {"n_ctx": 300}), 100)
    t.save(path)
    read_names = []
    from engine.tracereader import Tensors

    whole = Tensors.__getitem__
    monkeypatch.setattr(Tensors, "__getitem__", lambda self, name: read_names.append(name) or whole(self, name))
    opened = open_trace(path)
    assert {name.partition("@")[0] for name in read_names} <= {"tokens", "positions", "key_positions"}
    opened.site("blocks.1.attn.q", 50)
    assert read_names[-1] == "blocks.1.attn.q@0-100"


# --- files that lie ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("stretches") / "a.trace.safetensors"
    recorded(model_of(MODERN), (3, 1, 1, 1), [["*"]]).save(path)
    return path


def refusal(path) -> str:
    with pytest.raises(TraceFileError) as caught:
        open_trace(path)
    said = str(caught.value)
    assert said == display(said)
    assert 20 < len(said) < 600
    return said


Q = "blocks.0.attn.q"


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ({f"{Q}@0-3": f"{Q}@0-4"}, f"{Q}@0-4 belongs to no pass"),
        ({f"{Q}@0-3": f"{Q}@4"}, f"{Q}@4 belongs to no pass"),
        ({f"{Q}@0-3": f"{Q}@0-999999999"}, "belongs to no pass"),
        ({f"{Q}@0-3": f"{Q}@0-9999999999"}, "belongs to no pass"),
        ({f"{Q}@0-3": f"{Q}@3-0"}, f"{Q}@3-0 belongs to no pass"),
        ({f"{Q}@0-3": f"{Q}@0-0"}, f"{Q}@0-0 belongs to no pass"),
        ({f"{Q}@0-3": f"{Q}@00-3"}, "belongs to no pass"),
        ({f"{Q}@0-3": f"{Q}@0-٣"}, "belongs to no pass"),
        ({f"{Q}@0-3": f"{Q}@-3"}, "belongs to no pass"),
        ({f"{Q}@0-3": f"{Q}"}, "belongs to no pass"),
        ({f"{Q}@0-3": f"{Q}@0@0-3"}, "belongs to no pass"),
        ({f"{Q}@0-3": "blocks.9.attn.q@0-3"}, "there is no site"),
        ({f"{Q}@0-3": f"{Q}@0-2"}, f"{Q}@0-2 is [1, 6, 4, 6] of torch.float32, but the config asks for [1, 5, 4, 6]"),
        ({f"{Q}@0-3": f"{Q}@1-3"}, "but the config asks for [1, 3, 4, 6]"),
        ({f"{Q}@0-3": f"{Q}@2"}, "but the config asks for [1, 1, 4, 6]"),
        ({f"{Q}@0-3": "blocks.0.attn.past_k@0-3"}, "past_k@0-3 belongs to no pass"),
        ({"tokens@0-3": "tokens@1-3"}, "tokens of pass 0 is missing"),
        ({"tokens@0-3": "blocks.0.attn.past_k@0"}, "past_k@0 belongs to no pass"),
        ({"tokens@0-3": "tokens@0-2"}, "tokens of pass 3 is missing"),
        ({"positions@0-3": "positions@0-2"}, "positions of pass 3 is missing"),
        ({"blocks.0.attn.pattern@3": "blocks.0.attn.pattern@3-3"}, "belongs to no pass"),
        ({"blocks.0.attn.pattern@3": "blocks.0.attn.pattern@4"}, "belongs to no pass"),
    ],
    ids=str,
)  # fmt: skip
def test_names_that_cannot_be(saved, path, names, line):
    table, ours, data = parts(saved.read_bytes())
    ours["aliases"] = {names.get(key, key): names.get(of, of) for key, of in ours["aliases"].items()}
    path.write_bytes(assembled({names.get(key, key): row for key, row in table.items()}, ours, data))
    assert line in refusal(path)


def test_a_gap_is_what_was_not_kept(saved, path):
    """Of a site that some passes are without, the others have what they have."""
    header, tensors = read(saved)
    held = {name: tensors[name] for name in tensors}
    rows = held.pop(f"{Q}@0-3")
    write(path, header, held | {f"{Q}@0-1": rows[:, :4], f"{Q}@3": rows[:, 5:]})
    opened = open_trace(path)
    assert [Q in p.kept for p in opened.passes] == [True, True, False, True]
    assert torch.equal(opened.site(Q, 1), rows[:, 3:4])
    assert torch.equal(opened.site(Q, 3), rows[:, 5:])
    with pytest.raises(NotKeptError):
        opened.site(Q, 2)
    with pytest.raises(KeyError):
        opened.passes[2].kept[Q]


@pytest.mark.parametrize(
    ("added", "line"),
    [
        ({f"{Q}@1": (1, 4)}, f"{Q}@0-3 and {Q}@1 hold the same pass"),
        ({f"{Q}@3": (1, 4)}, f"{Q}@0-3 and {Q}@3 hold the same pass"),
        ({"tokens@3": ()}, "hold the same pass"),
    ],
)
def test_two_tensors_of_one_pass(saved, path, added, line):
    header, tensors = read(saved)
    held = {name: tensors[name] for name in tensors}
    write(path, header, held | {name: torch.zeros(1, 1, *more, 6) for name, more in added.items()})
    assert line in refusal(path)


def test_queries_of_several_passes_in_one_tensor(saved, path):
    header, tensors = read(saved)
    held = {name: tensors[name] for name in tensors if ".pattern@" not in name}
    write(path, header, held | {"blocks.0.attn.pattern@0-3": torch.zeros(1, 4, 6, 6)})
    assert "has queries and keys, which no two passes have in one tensor" in refusal(path)


@pytest.mark.parametrize("name", ["key_positions@0-3", "key_positions@1"])
def test_positions_of_keys_that_are_others(path, name):
    """Those of the last pass, and of one before it."""
    recorded(model_of(MODERN), (3, 1, 1, 1)).save(path)
    header, tensors = read(path)
    held = {key: tensors[key] for key in tensors}
    keys = held.pop("key_positions@0-3")
    held |= {f"key_positions@{at}": keys[:, : 3 + at].clone() for at in range(4)} if name.endswith("@1") else {}
    held[name] = torch.full_like(held.get(name, keys), 2**40)
    write(path, header, held, force=True)
    assert "do not fit together" in refusal(path)


def test_passes_that_are_only_claimed_are_refused(path):
    """A file that claims thousands of passes is refused in the time that reading it takes."""
    recorded(model_of(GPT2), (1, 1)).save(path)
    table, ours, data = parts(path.read_bytes())
    entry = ours["header"]["passes"][1]
    ours["header"]["passes"] = [entry | {"start": at} for at in range(20_000)]
    path.write_bytes(assembled(table, ours, data))
    assert "of pass 2 is missing" in refusal(path)

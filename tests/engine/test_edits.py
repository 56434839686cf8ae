"""What-ifs: an edited run is a fresh run by a changed step, shares what did not change, and says what was done."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from bits import assert_still, snapshot
from hypothesis import given, settings
from hypothesis import strategies as st
from test_splits import EXACT, assert_same
from tiny import (
    ARCHITECTURES,
    CAUSAL,
    EXPERTS,
    GPT2,
    MODERN,
    TRANSLATOR,
    configs,
    gap,
    random_ids,
    random_model,
)

from engine import (
    Edit,
    LayerstepError,
    Model,
    Trace,
    ablate,
    branch,
    compare,
    crop,
    extend,
    generate,
    lens,
    look,
    open_trace,
    quantised,
    scale,
    trace,
)
from engine.analysis.drift import drift
from engine.browse import Session
from engine.compiled import CompiledDecoder
from engine.decoding import Decoder
from engine.edits import UNEDITED
from engine.errors import AddressError, EditError, NotKeptError, PromptError, TraceFileError
from engine.sites import LETTERS, Address, Span
from engine.summary import summary
from engine.text import display
from engine.tracefile import read, write

HEAD, NEURON = "blocks.1.attn.z[h=3] = 0", "blocks.0.mlp.post[d=5] *= 2"
ids = random_ids


def editable(model: Model) -> list[str]:
    """The sites that can be edited."""
    steps, caches = model.program.steps, set(model.program.caches.values())
    return [s.site.name for s in steps if s.on_path and not s.op.int64 and s.site.name not in caches]


@st.composite
def some_edits(draw: st.DrawFn, model: Model, n: int, sites: list[str] | None = None) -> list[Edit]:
    """One edit or two, at any sites of a trace of one row of ``n`` tokens."""
    made = []
    for name in draw(st.lists(st.sampled_from(sites or editable(model)), min_size=1, max_size=2)):
        axes = model.program.site(name).axes
        sizes = model.config.axis_sizes(1, n, src=4)
        index = {}
        for axis in draw(st.sets(st.sampled_from(axes))):
            start = draw(st.integers(0, sizes[axis] - 1))
            one = draw(st.booleans())
            index[LETTERS[axis]] = start if one else slice(start, draw(st.sampled_from([None, start + 1, start + 2])))
        how = draw(st.sampled_from(["=", "*=", "+="]))
        made.append(Edit(ablate(name, **index).place, how, draw(st.sampled_from([0, 1.5, -1, 0.25]))))
    return made


def same_bits(edited: Trace, fresh: Trace) -> None:
    assert [(p.start, p.length) for p in edited.passes] == [(p.start, p.length) for p in fresh.passes]
    assert (edited.edits, set(edited.notices)) == (fresh.edits, set(fresh.notices))
    assert_still(edited, snapshot(fresh))


def by_hand(t: Trace, edit: Edit) -> torch.Tensor:
    """What the site of an edit holds over all passes, from what it would have held, by torch's own indexing."""
    name = edit.place.site
    was, axes = t[name + UNEDITED].clone(), t.program.site(name).axes
    index = {axis: value for axis in axes for key, value in edit.place.index if key in (axis, LETTERS[axis])}
    where = tuple(
        slice(None) if (i := index.get(axis)) is None else slice(i.start, i.stop) if isinstance(i, Span) else i
        for axis in axes
    )
    was[where] = (
        edit.value if edit.how == "=" else was[where] * edit.value if edit.how == "*=" else was[where] + edit.value
    )
    return was


# --- the text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [HEAD, NEURON, "pos_embed = 0", "blocks.0.resid_pre[p=2:5,d=:3] += -1.5", "logits[v=3] = -1e+30", "embed *= 0.1"],
)
def test_text_reads_back(text):
    assert str(Edit.parse(text)) == text
    assert Edit.parse(str(Edit.parse(text))) == Edit.parse(text)


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_reads_back(value):
    assert Edit.parse(f"embed[p=1] += {value!r}").value == value
    assert Edit.parse(str(Edit(Address("embed"), "=", value))).value == value


def test_spaces_hook_names_and_long_axis_names_are_understood():
    for text in (" blocks.1.attn.hook_z[head=3]=0 ", "blocks.1.attn.z[ h=3 ]  =  0.0"):
        assert str(Edit.parse(text)) == HEAD
    assert str(ablate("blocks.1.attn.z", head=3)) == HEAD
    assert str(scale("embed", 2, pos=slice(1, None), d=0)) == "embed[p=1:,d=0] *= 2"
    assert str(scale("embed", np.float32(0.5), pos=np.int64(1))) == "embed[p=1] *= 0.5"


@pytest.mark.parametrize(
    "text",
    [
        "", "embed", "embed =", "= 0", "embed == 0", "embed -= 1", "embed = x", "embed = nan", "embed = inf",
        "embed = 1e999", "embed = 1e99999", "embed = 0x10", "embed = 1_0", "embed = ١", "embed[h=] = 0", "embed[3] = 0",
        "embed[p=1,pos=2] = 0", "embed@0 = 1", "embed[p=1]@1 = 0", "\x1b[31m = 0", "embed = 1 2", "em bed = 0",
        "embed = " + "1" * 100, "e" * 10_000 + " = 0", "embed = 0\nlogits = 0",
    ],
)  # fmt: skip
def test_what_is_no_edit_is_said_in_one_line(text):
    with pytest.raises(LayerstepError) as error:
        Edit.parse(text)
    said = str(error.value)
    assert said == display(said)
    assert len(said) < 300


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ablate("embed", pos="1"),
        lambda: ablate("embed", pos=slice(0, 4, 2)),
        lambda: ablate("embed", pos=True),
        lambda: scale("embed", float("nan")),
        lambda: scale("embed", "2"),
        lambda: scale("embed", 10**400),
        lambda: ablate("no site!"),
        lambda: Edit(Address("embed"), "-=", 1.0),
        lambda: Edit(Address("embed", (), 1), "=", 0.0),
    ],
)
def test_what_python_cannot_mean(wrong):
    with pytest.raises(LayerstepError):
        wrong()


# --- what can be edited ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("tokens = 1", "tokens is given and not computed; give another prompt, or edit embed"),
        ("blocks.1.attn.past_k = 1", "edit blocks.1.attn.rot_k, which fills it"),
        ("blocks.1.attn.cache_v = 1", "is filled with blocks.1.attn.v; edit that"),
        ("blocks.1.attn.scores = 1", "blocks.1.attn.rot_q or blocks.1.attn.rot_k or blocks.1.attn.z"),
        ("blocks.1.attn.pattern[h=1] = 0", "blocks.1.attn.rot_q or blocks.1.attn.rot_k or blocks.1.attn.z"),
        ("blocks.1.attn.result[h=1] = 0", "edit blocks.1.attn.z"),
        ("blocks.1.ln1.scale = 1", "edit blocks.1.resid_pre"),
        ("probs = 1", "edit logits"),
        ("blocks.1.attn.zz = 0", "there is no site 'blocks.1.attn.zz'"),
        ("blocks.1.attn.z[h=4] = 0", "head 4 is outside 0…3"),
        ("blocks.1.attn.z[v=1] = 0", "no axis 'v'"),
        ("blocks.1.attn.z[h=3:3] = 0", "head 3:3 holds nothing"),
        ("blocks.1.attn.z[p=4:2] = 0", "pos 4:2 holds nothing"),
        ("blocks.1.attn.z[h=9:] = 0", "head 9: holds nothing"),
        ("blocks.1.attn.z[p=-1] = 0", "pos is counted from 0"),
        ("blocks.1.attn.z[p=:-1] = 0", "pos is counted from 0"),
        ("blocks.1.attn.z[p=5] = 0", "it changes nothing, as the positions here are 0…4"),
        ("blocks.1.attn.z[p=7:] = 0", "it changes nothing, as the positions here are 0…4"),
        ("blocks.1.attn.z[b=1] = 0", "it changes nothing, as the rows here are 0…0"),
        ("blocks.1.attn.z = 1e39", "1e+39 is beyond float32"),
    ],
)
def test_an_edit_without_effect_is_refused_with_what_to_edit(tiny, edit, said):
    model = tiny(dtype=torch.float32, **MODERN)
    recorded = trace(model, ids(model.config, 5))
    for run in (lambda: trace(model, ids(model.config, 5), edits=[edit]), lambda: recorded.edit(edit)):
        with pytest.raises((EditError, AddressError)) as error:
            run()
        assert said in str(error.value)
        assert str(error.value) == display(str(error.value))


def test_ids_of_experts_are_no_numbers_to_edit(tiny):
    model = tiny(**EXPERTS)
    with pytest.raises(EditError, match=r"whole numbers that name something; edit .*expert_weights"):
        trace(model, ids(model.config, 3), edits=["blocks.0.mlp.expert_indices = 1"])


def test_16_bits_hold_no_70000(tiny):
    model = tiny(dtype=torch.float16, **MODERN)
    with pytest.raises(EditError, match="beyond float16"):
        trace(model, ids(model.config, 3), edits=["embed = 70000"])
    assert float(trace(model, ids(model.config, 3), edits=["embed = 1000"])["embed"].max()) == 1000
    wide = trace(model, ids(model.config, 3), edits=["rotary_cos = 70000"])  # float32 in every model
    assert wide["rotary_cos"].dtype is torch.float32


@pytest.mark.parametrize("edits", [None, "embed = 0", [1], [None], ["embed = 0"] * 1001, 5])
def test_edits_are_a_list_of_edits(tiny, edits):
    with pytest.raises(LayerstepError):
        trace(tiny(), [1, 2, 3], edits=edits if edits is not None else [None])


def test_no_edits_are_no_change(tiny):
    model = tiny(**MODERN)
    t = trace(model, ids(model.config, 5), edits=[])
    assert t.program is model.program
    assert t.edit() is t
    assert t.edits == ()
    assert not any("edited" in notice for notice in t.notices)


# --- what an edit does ----------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(config=configs(), n=st.integers(2, 6), seed=st.integers(0, 99), data=st.data())
def test_editing_a_trace_is_a_fresh_run_and_shares_the_rest(config, n, seed, data):
    model, prompt = random_model(config, seed), ids(config, n, seed)
    t = trace(model, prompt)
    edits = data.draw(some_edits(model, n))
    u = t.edit(*edits)
    same_bits(u, trace(model, prompt, edits=edits))
    if len(edits) == 1:
        assert torch.equal(u[u.edits[0].place.site], by_hand(u, u.edits[0]))
    assert t.edits == ()
    reached = u.program.reached_from(edit.place.site for edit in u.edits)
    for name, tensor in u.passes[0].kept.items():
        if name not in reached:
            assert tensor.data_ptr() == t.passes[0].kept[name.removesuffix(UNEDITED)].data_ptr()
    assert all(check.ok for check in u.checks())


@settings(max_examples=15)
@given(config=configs(causal=True), n=st.integers(3, 8), seed=st.integers(0, 99), data=st.data())
def test_any_split_of_an_edited_run(config, n, seed, data):
    model, prompt = random_model(config, seed), ids(config, n, seed)
    edits = data.draw(some_edits(model, n))
    cut = data.draw(st.integers(1, n - 1))
    keep = data.draw(st.sampled_from(["all", "residual", ["embed"]]))
    begun = trace(model, prompt[:cut], edits=edits, goes_on=True, keep=keep)
    whole = trace(model, prompt, edits=edits)
    assert_same(extend(model, begun, prompt[cut:], keep=keep), whole)
    unedited = extend(model, trace(model, prompt[:cut], keep=keep), prompt[cut:], keep=keep)
    assert_same(unedited.edit(*edits), whole)


@pytest.mark.parametrize("name", ["modern", "gemma", "experts", "alibi", "translator"])
@pytest.mark.parametrize("keep", ["all", "residual"])
def test_a_generation_is_replayed_to_the_last_bit(tiny, name, keep):
    model = tiny(**(CAUSAL | {"translator": TRANSLATOR})[name])
    edits = ["blocks.0.attn.v[d=2,p=1:] *= 3", "blocks.1.mlp_out[p=4] += 1"]
    if name == "translator":
        edits.append("encoder.blocks.1.attn.z[h=0] = 0")
    *_, last = generate(model, ids(model.config, 3), max_new_tokens=6, keep=keep)
    t = last.trace
    u, tokens = t.edit(*edits), [token.id for token in t.tokens[0]]
    fresh = trace(model, ids(model.config, 3), edits=edits, keep=keep, goes_on=True)
    for token in tokens[t.passes[0].length :]:
        fresh = extend(model, fresh, [token], keep=keep)
    same_bits(u, fresh)
    goes_on = Decoder(model, u)
    assert torch.equal(goes_on.logits, Decoder(model, fresh).logits)
    a, b = goes_on.feed([5]), Decoder(model, fresh).feed([5])
    assert all(torch.equal(a.kept[site], b.kept[site]) for site in b.kept)


@pytest.mark.parametrize(
    "edit",
    [
        "position_bias[q=2:,k=1:3] *= 2", "position_bias[q=3,h=1] = 1", "blocks.1.cross_attn.k[p=1] = 0",
        "encoder.position_bias[q=1,k=0] += 2", "encoder.embed *= 2",
    ],
)  # fmt: skip
def test_biases_of_positions_and_sources_in_any_split(tiny, edit):
    model = tiny(**TRANSLATOR)
    whole = trace(model, [5, 6, 7, 8], target=[1, 2, 3, 4], edits=[edit])
    split = trace(model, [5, 6, 7, 8], target=[1], edits=[edit], goes_on=True)
    for token in (2, 3, 4):
        split = extend(model, split, [token])
    later = extend(model, trace(model, [5, 6, 7, 8], target=[1, 2]), [3, 4]).edit(edit)
    for t in (split, later):
        assert gap(t["logits"], whole["logits"]) <= EXACT
    assert gap(trace(model, [5, 6, 7, 8], target=[1, 2, 3, 4])["logits"], whole["logits"]) > 1e-3


def test_edits_of_one_site_are_done_in_order_and_add_up(tiny):
    model = tiny(**MODERN)
    prompt = ids(model.config, 4)
    t = trace(model, prompt)
    both = t.edit("embed[d=0] = 3", "embed[d=0] *= 2")
    assert set(both["embed[d=0]"].flatten().tolist()) == {6.0}
    assert set(t.edit("embed[d=0] *= 2", "embed[d=0] = 3")["embed[d=0]"].flatten().tolist()) == {3.0}
    one_by_one = t.edit("embed[d=0] = 3").edit(HEAD).edit("embed[d=0] *= 2")
    same_bits(one_by_one, trace(model, prompt, edits=["embed[d=0] = 3", "embed[d=0] *= 2", HEAD]))
    with pytest.raises(EditError, match="computed before an edit; edit embed"):
        both.edit("embed_unedited = 1")


def test_a_position_is_one_of_the_text_whichever_pass_it_lies_in(tiny):
    model = tiny(**GPT2)
    begun = trace(model, [1, 2, 3], edits=["blocks.0.resid_pre[p=1] = 0", "blocks.0.resid_pre[p=4] = 0"], goes_on=True)
    t = extend(model, extend(model, begun, [4]), [5, 6])
    zero = (t["blocks.0.resid_pre"][0] == 0).all(-1)
    assert zero.tolist() == [False, True, False, False, True, False]


def test_a_batch_is_edited_by_row(tiny):
    model = tiny(**MODERN)
    u = trace(model, [[1, 2, 3], [4, 5]]).edit("blocks.0.attn.z[b=1,p=1:] = 0")
    assert bool((u["blocks.0.attn.z"][1, 1:] == 0).all())
    assert torch.equal(u["blocks.0.attn.z"][0], u["blocks.0.attn.z_unedited"][0])
    assert torch.equal(u["logits"][0], trace(model, [[1, 2, 3], [4, 5]])["logits"][0])


def test_going_on_back_and_another_way_keep_the_edits(tiny):
    model = tiny(**MODERN)
    prompt = ids(model.config, 6)
    t = trace(model, prompt, edits=[HEAD])
    assert_same(crop(model, t, 4), trace(model, prompt[:4], edits=[HEAD]))
    assert_same(branch(model, t, 3, 7), trace(model, [*prompt[:3], 7], edits=[HEAD]))
    *_, last = generate(model, prompt, max_new_tokens=4, edits=[HEAD])
    *_, again = generate(model, t, max_new_tokens=4)
    assert last.trace.edits == again.trace.edits == t.edits
    assert torch.equal(last.logits, again.logits)
    assert f"edited: {HEAD}" in last.trace.notices
    with pytest.raises(PromptError, match="its own edits"):
        generate(model, t, edits=[HEAD])


def test_compiled_passes_are_edited_too(tiny):
    model = tiny(**MODERN, n_layers=1)
    for edit in ("blocks.0.attn.z[h=3] = 0", "blocks.0.attn.v[p=3:] *= 2"):
        t = trace(model, ids(model.config, 3), edits=[edit], goes_on=True)
        ours, plain = (decoder.feed([4]).kept["logits"] for decoder in (CompiledDecoder(model, t), Decoder(model, t)))
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-10)
    untouched = CompiledDecoder(model, trace(model, ids(model.config, 3)))  # of which no edited step may be taken
    unedited = Decoder(model, trace(model, ids(model.config, 3))).feed([4])
    torch.testing.assert_close(untouched.feed([4]).kept["logits"], unedited.kept["logits"], rtol=0, atol=1e-10)


# --- what is told ---------------------------------------------------------------------------------------------


def test_a_trace_tells_of_its_edits(tiny):
    model = tiny(**MODERN)
    u = trace(model, ids(model.config, 4)).edit(HEAD, NEURON)
    assert [str(edit) for edit in u.edits] == [NEURON, HEAD]  # in the order of the program
    assert u.notices[-2:] == (f"edited: {NEURON}", f"edited: {HEAD}")
    told = summary(u)
    assert json.loads(json.dumps(told["edits"])) == [NEURON, HEAD]
    rows = {row["site"]: row for row in told["steps"]}
    assert [site for site, row in rows.items() if row["edited"]] == ["blocks.0.mlp.post", "blocks.1.attn.z"]
    assert rows["blocks.1.attn.z"]["reads"] == ["blocks.1.attn.z_unedited"]
    assert rows["blocks.1.attn.z_unedited"]["part"] == rows["blocks.1.attn.z"]["part"] == "attention"
    assert HEAD in rows["blocks.1.attn.z"]["story"]
    assert rows["blocks.1.attn.z"]["formula"] == "y = x, but 0 at h=3"
    assert rows["blocks.1.attn.z"]["numbers"] == "24 of [1 × 4 × 4 × 6]"
    assert not any(row["edited"] for row in summary(trace(model, [1, 2]))["steps"])


def test_formulas_of_every_kind_of_edit(tiny):
    model = tiny(**GPT2)
    for edit, formula in {
        "pos_embed = 0": "y = 0", "embed *= -2": "y = x · (-2)", "embed[p=1:3] += 0.5": "y = x + 0.5 at p=1:3",
    }.items():  # fmt: skip
        u = trace(model, [1, 2, 3]).edit(edit)
        step = u.program.step(u.edits[0].place.site)
        assert step.op.text.formula == formula
        assert step.op.text.latex.count("{") == step.op.text.latex.count("}")


def test_looks_and_analyses_see_the_edit(tiny):
    model = tiny(**MODERN, tied=False)
    prompt = ids(model.config, 5)
    t = trace(model, prompt)
    u = t.edit("blocks.0.resid_mid[d=1] = 9", "blocks.1.mlp.post *= 2")
    found = lens(u)
    assert "blocks.0.resid_mid" in found.sites
    assert torch.equal(found.ids[:, -1], u["logits"][0].argmax(-1))
    rows = look(u, "neurons", "blocks.1.mlp.post[p=4]", k=3)[0]["rows"]
    for neuron, post, gate, *_ in rows:  # what activated it is the model's own, the activation is twice that
        assert post == float(u[f"blocks.1.mlp.post[b=0,p=4,d={neuron}]"])
        assert gate == float(u[f"blocks.1.mlp.pre[b=0,p=4,d={neuron}]"])
    longer = extend(model, u, [3])
    assert drift(longer).ok
    assert quantised(longer).positions == 6
    told = compare(t, u)
    assert told.shared["logits"] > 0
    assert told.text.startswith("the same for 5 positions, up to ")
    with pytest.raises(AddressError, match="logits, which comes after the stream, was edited"):
        lens(t.edit("logits[v=3] = 0"))


@pytest.mark.parametrize("table", ["rotary_sin = 0", "rotary_cos[p=1:] *= 0.5"])
def test_a_rotation_by_an_edited_table_is_told_as_it_ran(tiny, table):
    u = trace(tiny(**MODERN), [1, 2, 3]).edit(table)
    for pair in look(u, "rotation", "blocks.1.attn.rot_q[p=2,h=1]")[0]["pairs"]:
        (a, b), (x, y) = pair["before"], pair["after"]
        assert x == pytest.approx(a * pair["cos"] - b * pair["sin"])
        assert y == pytest.approx(b * pair["cos"] + a * pair["sin"])
        assert "sin" not in table or pair["sin"] == 0


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_check_of_an_edited_trace_holds(tiny, name):
    model = tiny(**ARCHITECTURES[name])
    t = trace(model, [1, 2, 3])
    sites = {type(model.program.step(site).op): site for site in editable(model)}  # one of each kind, of the last block
    for site in sites.values():
        assert all(check.ok for check in t.edit(f"{site} *= 1.5").checks()), site


def test_flops_and_bytes_count_the_edit(tiny):
    model = tiny(**MODERN)
    t = trace(model, [1, 2, 3])
    plain = t.program.flops(t.sizes(0))
    assert t.edit(HEAD).program.flops(t.sizes(0)) == plain
    assert t.edit("blocks.1.attn.z[h=3,p=1:] *= 2").program.flops(t.sizes(0)) == plain + 2 * 6


# --- files and the service ------------------------------------------------------------------------------------


def test_a_file_holds_the_edits(tiny, tmp_path):
    model = tiny(**MODERN)
    t = extend(model, trace(model, ids(model.config, 4), edits=[HEAD, NEURON], keep=["residual", "*.z"]), [3])
    t.save(tmp_path / "a.trace.safetensors")
    bare = open_trace(tmp_path / "a.trace.safetensors")
    assert (bare.edits, bare.notices) == (t.edits, t.notices)
    assert torch.equal(bare["blocks.1.attn.z"], t["blocks.1.attn.z"])
    with pytest.raises(NotKeptError):
        bare.edit(HEAD)
    opened = open_trace(tmp_path / "a.trace.safetensors", model)
    same_bits(opened, t)
    same_bits(opened.edit("embed *= 2"), t.edit("embed *= 2"))
    assert_same(extend(model, opened, [4]), extend(model, t, [4]))


def test_readers_from_before_edits_refuse_them_and_read_all_else(tiny, tmp_path):
    model = tiny(**MODERN)
    t = trace(model, [1, 2, 3])
    t.save(tmp_path / "plain.safetensors")
    t.edit(HEAD).save(tmp_path / "edited.safetensors")
    version = b'{"__metadata__":{"layerstep":"{\\"version\\":%d,'
    assert (tmp_path / "plain.safetensors").read_bytes()[8:].startswith(version % 3)
    assert (tmp_path / "edited.safetensors").read_bytes()[8:].startswith(version % 4)


@pytest.mark.parametrize(
    "edits",
    [
        "embed = 0", [5], [None], ["embed"], ["nothing = 0"], ["embed = nan"], ["embed@3 = 0"], ["embed[h=1] = 0"],
        ["blocks.0.attn.pattern = 0"], ["\x1b]0;x\x07 = 1"], ["embed = 1e999"], ["embed = 0"] * 1001, {"embed": 0},
    ],
)  # fmt: skip
def test_hostile_edits_in_a_file_are_one_line(tiny, tmp_path, edits):
    path = tmp_path / "a.safetensors"
    trace(tiny(**MODERN), [1, 2, 3]).save(path)
    header, tensors = read(path)
    write(tmp_path / "b.safetensors", header | {"edits": edits}, dict(tensors), version=4)
    with pytest.raises(TraceFileError) as error:
        open_trace(tmp_path / "b.safetensors")
    assert str(error.value) == display(str(error.value))
    assert len(str(error.value)) < 700


def test_the_app_records_with_edits():
    session = Session()
    opened = session.open({"prompt": "The server", "edits": ["blocks.2.attn.z[h=3] = 0"]}, lambda *_: None)
    assert opened["edits"] == ["blocks.2.attn.z[h=3] = 0"]
    assert "edited: blocks.2.attn.z[h=3] = 0" in opened["notices"]
    told, cells = session.window("blocks.2.attn.z[b=0,p=1,h=3]")
    assert told["shape"] == [16]
    assert bytes(cells) == bytes(4 * 16)
    longer = session.generate({"n": 2}, lambda *_: None)
    assert longer["edits"] == opened["edits"]

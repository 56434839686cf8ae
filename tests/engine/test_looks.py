"""Which looks a step has, and how they are told."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_looks_lens import IDS, in_passes
from tiny import ALIBI, ARCHITECTURES, BERT, CLASSIC, EXPERTS, GPT2, MODERN, SENTENCE, TRANSLATOR, configs, tiny

import engine as package
from engine import Program, build_program, look, open_trace, trace
from engine.analysis.looks import LOOKS, PLAIN, depth, looks_in, looks_of
from engine.errors import AddressError, LayerstepError, NotKeptError


def looks_by_site(t):
    return {site.removeprefix("blocks.1."): names for site, names in looks_in(t).items() if "blocks.0" not in site}


def test_a_modern_decoder_has_them_by_what_its_steps_do():
    assert looks_by_site(trace(tiny(**MODERN), IDS)) == {
        "embed": ("neighbours",),
        "rotary_cos": ("curves",),
        "rotary_sin": ("curves",),
        "resid_pre": ("lens", "norms"),
        "attn.rot_q": ("rotation",),
        "attn.rot_k": ("rotation",),
        "attn.scores": ("heads", "layers", "mean", "max"),
        "attn.scaled": ("heads", "layers", "mean", "max"),
        "attn.masked": ("heads", "layers", "mean", "max"),
        "attn.pattern": ("heads", "layers", "mean", "max", "arcs", "text"),
        "attn_out": ("added",),
        "resid_mid": ("lens", "norms"),
        "mlp.post": ("neurons",),
        "mlp_out": ("added",),
        "resid_post": ("lens", "norms"),
    }


def test_other_traits_have_other_looks():
    found = looks_by_site(trace(tiny(**ALIBI), IDS))
    assert found["position_bias"] == ("heads", "mean", "max")
    assert "resid_mid" not in found, "both sub-layers are added at once"
    assert looks_by_site(trace(tiny(**GPT2), IDS))["pos_embed"] == ("curves",)
    assert looks_by_site(trace(tiny(**BERT), IDS))["resid_post"] == ("norms",)
    assert looks_by_site(trace(tiny(**SENTENCE), IDS))["resid_post"] == ("norms",)
    found = looks_by_site(trace(tiny(**TRANSLATOR), IDS, target=[1, 2]))
    assert found["encoder.blocks.1.resid_post"] == ("norms",)
    assert found["resid_mid_cross"] == ("lens", "norms")
    assert found["cross_attn.pattern"] == ("heads", "layers", "mean", "max", "arcs", "text")
    assert found["encoder.embed"] == ("neighbours",)


def test_depth_is_the_residual_points_in_order():
    assert depth(build_program(tiny(**CLASSIC).config)) == (
        "blocks.0.resid_pre", "blocks.0.resid_mid", "blocks.0.resid_post", "blocks.1.resid_mid", "blocks.1.resid_post",
    )  # fmt: skip
    assert depth(build_program(tiny(**ALIBI).config)) == (
        "blocks.0.resid_pre", "blocks.0.resid_post", "blocks.1.resid_post",
    )  # fmt: skip
    assert depth(trace(tiny(**TRANSLATOR), IDS, target=[1, 2])) == (
        "blocks.0.resid_pre",
        *(f"blocks.{i}.{point}" for i in range(2) for point in ("resid_mid", "resid_mid_cross", "resid_post")),
        "encoder.blocks.0.resid_pre",
        *(f"encoder.blocks.{i}.{point}" for i in range(2) for point in ("resid_mid", "resid_post")),
    )


def test_a_program_of_other_steps_has_no_depth_and_no_looks_along_it():
    program = build_program(tiny(**MODERN).config)
    bare = Program(program.inputs, program.steps, program.params)
    assert depth(bare) == ()
    step = bare.step("blocks.0.resid_mid")
    assert looks_of(bare, step) == ()


@given(config=configs())
def test_any_architecture_has_looks_that_its_sites_can_give(config):
    program = build_program(config)
    points = depth(program)
    assert len(points) == len(set(points)) >= config.n_layers + 1
    for step in program.steps:
        names = looks_of(program, step)
        assert set(names) <= {*LOOKS, *PLAIN}
        assert ("norms" in names) == (step.site.name in points or step.site.name.endswith("resid_pre"))
        assert ("added" in names) == step.site.name.endswith(("attn_out", "mlp_out"))
        assert ("lens" in names) == ("norms" in names and config.head == "unembed")
        assert ("neurons" in names) == step.site.name.endswith("mlp.post")


# norms


@pytest.mark.parametrize("traits", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_norms_and_what_was_added_are_lengths_of_the_vectors(traits):
    t = trace(tiny(**traits), IDS)
    for name, site in [("norms", "blocks.0.resid_pre"), ("added", "blocks.1.mlp_out")]:
        told, values = look(t, name, site)
        for column, point in enumerate(told["cols"]["sites"]):
            expected = [sum(x * x for x in row) ** 0.5 for row in t[point][0].tolist()]
            assert values[:, column].tolist() == pytest.approx(expected, rel=1e-6)
    assert told["cols"]["sites"] == [f"blocks.{i}.{part}" for i in range(2) for part in ("attn_out", "mlp_out")]


@given(
    cuts=st.sets(st.integers(1, 9), max_size=3).map(sorted),
    window=st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted),
)
def test_a_window_of_norms_has_the_figures_of_all_positions(cuts, window):
    t, (start, stop) = in_passes(tiny(**MODERN), IDS, cuts), window
    whole, every = look(t, "norms", "blocks.0.resid_pre")
    told, values = look(t, "norms", f"blocks.1.resid_post[b=0,p={start}:{stop}]")
    torch.testing.assert_close(values, every[start:stop])
    assert told["stats"] == whole["stats"]
    assert told["rows"] == {"axis": "pos", "start": start, "size": stop - start}
    assert whole["stats"]["max"] == pytest.approx(float(every.max()))


def test_lengths_are_computed_once_for_all_windows(monkeypatch):
    t = in_passes(tiny(**MODERN), IDS, [4, 7])
    whole, every = look(t, "norms", "blocks.0.resid_pre")
    monkeypatch.setattr(type(t), "site", lambda *_: pytest.fail("a site was read again"))
    told, values = look(t, "norms", "blocks.0.resid_pre[p=3:8]")
    assert torch.equal(values, every[3:8])
    assert told["stats"] == whole["stats"]


def test_an_empty_window_has_the_figures_of_all_positions_too():
    t = trace(tiny(**MODERN), IDS)
    told, values = look(t, "norms", "blocks.0.resid_pre[p=3:3]")
    assert values.shape == (0, 5)
    assert told["stats"] == look(t, "norms", "blocks.0.resid_pre")[0]["stats"]
    assert look(t, "lens", "blocks.0.resid_pre[p=3:3]")[1].shape == (0, 5)


def test_any_site_of_a_stream_says_which_one_is_meant():
    t = trace(tiny(**MODERN), IDS)
    for name, one, other in [
        ("lens", "blocks.0.resid_pre", "blocks.1.mlp_out"), ("norms", "blocks.1.resid_pre", "blocks.0.attn_out"),
        ("added", "blocks.0.mlp_out", "blocks.1.resid_mid"),
    ]:  # fmt: skip
        (told, values), (again, same) = look(t, name, one), look(t, name, other)
        assert told["cols"] == again["cols"]
        assert torch.equal(values, same)


def test_an_encoders_norms_are_over_its_source():
    t = trace(tiny(**TRANSLATOR), IDS, target=[1, 2])
    told, values = look(t, "norms", "encoder.blocks.1.resid_post[p=2:4]")
    assert told["rows"] == {"axis": "src", "start": 2, "size": 2}
    assert values.shape == (2, 5)
    assert float(values[0, 4]) == pytest.approx(float(t["encoder.blocks.1.resid_post[b=0,p=2]"].norm()))


# what is told


def test_every_answer_has_the_words_and_plain_numbers():
    t = trace(tiny(**MODERN, dtype=torch.bfloat16), IDS)
    for name, address in [
        ("lens", "blocks.0.resid_pre"), ("norms", "blocks.0.resid_pre"), ("added", "blocks.0.attn_out"),
        ("heads", "blocks.0.attn.pattern"), ("layers", "blocks.0.attn.pattern"), ("neighbours", "embed[p=0]"),
        ("neurons", "blocks.0.mlp.post[p=0]"), ("rotation", "blocks.0.attn.rot_q[p=1,h=0]"),
        ("chain", "blocks.0.attn.pattern[h=0,q=1,k=0]"), ("histogram", "logits"),
    ]:  # fmt: skip
        told, values = look(t, name, address)
        assert told["look"] == name
        assert all(told[word] for word in ("kind", "title", "formula", "latex", "story", "numbers")), name
        assert "  " not in told["story"]
        if values is not None:
            assert (values.dtype, values.is_contiguous(), values.device.type) == (torch.float32, True, "cpu")
            assert list(values.shape) == told["shape"]


def test_a_grid_names_its_rows_and_columns():
    t = in_passes(tiny(**GPT2), IDS, [4, 7])
    told, values = look(t, "lens", "blocks.1.resid_mid[b=0,p=1:3]@1")
    assert told["rows"] == {"axis": "pos", "start": 1, "size": 2}
    assert told["cols"] == {"axis": "depth", "sites": list(depth(t))}
    assert told["texts"][1][-1] == t.top(1, pos=6)[0].label
    assert float(values[1, -1]) == pytest.approx(t.top(1, pos=6)[0].prob)


@pytest.mark.parametrize(
    ("name", "address", "why"),
    [
        ("bertviz", "blocks.0.resid_pre", "no look 'bertviz'"),
        ("mean", "blocks.0.attn.pattern", "ask for a window"),
        ("norms", "blocks.0.attn.q", "has no look 'norms'"),
        ("lens", "blocks.0.attn.q", "has no look 'lens'"),
        ("lens", "blocks.7.resid_pre", "there is no site"),
        ("lens", "blocks.0.resid_pre@5", "there is no pass 5"),
        ("lens", "blocks.0.resid_pre[b=3]", "batch 3 is outside"),
        ("lens", "blocks.0.resid_pre[b=0:1]", "name one batch"),
        ("heads", "nonsense[", "is not an address"),
        ("heads", "tokens", "no heads"),
        ("layers", "tokens", "belongs to no layer"),
        ("neurons", "blocks.0.attn.scores", "one token"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_line(name, address, why):
    with pytest.raises(AddressError, match=why) as error:
        look(trace(tiny(**MODERN), IDS), name, address)
    assert "\n" not in str(error.value)


# files


def test_a_trace_from_a_file_offers_what_needs_no_weights(tmp_path):
    file = tmp_path / "a.trace.safetensors"
    trace(tiny(**MODERN), IDS).save(file)
    t = open_trace(file)
    found = looks_by_site(t)
    assert found["resid_post"] == ("norms",)
    assert found["attn.pattern"] == ("heads", "layers", "mean", "max", "arcs", "text")
    assert found["attn.rot_q"] == ("rotation",)
    assert {"embed", "mlp.post"}.isdisjoint(found)
    assert look(t, "norms", "blocks.0.resid_pre")[0]["cols"]["sites"] == list(depth(t))


def test_of_a_file_with_the_residual_stream_alone_only_that_is_offered(tmp_path):
    file = tmp_path / "a.trace.safetensors"
    trace(tiny(**EXPERTS), IDS, keep="residual").save(file)
    t = open_trace(file)
    for site, names in looks_in(t).items():
        for name in names:
            if name not in PLAIN:
                look(t, name, site)
    assert looks_in(t)["blocks.1.resid_pre"] == ("norms",)
    assert "blocks.0.attn.pattern" not in looks_in(t)
    assert "blocks.0.resid_mid" not in look(t, "norms", "blocks.0.resid_pre")[0]["cols"]["sites"]
    with pytest.raises(NotKeptError):
        look(t, "added", "blocks.0.attn_out")
    with pytest.raises(LayerstepError):
        look(t, "heads", "blocks.0.attn.pattern")


def test_the_public_names_are_the_functions():
    from engine.analysis import lens, neighbours

    assert package.lens is lens.lens
    assert package.neighbours is neighbours.neighbours
    assert package.look is look

"""The forward pass as a program: its rules, its site names, its schedules, and the shapes that it plans."""

from fnmatch import fnmatchcase

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import ARCHITECTURES, CLASSIC, GPT2, MODERN, TRANSLATOR, configs, random_ids, random_model, tiny_config

from engine import Program, Step, build_program, trace
from engine.config import Experts, LayerKind, Rotary
from engine.errors import AddressError, Cancelled, ConfigError
from engine.ops.base import PassInfo
from engine.ops.residual import Add, Carry
from engine.runner import run
from engine.sites import Site

# ------------------------------------------------------------------------------------------------------- rules


def step(name: str, *reads: str) -> Step:
    return Step(Site(name, ("pos",)), Add() if len(reads) == 2 else Carry(), reads)


def test_a_step_reads_only_what_was_written_before():
    x = Site("x", ("pos",))
    with pytest.raises(ValueError, match="a reads b, which nothing has written before"):
        Program((x,), (step("a", "b"), step("b", "x")), {})
    with pytest.raises(ValueError, match="a is written twice"):
        Program((x,), (step("a", "x"), step("a", "x")), {})
    with pytest.raises(ValueError, match="x is written twice"):  # not even an input
        Program((x,), (step("x", "x"),), {})


@given(config=configs())
def test_every_architecture_keeps_the_rules(config):
    program = build_program(config)
    written = [site.name for site in program.inputs]
    for s in program.steps:
        assert set(s.reads) <= set(written)
        assert s.site.name not in written
        assert set(s.params) <= set(program.params)
        written.append(s.site.name)
    assert {p for s in program.steps for p in s.params} == set(program.params)  # no weight without a use
    assert len({site.axes for site in program.sites if site.name == "logits"}) == 1
    # What is off the path is needed by nothing on it.
    path = set(program.path()) | {site.name for site in program.inputs}
    assert all(set(s.reads) <= path for s in program.steps if s.on_path)
    # And everything on the path is needed for the logits, or is the logits.
    needed = {"logits"}
    for s in reversed(program.steps):
        if s.site.name in needed:
            needed.update(s.reads)
    assert set(program.path()) <= needed


def test_unknown_sites_are_answered_with_what_is_near():
    program = build_program(tiny_config(**MODERN))
    with pytest.raises(AddressError, match=r"no site 'blocks\.7\.attn\.pattern'.*blocks\.0\.attn\.pattern"):
        program.site("blocks.7.attn.pattern")
    with pytest.raises(AddressError, match="for example, "):
        program.site("nonsense")
    assert program.step("tokens") is None
    assert program.site("tokens").axes == ("batch", "pos")
    assert program.site("blocks.1.attn.hook_pattern").name == "blocks.1.attn.pattern"


# ------------------------------------------------------------------------------------- the table of the design

# Section 2 of the design: a site, its axes, on the path or off it, and in which of the architectures below.
TABLE = """
embed                      batch pos d_model          on   all
embed_scaled               batch pos d_model          on   classic
pos_embed                  batch pos d_model          on   classic gpt2
rotary_cos                 batch pos d_rot            on   modern
rotary_sin                 batch pos d_rot            on   modern
blocks.*.resid_pre         batch pos d_model          on   all
blocks.*.resid_mid         batch pos d_model          on   all
blocks.*.resid_post        batch pos d_model          on   all
blocks.*.ln1.scale         batch pos scale            off  all
blocks.*.ln1.normalized    batch pos d_model          on   all
blocks.*.ln2.scale         batch pos scale            off  all
blocks.*.ln2.normalized    batch pos d_model          on   all
blocks.*.attn.q            batch pos head d_head      on   all
blocks.*.attn.k            batch pos kv_head d_head   on   all
blocks.*.attn.v            batch pos kv_head d_head   on   all
blocks.*.attn.rot_q        batch pos head d_head      on   modern
blocks.*.attn.rot_k        batch pos kv_head d_head   on   modern
blocks.*.attn.cache_k      batch kv_pos kv_head d_head on  all
blocks.*.attn.cache_v      batch kv_pos kv_head d_head on  all
blocks.*.attn.scores       batch head query key       off  all
blocks.*.attn.scaled       batch head query key       off  all
blocks.*.attn.masked       batch head query key       off  all
blocks.*.attn.pattern      batch head query key       off  all
blocks.*.attn.z            batch pos head d_head      on   all
blocks.*.attn.result       batch pos head d_model     off  all
blocks.*.attn_out          batch pos d_model          on   all
blocks.*.mlp.pre           batch pos d_mlp            on   all
blocks.*.mlp.pre_linear    batch pos d_mlp            on   modern
blocks.*.mlp.post          batch pos d_mlp            on   all
blocks.*.mlp_out           batch pos d_model          on   all
ln_final.scale             batch pos scale            off  modern gpt2
ln_final.normalized        batch pos d_model          on   modern gpt2
logits                     batch pos d_vocab          on   all
probs                      batch pos d_vocab          off  all
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


@pytest.mark.parametrize(("name", "traits"), [("modern", MODERN), ("classic", CLASSIC), ("gpt2", GPT2)])
def test_the_sites_are_those_of_the_design(name, traits):
    program = build_program(tiny_config(**traits))
    expected = {
        pattern.replace("*", str(layer)): (tuple(axes), path == "on")
        for pattern, *axes, path, models in ((r[0], *_columns(r[1:])) for r in ROWS)
        if models == "all" or name in models.split(",")
        for layer in (range(2) if "*" in pattern else range(1))
    }
    assert {s.site.name: (s.site.axes, s.on_path) for s in program.steps} == expected
    inputs = {"tokens": ("batch", "pos"), "positions": ("batch", "pos"), "key_positions": ("batch", "kv_pos")}
    past = ("batch", "past", "kv_head", "d_head")
    inputs |= {f"blocks.{layer}.attn.past_{kv}": past for layer in range(2) for kv in "kv"}
    assert {site.name: site.axes for site in program.inputs} == inputs


def _columns(words: list[str]) -> tuple[str, ...]:
    """axes …, on/off, models joined by commas."""
    at = next(i for i, word in enumerate(words) if word in ("on", "off"))
    return (*words[:at], words[at], ",".join(words[at + 1 :]))


def test_each_sub_layer_writes_what_is_added():
    for traits in ARCHITECTURES.values():
        program = build_program(tiny_config(**traits))
        for layer in range(2):
            b = f"blocks.{layer}"
            if "parallel" in traits:
                assert program.step(f"{b}.resid_mid") is None
                assert program.step(f"{b}.resid_post").reads == (f"{b}.resid_pre", f"{b}.attn_out", f"{b}.mlp_out")
            else:
                assert program.step(f"{b}.resid_mid").reads == (f"{b}.resid_pre", f"{b}.attn_out")
                assert program.step(f"{b}.resid_post").reads[1] == f"{b}.mlp_out"


def test_the_norm_stands_before_the_sub_layer_or_after_the_sum():
    pre, post = (build_program(tiny_config(norm_place=place)) for place in ("pre", "post"))
    assert pre.step("blocks.0.attn.q").reads == ("blocks.0.ln1.normalized",)
    assert pre.step("blocks.0.ln1.normalized").reads == ("blocks.0.resid_pre",)
    assert pre.step("blocks.1.resid_pre").reads == ("blocks.0.resid_post",)
    assert pre.step("logits").reads == ("ln_final.normalized",)
    assert post.step("blocks.0.attn.q").reads == ("blocks.0.resid_pre",)
    assert post.step("blocks.0.ln1.normalized").reads == ("blocks.0.resid_mid",)
    assert post.step("blocks.1.resid_pre").reads == ("blocks.0.ln2.normalized",)
    assert post.step("logits").reads == ("blocks.1.ln2.normalized",)


def test_a_tied_unembedding_is_the_embedding():
    tied, untied = (build_program(tiny_config(tied=tied)) for tied in (True, False))
    assert tied.step("logits").params == tied.step("embed").params == ("embed.weight",)
    assert untied.step("logits").params == ("unembed.weight",)
    assert untied.n_params - tied.n_params == 37 * 20


def test_weights_and_biases_are_those_that_the_config_says():
    c = tiny_config(attn_bias=True, mlp_bias=True, norm_bias=False, n_kv_heads=2)
    assert build_program(c).params == {
        "embed.weight": (37, 20), "ln_final.weight": (20,),
        **{
            f"blocks.{layer}.{name}": shape
            for layer in range(2)
            for name, shape in {
                "ln1.weight": (20,), "ln2.weight": (20,),
                "attn.q.weight": (24, 20), "attn.q.bias": (24,), "attn.k.weight": (12, 20), "attn.k.bias": (12,),
                "attn.v.weight": (12, 20), "attn.v.bias": (12,), "attn.out.weight": (20, 24),
                "mlp.up.weight": (26, 20), "mlp.up.bias": (26,), "mlp.down.weight": (20, 26), "mlp.down.bias": (20,),
            }.items()
        },
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------- schedules


@given(config=configs(), data=st.data())
def test_a_schedule_runs_what_is_needed_and_nothing_else(config, data):
    program = build_program(config)
    names = [s.site.name for s in program.steps]
    wanted = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=3))
    given = {site.name for site in program.inputs} | data.draw(st.sets(st.sampled_from(names), max_size=6))
    planned = program.schedule(wanted, given)
    # By another road: which steps can be reached from what is wanted without passing through what is given.
    needed: set[str] = set()
    todo = list(wanted - given)
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo += [read for read in program.step(name).reads if read not in given]
    assert [p.step.site.name for p in planned] == [name for name in names if name in needed]
    # Everything is let go at its last use, once, and what is wanted never.
    alive = set(given)
    for p in planned:
        assert set(p.step.reads) <= alive
        alive.add(p.step.site.name)
        assert set(p.drops) <= alive
        alive -= set(p.drops)
    used = {read for p in planned for read in p.step.reads} | {p.step.site.name for p in planned}
    assert alive & used <= wanted
    assert wanted <= alive


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_site_from_the_residual_stream_runs_one_block(tiny, name):
    model = tiny(**ARCHITECTURES[name], n_layers=4)
    program = model.program
    known = {site.name for site in program.inputs} | set(program.edges)
    for s in program.steps:
        blocks = {p.step.site.block for p in program.schedule((s.site.name,), known)}
        assert blocks <= {None, s.site.block}


def test_what_is_derived_runs_no_step_that_it_does_not_need(tiny, monkeypatch):
    model = tiny(**MODERN, n_layers=3)
    t = trace(model, random_ids(model.config, 6), keep="residual")
    ran: list[str] = []
    for kind in {type(s.op) for s in model.program.steps}:
        original = kind.run

        def spy(self, *args, original=original, **kwargs):
            ran.append(type(self).__name__)
            return original(self, *args, **kwargs)

        monkeypatch.setattr(kind, "run", spy)
    assert t["blocks.1.resid_pre"] is t.passes[0].kept["blocks.1.resid_pre"]
    assert not ran
    t["blocks.1.ln1.normalized"]
    assert ran == ["RMSNorm"]
    ran.clear()
    t["blocks.1.attn.v"]
    assert ran == ["ProjectToHeads"]  # from the norm that was derived before
    ran.clear()
    t["blocks.1.attn.pattern"]
    assert sorted(ran) == sorted(
        ["ProjectToHeads"] * 2 + ["RotaryTable"] * 2 + ["Rotate"] * 2 + ["Append", "Scores", "Scale", "Mask", "Softmax"]
    )
    ran.clear()
    t["blocks.1.attn.pattern"]
    assert not ran


def test_the_runner_lets_tensors_go_and_says_how_far_it_is(tiny):
    model = tiny(**GPT2)
    seen = []
    trace(model, random_ids(model.config, 5), watch=lambda done, total, site: seen.append((done, total, site)))
    path = model.program.path()
    assert seen == [(i, len(path), name) for i, name in enumerate(path)]

    def stop(done: int, total: int, site: str) -> None:
        if done == 3:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        trace(model, random_ids(model.config, 5), watch=stop)


def test_run_returns_what_is_wanted_even_where_it_was_given():
    x = Site("x", ("pos",))
    program = Program((x,), (step("a", "x"), step("b", "a", "x")), {})
    given_x = torch.tensor([1.0, 2.0])
    out = run(program, {}, {"x": given_x}, ("x", "b"), PassInfo(torch.float32))
    assert out["x"] is given_x
    assert out["b"].tolist() == [2.0, 4.0]


# ------------------------------------------------------------------------------------------------------ shapes


@given(config=configs(), batch=st.integers(1, 2), n=st.integers(1, 6), seed=st.integers(0, 9))
def test_every_site_has_the_shape_that_was_planned(config, batch, n, seed):
    model = random_model(config, seed)
    sizes = config.axis_sizes(batch, n)
    t = trace(model, [random_ids(config, n, seed + row) for row in range(batch)])
    for site in model.program.sites:
        planned = model.program.shape(site, sizes)
        assert tuple(t[site.name].shape) == planned == t.shape(site.name) == t.shape(site.name, 0)
    heads = (batch, n, config.n_heads, config.d_head)
    assert tuple(t["blocks.0.attn.z"].shape) == heads
    keys = "blocks.0.attn.cache_k" if config.causal else "blocks.0.attn.k"
    assert tuple(t[keys].shape) == (batch, n, config.n_kv_heads, config.d_head)


# ------------------------------------------------------------------------------------------------------ config


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        ({"n_heads": 4, "n_kv_heads": 3}, "n_heads 4 is no multiple of n_kv_heads 3"),
        ({"positions": "rotary", "d_head": 5}, "d_head is 5"),
        ({"d_model": 0}, "d_model is 0"),
        ({"d_vocab": -1}, "d_vocab is -1"),
        ({"n_layers": -1}, "n_layers is -1"),
        ({"n_layers": 0}, "n_layers is 0"),
        ({"norm_eps": -1.0}, "norm_eps"),
        ({"norm_eps": float("nan")}, "norm_eps"),
        ({"norm_eps": float("inf")}, "norm_eps"),
        *(
            ({"positions": "rotary", "rotary": Rotary(theta=theta)}, "rotary_theta")
            for theta in (0.0, float("nan"), float("inf"), 10**400)
        ),
        ({"rotary": Rotary()}, "positions are none, but rotary is given"),
        ({"positions": "rotary", "rotary": Rotary(dims=3)}, "d_head is 6 and rotary dims 3"),
        ({"positions": "rotary", "rotary": Rotary(dims=8)}, "d_head is 6 and rotary dims 8"),
        ({"positions": "rotary", "rotary": Rotary(scaling="yarn", factor=2.0)}, "original_n_ctx is 0"),
        ({"positions": "rotary", "rotary": Rotary(scaling="longrope", original_n_ctx=8)}, "short_factors must be 3"),
        ({"positions": "alibi", "alibi_slopes": (1.0, 2.0)}, "one for each of 4 heads"),
        ({"window": 0}, "window is 0"),
        ({"layer_kinds": ("a", "b"), "kinds": (LayerKind(name="a"),)}, "names 'b', which is none of kinds"),
        ({"layer_kinds": ("a",), "kinds": (LayerKind(name="a"), LayerKind(name="a"))}, "names of their own"),
        ({"layer_kinds": ("full",) * 2, "kinds": (LayerKind(name="full"),), "window": 3}, "belong to kinds"),
        *(({"attn_softcap": cap}, "attn_softcap is") for cap in (0.0, -1.0, float("nan"))),
        *(({"logit_softcap": cap}, "logit_softcap is") for cap in (0.0, -1.0, float("nan"))),
        ({"experts": Experts(n=2, per_token=3, d_expert=4)}, "per_token is 3; it must be between 1 and 2"),
        ({"pooling": "mean"}, "needs head none"),
        ({"n_layers": 1025}, "n_layers is 1025"),
        ({"qk_norm": "heads", "n_heads": 2**16, "n_kv_heads": 1}, "n_heads of all layers is 131072"),
        ({"experts": Experts(n=2**14 + 1, per_token=1, d_expert=4)}, "experts of all layers is 32770"),
        ({"experts": Experts(n=2, per_token=1, d_expert=4, dense_layers=(0,) * 9)}, "dense_layers' number is 9"),
        ({"kinds": tuple(LayerKind(name=f"a{i}") for i in range(17)), "layer_kinds": ("a0",)}, "at most 16"),
        ({"kinds": (LayerKind(name="é"),), "layer_kinds": ("é",)}, "each a plain word"),
        *(
            ({"positions": "alibi", "alibi_slopes": (slope,) * 4}, "alibi_slopes is")
            for slope in (0.0, -0.5, float("nan"), 10**400)
        ),
        ({"parallel": "one norm", "norm_place": "post"}, "has its norms before it, but norm_place is post"),
        ({"first_norm": False, "norm_place": "output"}, "but norm_place is output"),
        ({"position_offset": 2}, "position_offset is for learned positions"),
        ({"relative_buckets": 8}, "relative_buckets is for relative positions"),
        ({"pool_layers": ((20, 4),)}, "need pooling"),
        ({"pooling": "cls", "head": "none", "pool_layers": ((20, 4), (5, 4))}, "the next in being 4"),
        ({"pooling": "cls", "head": "none", "pool_layers": ((20, 20),) * 9}, "at most 8"),
        *(
            (TRANSLATOR | change, "not supported in an encoder-decoder")
            for change in (
                {"parallel": "one norm"},
                {"causal": False},
                {"attn_softcap": 2.0},
                {"attn_sinks": True},
                {"window": 3},
                {"qk_norm": "head"},
                {"experts": Experts(n=2, per_token=1, d_expert=4)},
                {"attn_scale_by_layer": True},
                {"positions": "rotary", "relative_buckets": 0, "relative_distance": 0},
            )
        ),
        (TRANSLATOR | {"decoder_start_token_id": None}, "decoder_start_token_id is -1"),
    ],
)
def test_configs_that_cannot_be_are_refused(traits, message):
    with pytest.raises(ConfigError, match=message):
        tiny_config(**traits)


def test_what_a_config_fills_in():
    c = tiny_config()
    assert (c.n_kv_heads, c.kv_heads, c.group, c.final_norm) == (4, 4, 1, True)
    assert tiny_config(norm_place="post").final_norm is False
    assert tiny_config(norm_place="post", final_norm=True).final_norm is True
    assert tiny_config(n_kv_heads=2).group == 2


@given(config=configs())
def test_a_config_goes_to_json_and_back(config):
    assert type(config).from_json(config.to_json()) == config


def test_patterns_name_sites():
    program = build_program(tiny_config(**MODERN))
    assert program.matching(["blocks.*.attn.hook_q"]) == ("blocks.0.attn.q", "blocks.1.attn.q")
    names = [s.site.name for s in program.steps]
    assert program.matching(["blocks.1.*"]) == tuple(n for n in names if fnmatchcase(n, "blocks.1.*"))

"""What many families spell alike, beside transformers: activations, rotary scaling, kinds of layers."""

from copy import deepcopy

import pytest
import torch
from against import EXACT, FLOAT64, gap, ids_for, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, SCALINGS, rope_parameters
from spellings import read_config
from transformers import DynamicCache, LlamaConfig
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine import extend, load_model, trace
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import (
    ACTIVATIONS,
    d_head,
    kv_heads,
    layer_kinds,
    layer_types,
    rotary,
    window,
)
from engine.config import LayerKind, ModelConfig, Rotary
from engine.errors import LayerstepError
from engine.ops.base import PassInfo
from engine.ops.mlp import Activate
from engine.ops.rotary import inverse_frequencies

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 30, "hidden_size": 40, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": N_CTX,
}  # fmt: skip


def fields(**raw) -> Fields:
    return Fields({"model_type": "some"} | SIZES | raw, "here")


def refused(call, *named):
    with pytest.raises(LayerstepError) as error:
        call()
    assert all(word in str(error.value) for word in named), str(error.value)


# -- activations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_the_one_that_transformers_has_under_its_name(name):
    x = torch.linspace(-8, 8, 1001, dtype=torch.float64)
    ours = Activate(ACTIVATIONS[name]).run(PassInfo(torch.float64), x)
    assert gap(ours, ACT2FN[name](x)) <= 1e-10  # gelu_fast has √(2/π) with 10 digits


# -- rotary scaling --------------------------------------------------------------------------------------------


@st.composite
def rotaries(draw: st.DrawFn):
    """(head_dim, rope_parameters), with all that a config may leave out left out now and then."""
    head_dim = draw(st.sampled_from([4, 6, 16, 64, 128]))
    parameters = draw(rope_parameters(head_dim))
    if parameters["rope_type"] not in ("default", "longrope"):
        parameters["factor"] = draw(st.sampled_from([1.0, 2, 3.7, 8.0, 32.0]))
    if parameters["rope_type"] in ("yarn", "llama3", "longrope"):
        parameters["original_max_position_embeddings"] = draw(st.sampled_from([16, N_CTX, 8192]))
    parameters["rope_theta"] = draw(st.sampled_from([1e4, 5e5, 1e6, 123.4]) | st.floats(2.0, 1e7))
    return head_dim, parameters


extents = st.sampled_from([1, 16, 17, N_CTX, N_CTX + 1, 1000, 8193, 131_072])


@settings(max_examples=120)
@given(drawn=rotaries(), extent=extents)
def test_angles_are_those_of_transformers_to_the_last_bit(drawn, extent):
    head_dim, parameters = drawn
    config = LlamaConfig(**SIZES, head_dim=head_dim, rope_parameters=deepcopy(parameters))
    ours = read_config(config.to_dict()).rotary
    kind = parameters["rope_type"]
    if kind == "default":
        theirs, factor = 1.0 / parameters["rope_theta"] ** (torch.arange(0, head_dim, 2).float() / head_dim), 1.0
    else:
        grown = kind != "dynamic" or extent > N_CTX  # else transformers keeps what it began with
        theirs, factor = ROPE_INIT_FUNCTIONS[kind](config, None, seq_len=torch.tensor(extent) if grown else None)
    assert torch.equal(inverse_frequencies(ours, head_dim, extent, CPU), theirs)
    assert ours.attention_factor == factor


@settings(max_examples=60)
@given(drawn=rotaries())
def test_every_spelling_is_the_same_rotary_embedding(drawn):
    head_dim, parameters = drawn
    theta, kind = parameters.pop("rope_theta"), parameters.pop("rope_type")
    spellings = [
        {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **parameters}},
        {"rope_parameters": {"rope_type": kind, "type": kind, **parameters}, "rope_theta": theta},
        {"rope_scaling": {"rope_type": kind, **parameters}, "rope_theta": theta},
        {"rope_scaling": {"type": kind, **parameters}, "rope_theta": theta, "rope_parameters": None},
        {"rope_parameters": {"full_attention": {"rope_type": kind, "rope_theta": theta, **parameters}}},
    ]
    if kind == "default":
        spellings += [{"rope_theta": theta, "rope_scaling": None}, {"rope_theta": theta}]
    found = {rotary(fields(**spelling), head_dim, layer_type="full_attention") for spelling in spellings}
    assert len(found) == 1


def test_without_any_of_the_keys_it_is_plain_and_the_familys():
    assert rotary(fields(), 10, theta=1e6, share=0.6) == Rotary(theta=1e6, dims=6)
    assert rotary(fields(partial_rotary_factor=0.4), 10, share=0.6).dims == 4
    assert rotary(fields(rope_parameters={"partial_rotary_factor": 1.0}), 10, share=0.6).dims is None


def test_each_type_of_layer_may_have_parameters_of_its_own():
    c = fields(
        rope_theta=3e4,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default"},
        },
    )
    assert rotary(c, 8, layer_type="full_attention") == Rotary(theta=1e6, scaling="linear", factor=8.0)
    assert rotary(c, 8, layer_type="sliding_attention") == Rotary(theta=3e4)
    refused(lambda: rotary(c, 8), "rope_parameters", "full_attention")
    refused(lambda: rotary(c, 8, layer_type="other"), "rope_parameters", "full_attention")


def test_the_older_key_wins_as_in_transformers():
    both = {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"type": "dynamic", "factor": 4.0}}
    assert rotary(fields(**both), 8).scaling == "linear"
    assert LlamaConfig(**SIZES, **both).rope_parameters["type"] == "linear"


def test_the_context_before_scaling_stands_in_the_parameters_or_beside_them():
    yarn = {"rope_type": "yarn", "factor": 4.0}
    assert rotary(fields(rope_scaling=yarn), 8).original_n_ctx == N_CTX
    inside = yarn | {"original_max_position_embeddings": 16}
    assert rotary(fields(rope_scaling=inside), 8).original_n_ctx == 16
    assert rotary(fields(rope_scaling=inside, original_max_position_embeddings=32), 8).original_n_ctx == 32
    assert rotary(fields(rope_scaling=yarn), 8, original=48).original_n_ctx == 48
    c = fields(original_max_position_embeddings=32)
    rotary(c, 8)
    c.done(known=SIZES)  # known where nothing is scaled, too, as in Phi-3's short models


def test_a_factor_that_is_left_out_is_the_ratio_of_the_contexts():
    su = {"type": "su", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    found = rotary(fields(rope_scaling=su, original_max_position_embeddings=16), 8)
    assert found.scaling == "longrope"
    assert found.attention_factor == pytest.approx((1 + 2 / 4) ** 0.5)  # √(1 + log 4 / log 16)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"rope_type": "mrope"}, ["'mrope'", "not supported", "llama3"]),
        ({"type": "ntk"}, ["'ntk'"]),
        ({"rope_type": ["linear"]}, ["['linear']"]),
        ({"rope_type": 3}, ["3"]),
        ({"rope_type": "linear"}, ["lack 'factor'"]),
        ({"rope_type": "linear", "factor": "2"}, ["factor must be a number", "'2'"]),
        ({"rope_type": "linear", "factor": True}, ["factor must be a number"]),
        ({"rope_type": "linear", "factor": float("inf")}, ["factor must be a number"]),
        ({"rope_type": "linear", "factor": 2.0, "beta_fast": 3}, ["'beta_fast'", "linear"]),
        ({"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0}, ["high_freq_factor"]),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": "no"}, ["truncate"]),
        ({"rope_type": "yarn", "original_max_position_embeddings": 1}, ["between 2 and 2^31"]),
        ({"rope_type": "yarn", "original_max_position_embeddings": 16.0}, ["between 2 and 2^31"]),
        ({"rope_type": "longrope", "factor": 2.0}, ["short_factor as a list"]),
        ({"rope_type": "longrope", "short_factor": ["1"], "long_factor": [1]}, ["short_factor as a list"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor 0.5", "only 1"]),
        ({"rope_theta": "1e6"}, ["rope_theta must be a number"]),
        ({"mrope_section": [2, 2]}, ["'mrope_section'"]),
        ("yarn", ["must be an object", "'yarn'"]),
    ],
)
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_what_is_not_understood_is_refused_by_name(key, given, named):
    refused(lambda: rotary(fields(**{key: given}), 8), *named)


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan"), "half"])
def test_a_share_that_is_none_is_refused(share):
    refused(lambda: rotary(fields(partial_rotary_factor=share), 8, share=0.5), "partial_rotary_factor")


odd_values = st.sampled_from(["x", [], {}, [1.0, 2.0], [None] * 2])
values = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | odd_values
keys = ["factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
        "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor", "short_factor", "long_factor",
        "rope_theta", "type"]  # fmt: skip
surprises = st.dictionaries(st.sampled_from(keys), values, max_size=4)


@settings(max_examples=150)
@given(usual=st.sampled_from(SCALINGS).flatmap(lambda kind: rope_parameters(4, [kind])), odd=surprises)
def test_whatever_the_parameters_are_they_are_used_or_refused(usual, odd):
    try:
        config = read_config({"model_type": "llama", "head_dim": 4, **SIZES, "rope_scaling": usual | odd})
    except LayerstepError:
        return
    for extent in (1, 10**6):
        assert inverse_frequencies(config.rotary, 4, extent, CPU).shape == (2,)


# -- angles that depend on the length of a pass ----------------------------------------------------------------


def scaled(kind: str) -> LlamaConfig:
    more = {"factor": 4.0} if kind == "dynamic" else {
        "factor": 4.0, "original_max_position_embeddings": 16,
        "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.5, 3.0, 6.0, 12.0],
    }  # fmt: skip
    rope = {"rope_type": kind, "rope_theta": 1e4, **more}
    return LlamaConfig(**SIZES | {"max_position_embeddings": 16}, head_dim=8, rope_parameters=rope)


@pytest.mark.parametrize(("kind", "start"), [("dynamic", 0), ("longrope", 0), ("longrope", 40)])
def test_a_split_on_one_side_of_the_threshold_is_the_full_pass(kind, start):
    ids, places = ids_for(scaled(kind), 12), list(range(start, start + 12))
    with saved(random_reference(scaled(kind))) as folder:
        model = load_model(folder, dtype="float64")
    whole = trace(model, ids, positions=places)
    parts = extend(model, extend(model, trace(model, ids[:5], positions=places[:5]), ids[5:6]), ids[6:])
    assert gap(parts["ln_final.normalized"], whole["ln_final.normalized"]) <= EXACT
    assert not any("angles" in notice for notice in parts.notices)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_split_across_the_threshold_is_transformers_cached_run_and_says_that_a_full_pass_differs(kind):
    config = scaled(kind)
    reference, ids = random_reference(config), ids_for(config, 20)
    with saved(reference) as folder:
        model = load_model(folder, dtype="float64")
    t = extend(model, trace(model, ids[:12]), ids[12:18])
    t = extend(model, t, ids[18:])
    cache = DynamicCache(config=config)
    with torch.no_grad():
        for cut in (slice(0, 12), slice(12, 18), slice(18, 20)):
            out = reference(torch.tensor([ids[cut]]), cache=cache, use_cache=True)
    assert gap(t.site("logits", 2), out.logits) <= FLOAT64
    assert gap(t["logits"], trace(model, ids)["logits"]) > 1e-3
    assert sum("turns by other angles beyond 16 positions" in notice for notice in t.notices) == 1


# -- heads, windows and kinds of layers ------------------------------------------------------------------------


def test_a_head_is_as_wide_as_is_said_or_as_its_share():
    assert d_head(fields(head_dim=7)) == 7
    assert d_head(fields(head_dim=None)) == d_head(fields()) == 20
    assert d_head(fields(head_dim=None), 128) == 20
    assert d_head(fields(), 128) == 128
    refused(lambda: d_head(fields(num_attention_heads=100)), "head_dim")


def test_key_value_heads_that_are_absent_are_the_familys_and_null_as_many_as_heads():
    bare = Fields({key: value for key, value in SIZES.items() if key != "num_key_value_heads"}, "here")
    assert (kv_heads(bare), kv_heads(bare, 8)) == (2, 8)
    assert kv_heads(fields(num_key_value_heads=None), 8) == 2
    assert kv_heads(fields(), 8) == 1


def test_a_window_of_null_or_0_is_none_and_absent_the_familys():  # E10
    assert window(fields(sliding_window=4), 9) == 4
    assert window(fields(sliding_window=None), 9) is None
    assert window(fields(sliding_window=0), 9) is None
    assert window(fields(), 9) == 9
    assert window(fields()) is None
    for width in (-1, False, 2.0, "4"):
        refused(lambda width=width: window(fields(sliding_window=width)), "sliding_window")


KINDS = {
    "full_attention": LayerKind(name="full", rotary=Rotary()),
    "sliding_attention": LayerKind(name="sliding", rotary=Rotary(), window=4),
}


def test_layers_of_several_kinds_and_of_one():
    mixed = layer_kinds(fields(), ["full_attention", "sliding_attention", "full_attention"], KINDS)
    assert mixed == {"kinds": tuple(KINDS.values()), "layer_kinds": ("full", "sliding", "full")}
    assert layer_kinds(fields(), ["sliding_attention"] * 3, KINDS) == {"window": 4, "rotary": Rotary()}
    refused(lambda: layer_kinds(fields(), ["chunked_attention"], KINDS), "chunked_attention", "full_attention")


def test_a_list_of_layer_types_wins_and_must_be_one():
    assert layer_types(fields(), 2, ["a", "b"]) == ["a", "b"]
    assert layer_types(fields(layer_types=["c", "c"]), 2, ["a", "b"]) == ["c", "c"]
    for names in (["c"], "cc", ["c", 1], {"c": "c"}):
        refused(lambda names=names: layer_types(fields(layer_types=names), 2, ["a", "b"]), "layer_types", "2 layers")


def test_what_a_config_holds_within_is_of_its_kind_too():
    small = {"name": "m", "d_vocab": 9, "d_model": 8, "n_layers": 1, "n_heads": 1, "d_head": 8, "d_mlp": 8, "n_ctx": 8}
    refused(lambda: ModelConfig.from_json(small | {"positions": "rotary", "rotary": {"theta": "x"}}), "theta must be")
    refused(lambda: ModelConfig.from_json(small | {"experts": {"n": 2, "per_token": 1.0, "d_expert": 4}}), "per_token")

"""ModernBERT beside transformers."""

import json

import pytest
import torch
from against import check_family, gap, ids_for, patterns, random_reference, run_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoModelForMaskedLM, ModernBertConfig

from engine import LayerstepError, load_model, trace

ROPES = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 16},
]  # fmt: skip


@st.composite
def modernberts(draw: st.DrawFn) -> ModernBertConfig:
    heads = draw(st.integers(1, 3))
    layers = draw(st.integers(1, 4))
    types = st.lists(st.sampled_from(["full_attention", "sliding_attention"]), min_size=layers, max_size=layers)
    return ModernBertConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=heads * draw(st.sampled_from([10, 14, 18])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=64,
        local_attention=draw(st.integers(2, 12)),
        layer_types=draw(st.none() | types),
        rope_parameters={
            "full_attention": draw(st.sampled_from(ROPES)) | {"rope_theta": draw(st.sampled_from([1.6e5, 8e4]))},
            "sliding_attention": draw(st.sampled_from(ROPES)) | {"rope_theta": 1e4},
        },
        hidden_activation=draw(st.sampled_from(["gelu", "silu", "gelu_new"])),
        classifier_activation=draw(st.sampled_from(["gelu", "silu", "relu"])),
        norm_eps=draw(st.sampled_from([1e-5, 1e-3])),
        norm_bias=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
        mlp_bias=draw(st.booleans()),
        decoder_bias=draw(st.booleans()),
        classifier_bias=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=25)
@given(config=modernberts(), seed=st.integers(0, 2**16), dtype=dtypes)
def test_modernbert_for_masked_tokens(config, seed, dtype):
    model = check_family(config, seed=seed, auto=AutoModelForMaskedLM, dtype=dtype, gain=1.0)
    assert model.config.predicts == "masked token"


@settings(max_examples=15)
@given(config=modernberts(), seed=st.integers(0, 2**16), dtype=dtypes)
def test_modernbert_as_a_stack(config, seed, dtype):
    model = check_family(config, seed=seed, auto=AutoModel, dtype=dtype, gain=1.0)
    assert model.config.predicts is None


def tiny(**fields) -> ModernBertConfig:
    given = {"vocab_size": 30, "hidden_size": 20, "intermediate_size": 16, "num_hidden_layers": 4,
             "num_attention_heads": 2, "max_position_embeddings": 64, "local_attention": 4, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}  # fmt: skip
    return ModernBertConfig(**given | fields)


def test_a_window_is_half_of_local_attention_to_either_side():
    reference = random_reference(tiny(), AutoModel)
    ids = ids_for(tiny(), 9)
    with saved(reference) as folder:
        model = load_model(folder, device="cpu", dtype="float64")
    t = trace(model, ids)
    seen = [(pattern[0, 0] > 0).sum(-1).tolist() for pattern in patterns(t)]
    assert seen == [[9] * 9, [3, 4, 5, 5, 5, 5, 5, 4, 3], [3, 4, 5, 5, 5, 5, 5, 4, 3], [9] * 9]
    for ours, theirs in zip(patterns(t), run_reference(reference, ids).attentions, strict=True):
        assert torch.equal(ours > 0, theirs > 0)


def test_positions_may_be_far_apart():
    far = tiny(local_attention=64)
    check_family(far, auto=AutoModelForMaskedLM, n=5, positions=[4000, 4001, 4003, 4010, 4020])


def test_the_first_spelling_of_thetas_and_layers_is_the_same():
    with saved(random_reference(tiny(), AutoModelForMaskedLM)) as folder:
        new = trace(load_model(folder, device="cpu", dtype="float64"), ids_for(tiny(), 9))["logits"]
        file = folder / "config.json"
        raw = json.loads(file.read_text())
        del raw["layer_types"], raw["rope_parameters"]
        old = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
               "reference_compile": None, "repad_logits_with_grad": False, "layer_norm_eps": 1e-5,
               "position_embedding_type": "absolute", "classifier_pooling": "mean"}  # fmt: skip
        file.write_text(json.dumps(raw | old))
        was = trace(load_model(folder, device="cpu", dtype="float64"), ids_for(tiny(), 9))["logits"]
    assert gap(was, new) == 0


def test_without_a_local_theta_all_layers_have_the_global_one():
    with saved(random_reference(tiny(), AutoModel)) as folder:
        change(folder, rope_parameters=None, global_rope_theta=8e4, local_rope_theta=None)
        kinds = load_model(folder, device="cpu").config.kinds
    assert [(kind.name, kind.rotary.theta) for kind in kinds] == [("full", 8e4), ("sliding", 8e4)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"layer_types": ["full_attention"] * 3}, "layer_types must name a kind for each of 4 layers"),
        ({"layer_types": ["chunked_attention"] * 4}, "layer_types has 'chunked_attention', which is not supported"),
        ({"local_attention": "128"}, "local_attention must be a number"),
        ({"local_attention": 0}, "local_attention must be a number between 1"),
        ({"layer_types": None, "global_attn_every_n_layers": 0}, "global_attn_every_n_layers must be a number"),
        ({"rope_parameters": {"full_attention": {"rope_type": "spiral"}}}, "'spiral', which is not supported"),
        ({"hidden_activation": "gelu_10"}, "hidden_activation 'gelu_10' is not supported"),
        ({"unpadding": True}, "'unpadding', which layerstep does not know for modernbert"),
    ],
)
def test_what_is_not_modernbert_is_refused_by_name(fields, said):
    with saved(random_reference(tiny(), AutoModel)) as folder:
        change(folder, **fields)
        with pytest.raises(LayerstepError, match=said):
            load_model(folder, device="cpu")


def change(folder, **fields):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))

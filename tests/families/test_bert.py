"""BERT beside transformers: as a stack and with its head, in every spelling of its files."""

import json

import pytest
import torch
from against import EXACT, check_family, gap, ids_for, random_reference, run_reference, saved, states
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, BertConfig, BertForPreTraining, BertForSequenceClassification

from engine import LayerstepError, load_model, trace

ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "silu", "swish"]


@st.composite
def berts(draw: st.DrawFn) -> BertConfig:
    heads = draw(st.integers(1, 4))
    return BertConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=heads * draw(st.sampled_from([10, 14, 18])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=heads,
        max_position_embeddings=draw(st.integers(9, 30)),
        type_vocab_size=draw(st.integers(1, 3)),
        hidden_act=draw(st.sampled_from(ACTIVATIONS)),
        layer_norm_eps=draw(st.sampled_from([1e-12, 1e-5, 1e-3])),
        tie_word_embeddings=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=25)
@given(config=berts(), seed=st.integers(0, 2**16), dtype=dtypes)
def test_bert_for_masked_tokens(config, seed, dtype):
    model = check_family(config, seed=seed, auto=AutoModelForMaskedLM, dtype=dtype, tolerance=EXACT, gain=1.2)
    assert model.config.predicts == "masked token"


@settings(max_examples=15)
@given(config=berts(), seed=st.integers(0, 2**16), dtype=dtypes)
def test_bert_as_a_stack(config, seed, dtype):
    model = check_family(config, seed=seed, auto=AutoModel, dtype=dtype, tolerance=EXACT, gain=1.2)
    assert model.config.predicts is None


def test_positions_may_be_given():
    config = BertConfig(vocab_size=30, hidden_size=24, intermediate_size=20, num_hidden_layers=2,
                        num_attention_heads=2, max_position_embeddings=64)  # fmt: skip
    check_family(config, auto=AutoModelForMaskedLM, tolerance=EXACT, n=5, positions=[63, 0, 7, 7, 40])


def tiny() -> BertConfig:
    return BertConfig(vocab_size=30, hidden_size=20, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                      max_position_embeddings=12)  # fmt: skip


def rewrite(folder, rename=lambda name: name, **more):
    """The folder's weights under other names, some with more tensors beside them."""
    file = folder / "model.safetensors"
    held = {rename(name): tensor.clone() for name, tensor in load_file(file).items()}
    save_file(held | more, file, metadata={"format": "pt"})


def gamma_and_beta(name):
    stem, _, kind = name.rpartition(".")
    return f"{stem}.{ {'weight': 'gamma', 'bias': 'beta'}[kind] }" if stem.endswith("LayerNorm") else name


@pytest.mark.parametrize("old_norms", [False, True], ids=["weight and bias", "gamma and beta"])
@pytest.mark.parametrize("prefixed", [False, True], ids=["bare", "bert."])
@pytest.mark.parametrize("buffer", [False, True], ids=["no buffer", "position_ids"])
def test_every_spelling_of_a_stack_is_the_same(old_norms, prefixed, buffer):  # L6
    reference = random_reference(tiny(), AutoModel)
    ids = ids_for(tiny(), 7)
    with saved(reference) as folder:
        rewrite(folder, (lambda name: gamma_and_beta(name)) if old_norms else str)
        rewrite(folder, (lambda name: f"bert.{name}") if prefixed else str)
        place = "bert.embeddings.position_ids" if prefixed else "embeddings.position_ids"
        rewrite(folder, **({place: torch.arange(12)[None]} if buffer else {}))
        model = load_model(folder, device="cpu", dtype="float64")
        ours, theirs = states(trace(model, ids)), run_reference(reference, ids).hidden_states
    assert all(gap(a, b) <= EXACT for a, b in zip(ours, theirs, strict=True))
    assert ("embeddings.position_ids" in model.report.ignored) == buffer
    assert model.report.ignored["pooler.dense.*"] == 2  # said, not silently left out


@pytest.mark.parametrize("second", [False, True], ids=["one bias", "the bias twice"])
def test_the_bias_of_the_head_may_stand_there_once_or_twice(second):
    reference = random_reference(tiny(), AutoModelForMaskedLM)
    ids = ids_for(tiny(), 7)
    with saved(reference) as folder:
        bias = load_file(folder / "model.safetensors")["cls.predictions.bias"]
        rewrite(folder, **({"cls.predictions.decoder.bias": bias} if second else {}))
        model = load_model(folder, device="cpu", dtype="float64")
    assert gap(trace(model, ids)["logits"], run_reference(reference, ids).logits) <= EXACT


def test_a_pretraining_file_has_the_head_and_its_pair_classifier_is_ignored():
    reference = BertForPreTraining(tiny()).double().eval()
    ids = ids_for(tiny(), 7)
    with saved(reference) as folder:
        model = load_model(folder, device="cpu", dtype="float64")
    assert gap(trace(model, ids)["logits"], reference(torch.tensor([ids])).prediction_logits.detach()) <= EXACT
    assert model.report.ignored["cls.seq_relationship.*"] == 2


def test_a_classifier_opens_as_the_stack_that_it_is():
    reference = BertForSequenceClassification(tiny()).double().eval()
    ids = ids_for(tiny(), 7)
    with saved(reference) as folder:
        model = load_model(folder, device="cpu", dtype="float64")
    theirs = reference(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1].detach()
    assert gap(states(trace(model, ids))[-1], theirs) <= EXACT
    assert model.config.predicts is None
    assert model.report.ignored["classifier.*"] == 2


def test_a_head_without_a_class_that_uses_it_is_ignored_and_said():
    with saved(random_reference(tiny(), AutoModelForMaskedLM)) as folder:
        change(folder, architectures=None)
        model = load_model(folder, device="cpu")
    assert model.config.predicts is None
    assert model.report.ignored["cls.predictions.bias"] == 1
    assert model.report.ignored["cls.predictions.transform.dense.weight"] == 1


def change(folder, **fields):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_type": None}, 'has no model_type, so its family is unknown; add it, e.g. "model_type": "bert"'),
        ({"is_decoder": True}, "is_decoder True is not supported"),
        ({"add_cross_attention": True}, "add_cross_attention True is not supported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key' is not supported"),
        ({"hidden_act": "mish"}, "hidden_act 'mish' is not supported; supported are gelu"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"hidden_size": 21}, "hidden size 21 is no multiple of its 2 attention heads"),
        ({"num_attention_heads": "2"}, "num_attention_heads must be a number"),
        ({"layer_norm_eps": "small"}, "norm_eps"),
        ({"type_vocab_size": -1}, "token_types is -1"),
        ({"max_position_embeddings": 11}, r"embeddings.position_embeddings.weight is \[12, 20\] in the file"),
        ({"architectures": ["BertForMaskedLM"]}, "'cls.predictions.transform.dense.weight' .* is missing"),
        ({"rotary_dim": 4}, "'rotary_dim', which layerstep does not know for bert"),
    ],
)
def test_what_is_not_bert_is_refused_by_name(fields, said):
    with saved(random_reference(tiny(), AutoModel)) as folder:
        change(folder, **fields)
        with pytest.raises(LayerstepError, match=said):
            load_model(folder, device="cpu")


def test_an_invented_tensor_is_refused():  # L6
    with saved(random_reference(tiny(), AutoModel)) as folder:
        rewrite(folder, **{"encoder.layer.0.attention.self.query.weight2": torch.ones(2)})
        with pytest.raises(LayerstepError, match=r"query\.weight2"):
            load_model(folder, device="cpu")


def test_keys_of_published_files_are_known():
    old = {
        "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128, "pooler_type": "first_token_transform", "gradient_checkpointing": False,
        "position_embedding_type": "absolute", "classifier_dropout": None, "torch_dtype": "float32",
        "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity",
        "language": "english", "name": "Bert", "output_past": True, "pruned_heads": {}, "is_decoder": False,
    }  # fmt: skip
    with saved(random_reference(tiny(), AutoModel)) as folder:
        change(folder, **old)
        assert load_model(folder, device="cpu").config.name == folder.name

"""DistilBERT beside transformers."""

import json

import pytest
import torch
from against import EXACT, check_family, gap, ids_for, random_reference, run_reference, saved, states
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoModelForMaskedLM, DistilBertConfig

from engine import LayerstepError, load_model, trace


@st.composite
def distilberts(draw: st.DrawFn) -> DistilBertConfig:
    heads = draw(st.integers(1, 4))
    return DistilBertConfig(
        vocab_size=draw(st.integers(20, 50)),
        dim=heads * draw(st.sampled_from([10, 14, 18])),
        hidden_dim=draw(st.integers(8, 40)),
        n_layers=draw(st.integers(1, 3)),
        n_heads=heads,
        max_position_embeddings=draw(st.integers(9, 30)),
        sinusoidal_pos_embds=draw(st.booleans()),
        activation=draw(st.sampled_from(["gelu", "relu", "gelu_new", "silu"])),
        tie_word_embeddings=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=25)
@given(config=distilberts(), seed=st.integers(0, 2**16), dtype=dtypes)
def test_distilbert_for_masked_tokens(config, seed, dtype):
    model = check_family(config, seed=seed, auto=AutoModelForMaskedLM, dtype=dtype, tolerance=EXACT, gain=1.2)
    assert model.config.predicts == "masked token"


@settings(max_examples=15)
@given(config=distilberts(), seed=st.integers(0, 2**16), dtype=dtypes)
def test_distilbert_as_a_stack(config, seed, dtype):
    model = check_family(config, seed=seed, auto=AutoModel, dtype=dtype, tolerance=EXACT, gain=1.2)
    assert model.config.predicts is None


def tiny(**fields) -> DistilBertConfig:
    return DistilBertConfig(vocab_size=30, dim=20, hidden_dim=16, n_layers=2, n_heads=2, max_position_embeddings=12,
                            **fields)  # fmt: skip


def test_a_sinusoidal_table_is_what_the_file_holds():
    torch.manual_seed(0)
    reference = AutoModel.from_config(tiny(sinusoidal_pos_embds=True), attn_implementation="eager").double().eval()
    ids = ids_for(tiny(), 7)
    with saved(reference) as folder:
        model = load_model(folder, device="cpu", dtype="float64")
    assert model.config.positions == "learned"
    assert torch.equal(model.weights["pos_embed.weight"][0, :4].float(), torch.tensor([0.0, 1.0, 0.0, 1.0]))
    theirs = run_reference(reference, ids).hidden_states[-1]
    assert gap(states(trace(model, ids))[-1], theirs) <= 1e-6  # the file is float32


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"activation": "tanh"}, "activation 'tanh' is not supported"),
        ({"n_heads": 3}, "hidden size 20 is no multiple of its 3 attention heads"),
        ({"dim": None}, "config.json lacks 'dim'"),
        ({"hidden_dim": 17}, r"ffn.lin1.weight is \[16, 20\] in the file, but the config asks for \[17, 20\]"),
        ({"norm": "rms"}, "'norm', which layerstep does not know for distilbert"),
    ],
)
def test_what_is_not_distilbert_is_refused_by_name(fields, said):
    with saved(random_reference(tiny(), AutoModel)) as folder:
        change(folder, **fields)
        with pytest.raises(LayerstepError, match=said):
            load_model(folder, device="cpu")


def test_keys_of_published_files_are_known():
    with saved(random_reference(tiny(), AutoModelForMaskedLM)) as folder:
        change(folder, tie_weights_=True, output_past=True, finetuning_task="sst-2", qa_dropout=0.1)
        assert load_model(folder, device="cpu").config.predicts == "masked token"


def change(folder, **fields):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))

"""RoBERTa, XLM-RoBERTa and CamemBERT beside transformers."""

import json

import pytest
import torch
from against import EXACT, check_family, gap, ids_for, random_reference, run_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, CamembertConfig, RobertaConfig, XLMRobertaConfig

from engine import LayerstepError, load_model, trace
from engine.errors import PromptError

ACTIVATIONS = ["gelu", "gelu_new", "relu", "silu"]


@st.composite
def robertas(draw: st.DrawFn, kind: type) -> RobertaConfig:
    heads = draw(st.integers(1, 4))
    pad = draw(st.integers(0, 5))
    return kind(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=heads * draw(st.sampled_from([10, 14, 18])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=heads,
        max_position_embeddings=draw(st.integers(pad + 10, 40)),
        type_vocab_size=draw(st.integers(1, 2)),
        hidden_act=draw(st.sampled_from(ACTIVATIONS)),
        layer_norm_eps=draw(st.sampled_from([1e-12, 1e-5])),
        tie_word_embeddings=draw(st.booleans()),
        pad_token_id=pad,
        bos_token_id=0,
        eos_token_id=2,
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@pytest.mark.parametrize("kind", [RobertaConfig, XLMRobertaConfig, CamembertConfig])
@pytest.mark.parametrize("auto", [AutoModelForMaskedLM, AutoModel])
def test_roberta(kind, auto):
    @settings(max_examples=20)
    @given(config=robertas(kind), seed=st.integers(0, 2**16), dtype=dtypes)
    def check(config, seed, dtype):
        model = check_family(config, seed=seed, auto=auto, dtype=dtype, tolerance=EXACT, gain=1.2)
        assert model.config.predicts == ("masked token" if auto is AutoModelForMaskedLM else None)

    check()


def tiny(**fields) -> RobertaConfig:
    return RobertaConfig(vocab_size=30, hidden_size=20, intermediate_size=16, num_hidden_layers=1,
                         num_attention_heads=2, max_position_embeddings=12, **fields)  # fmt: skip


def test_the_first_positions_belong_to_the_padding():
    with saved(random_reference(tiny(), AutoModel)) as folder:
        model = load_model(folder, device="cpu", dtype="float64")
    assert (model.config.position_offset, model.config.n_ctx) == (2, 10)
    table = model.weights["pos_embed.weight"]
    assert torch.equal(trace(model, [5, 6, 7])["pos_embed"][0], table[2:5])
    with pytest.raises(PromptError, match=r"has 11 tokens, but .* has only 10 positions"):
        trace(model, [5] * 11)


@pytest.mark.parametrize("kept", ["lm_head.bias", "lm_head.decoder.bias"])
def test_either_name_of_the_last_bias_will_do(kept):
    reference = random_reference(tiny(), AutoModelForMaskedLM)
    ids = ids_for(tiny(), 7)
    with saved(reference) as folder:
        file = folder / "model.safetensors"
        held = load_file(file)
        bias = held.pop("lm_head.bias")
        save_file({**held, kept: bias}, file, metadata={"format": "pt"})
        model = load_model(folder, device="cpu", dtype="float64")
    assert gap(trace(model, ids)["logits"], run_reference(reference, ids).logits) <= EXACT


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pad_token_id": None, "max_position_embeddings": 2}, "leaves no position behind the padding's, which is 1"),
        ({"pad_token_id": -1}, "pad_token_id must be a token id"),
        ({"pad_token_id": "1"}, "pad_token_id must be a token id"),
        ({"is_decoder": True}, "is_decoder True is not supported"),
        ({"position_embedding_type": "relative_key_query"}, "position_embedding_type"),
        ({"adapter_rank": 4}, "'adapter_rank', which layerstep does not know for roberta"),
    ],
)
def test_what_is_not_roberta_is_refused_by_name(fields, said):
    with saved(random_reference(tiny(), AutoModel)) as folder:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))
        with pytest.raises(LayerstepError, match=said):
            load_model(folder, device="cpu")

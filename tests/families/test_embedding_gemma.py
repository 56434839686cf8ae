"""EmbeddingGemma as sentence-transformers keeps it: a stack that looks both ways, a mean, two linear maps, length 1."""

import json
from pathlib import Path

import pytest
import torch
from against import EXACT, FLOAT64, assert_checks_hold, gap, ids_for, random_reference, run_reference, saved
from safetensors.torch import load_file, save_file
from spellings import read_config
from test_gemma3 import gemma3
from transformers import AutoModel

from engine import LayerstepError, load_model, trace
from engine.checkpoints.lookup import find

KINDS = ["Transformer", "Pooling", "Dense", "Dense", "Normalize"]
IDENTITY = "torch.nn.modules.linear.Identity"
SIZES = ((20, 50), (50, 20))


def dense_weights():
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(d_out, d_in, dtype=torch.float64, generator=draw) for d_in, d_out in SIZES]


def add_modules(folder: Path, kinds=KINDS, **changes):
    """The files that sentence-transformers writes beside a transformer's; ``changes`` are of the first Dense's."""
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    weights = iter(dense_weights())
    for module in modules[1:]:
        place = folder / module["path"]
        place.mkdir()
        if module["path"].endswith("Pooling"):
            (place / "config.json").write_text(json.dumps({"word_embedding_dimension": 20, "include_prompt": True}))
        if module["path"].endswith("Dense"):
            weight = next(weights)
            fields = {"in_features": weight.shape[1], "out_features": weight.shape[0], "bias": False}
            fields |= {"activation_function": IDENTITY, "module_output_name": None} | (
                changes if module["idx"] == 2 else {}
            )
            (place / "config.json").write_text(json.dumps(fields))
            save_file({"linear.weight": weight}, place / "model.safetensors")


@pytest.fixture
def embedder(tmp_path):
    """transformers' stack, and its folder with the names that the bare model is published under."""
    config = gemma3(use_bidirectional_attention=True, num_hidden_layers=6, sliding_window=4)
    reference = random_reference(config, AutoModel)
    with saved(reference, torch.float64) as folder:
        (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
        tensors = load_file(folder / "model.safetensors")
    assert "layers.0.input_layernorm.weight" in tensors  # not model.layers, as in EmbeddingGemma's file
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path, reference


@torch.no_grad()
def test_the_sentence_vector_is_pooled_mapped_twice_and_of_length_1(embedder):
    folder, reference = embedder
    add_modules(folder)
    model, ids = load_model(folder, device="cpu"), ids_for(reference.config, 9)
    t = trace(model, ids)
    mean = run_reference(reference, ids).last_hidden_state.mean(1)
    mapped = mean @ dense_weights()[0].T @ dense_weights()[1].T
    assert gap(t["pooled"], mean) <= FLOAT64
    assert gap(t["pooled_dense.1"], mapped) <= FLOAT64
    assert gap(t["sentence"], mapped / mapped.norm()) <= FLOAT64
    assert_checks_hold(t)
    padded = trace(model, [ids[:4], ids], padding="left")
    assert gap(padded["sentence"][0], trace(model, ids[:4])["sentence"][0]) <= EXACT


def test_dense_weights_are_mapped_and_counted(embedder):
    folder, _ = embedder
    add_modules(folder)
    found = find(folder)
    assert found.open().mapped("2_Dense/linear.weight")
    assert found.bytes == sum(file.stat().st_size for file in folder.rglob("*.safetensors"))


def test_without_modules_it_is_the_stack_alone(embedder):
    model = load_model(embedder[0], device="cpu")
    assert (model.config.pooling, model.config.predicts) == ("none", None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"activation_function": "torch.nn.modules.activation.Tanh"}, "activation_function 'torch.nn.modules.activati"),
        ({"bias": True}, "2_Dense/config.json has bias True; supported here is False"),
        ({"in_features": 24}, "has in_features 24; supported here is 20"),
        ({"out_features": "50"}, "out_features between 1 and 2.31, but has '50'"),
        ({"out_features": 51}, "3_Dense/config.json has in_features 50; supported here is 51"),
        ({"module_input_name": "token_embeddings"}, "has module_input_name 'token_embeddings'; supported here is sent"),
        ({"init_weight": 1}, "has 'init_weight', which layerstep does not know"),
    ],
)
def test_a_dense_module_that_is_not_understood_is_refused_by_name(embedder, changes, said):
    folder, _ = embedder
    add_modules(folder, **changes)
    with pytest.raises(LayerstepError, match=said):
        load_model(folder, device="cpu")


@pytest.mark.parametrize("kinds", [[*KINDS[:2], "Normalize", "Dense"], ["Transformer", "Dense", "Pooling"], KINDS[1:2]])
def test_modules_in_another_order_are_refused(embedder, kinds):
    folder, _ = embedder
    add_modules(folder, kinds)
    with pytest.raises(LayerstepError, match="they must be Transformer, Pooling, Dense, Normalize"):
        load_model(folder, device="cpu")


def test_a_dense_weight_of_another_shape_is_refused(embedder):
    folder, _ = embedder
    add_modules(folder)
    save_file({"linear.weight": torch.ones(50, 21)}, folder / "2_Dense" / "model.safetensors")
    with pytest.raises(LayerstepError, match=r"2_Dense/linear.weight is \[50, 21\] in the file, but the config asks"):
        load_model(folder, device="cpu")


def test_a_dense_file_that_is_missing_or_leads_out_is_refused(embedder):
    folder, _ = embedder
    add_modules(folder)
    file, outside = folder / "2_Dense" / "model.safetensors", folder.parent / "outside.safetensors"
    file.rename(outside)
    with pytest.raises(LayerstepError, match=r"has no 2_Dense/model\.safetensors; the download is incomplete"):
        load_model(folder, device="cpu")
    file.symlink_to(outside)
    with pytest.raises(LayerstepError, match="leads out of the model folder"):
        load_model(folder, device="cpu")
    outside.unlink()


def test_a_published_config_opens_in_its_own_spelling():
    layers = (["sliding_attention"] * 5 + ["full_attention"]) * 4
    read = read_config(
        {
            "_sliding_window_pattern": 6, "architectures": ["Gemma3TextModel"], "attention_bias": False,
            "attention_dropout": 0.0, "attn_logit_softcapping": None, "bos_token_id": 2, "dtype": "float32",
            "eos_token_id": 1, "final_logit_softcapping": None, "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 768, "initializer_range": 0.02,
            "intermediate_size": 1152, "layer_types": layers, "max_position_embeddings": 2048,
            "model_type": "gemma3_text", "num_attention_heads": 3, "num_hidden_layers": 24, "num_key_value_heads": 1,
            "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0,
            "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 512, "transformers_version": "4.57.0.dev0",
            "use_bidirectional_attention": True, "use_cache": True, "vocab_size": 262144,
        }
    )  # fmt: skip
    assert (read.causal, read.head, read.kind(0).window, read.kind(5).window) == (False, "none", 257, None)
    assert (read.kind(0).rotary.theta, read.kind(5).rotary.theta) == (1e4, 1e6)

"""Gemma 3, its multimodal folders, and EmbeddingGemma's stack, beside transformers."""

import json

import pytest
import torch
import transformers
from against import (
    EXACT,
    FLOAT64,
    assert_equal_outputs,
    check_family,
    gap,
    ids_for,
    random_reference,
    run_reference,
    saved,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from spellings import assert_refused, read_config
from transformers import Gemma3TextConfig

from engine import load_model, trace
from engine.ops.rotary import inverse_frequencies

CONFIG = {
    "model_type": "gemma3_text", "vocab_size": 40, "hidden_size": 20, "intermediate_size": 32, "num_hidden_layers": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "sliding_window": 4, "query_pre_attn_scalar": 6,
}  # fmt: skip
LINEAR = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
SLIDING, FULL = "sliding_attention", "full_attention"


def gemma3(**changes) -> Gemma3TextConfig:
    return Gemma3TextConfig(**{key: value for key, value in CONFIG.items() if key != "model_type"} | changes)


@st.composite
def gemma3s(draw: st.DrawFn) -> Gemma3TextConfig:
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    layers = draw(st.integers(1, 3))
    local = draw(st.sampled_from([{"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0}]))
    far = draw(
        st.sampled_from(
            [
                {"rope_type": "default"},
                {"rope_type": "linear", "factor": 8.0},
                {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
            ]
        )
    )
    return gemma3(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * draw(st.sampled_from([10, 14, 18])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=layers,
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=draw(st.sampled_from([6, 8, 10])),
        hidden_activation=draw(st.sampled_from(["gelu_pytorch_tanh", "silu"])),
        max_position_embeddings=64,
        rope_parameters={FULL: {"rope_theta": 1e6, **far}, SLIDING: {"rope_theta": 1e4, **local}},
        tie_word_embeddings=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
        query_pre_attn_scalar=draw(st.sampled_from([10, 24, 256])),
        sliding_window=draw(st.integers(1, 12)),
        layer_types=draw(st.none() | st.lists(st.sampled_from([SLIDING, FULL]), min_size=layers, max_size=layers)),
        final_logit_softcapping=draw(st.sampled_from([None, 1.0, 30.0])),
    )


@settings(max_examples=40)
@given(
    config=gemma3s(),
    seed=st.integers(0, 2**16),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    positions=st.sampled_from([None, None, range(12, 21), range(4096, 4105)]),
)
def test_gemma3(config, seed, dtype, positions):
    # norms after sub-layers bring their rounding to full size
    check_family(config, seed=seed, dtype=dtype, positions=positions)


@settings(max_examples=40)
@given(config=gemma3s(), window=st.integers(1, 8), seed=st.integers(0, 2**16))
def test_looking_both_ways(config, window, seed):
    """EmbeddingGemma's stack: no causal mask, and half of the window on each side."""
    config.use_bidirectional_attention = True
    config.sliding_window = window + 1  # as the config class makes it of 2 · window
    model = check_family(config, seed=seed, auto=transformers.AutoModel)
    assert model.config.predicts is None
    assert not model.config.causal


def test_half_of_the_window_lies_on_each_side():
    reference = random_reference(gemma3(use_bidirectional_attention=True, num_hidden_layers=1), transformers.AutoModel)
    with saved(reference) as folder:
        assert json.loads((folder / "config.json").read_text())["sliding_window"] == 4
        t = trace(load_model(folder, device="cpu"), list(range(9)))
    assert t.config.window == 3
    expected = (torch.arange(9)[:, None] - torch.arange(9)).abs() < 3
    assert torch.equal(t["blocks.0.attn.pattern"][0, 0] > 0, expected)
    assert torch.equal(run_reference(reference, range(9)).attentions[0][0, 0] > 0, expected)


# E7: local layers θ = 1e4 unscaled, global layers θ = 1e6 with a linear factor of 8


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_theta": 1e6, "rope_local_base_freq": 1e4},
        {"rope_scaling": {"type": "linear", "factor": 8.0}},
        {"rope_parameters": LINEAR},
        {
            "rope_parameters": {FULL: {"rope_type": "linear", "factor": 8.0}, SLIDING: {"rope_type": "default"}},
            "rope_scaling": None, "rope_theta": 1_000_000, "rope_local_base_freq": 10_000,
        },
    ],
)  # fmt: skip
def test_each_layer_turns_by_its_own_theta_and_scale(spelling):
    d = 256
    read = read_config(CONFIG | {"hidden_size": 640, "head_dim": d} | spelling)
    assert [read.layer_kinds[i] for i in range(8)] == ["sliding"] * 5 + ["full"] + ["sliding"] * 2
    pairs = torch.arange(0, d, 2, dtype=torch.float64) / d
    for layer in range(8):
        angle = 4096 * inverse_frequencies(read.kind(layer).rotary, d, 4097, torch.device("cpu"))
        expected = 4096 / 8 * 1e6**-pairs if layer == 5 else 4096 * 1e4**-pairs
        torch.testing.assert_close(angle.double(), expected, rtol=1e-6, atol=0)


def test_at_position_4096_layers_equal_transformers_and_name_their_own_theta():
    config = gemma3(rope_parameters=LINEAR)
    reference, ids = random_reference(config), ids_for(config, 9)
    with saved(reference) as folder:
        t = trace(load_model(folder, device="cpu", dtype="float64"), ids, positions=range(4096, 4105))
    assert_equal_outputs(t, run_reference(reference, ids, range(4096, 4105)), FLOAT64)
    told = [t.program.step(f"blocks.{layer}.attn.rot_q").op.rotary for layer in (4, 5)]
    assert [(rotary.theta, rotary.scaling, rotary.factor) for rotary in told] == [(1e4, "none", 1), (1e6, "linear", 8)]


# the multimodal folder


@pytest.fixture(scope="module")
def multimodal(tmp_path_factory):
    """transformers' multimodal model and its folder."""
    config = transformers.Gemma3Config(
        text_config=gemma3(rope_parameters=LINEAR).to_dict(),
        vision_config={
            "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14, "vision_use_head": False,
        },
        mm_tokens_per_image=1, image_token_index=39, boi_token_index=38, eoi_token_index=37,
    )  # fmt: skip
    reference = random_reference(config, transformers.AutoModelForImageTextToText)
    folder = tmp_path_factory.mktemp("multimodal")
    reference.save_pretrained(folder)
    return reference, folder


def respelled(folder, to, rename=str, drop=(), **changes):
    """A copy of a folder with other names of tensors and other keys in its config."""
    raw = json.loads((folder / "config.json").read_text()) | changes
    (to / "config.json").write_text(json.dumps({key: value for key, value in raw.items() if key not in drop}))
    tensors = load_file(folder / "model.safetensors")
    save_file({rename(name): tensor for name, tensor in tensors.items()}, to / "model.safetensors")
    return to


def test_a_multimodal_folder_opens_as_its_text_model(multimodal):
    reference, folder = multimodal
    model = load_model(folder, device="cpu")
    t = trace(model, range(9))
    assert_equal_outputs(t, run_reference(reference, range(9)), FLOAT64)
    assert "ignored vision_tower.* (21 tensors)" in model.report.lines
    assert "ignored multi_modal_projector.* (2 tensors)" in model.report.lines


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: "model." + name.replace("language_model.model.", "language_model."),  # transformers 5's modules
        lambda name: name.replace("vision_tower.", "vision_tower.vision_model."),  # transformers 4
    ],
)
def test_either_spelling_of_the_parts_is_the_same_model(multimodal, tmp_path, rename):
    _, folder = multimodal
    other = load_model(respelled(folder, tmp_path, rename), device="cpu")
    assert gap(trace(other, range(9))["logits"], trace(load_model(folder, device="cpu"), range(9))["logits"]) <= EXACT


def test_tied_may_stand_in_the_text_config_alone(multimodal, tmp_path):  # L1 (c)
    _, folder = multimodal
    model = load_model(respelled(folder, tmp_path, drop=["tie_word_embeddings"]), device="cpu")
    assert "unembed.weight" not in model.weights
    assert model.report.tied == "unembedding is the embedding matrix (tied)"


def test_an_untied_multimodal_head_is_found(multimodal, tmp_path):
    _, folder = multimodal
    text = json.loads((folder / "config.json").read_text())["text_config"] | {"tie_word_embeddings": False}
    to = respelled(folder, tmp_path, text_config=text)
    tensors = load_file(to / "model.safetensors")
    head = torch.randn(40, 20, dtype=torch.float64)
    save_file(tensors | {"language_model.lm_head.weight": head}, to / "model.safetensors")
    assert torch.equal(load_model(to, device="cpu").weights["unembed.weight"], head)


def test_a_published_multimodal_config_says_little_and_the_rest_are_the_familys_defaults():
    read = read_config(
        {
            "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
            "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
            "mm_tokens_per_image": 256, "model_type": "gemma3",
            "text_config": {
                "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
            },
            "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
            "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
        }
    )  # fmt: skip
    theirs = Gemma3TextConfig()
    assert (read.d_vocab, read.n_ctx) == (theirs.vocab_size, theirs.max_position_embeddings)
    assert (read.n_heads, read.kv_heads, read.d_head) == (8, 4, 256)
    assert [i for i in range(34) if read.kind(i).window is None] == [5, 11, 17, 23, 29]
    assert (read.kind(0).window, read.tied, read.eos_token_id) == (1024, True, 1)


def test_the_shape_of_the_270m_model():  # L5
    config = gemma3(hidden_size=640, num_attention_heads=4, num_key_value_heads=1, head_dim=256, num_hidden_layers=1)
    with saved(random_reference(config)) as folder:
        model = load_model(folder, device="cpu")
    assert tuple(model.weights["blocks.0.attn.q.weight"].shape) == (1024, 640)
    assert tuple(model.weights["blocks.0.attn.k_norm.weight"].shape) == (256,)
    assert model.config.attn_scale == 6**-0.5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0 is not supported"),
        ({"final_logit_softcapping": 0}, "final_logit_softcapping must be a number above 0"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention 'all' is not supported"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 8.0}}, "an object for sliding_attention and one for"),
        ({"rope_parameters": {FULL: {"rope_type": "spiral"}}}, "asks for 'spiral', which is not supported"),
        ({"rope_parameters": [8.0]}, "rope_parameters must hold an object"),
        ({"sliding_window_pattern": 0}, "sliding_window_pattern must be a number between 1 and 2^31"),
        ({"num_hidden_layers": 2**31}, "num_hidden_layers must be a number between 1 and 4096"),
        ({"query_pre_attn_scalar": None, "head_dim": "six"}, "head_dim must be a number"),
        ({"vision_config": {}}, "has 'vision_config', which layerstep does not know for gemma3_text"),
        ({"model_type": "gemma3"}, "config.json lacks 'text_config'"),
        ({"model_type": "gemma3", "text_config": 3}, "text_config must be an object"),
        ({"model_type": "gemma3", "text_config": CONFIG}, "config.json has 'head_dim', which layerstep does not know"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change, said):
    assert_refused(CONFIG | change, said)

"""gpt-oss beside transformers, unquantised and in MXFP4."""

import json

import pytest
import torch
from against import ids_for, random_reference, run_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from mixtures import check_mixture
from rotaries import N_CTX, places, rope_parameters, starts
from safetensors.torch import load_file, save_file
from spellings import assert_refused, read_config
from transformers import GptOssConfig
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from engine import load_model, trace
from engine.checkpoints.mxfp4 import dequantised
from engine.errors import LayerstepError

CONFIG = {
    "model_type": "gpt_oss", "vocab_size": 40, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_local_experts": 3, "num_experts_per_tok": 2,
    "sliding_window": 4, "swiglu_limit": 1.5,
}  # fmt: skip
SLIDING, FULL = "sliding_attention", "full_attention"


def gpt_oss(**changes) -> GptOssConfig:
    config = GptOssConfig(**{key: value for key, value in CONFIG.items() if key != "model_type"} | changes)
    config._experts_implementation = "eager"  # the grouped kernel has no float64
    return config


@st.composite
def gpt_osses(draw: st.DrawFn) -> GptOssConfig:
    kv_heads, group, experts = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    layers, head = draw(st.integers(1, 3)), draw(st.sampled_from([6, 8, 10]))
    either = st.sampled_from([SLIDING, FULL])
    return gpt_oss(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * draw(st.sampled_from([10, 14])),
        intermediate_size=draw(st.integers(5, 30)),
        num_hidden_layers=layers,
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=head,
        max_position_embeddings=N_CTX,
        rope_parameters=draw(st.none() | rope_parameters(head, ["default", "yarn"], theta=150_000.0)),
        sliding_window=draw(st.integers(1, 12)),
        layer_types=draw(st.none() | st.lists(either, min_size=layers, max_size=layers)),
        num_local_experts=experts,
        num_experts_per_tok=draw(st.integers(1, experts)),
        swiglu_limit=draw(st.sampled_from([0.3, 1.5, 7.0])),
        attention_bias=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=gpt_osses(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_gpt_oss(config, seed, dtype, start):
    check_mixture(config, seed, dtype, places(start))


def test_a_sink_takes_weight_that_no_key_gets():
    reference, ids = random_reference(gpt_oss()), list(range(9))
    with saved(reference) as folder:
        t = trace(load_model(folder, device="cpu", dtype="float64"), ids)
    masked, sinks = t["blocks.0.attn.masked"], reference.model.layers[0].self_attn.sinks
    whole = torch.cat((masked, sinks[:, None, None].expand(1, 4, 9, 1)), -1).softmax(-1)
    pattern = t["blocks.0.attn.pattern"]
    torch.testing.assert_close(pattern, whole[..., :-1], rtol=0, atol=1e-12)
    torch.testing.assert_close(1 - pattern.sum(-1), whole[..., -1], rtol=0, atol=1e-12)


# MXFP4


@pytest.mark.parametrize("shape", [(2, 6, 3, 16), (1, 5, 1, 16)])
def test_dequantised_is_what_transformers_makes_of_it(shape):
    draw = torch.Generator().manual_seed(0)
    blocks = torch.randint(256, shape, dtype=torch.uint8, generator=draw)
    scales = torch.randint(60, 190, shape[:-1], dtype=torch.uint8, generator=draw)
    theirs = convert_moe_packed_tensors(blocks, scales)
    assert torch.equal(dequantised(blocks, scales).transpose(1, 2), theirs)


def test_every_code_and_every_scale_is_its_number():
    """Against the format's own words: a sign, two bits of exponent with bias 1, one of mantissa; 2^(scale − 127)."""
    codes = torch.arange(16, dtype=torch.uint8).view(1, 16)  # the low half of each byte; the high one is 0
    for scale in range(255):
        ours = dequantised(codes, torch.tensor([scale], dtype=torch.uint8))
        for code, value in enumerate(ours[::2].tolist()):
            exponent, mantissa = (code >> 1) & 3, code & 1
            size = mantissa * 0.5 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
            exact = (-size if code & 8 else size) * 2.0 ** (scale - 127)
            assert value == torch.tensor(exact, dtype=torch.float64).bfloat16().item()


@pytest.fixture
def packed(tmp_path):
    """A folder in MXFP4, and transformers' model with the same numbers."""
    reference = random_reference(gpt_oss())
    with saved(reference, torch.bfloat16) as folder:
        tensors = load_file(folder / "model.safetensors")
        raw = json.loads((folder / "config.json").read_text())
    draw = torch.Generator().manual_seed(1)
    for layer in range(2):
        for name, rows, blocks in (("gate_up_proj", 64, 2), ("down_proj", 64, 1)):
            stem = f"model.layers.{layer}.mlp.experts.{name}"
            packed = torch.randint(256, (3, rows, blocks, 16), dtype=torch.uint8, generator=draw)
            scales = torch.randint(122, 126, (3, rows, blocks), dtype=torch.uint8, generator=draw)
            numbers = convert_moe_packed_tensors(packed, scales)
            assert numbers.shape == tensors.pop(stem).shape
            tensors |= {f"{stem}_blocks": packed, f"{stem}_scales": scales}
            getattr(reference.model.layers[layer].mlp.experts, name).data = numbers.double()
    raw["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path, reference


def test_a_published_folder_opens_dequantised(packed):
    folder, reference = packed
    ids = ids_for(reference.config, 9)
    model = load_model(folder, device="cpu")
    assert model.dtype is torch.bfloat16
    assert "dequantised 4 tensors from MXFP4 to bfloat16" in model.report.lines
    t = trace(load_model(folder, device="cpu", dtype="float64"), ids)
    torch.testing.assert_close(t["logits"], run_reference(reference, ids).logits, rtol=0, atol=2e-5)


def test_experts_are_views_of_what_was_dequantised_once(packed):
    weights = load_model(packed[0], device="cpu").weights
    held = {
        weights[f"blocks.0.mlp.experts.{e}.{part}.weight"].untyped_storage().data_ptr()
        for e in range(3)
        for part in ("gate", "up")
    }
    assert len(held) == 1


def test_blocks_and_scales_that_do_not_fit_are_refused(packed):
    folder, _ = packed
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.experts.down_proj_scales"
    for wrong in (tensors[name][:, :-1].clone(), tensors[name].short()):
        save_file(tensors | {name: wrong}, folder / "model.safetensors")
        with pytest.raises(LayerstepError, match="MXFP4 has uint8"):
            load_model(folder, device="cpu")


def test_blocks_without_scales_are_a_tensor_that_is_missing(packed):
    folder, _ = packed
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.experts.down_proj_scales"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(LayerstepError, match=r"tensor 'model.layers.1.mlp.experts.down_proj' \[3, 32, 64\] is missing"):
        load_model(folder, device="cpu")


def test_a_published_config_opens_in_its_own_spelling():
    read = read_config(
        {
            "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
            "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
            "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
            "intermediate_size": 2880, "layer_types": [SLIDING, FULL] * 12, "max_position_embeddings": 131072,
            "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
            "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": False,
            "pad_token_id": 199999,
            "quantization_config": {
                "modules_to_not_convert": ["model.layers.*.self_attn", "model.embed_tokens", "lm_head"],
                "quant_method": "mxfp4",
            },
            "rms_norm_eps": 1e-05,
            "rope_scaling": {
                "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                "rope_type": "yarn", "truncate": False,
            },
            "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
            "tie_word_embeddings": False, "transformers_version": "4.55.0.dev0", "use_cache": True,
            "vocab_size": 201088,
        }
    )  # fmt: skip
    assert (read.experts.n, read.experts.per_token, read.experts.clamp) == (32, 4, 7.0)
    assert [read.kind(layer).window for layer in range(4)] == [128, None, 128, None]
    assert (read.kind(0).rotary.scaling, read.kind(0).rotary.truncate) == ("yarn", False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "gpt_oss's quantization_config asks for 'bitsand"),
        ({"quantization_config": "mxfp4.json"}, "quantization_config asks for 'mxfp4.json'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"swiglu_alpha": 1.5}, "swiglu_alpha 1.5 is not supported"),
        ({"swiglu_limit": 0}, "swiglu_limit must be a number above 0"),
        ({"num_experts_per_tok": 9}, "experts per_token is 9; it must be between 1 and 3"),
        ({"num_local_experts": "many"}, "num_local_experts must be a number"),
        ({"layer_types": [FULL, "chunked_attention"]}, "chunked_attention"),
        ({"num_shared_experts": 1}, "which layerstep does not know for gpt_oss"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change, said):
    assert_refused(CONFIG | change, said)
